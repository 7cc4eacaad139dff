"""Slow answers, and clients that bound their wait, on a real service."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from executor_proxy import connect
from fsview.wire.param import TIMELINE_HASH
from strandline.server.http.server import ServiceServer
from tests.kit.concurrency.patience import PATIENCE_S, pause
from tests.kit.servers.live_service import TOKEN, HttpClient, known, serving
from tests.kit.servers.raw_http import Answer, RawConnection, request
from tests.kit.tables.small_table import SmallTable
from timeline.errors import StorageUnavailableError
from timeline.storage.base import FileInfo, Storage
from timeline.storage.local import LocalStorage

VIEW = "/v1/hoodie/view"
LATEST = f"{VIEW}/datafiles/latest/partition"
REFRESH = f"{VIEW}/refresh/"
LOAD = f"{VIEW}/loadpartitions/"
BRIEFLY = {"Strandline-Wait": "0.02", "Accept": "application/json"}


@dataclass
class Control:
    """Decides when listings of partitions end.

    Attributes:
        go: They hang until it is set.
        listed: Partitions listed, in order.
        fails: Whether listings fail.
    """

    go: threading.Event = field(default_factory=threading.Event)
    listed: list[str] = field(default_factory=list)
    fails: bool = False


class SlowStorage(LocalStorage):
    """A storage in which listings of partitions are slow."""

    def __init__(self, base_path: str, control: Control) -> None:
        super().__init__(base_path)
        self._control = control

    def list(self, path: str) -> tuple[FileInfo, ...]:
        if path and not path.startswith(".hoodie"):
            self._control.listed.append(path)
            assert self._control.go.wait(PATIENCE_S)
            if self._control.fails:
                raise StorageUnavailableError("the disk is away")
        return super().list(path)


@pytest.fixture
def control() -> Iterator[Control]:
    control = Control()
    yield control
    control.go.set()


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    made = SmallTable(LocalStorage(str(tmp_path / "slow")))
    made.write(*((partition, f"{partition}-{n}") for partition in "ab" for n in range(3)))
    return made


@contextmanager
def service(root: Path, control: Control, threads: int = 4) -> Iterator[ServiceServer]:
    """Run a service on which the tables below ``slow`` are slow."""

    def opener(path: str, _options: object) -> Storage:
        return SlowStorage(path, control) if "/slow" in path else LocalStorage(path)

    with serving(str(root), opener=opener, threads=threads, grace_s=0.05) as server:
        try:
            yield server
        finally:
            control.go.set()


def status(server: ServiceServer, name: str) -> Any:
    return server.parts.status()[name]


def until(server: ServiceServer, name: str, **counts: int) -> None:
    """Ask for the status until it shows these counts."""
    while not counts.items() <= status(server, name).items():
        pause()


def answered(client: HttpClient, method: str, path: str, params: dict[str, str]) -> bytes:
    """Ask until the service is no longer busy; return the answer."""
    while (answer := client.request(method, path, params, BRIEFLY)).status == 503:
        assert answer.headers["retry-after"] == "1"
    assert answer.status == 200
    return answer.body


@pytest.mark.property
def test_the_proxy_waits_for_a_cold_partition_with_one_listing_and_no_fallback(
    tmp_path: Path, table: SmallTable, control: Control
) -> None:
    with service(tmp_path, control) as server, ThreadPoolExecutor() as executor:
        view = connect(server.url, table.storage.base_path, token=TOKEN, fallback=False)
        found = executor.submit(view.latest_base_files, "a")
        until(server, "busy", answers=1)
        control.go.set()
        assert [file.file_id for file in found.result()] == ["a-0", "a-1", "a-2"]
        assert control.listed == ["a"]


def test_a_client_without_the_header_waits(
    tmp_path: Path, table: SmallTable, control: Control
) -> None:
    params = known(table.storage, partition="a")
    with (
        service(tmp_path, control) as server,
        HttpClient(server.port) as java,
        HttpClient(server.port) as other,
        ThreadPoolExecutor() as executor,
    ):
        waits = executor.submit(java.request, "GET", LATEST, params)
        until(server, "threads", taken=1)
        assert other.request("GET", LATEST, params, BRIEFLY).status == 503
        assert not waits.done()
        control.go.set()
        assert waits.result().status == 200
        assert control.listed == ["a"]


def test_busy_is_an_error_with_a_code_and_no_refusal(
    tmp_path: Path, table: SmallTable, control: Control, caplog: pytest.LogCaptureFixture
) -> None:
    params = known(table.storage, partition="a")
    with service(tmp_path, control) as server, HttpClient(server.port) as client:
        answer = client.request("GET", LATEST, params, BRIEFLY)
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert b'"code": "service_busy"' in answer.body
        assert status(server, "refusals") == []
        assert status(server, "busy") == {"answers": 1, "unfinished": 1}
    assert not [record for record in caplog.records if "refusals" in record.name]


def test_a_question_joins_the_work_that_was_begun_for_it(
    tmp_path: Path, table: SmallTable, control: Control
) -> None:
    """The first client leaves after its 503; others ask, one after the other."""
    params = known(table.storage, partition="a")
    with service(tmp_path, control) as server:
        for _ in range(3):
            with HttpClient(server.port) as client:
                assert client.request("GET", LATEST, params, BRIEFLY).status == 503
            assert status(server, "threads")["taken"] == 1
        control.go.set()
        with HttpClient(server.port) as client:
            assert answered(client, "GET", LATEST, params).count(b'"fileId"') == 3
        assert control.listed == ["a"]


def test_work_goes_on_after_its_client_got_503_and_left(
    tmp_path: Path, table: SmallTable, control: Control
) -> None:
    params = known(table.storage, partitions='["a", "b"]')
    with service(tmp_path, control) as server:
        with HttpClient(server.port) as client:
            assert client.request("POST", LOAD, params, BRIEFLY).status == 503
        control.go.set()
        until(server, "threads", taken=0)
        assert sorted(control.listed) == ["a", "b"]


def test_a_refresh_joins_no_work_from_before_it_was_asked(
    tmp_path: Path, table: SmallTable
) -> None:
    """Else a driver would not see what it committed meanwhile."""
    sync, find = threading.Event(), {"basepath": table.storage.base_path, TIMELINE_HASH: ""}

    class SlowTimeline(LocalStorage):
        def list(self, path: str) -> tuple[FileInfo, ...]:
            assert sync.wait(PATIENCE_S)
            return super().list(path)

    with serving(str(tmp_path), opener=lambda path, _: SlowTimeline(path), grace_s=0.05) as server:
        try:
            with HttpClient(server.port) as client:
                assert client.request("POST", REFRESH, find, BRIEFLY).status == 503
                assert client.request("POST", REFRESH, find, BRIEFLY).status == 503
                assert status(server, "busy") == {"answers": 2, "unfinished": 2}
                sync.set()
                assert answered(client, "POST", REFRESH, find) == b"true"
                until(server, "busy", unfinished=0)
        finally:
            sync.set()


def test_a_failure_that_takes_long_is_reported(
    tmp_path: Path, table: SmallTable, control: Control
) -> None:
    params = known(table.storage, partition="a")
    control.fails = True
    with service(tmp_path, control) as server, HttpClient(server.port) as client:
        assert client.request("GET", LATEST, params, BRIEFLY).status == 503
        control.go.set()
        until(server, "threads", taken=0)
        answer = client.request("GET", LATEST, params, BRIEFLY)
        assert answer.status == 503
        assert "retry-after" not in answer.headers
        assert b"the disk is away" in answer.body
        assert control.listed == ["a"]


def test_a_hundred_waiting_clients_take_no_thread_from_another_table(
    tmp_path: Path, table: SmallTable, control: Control
) -> None:
    other = SmallTable(LocalStorage(str(tmp_path / "good")))
    other.write(("a", "x"))
    params = known(table.storage, partition="a")
    pin = "&".join(f"{name}={value}" for name, value in params.items())
    asked = request(f"{LATEST}?{pin}", "Strandline-Wait: 0.2", token=TOKEN)
    with (
        service(tmp_path, control) as server,
        ExitStack() as stack,
        HttpClient(server.port) as client,
    ):
        waiting = [stack.enter_context(RawConnection(server.port)) for _ in range(100)]
        for raw in waiting:
            raw.socket.sendall(asked)
        found = client.request("GET", LATEST, known(other.storage, partition="a"))
        assert found.status == 200
        assert {status_of(raw.answer()) for raw in waiting} == {503}
        assert status(server, "threads")["taken"] <= 4
        control.go.set()
        for raw in waiting:
            while (answer := raw.ask(asked)).status == 503:
                assert answer.headers["retry-after"] == "1"
            assert answer.status == 200
        assert control.listed == ["a"]


def status_of(answer: Answer | None) -> int:
    assert answer is not None
    return answer.status


def test_late_answers_ends_with_the_service(
    tmp_path: Path, table: SmallTable, control: Control
) -> None:
    before = set(threading.enumerate())
    params = known(table.storage, partitions='["a", "b"]')
    with service(tmp_path, control) as server:
        with HttpClient(server.port) as client:
            assert client.request("POST", LOAD, params, BRIEFLY).status == 503
        server.stop()
        assert server.wait(PATIENCE_S)
        control.go.set()
        for thread in set(threading.enumerate()) - before:
            if thread.name.startswith("requests"):
                thread.join()
    # It may not even have begun.
    assert control.listed in ([], ["a"])
