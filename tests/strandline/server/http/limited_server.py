"""Servers with low limits, and what their connections are doing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

from strandline.server.http.connection_registry import (
    ConnectionRegistry,
)
from strandline.server.http.limits import Limits
from strandline.server.http.reply import Reply
from strandline.server.http.request import Application, Request
from strandline.server.http.server import ServiceServer
from strandline.server.process.composition_root import Parts
from strandline.server.table_threads import TableThreads
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.live_service import TOKEN, GoldenTables, HttpClient, serving
from tests.kit.servers.raw_http import Answer, RawConnection, request
from tests.kit.tables import golden
from timeline.storage.base import FileInfo

TABLES = GoldenTables()
GREETING = request("/", token=TOKEN)
LATEST = "/v1/hoodie/view/slices/partition/latest/"
LOOK_UP = f"{LATEST}?{urlencode(TABLES.known('cow_basic_v9', 7, partition='2024-01-01'))}"
SLOW = f"{LATEST}?basepath=/golden/t&partition=2024-01-01&refreshoff=true"
SHORT_S = 0.05
"""A limit of time that a test waits for to be over."""


@contextmanager
def limited(*, keep_alive_s: float = 120, **limits: Any) -> Iterator[ServiceServer]:
    """Run a service with some limits."""
    with serving(
        TABLES.root, opener=TABLES, limits=Limits(**limits), keep_alive_s=keep_alive_s
    ) as server:
        yield server


def registry_of(parts: Parts, app: Application, limits: Limits) -> ConnectionRegistry:
    """Return a registry of connections like a service's, but for another application."""
    threads = TableThreads("requests", 1)
    return ConnectionRegistry(app, threads, parts.hot, parts.admission, limits, 120, parts.refusals)


def connections(server: ServiceServer) -> dict[str, int]:
    """Return the server's counts of its connections."""
    with HttpClient(server.port) as client:
        counted: dict[str, int] = json.loads(client.ask("GET", "/v1/strandline/status", {})[1])[
            "connections"
        ]
    return counted


def refused(server: ServiceServer, data: bytes) -> Answer:
    """Send bytes, return the one answer to them, after which the connection ends."""
    with RawConnection(server.port) as raw:
        raw.send_what_is_taken(data)
        answer = raw.answer()
        assert answer is not None
        assert answer.headers["connection"] == "close"
        assert raw.rest() == b""
    return answer


def answers(server: ServiceServer, data: bytes) -> list[Answer]:
    """Send bytes on a connection of their own; return the answers until the server ends it.

    On a busy machine it may end as a silent one before the bytes come: then again.
    """
    while True:
        with RawConnection(server.port) as raw:
            raw.send_what_is_taken(data)
            if found := raw.answers():
                return found


class Endless:
    """An application whose answers have no end; counts their parts of 64 KiB."""

    def __init__(self) -> None:
        self.parts = 0

    async def __call__(self, request: Request) -> Reply:
        return Reply(200, b"", rest=self._endless())

    def _endless(self) -> Iterator[bytes]:
        while True:
            self.parts += 1
            yield b"x" * (1 << 16)


class Blocked(golden.GoldenStorage):
    """Lists a partition when it is let go."""

    def __init__(self, path: str, began: threading.Event, go: threading.Event) -> None:
        super().__init__("cow_basic_v9", 7, path)
        self._began, self._go = began, go

    def list(self, path: str) -> tuple[FileInfo, ...]:
        if path == "2024-01-01":
            self._began.set()
            assert self._go.wait(PATIENCE_S)
        return super().list(path)


def asked(server: ServiceServer) -> Mapping[str, int]:
    """Return how many requests of each route were answered by the app."""
    requests: Mapping[str, int] = server.parts.status()["requests"]
    return requests
