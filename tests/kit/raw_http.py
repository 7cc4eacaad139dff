"""HTTP as bytes: requests of any shape out, whole answers in, half ones told from none."""

from __future__ import annotations

import gzip
import socket
from dataclasses import dataclass
from typing import Final

WAIT_S: Final = 60
"""Until an answer that never comes fails a test; no answer takes so long."""


class HalfAnswerError(AssertionError):
    """The connection ended in the midst of an answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer; ``headers`` by lower-case name, ``body`` as it is meant."""

    status: int
    headers: dict[str, str]
    body: bytes


class RawConnection:
    """A bare connection to a server of this machine."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self._left = b""

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, request: bytes) -> Answer:
        """Send a request and return its answer."""
        self.socket.sendall(request)
        answer = self.answer()
        assert answer is not None, f"the connection ended before {request[:200]!r} was answered"
        return answer

    def answer(self, *, to_head: bool = False) -> Answer | None:
        """Return the next answer, or ``None`` if the connection has ended before it began.

        Raises:
            HalfAnswerError: It ended in its midst.
        """
        while True:
            taken = take(self._left, to_head=to_head)
            if taken is not None:
                answer, self._left = taken
                return answer
            if not self._receive():
                if self._left:
                    raise HalfAnswerError(f"{len(self._left)} bytes: {self._left[:300]!r}")
                return None

    def answers(self) -> list[Answer]:
        """Return all whole answers until the server ends the connection; none may be half."""
        found = []
        while (answer := self.answer()) is not None:
            found.append(answer)
        return found

    def rest(self) -> bytes:
        """Return the bytes until the server ends the connection."""
        while self._receive():
            pass
        return self._left

    def send_what_is_taken(self, data: bytes) -> None:
        """Send bytes until the server has had enough of them."""
        try:
            self.socket.sendall(data)
        except (ConnectionResetError, BrokenPipeError):
            return

    def end_of_requests(self) -> None:
        """Say that nothing more comes."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:  # the server has ended it
            return

    def _receive(self) -> bool:
        try:
            data = self.socket.recv(1 << 16)
        except (ConnectionResetError, BrokenPipeError):
            return False
        self._left += data
        return bool(data)


def take(data: bytes, *, to_head: bool = False) -> tuple[Answer, bytes] | None:
    """Return the answer with which ``data`` begins and what follows it; ``None``: not whole yet."""
    head, blank, rest = data.partition(b"\r\n\r\n")
    if not blank:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    version, status, *_ = first.split(" ")
    assert version == "HTTP/1.1", data[:200]
    headers = {}
    for line in lines:
        name, _, value = line.partition(": ")
        headers[name.lower()] = value
    body: bytes | None = b""
    if to_head or int(status) in (204, 304):
        pass
    elif headers.get("transfer-encoding") == "chunked":
        body, rest = _chunks(rest)
    else:
        length = int(headers["content-length"])
        body, rest = (rest[:length], rest[length:]) if len(rest) >= length else (None, rest)
    if body is None:
        return None
    if body and headers.get("content-encoding") == "gzip":
        body = gzip.decompress(body)
    return Answer(int(status), headers, body), rest


def _chunks(data: bytes) -> tuple[bytes | None, bytes]:
    """Return a chunked body and what follows it; ``None`` for the body: not whole yet."""
    body = b""
    while True:
        size, newline, rest = data.partition(b"\r\n")
        length = int(size, 16) if newline else 0
        if not newline or len(rest) < length + 2:
            return None, data
        body, data = body + rest[:length], rest[length + 2 :]
        if length == 0:
            return body, data


def request(
    target: str, *lines: str, method: str = "GET", token: str | None = None, body: bytes = b""
) -> bytes:
    """Return a request's bytes; ``lines`` are header lines."""
    said = [f"{method} {target} HTTP/1.1", "Host: h", *lines]
    if token is not None:
        said.append(f"Authorization: Bearer {token}")
    if body:
        said.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*said, "", ""]).encode("latin-1") + body
