"""The two requests of Google Cloud Storage's JSON API that a lock needs, on a local port.

They are written after Google's documentation of ``objects.get`` with ``alt=media``, of uploads with
``uploadType=media``, and of ``ifGenerationMatch``.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

REFUSED = "/refused"
"""Reading an object of this name is answered with 400."""


class GcsServer(ThreadingHTTPServer):
    """A server with objects in memory; its lock makes comparing and writing one step."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.lock = threading.Lock()
        self.generation = 1_700_000_000_000_000

    @property
    def options(self) -> dict[str, Any]:
        """Options of gcsfs for this server."""
        host, port = self.server_address[:2]
        return {"token": "anon", "endpoint_url": f"http://{host}:{port}"}


class _Handler(BaseHTTPRequestHandler):
    server: GcsServer

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        name = unquote(urlsplit(self.path).path.rpartition("/o/")[2])
        with self.server.lock:
            found = self.server.objects.get(name)
        if name.endswith(REFUSED):
            self._answer(400, b'{"error": {"code": 400, "message": "no"}}')
        elif found is None:
            self._answer(404, b"{}")
        else:
            self._answer(200, found[0], {"X-Goog-Generation": str(found[1])})

    def do_POST(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        (name,), (expected,) = query["name"], query["ifGenerationMatch"]
        assert urlsplit(self.path).path.startswith("/upload/storage/v1/b/")
        assert query["uploadType"] == ["media"]
        data = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            _, generation = self.server.objects.get(name, (b"", 0))
            if str(generation) != expected:
                self._answer(412, b'{"error": {"code": 412, "message": "conditionNotMet"}}')
                return
            self.server.generation += 1
            self.server.objects[name] = (data, self.server.generation)
            answer = {"name": name, "generation": str(self.server.generation)}
        self._answer(200, json.dumps(answer).encode())

    def _answer(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def gcs_server() -> Iterator[GcsServer]:
    """Run a server within the block."""
    with GcsServer() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
