"""A load of clients that create markers, each with its own connection and one request at a time.

All clients run in one thread over plain sockets, so that the server gets most of two cores: of a
request only the name is formatted each time, and of an answer only the end is parsed.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final
from urllib.parse import quote

from benchmarks.servers.server import HEADERS, ServerError

TIMEOUT_S: Final = 30.0
"""A request that takes longer counts as timed out; Hudi's clients wait 300 s."""

PARTITIONS: Final = 1200


@dataclass(slots=True)
class Outcome:
    """The outcome of a load.

    Attributes:
        wall_s: Seconds from the first request to the last answer.
        latencies_s: Seconds of each request.
        acknowledged: Markers that were answered with ``true``.
        timed_out: Number of requests that weren't answered in ``TIMEOUT_S``.
    """

    wall_s: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    acknowledged: set[str] = field(default_factory=set)
    timed_out: int = 0

    def percentile_ms(self, percent: float) -> float:
        """Return a percentile of the latencies."""
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] * 1000


@dataclass(slots=True)
class _Client:
    """One connection and its pending request."""

    connection: socket.socket
    name: str = ""
    sent_s: float = 0.0
    answer: bytes = b""


def names(instant: str) -> Iterator[str]:
    """Yield marker names like those of a bulk insert into ``PARTITIONS`` partitions."""
    for number in count():
        file = f"{number:08x}-5a1d-4c39-9f0b-2b6f3f0c7d11-0_{number}-17-{number}_{instant}.parquet"
        yield f"day={number % PARTITIONS:04d}/{file}.marker.CREATE"


class MarkerLoad:
    """Clients of one server; a context manager that closes their connections."""

    def __init__(self, port: int, connections: int) -> None:
        self._clients = {}
        self._poll = select.epoll()
        for _ in range(connections):
            connection = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._clients[connection.fileno()] = _Client(connection)
            self._poll.register(connection, select.EPOLLIN)

    def __enter__(self) -> MarkerLoad:
        return self

    def __exit__(self, *_: object) -> None:
        self._poll.close()
        for client in self._clients.values():
            client.connection.close()

    def run(self, directory: str, named: Iterator[str], duration_s: float) -> Outcome:
        """Create markers for some time; each client sends its next request after an answer.

        Raises:
            ServerError: An answer isn't 200 and ``true``, or a connection was closed.
        """
        headers = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
        tail = f" HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}Content-Length: 0\r\n\r\n".encode()
        path = f"/v1/hoodie/marker/create?markerdirpath={quote(directory, safe='')}&markername="
        head = f"POST {path}".encode()

        def ask(client: _Client) -> None:
            client.name, client.answer = next(named), b""
            request = head + quote(client.name, safe="").encode() + tail
            client.sent_s = time.perf_counter()
            client.connection.sendall(request)

        outcome = Outcome()
        began = time.perf_counter()
        for client in self._clients.values():
            ask(client)
        waiting = len(self._clients)
        now = began
        while waiting and now - began < duration_s + TIMEOUT_S:
            for number, _ in self._poll.poll(1.0):
                client = self._clients[number]
                if not _is_answered(client):
                    continue
                now = time.perf_counter()
                outcome.wall_s = now - began
                _book(client, now, outcome)
                if outcome.wall_s < duration_s:
                    ask(client)
                else:
                    waiting -= 1
            now = time.perf_counter()
        outcome.timed_out += waiting
        return outcome


def _book(client: _Client, now: float, outcome: Outcome) -> None:
    latency_s = now - client.sent_s
    outcome.latencies_s.append(latency_s)
    outcome.acknowledged.add(client.name)
    outcome.timed_out += latency_s > TIMEOUT_S


def _is_answered(client: _Client) -> bool:
    """Read from the socket; return whether the answer (200, ``true``) is complete."""
    piece = client.connection.recv(65536)
    client.answer += piece
    head, end, body = client.answer.partition(b"\r\n\r\n")
    chunked = b"chunked" in head.lower()
    if end and (body.endswith(b"\r\n0\r\n\r\n") if chunked else len(body) >= len(b"true")):
        if head.startswith(b"HTTP/1.1 200") and b"true" in body:
            return True
        raise ServerError(f"a marker was answered with {client.answer!r}")
    if not piece:
        raise ServerError(f"a connection was closed after {client.answer!r}")
    return False
