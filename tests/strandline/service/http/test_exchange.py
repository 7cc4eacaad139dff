"""``Exchange``: what is answered in place of an application that fails."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from strandline.service.http.exchange import Exchange, Scope


class Written:
    """An outlet that keeps what is written."""

    def __init__(self) -> None:
        self.written = b""

    async def writable(self) -> None:
        raise AssertionError("the application sends nothing")

    def write(self, data: bytes) -> None:
        self.written += data

    def refused(self, scope: Scope, status: int, message: str) -> None:
        assert status == 500

    def exchange_over(self, exchange: Exchange, *, whole: bool) -> None:
        assert whole


async def fails(*_: Any) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("accept", ["application/json", "text/plain"])
def test_an_unforeseen_error_is_answered_in_the_form_that_is_accepted(accept: str) -> None:
    outlet = Written()
    scope = {"path": "/", "method": "GET", "headers": [(b"accept", accept.encode())]}
    asyncio.run(Exchange(outlet, scope, keep_alive=True).run(fails))
    head, _, body = outlet.written.partition(b"\r\n\r\n")
    assert f"content-type: {accept}".encode() in head
    message = json.loads(body)["title"] if accept == "application/json" else body.decode()
    assert message == "Internal server error"
