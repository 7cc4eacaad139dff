"""Raw HTTP over a socket: requests as bytes, answers parsed, truncated ones detected."""

from __future__ import annotations

import gzip
import socket
from dataclasses import dataclass, field, replace

from tests.kit.concurrency.patience import PATIENCE_S


class HalfAnswerError(AssertionError):
    """The connection ended within an answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer; header names are in lower case, ``body`` is decoded.

    ``request_id``, which differs from answer to answer, isn't among the headers.
    """

    status: int
    headers: dict[str, str]
    body: bytes
    request_id: str = field(default="", compare=False)


class RawConnection:
    """A TCP connection to a local server."""

    def __init__(self, port: int, own_address: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S, (own_address, 0))
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
        """Return the next answer, or ``None`` if the connection ended before it.

        Raises:
            HalfAnswerError: The connection ended within the answer.
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
        """Return all answers until the server ends the connection; none may be truncated."""
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
        """Send bytes; stop without error if the server closes the connection."""
        try:
            self.socket.sendall(data)
        except (ConnectionResetError, BrokenPipeError):
            return

    def end_of_requests(self) -> None:
        """Shut down the sending side."""
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
    """Return the answer at the start of ``data`` and the rest; ``None`` if it is incomplete."""
    taken = take_sent(data, to_head=to_head)
    if taken is None:
        return None
    answer, rest = taken
    if answer.body and answer.headers.get("content-encoding") == "gzip":
        answer = replace(answer, body=gzip.decompress(answer.body))
    return answer, rest


def take_sent(data: bytes, *, to_head: bool = False) -> tuple[Answer, bytes] | None:
    """As ``take``, with the body as it was sent."""
    head, blank, rest = data.partition(b"\r\n\r\n")
    if not blank:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    version, status, *_ = first.split(" ")
    assert version == "HTTP/1.1", data[:200]
    if status == "100":  # the answer comes after it
        return take_sent(rest, to_head=to_head)
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
    request_id = headers.pop("x-request-id", "")
    return Answer(int(status), headers, body, request_id), rest


def _chunks(data: bytes) -> tuple[bytes | None, bytes]:
    """Return a chunked body and the rest; the body is ``None`` if it is incomplete."""
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
