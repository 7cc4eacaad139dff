"""Services for tests: a server in a thread, or its application alone; golden or real tables."""

from __future__ import annotations

import asyncio
import atexit
import gzip
import http.client
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from http.client import IncompleteRead, RemoteDisconnected
from typing import Any
from urllib.parse import urlencode

from fsview.view_manager import StorageOpener
from strandline.server.http.connection_registry import HotAnswers
from strandline.server.http.reply import Reply
from strandline.server.http.request import Request
from strandline.server.http.server import ServiceServer
from strandline.server.http.server_options import ServerOptions
from strandline.server.process.composition_root import Parts
from strandline.server.process.options import PartsOptions
from strandline.server.table_threads import TableThreads
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.raw_http import Answer, take_sent
from tests.kit.tables import golden
from timeline.meta_client import TableMetaClient
from timeline.storage.base import Storage
from timeline.storage.open import open_storage

TOKEN = "a-token-for-tests"


class GoldenTables:
    """Opens ``<root>/<scenario>/<step>`` as a golden table in memory."""

    def __init__(self, root: str = "/golden") -> None:
        self.root = root
        self.opened: dict[str, golden.GoldenStorage] = {}

    def base_path(self, scenario: str, step: int) -> str:
        return f"{self.root}/{scenario}/{step:02d}"

    def known(self, scenario: str, step: int, **more: str) -> dict[str, str]:
        """Return the parameters of a client that knows the timeline of a step, and others."""
        client = golden.client(scenario, step)
        pin = {name: client[name] for name in ("lastinstantts", "timelinehash")}
        return {"basepath": self.base_path(scenario, step), **pin, **more}

    def __call__(self, base_path: str, options: Mapping[str, Any] | None) -> Storage:
        scenario, step = base_path.removeprefix(f"{self.root}/").split("/")
        storage = golden.GoldenStorage(scenario, int(step), base_path)
        self.opened[base_path] = storage
        return storage


class Answered:
    """An answer: status, headers (lower case), body as sent and decompressed, request's id."""

    def __init__(
        self, status: int, headers: Mapping[str, str], sent: bytes, request_id: str = ""
    ) -> None:
        self.request_id = request_id
        self.status, self.headers, self.sent = status, headers, sent
        zipped = headers.get("content-encoding") == "gzip"
        self.body = gzip.decompress(sent) if zipped else sent


@lru_cache(maxsize=10_000)
def _pair(name: str, value: str) -> str:
    return urlencode({name: value})


def encoded(params: Mapping[str, str]) -> str:
    """Return a query; most of it is as in other questions."""
    return "&".join(_pair(name, value) for name, value in params.items())


class HttpClient:
    """A kept-alive connection to a service; the conformance suite reads ``base_path``."""

    def __init__(
        self,
        port: int,
        token: str | None = TOKEN,
        base_path: str = "",
        host: str = "127.0.0.1",
    ) -> None:
        self.connection = http.client.HTTPConnection(host, port, timeout=PATIENCE_S)
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
        """Ask as ``http.client`` does, whose reading of a head takes longer than an answer."""
        target = f"{path}?{encoded(params)}" if params else path
        said = {"Host": f"{self.connection.host}:{self.connection.port}"}
        if self.token is not None:
            said["Authorization"] = f"Bearer {self.token}"
        if method in ("POST", "PUT", "PATCH"):
            said["Content-Length"] = "0"
        said |= {"Accept-Encoding": "identity", **(headers or {})}
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {said[name]}" for name in said)]
        if self.connection.sock is None:
            self.connection.connect()
        self.connection.sock.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
        answer = self._received(to_head=method == "HEAD")
        if answer.headers.get("connection") == "close":
            self.connection.close()
        return Answered(answer.status, answer.headers, answer.body, answer.request_id)

    def _received(self, *, to_head: bool) -> Answer:
        """Return the next answer; there is one, and nothing follows it.

        Raises:
            RemoteDisconnected: The connection ended before it.
            IncompleteRead: The connection ended within it.
        """
        data = b""
        while (taken := take_sent(data, to_head=to_head)) is None:
            received = self.connection.sock.recv(1 << 18)
            if not received:
                self.connection.close()
                raise IncompleteRead(data) if data else RemoteDisconnected("no answer came")
            data += received
        answer, rest = taken
        assert rest == b""
        return answer

    def ask(self, method: str, path: str, params: Mapping[str, str]) -> tuple[int, bytes]:
        answered = self.request(method, path, params)
        return answered.status, answered.body


class AppClient:
    """Asks the application of a service, whose server would have admitted the request."""

    loop = asyncio.new_event_loop()
    atexit.register(loop.close)
    threads = TableThreads("requests", 2)

    def __init__(self, parts: Parts, base_path: str = "") -> None:
        self.base_path = base_path
        self._app = parts.application(self.threads)

    def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answered:
        fields = {name.lower().encode(): value.encode() for name, value in (headers or {}).items()}
        request = Request(method, path, urlencode(params or {}).encode(), fields)
        reply = self.loop.run_until_complete(self._answer(request))
        return Answered(
            reply.status, {"content-type": reply.content_type, **reply.headers}, reply.body
        )

    async def _answer(self, request: Request) -> Reply:
        return await self._app(request)

    def ask(self, method: str, path: str, params: Mapping[str, str]) -> tuple[int, bytes]:
        answered = self.request(method, path, params)
        return answered.status, answered.body


def known(storage: Storage, **more: str) -> dict[str, str]:
    """Return the parameters of a client that reads a table's timeline now, and others."""
    timeline = TableMetaClient.open(storage).active_timeline().client_timeline()
    assert timeline.last is not None
    pin = {"lastinstantts": timeline.last.requested_time, "timelinehash": timeline.hash}
    return {"basepath": storage.base_path, **pin, **more}


def parts_of(*roots: str, opener: StorageOpener = open_storage, token: str | None = TOKEN) -> Parts:
    """Return a service without a server."""
    return Parts(PartsOptions(roots, token), opener=opener)


@contextmanager
def serving(
    *roots: str,
    opener: StorageOpener = open_storage,
    token: str | None = TOKEN,
    hot: HotAnswers | None = None,
    **options: Any,
) -> Iterator[ServiceServer]:
    """Run a service in a thread; ``hot`` replaces its hot path."""
    parts = parts_of(*roots, opener=opener, token=token)
    if hot is not None:
        parts.hot = hot
    with running(ServiceServer(parts, ServerOptions(**options))) as server:
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
