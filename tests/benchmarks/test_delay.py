"""The proxy of the benchmarks: it relays unchanged, logs every request and delays it."""

from __future__ import annotations

import http.client
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from logging import ERROR, LogRecord
from pathlib import Path

import pytest

from benchmarks.object_store.delay import ServerFailedError, delayed, running
from benchmarks.object_store.s3_server import _Monotonic, answered_s

pytestmark = pytest.mark.property


class Echo(BaseHTTPRequestHandler):
    """Answers with the method and the body of each request."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.do_PUT()

    def do_HEAD(self) -> None:
        self.do_PUT()

    def do_PUT(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size + 2)[:-2]
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        content = self.command.encode() + body
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *_: object) -> None:
        """Log nothing."""


@contextmanager
def echo() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def asked(connection: http.client.HTTPConnection, *request: object, **more: object) -> bytes:
    connection.request(*request, **more)
    return connection.getresponse().read()


def test_requests_pass_unchanged_on_one_connection_and_are_logged(tmp_path: Path) -> None:
    large = b"x" * 1_000_000
    with echo() as endpoint, delayed(endpoint, 0.02, tmp_path / "log") as proxy:
        connection = http.client.HTTPConnection(proxy.endpoint.removeprefix("http://"))
        assert asked(connection, "GET", "/a%20b?c=d", headers={"User-Agent": "us"}) == b"GET"
        assert asked(connection, "HEAD", "/") == b""
        assert asked(connection, "PUT", "/", large) == b"PUT" + large
        assert asked(connection, "PUT", "/", iter([b"ab", b"c"]), encode_chunked=True) == b"PUTabc"
        connection.close()
        found = proxy.requests()
    assert [(each.method, each.target, each.status) for each in found] == [
        ("GET", "/a b?c=d", 200),
        ("HEAD", "/", 200),
        ("PUT", "/", 200),
        ("PUT", "/", 200),
    ]
    assert found[0].agent == "us"
    assert all(each.ended_s - each.started_s >= 0.02 for each in found)


def test_a_server_has_a_session_of_its_own_which_a_terminal_does_not_interrupt() -> None:
    code = "import os, sys; print(os.getsid(0), flush=True); sys.stdin.read()"
    with running([sys.executable, "-c", code]) as session:
        assert int(session) != os.getsid(0)


def test_a_server_that_ends_at_its_start_is_an_error() -> None:
    with pytest.raises(ServerFailedError, match="ended with 3"), running(["sh", "-c", "exit 3"]):
        pass


def test_errors_in_the_log_of_the_s3_server_are_no_requests(tmp_path: Path) -> None:
    log = tmp_path / "log"
    told = ('127.0.0.1 - - [now] "GET / HTTP/1.1" 200 -', "Error on request:\nTraceback\n  File")
    records = [LogRecord("werkzeug", ERROR, "", 0, text, None, None) for text in told]
    log.write_text("".join(f"{_Monotonic().format(record)}\n" for record in records))
    assert len(log.read_text().splitlines()) == 2
    assert len(answered_s(log)) == 1
