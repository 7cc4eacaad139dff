"""Clients that create markers, each one after the other on a connection of its own, as tasks do.

All run in one thread over plain sockets, so that of two cores the servers get most: a request is
made beforehand but for its name, and of an answer only its end is looked for.
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

from benchmarks.servers import HEADERS, ServerError

TIMEOUT_S: Final = 30.0
"""A request that takes longer counts as timed out; a client of Hudi's waits 300 s."""

PARTITIONS: Final = 1200


@dataclass(slots=True)
class Outcome:
    """What became of the requests.

    Attributes:
        wall_s: From the first request to the last answer.
        latencies_s: Of each answer.
        acknowledged: The markers that were answered ``true``.
        timed_out: Requests that weren't answered in ``TIMEOUT_S``.
    """

    wall_s: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    acknowledged: set[str] = field(default_factory=set)
    timed_out: int = 0

    def percentile_ms(self, percent: float) -> float:
        """Return the latency that so many percent of the answers don't exceed."""
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] * 1000


@dataclass(slots=True)
class _Client:
    """One connection and the request that is under way on it."""

    connection: socket.socket
    name: str = ""
    sent_s: float = 0.0
    answer: bytes = b""


def names(instant: str) -> Iterator[str]:
    """Yield markers as a bulk insert names them, in as many partitions as one may have."""
    for number in count():
        file = f"{number:08x}-5a1d-4c39-9f0b-2b6f3f0c7d11-0_{number}-17-{number}_{instant}.parquet"
        yield f"day={number % PARTITIONS:04d}/{file}.marker.CREATE"


class MarkerLoad:
    """Some clients of one server; a context that closes their connections."""

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
        """Create markers for so long, each client its next one when it has its answer.

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
    """Read what came; return whether the answer is whole: 200, and ``true`` for its body."""
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
