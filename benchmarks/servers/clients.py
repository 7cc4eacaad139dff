"""Clients that ask servers, each with its own connection and one request at a time.

All of them run in one thread over plain sockets, so that the servers get most of two cores.
"""

from __future__ import annotations

import re
import select
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from benchmarks.servers.server import HEADERS, ServerError

TIMEOUT_S: Final = 30.0
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_OK: Final = b"HTTP/1.1 200"


@dataclass(slots=True)
class Client:
    """One connection, and its request.

    Attributes:
        connection: The connection.
        port: The server's.
        target: What it asked for last.
        sent_s: When, by ``time.perf_counter``.
        body: The answer, once ``answered`` yields the client.
    """

    connection: socket.socket
    port: int
    target: str = ""
    sent_s: float = 0.0
    body: bytes = b""
    received: bytearray = field(default_factory=bytearray)

    def ask(self, target: str) -> None:
        """Send a request, after the answer to the last one."""
        self.target = target
        self.received.clear()
        self.sent_s = time.perf_counter()
        self.connection.sendall(_request(target))


class Clients:
    """Clients of some servers; a context manager that closes their connections.

    Args:
        ports: The server of each client.
    """

    def __init__(self, *ports: int) -> None:
        self._clients: dict[int, Client] = {}
        self._poll = select.epoll()
        for port in ports:
            connection = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._clients[connection.fileno()] = Client(connection, port)
            self._poll.register(connection, select.EPOLLIN)

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, *_: object) -> None:
        self._poll.close()
        for client in self._clients.values():
            client.connection.close()

    def __iter__(self) -> Iterator[Client]:
        return iter(self._clients.values())

    def answered(self) -> Iterator[Client]:
        """Wait until something comes; yield the clients whose answers are complete now.

        Raises:
            ServerError: An answer isn't 200, is late, or a connection was closed.
        """
        ready = self._poll.poll(TIMEOUT_S)
        if not ready:
            raise ServerError(f"requests got no answer within {TIMEOUT_S:g} s")
        for number, _ in ready:
            client = self._clients[number]
            if _is_answered(client):
                yield client


@lru_cache(4096)
def _request(target: str) -> bytes:
    headers = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
    return f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n".encode()


def _is_answered(client: Client) -> bool:
    """Read from the socket; return whether the answer is complete."""
    piece = client.connection.recv(1 << 16)
    client.received += piece
    head, end, body = client.received.partition(b"\r\n\r\n")
    length = _LENGTH.search(head) if end else None
    if length is not None and len(body) >= int(length[1]):
        if not head.startswith(_OK):
            raise ServerError(f"{client.target} was answered with {bytes(client.received[:300])!r}")
        client.body = bytes(body)
        return True
    if not piece:
        raise ServerError(f"a connection was closed after {bytes(client.received[:300])!r}")
    return False
