"""A relay between a client and a service: passes every byte on, and notes what was asked.

Requests of one connection follow one another, as Hudi's clients send them: each is read whole, then
its answer. Where the service can't be reached or hangs up, the relay hangs up on the client, so its
port stays the same however often the service dies.
"""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import IO
from urllib.parse import parse_qsl, urlsplit

OK = 200


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and what became of it; ``status`` is ``None`` when no whole answer came."""

    method: str
    target: str
    status: int | None

    @property
    def path(self) -> str:
        """The path, without a slash at its end."""
        return urlsplit(self.target).path.rstrip("/")

    @property
    def params(self) -> dict[str, str]:
        """The parameters of the query."""
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))


Before = Callable[[Exchange], None]
"""Called with each request (status ``None``) before the service gets it, in its own thread."""


class RecordingRelay:
    """Listens on 127.0.0.1 and relays to ``upstream``; a context manager.

    Attributes:
        upstream: Port of the service; may be changed.
        before: What to do before a request is passed on; may be changed.
    """

    def __init__(self, upstream: int, before: Before | None = None) -> None:
        self.upstream = upstream
        self.before = before
        self._lock = threading.Lock()
        self._seen: list[Exchange] = []
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._stopped = False

    @property
    def port(self) -> int:
        """The port for clients."""
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> RecordingRelay:
        threading.Thread(target=self._accept, name="relay", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._stopped = True
        _hang_up(self._listener)
        self.hang_up()

    def hang_up(self) -> None:
        """End every client's connection, as a service that dies does."""
        with self._lock:
            ending, self._open = self._open, []
        for peer in ending:
            _hang_up(peer)

    @property
    def exchanges(self) -> list[Exchange]:
        """All that was asked, in the order of the answers."""
        with self._lock:
            return list(self._seen)

    @contextmanager
    def recording(self) -> Iterator[list[Exchange]]:
        """Yield a list that holds, at the end, what was asked meanwhile."""
        found: list[Exchange] = []
        start = len(self.exchanges)
        yield found
        found.extend(self.exchanges[start:])

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._keep(client):
                threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _keep(self, peer: socket.socket) -> bool:
        """Note a socket for the end; return whether that hasn't come yet."""
        with self._lock:
            if self._stopped:
                peer.close()
                return False
            self._open.append(peer)
            return True

    def _relay(self, client: socket.socket) -> None:
        """Relay one client's connection, over one of our own."""
        with ExitStack() as ending:
            ending.enter_context(client)
            asked = ending.enter_context(client.makefile("rb"))
            service: _Service | None = None
            try:
                while request := _message(asked):
                    method, target, _ = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
                    answer = b""
                    try:
                        if self.before is not None:
                            self.before(Exchange(method, target, None))
                        if service is None:
                            service = ending.enter_context(_Service(self.upstream))
                        answer = service.ask(request, bodiless=method == "HEAD")
                    finally:
                        self._note(method, target, answer)
                    client.sendall(answer)
            except OSError:
                return  # somebody hung up, or nobody listens: the client learns it by our end

    def _note(self, method: str, target: str, answer: bytes) -> None:
        status = int(answer.split(b" ", 2)[1]) if answer else None
        with self._lock:
            self._seen.append(Exchange(method, target, status))


class _Service:
    """A connection to the service."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._answers = self._socket.makefile("rb")

    def __enter__(self) -> _Service:
        return self

    def __exit__(self, *_: object) -> None:
        self._answers.close()
        self._socket.close()

    def ask(self, request: bytes, *, bodiless: bool) -> bytes:
        """Return the whole answer.

        Raises:
            OSError: There is none.
        """
        self._socket.sendall(request)
        return _whole(_message(self._answers, bodiless=bodiless))


def _message(stream: IO[bytes], *, bodiless: bool = False) -> bytes:
    """Read a whole request or response; empty when the stream ends in between.

    Raises:
        ConnectionError: It ends in the midst of one.
    """
    lines = [stream.readline()]
    if not lines[0]:
        return b""
    while lines[-1] not in (b"\r\n", b"\n"):
        lines.append(_whole(stream.readline()))
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(b":") for line in lines[1:-1])
    }
    head = b"".join(lines)
    if bodiless:
        return head
    if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
        return head + b"".join(_chunks(stream))
    return head + _exactly(stream, int(headers.get(b"content-length", b"0")))


def _chunks(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield a chunked body as it came, the end of it included."""
    while True:
        line = _whole(stream.readline())
        size = int(line.split(b";")[0], 16)
        yield line
        # The last chunk is followed by trailers, of which our service has none, and an empty line.
        yield _exactly(stream, size + 2)
        if size == 0:
            return


def _exactly(stream: IO[bytes], size: int) -> bytes:
    parts = []
    while size:
        part = _whole(stream.read(size))
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _whole(part: bytes) -> bytes:
    if not part:
        raise ConnectionError("the other side hung up in the midst of a message")
    return part


def _hang_up(peer: socket.socket) -> None:
    with suppress(OSError):  # it is closed already
        peer.shutdown(socket.SHUT_RDWR)
    peer.close()


def asked(exchanges: Iterable[Exchange]) -> Counter[str]:
    """Return how often each route was asked, by the end of its path after ``/v1/hoodie/``."""
    return Counter(one.path.removeprefix("/v1/hoodie/") for one in exchanges)
