"""Tables whose storage hangs, on a real service: sound tables are answered meanwhile."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from strandline.server.http.server import ServiceServer
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.live_service import TOKEN, HttpClient, known, serving
from tests.kit.servers.raw_http import RawConnection, request
from tests.kit.tables.small_table import SmallTable
from timeline.storage.base import FileInfo, Storage
from timeline.storage.local import LocalStorage

LATEST = "/v1/hoodie/view/slices/partition/latest/"
MARKERS = "/v1/hoodie/marker/all"
STATUS = "/v1/strandline/status"


class Hanging(LocalStorage):
    """A storage whose reads and listings hang until ``go`` is set."""

    def __init__(self, base_path: str, go: threading.Event) -> None:
        super().__init__(base_path)
        self._go = go

    def list(self, path: str) -> tuple[FileInfo, ...]:
        assert self._go.wait(PATIENCE_S)
        return super().list(path)

    def read(self, path: str, *about: object) -> bytes:
        assert self._go.wait(PATIENCE_S)
        return super().read(path, *about)


@contextmanager
def service(root: Path, threads: int = 4) -> Iterator[ServiceServer]:
    """Run a service on which every table below ``hangs`` hangs until the end."""
    go = threading.Event()

    def opener(path: str, _options: object) -> Storage:
        return Hanging(path, go) if "/hangs" in path else LocalStorage(path)

    with serving(str(root), opener=opener, threads=threads, grace_s=0.05) as server:
        try:
            yield server
        finally:
            go.set()


def table(base: Path) -> SmallTable:
    made = SmallTable(LocalStorage(str(base)))
    made.write(*((partition, f"g{n}") for partition in "abcdefgh" for n in range(3)))
    return made


def shares(client: HttpClient) -> dict[str, Any]:
    """Return the status of the threads."""
    said: dict[str, Any] = json.loads(client.request("GET", STATUS).body)["threads"]
    return said


def until_waiting(client: HttpClient, count: int) -> dict[str, Any]:
    """Ask for the status until so many requests wait for a thread."""
    while (said := shares(client))["waiting"] != count:
        assert said["waiting"] <= count
    return said


def test_a_hanging_table_takes_no_thread_that_others_need(tmp_path: Path) -> None:
    """It was alone when it hung, so it has all threads; a table never asked for is answered."""
    made = table(tmp_path / "good")
    hanging = str(tmp_path / "hangs")
    stuck = request(f"{LATEST}?basepath={hanging}&partition=a", token=TOKEN)
    with (
        service(tmp_path) as server,
        HttpClient(server.port) as client,
        ExitStack() as stack,
    ):
        for _ in range(20):
            stack.enter_context(RawConnection(server.port)).socket.sendall(stuck)
        until_waiting(client, 16)
        for partition in "abcdefgh":
            answered = client.request("GET", LATEST, known(made.storage, partition=partition))
            assert (answered.status, answered.body.count(b'"baseFile"')) == (200, 3)
        markers = {"markerdirpath": f"{tmp_path}/good/.hoodie/.temp/20260101000000000"}
        assert client.request("GET", MARKERS, markers).body == b"[]"
        assert client.request("GET", "/healthz").status == 200
        assert client.request("GET", "/v2/status", {"table": hanging}).status == 200
        (said,) = shares(client)["tables"]
        assert (said["base_path"], said["threads"], said["waiting"]) == (hanging, 4, 16)
        assert said["longest_s"] > 0


def test_what_hangs_is_known_by_its_spelling_before_storage_is_looked_at(tmp_path: Path) -> None:
    hanging = str(tmp_path / "hangs")
    directory = f"{hanging}/.hoodie/.temp/20260101000000000"
    with (
        service(tmp_path) as server,
        HttpClient(server.port) as client,
        ExitStack() as stack,
    ):
        for target in (f"{LATEST}?basepath={hanging}", f"{MARKERS}?markerdirpath={directory}"):
            for _ in range(4):
                raw = stack.enter_context(RawConnection(server.port))
                raw.socket.sendall(request(target, token=TOKEN))
        said = until_waiting(client, 4)
        assert [found["base_path"] for found in said["tables"]] == [hanging]


def test_what_waited_is_answered_once_storage_is_back(tmp_path: Path) -> None:
    table(tmp_path / "hangs")
    asked = request(f"{LATEST}?basepath={tmp_path}/hangs&partition=a&refreshoff=true", token=TOKEN)
    go = threading.Event()
    with (
        serving(str(tmp_path), opener=lambda path, _: Hanging(path, go), threads=2) as server,
        HttpClient(server.port) as client,
        ExitStack() as stack,
    ):
        waiting = [stack.enter_context(RawConnection(server.port)) for _ in range(12)]
        for raw in waiting:
            raw.socket.sendall(asked)
        until_waiting(client, 10)
        go.set()
        answers = [raw.answer() for raw in waiting]
    assert [answer.status for answer in answers if answer is not None] == [200] * 12
