"""``WsgiBridge``: what an application on a thread hears of its client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from strandline.service.http.wsgi_bridge import LEFT, Scope, WsgiBridge

SCOPE = {
    "method": "GET",
    "path": "/",
    "query_string": b"",
    "http_version": "1.1",
    "headers": [],
}


class InParts:
    """A WSGI application whose second part takes until it is let go."""

    def __init__(self) -> None:
        self.began, self.go = threading.Event(), threading.Event()
        self.has_left: Callable[[], bool]

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterator[bytes]:
        self.has_left = environ[LEFT]
        start("200 OK", [])
        return self._parts()

    def _parts(self) -> Iterator[bytes]:
        yield b"first"
        self.began.set()
        assert self.go.wait(60)
        yield b"second"


def test_an_answer_in_parts_hears_that_its_client_has_left() -> None:
    """It would go on with a part of any length, and hold its table's thread."""

    async def play() -> None:
        app = InParts()
        bridge = WsgiBridge(app, 1)
        sent: list[Scope] = []

        async def send(message: Scope) -> None:
            sent.append(message)

        async def receive() -> Scope:
            raise AssertionError("no body is read")

        answering = asyncio.ensure_future(bridge(dict(SCOPE), receive, send))
        while not app.began.is_set():
            await asyncio.sleep(0)
        assert not app.has_left()
        answering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await answering
        try:
            assert [message.get("body") for message in sent] == [None, b"first"]
            assert app.has_left()
        finally:
            app.go.set()
            bridge.close()

    asyncio.run(play())
