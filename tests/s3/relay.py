"""``Relay``: an HTTP server in this process that passes each request on to another server.

A request reaches the other server only once all of it has come, and is then carried out even if its
client has died. Conditional overwrites (``PUT`` with ``If-Match``) are passed on one at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

_PER_CONNECTION = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})
"""Headers of an answer that the relay sets itself."""


class Answer(NamedTuple):
    """An answer of the other server: its status, headers and body."""

    status: int
    headers: HTTPMessage
    body: bytes


class Relay(ThreadingHTTPServer):
    """The server; a thread for each connection.

    Args:
        port: Where the other server listens, on the loopback address.
        watch: Called before each request is passed on, and again before it is answered; by one
            thread at a time.
    """

    daemon_threads = True

    def __init__(self, port: int, watch: Callable[[], None]) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.port = port
        self._watch = watch
        self._watching = threading.Lock()
        self._overwriting = threading.Lock()

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def pass_on(self, send: Callable[[], Answer], *, is_conditional_overwrite: bool) -> Answer:
        """Pass a request on; return the answer."""
        self._look()
        if is_conditional_overwrite:
            with self._overwriting:
                answer = send()
        else:
            answer = send()
        self._look()
        return answer

    def _look(self) -> None:
        with self._watching:
            self._watch()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Close the connection of a client that has died; the other server's answer is dropped."""


class _Connection(BaseHTTPRequestHandler):
    """A client's connection, and the one to the other server that it is relayed to."""

    protocol_version = "HTTP/1.1"
    server: Relay

    def setup(self) -> None:
        super().setup()
        self._other = HTTPConnection("127.0.0.1", self.server.port)

    def finish(self) -> None:
        with suppress(OSError):  # the client has died
            super().finish()
        self._other.close()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def _relay(self) -> None:
        body = self._body()
        if body is None:
            self.close_connection = True
            return
        overwrites = self.command == "PUT" and "If-Match" in self.headers
        answer = self.server.pass_on(lambda: self._send(body), is_conditional_overwrite=overwrites)
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in _PER_CONNECTION:
                self.send_header(name, value)
        length = answer.headers["Content-Length"] if self.command == "HEAD" else len(answer.body)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(answer.body)

    def __getattr__(self, name: str) -> Callable[[], None]:
        """Return the handler of any method: ``http.server`` looks for ``do_GET`` and so on."""
        if name.startswith("do_"):
            return self._relay
        raise AttributeError(name)

    def _body(self) -> bytes | None:
        """Return the request's body; ``None`` if the client has died while it sent it."""
        assert "Transfer-Encoding" not in self.headers
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        return body if len(body) == length else None

    def _send(self, body: bytes) -> Answer:
        self._other.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() != "expect":  # answered already
                self._other.putheader(name, value)
        self._other.endheaders(body or None)
        found = self._other.getresponse()
        return Answer(found.status, found.headers, found.read())


@contextmanager
def relay_to(port: int, watch: Callable[[], None]) -> Iterator[Relay]:
    """Run a relay to a port of the loopback address within the block."""
    with Relay(port, watch) as relay:
        thread = threading.Thread(target=relay.serve_forever, daemon=True)
        thread.start()
        try:
            yield relay
        finally:
            relay.shutdown()
            thread.join()
