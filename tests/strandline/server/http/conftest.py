"""Fixtures of the HTTP server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.server.http.server import ServiceServer
from tests.strandline.server.http.limited_server import limited


@pytest.fixture(scope="module")
def usual() -> Iterator[ServiceServer]:
    with limited() as server:
        yield server
