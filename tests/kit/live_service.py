"""Services for tests: a server in a thread, or the app by itself; golden tables or real ones."""

from __future__ import annotations

import gzip
import http.client
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

from werkzeug.test import TestResponse

from fsview.view_manager import Opener
from strandline.service.http.connection_registry import HotAnswers
from strandline.service.http.server import ServiceServer
from strandline.service.http.server_options import ServerOptions
from strandline.service.process.options import PartsOptions
from strandline.service.process.parts import Parts
from tests.kit import golden
from timeline.storage.base import Storage
from timeline.storage.open import open_storage

TOKEN = "a-token-for-tests"


class GoldenTables:
    """Opens ``<root>/<scenario>/<step>`` as that golden table, in memory."""

    def __init__(self, root: str = "/golden") -> None:
        self.root = root
        self.opened: dict[str, golden.GoldenStorage] = {}

    def base_path(self, scenario: str, step: int) -> str:
        return f"{self.root}/{scenario}/{step:02d}"

    def __call__(self, base_path: str, options: Mapping[str, Any] | None) -> Storage:
        scenario, step = base_path.removeprefix(f"{self.root}/").split("/")
        storage = golden.GoldenStorage(scenario, int(step), base_path)
        self.opened[base_path] = storage
        return storage


class Answered:
    """What came back: status, headers (lower case), body as sent and as meant."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.sent = response.read()
        zipped = self.headers.get("content-encoding") == "gzip"
        self.body = gzip.decompress(self.sent) if zipped else self.sent


class HttpClient:
    """One kept connection to a service; ``base_path`` is for the conformance suite."""

    def __init__(
        self,
        port: int,
        token: str | None = TOKEN,
        base_path: str = "",
        host: str = "127.0.0.1",
    ) -> None:
        self.connection = http.client.HTTPConnection(host, port, timeout=30)
        self.token = token
        self.base_path = base_path

    def __enter__(self) -> HttpClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answered:
        target = f"{path}?{urlencode(params)}" if params else path
        sent = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        self.connection.request(method, target, headers={**sent, **(headers or {})})
        return Answered(self.connection.getresponse())

    def ask(self, method: str, path: str, params: Mapping[str, str]) -> tuple[int, bytes]:
        answered = self.request(method, path, params)
        return answered.status, answered.body


class AppClient:
    """Asks the Flask app by itself, as a WSGI server would."""

    def __init__(self, parts: Parts, base_path: str = "", token: str | None = TOKEN) -> None:
        self.client = parts.flask.test_client()
        self.base_path = base_path
        self.token = token

    def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> TestResponse:
        sent = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        query = urlencode(params or {})
        return self.client.open(
            path, method=method, query_string=query, headers={**sent, **(headers or {})}
        )

    def ask(self, method: str, path: str, params: Mapping[str, str]) -> tuple[int, bytes]:
        response = self.request(method, path, params)
        return response.status_code, response.data


def parts_of(*roots: str, opener: Opener = open_storage, token: str | None = TOKEN) -> Parts:
    """Return a service without a server."""
    return Parts(PartsOptions(roots, token), opener=opener)


@contextmanager
def serving(
    *roots: str,
    opener: Opener = open_storage,
    token: str | None = TOKEN,
    hot: HotAnswers | None = None,
    **options: Any,
) -> Iterator[ServiceServer]:
    """Run a service in a thread; ``hot`` takes the place of its hot path."""
    parts = parts_of(*roots, opener=opener, token=token)
    with running(ServiceServer(parts, ServerOptions(**options), hot=hot)) as server:
        yield server


@contextmanager
def running(server: ServiceServer) -> Iterator[ServiceServer]:
    """Run a server in a thread."""
    thread = server.start_thread()
    try:
        yield server
    finally:
        server.stop()
        thread.join()
