"""A load of clients that ask a server, each with its own connection and one request at a time.

All clients run in one thread over plain sockets, so that the servers get most of two cores.
"""

from __future__ import annotations

import re
import select
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import cycle
from typing import Final

from benchmarks.servers.server import HEADERS, ServerError

TIMEOUT_S: Final = 30.0
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@dataclass(slots=True)
class _Client:
    """One connection, its pending request, and what came of the answer."""

    connection: socket.socket
    target: str = ""
    sent_s: float = 0.0
    answer: bytearray = field(default_factory=bytearray)


class LookupLoad:
    """Clients of one server; a context manager that closes their connections.

    Args:
        port: The server's.
        connections: Number of clients.
        expected: The body of the answer to each target that is asked, as sent.
    """

    def __init__(self, port: int, connections: int, expected: Mapping[str, bytes]) -> None:
        headers = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
        tail = f" HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n"
        self._requests = {target: f"GET {target}{tail}".encode() for target in expected}
        self._expected = expected
        self._targets = cycle(expected)
        self._clients: dict[int, _Client] = {}
        self._poll = select.epoll()
        for _ in range(connections):
            connection = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._clients[connection.fileno()] = _Client(connection)
            self._poll.register(connection, select.EPOLLIN)

    def __enter__(self) -> LookupLoad:
        return self

    def __exit__(self, *_: object) -> None:
        self._poll.close()
        for client in self._clients.values():
            client.connection.close()

    def run(self, duration_s: float) -> list[float]:
        """Ask for some time; return the seconds of each request.

        Raises:
            ServerError: An answer is another one, late, or a connection was closed.
        """
        latencies: list[float] = []
        began = time.perf_counter()
        for client in self._clients.values():
            self._ask(client)
        waiting = len(self._clients)
        while waiting:
            ready = self._poll.poll(TIMEOUT_S)
            if not ready:
                raise ServerError(f"{waiting} requests got no answer within {TIMEOUT_S:g} s")
            for number, _ in ready:
                client = self._clients[number]
                if not self._is_answered(client):
                    continue
                now = time.perf_counter()
                latencies.append(now - client.sent_s)
                if now - began < duration_s:
                    self._ask(client)
                else:
                    waiting -= 1
        return latencies

    def _ask(self, client: _Client) -> None:
        client.target = next(self._targets)
        client.answer.clear()
        client.sent_s = time.perf_counter()
        client.connection.sendall(self._requests[client.target])

    def _is_answered(self, client: _Client) -> bool:
        """Read from the socket; return whether the answer is complete."""
        piece = client.connection.recv(1 << 16)
        client.answer += piece
        head, end, body = client.answer.partition(b"\r\n\r\n")
        length = _LENGTH.search(head) if end else None
        if length is not None and len(body) >= int(length[1]):
            if head.startswith(b"HTTP/1.1 200") and body == self._expected[client.target]:
                return True
            raise ServerError(f"{client.target} was answered with {bytes(client.answer[:300])!r}")
        if not piece:
            raise ServerError(f"a connection was closed after {bytes(client.answer[:300])!r}")
        return False
