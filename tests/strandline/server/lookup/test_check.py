"""The sampling check: what it chooses, counts, logs and reloads, and how it ends."""

from __future__ import annotations

import json
import logging
import queue
import random
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.view_manager import ViewManager
from strandline.server.http.server import ServiceServer
from strandline.server.http.server_options import ServerOptions
from strandline.server.lookup.sampling_check import PAUSE_S, SamplingCheck
from strandline.server.process.composition_root import Parts
from strandline.server.process.options import PartsOptions
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.live_service import TOKEN, HttpClient
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables.small_table import SmallTable
from timeline.errors import StorageUnavailableError
from timeline.storage.base import Storage

PARTITIONS = ("a", "b", "c")
LATEST = "/v1/hoodie/view/datafiles/latest/partition"


class Tables:
    """Opens each ``/lake/<name>`` as another table with one commit in three partitions."""

    def __init__(self) -> None:
        self.made: dict[str, SmallTable] = {}

    def __call__(self, base_path: str, options: Mapping[str, Any] | None) -> Storage:
        table = SmallTable()
        table.write(*((p, f"f{n}-0") for n, p in enumerate(PARTITIONS)))
        table.storage.base_path = base_path
        self.made[base_path] = table
        return table.storage


class Ticks(threading.Event):
    """The event the thread waits on: one check for each tick, none before; pauses take no time.

    Attributes:
        waited: The timeouts that were asked for, in seconds.
        ended: Set at the end.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[float | None] = []
        self.ended = threading.Event()
        self._ticks: queue.Queue[bool] = queue.Queue()
        self._idle: queue.Queue[bool] = queue.Queue()

    def wait(self, timeout: float | None = None) -> bool:
        self.waited.append(timeout)
        if timeout == PAUSE_S or self.ended.is_set():
            return self.ended.is_set()
        self._idle.put(True)
        return self._ticks.get(timeout=PATIENCE_S)

    def set(self) -> None:
        self.ended.set()
        self._ticks.put(True)

    def tick(self) -> None:
        """Let one check happen, and wait until it is over."""
        self.begin()
        self.until_idle()
        self._idle.put(True)

    def begin(self) -> None:
        """Let one check begin."""
        self.until_idle()
        self._ticks.put(False)

    def until_idle(self) -> None:
        self._idle.get(timeout=PATIENCE_S)


class Lake:
    """Two tables with everything loaded, and a check that is called by hand."""

    def __init__(self, names: tuple[str, ...] = ("one", "two")) -> None:
        self.metrics = Metrics()
        self.tables = Tables()
        self.views = ViewManager(["/lake"], metrics=self.metrics, opener=self.tables)
        for name in names:
            LocalView.newest(self.views.view(f"/lake/{name}")).load_all_partitions()
        self.check = SamplingCheck(
            self.views, self.metrics, interval_s=60, rng=random.Random(7), ending=Ticks()
        )

    def counts(self, name: str = "one") -> dict[str, int]:
        """Return the outcomes of a table's checks."""
        table = str(self.views.view(f"/lake/{name}").table_id)
        outcomes = ("equal", "different", "skipped", "failed")
        found = {o: self.metrics.get("checks", table=table, outcome=o) for o in outcomes}
        return {outcome: count for outcome, count in found.items() if count}


def grow(table: SmallTable, partition: str) -> int:
    """Let a file of a partition grow without an instant; return its size now."""
    (file,) = table.model.versions(partition)[f"f{PARTITIONS.index(partition)}-0"]
    table.storage.files[file.path] = (b"x" * (file.size + 9), 0)
    return file.size + 9


def test_tables_take_turns_and_partitions_are_chosen_by_chance() -> None:
    lake = Lake()
    looked: list[str] = []
    for base_path, table in lake.tables.made.items():

        def note(kind: str, path: str, base_path: str = base_path) -> None:
            if kind == "list" and path in PARTITIONS:
                looked.append(f"{base_path}/{path}")

        table.storage.fail.append(note)
    for _ in range(40):
        lake.check.check_next()
    assert {path.rpartition("/")[0] for path in looked[::2]} == {"/lake/one"}
    assert {path.rpartition("/")[0] for path in looked[1::2]} == {"/lake/two"}
    assert len(set(looked)) == 6
    assert lake.counts("one") == lake.counts("two") == {"equal": 20}


def test_where_nothing_is_loaded_nothing_is_checked() -> None:
    lake = Lake(())
    lake.check.check_next()
    lake.views.view("/lake/two")
    lake.check.check_next()
    assert lake.metrics.get("checks") == 0
    LocalView.newest(lake.views.view("/lake/one")).latest_base_files("b")
    for _ in range(3):
        lake.check.check_next()
    assert (lake.counts("one"), lake.counts("two")) == ({"equal": 3}, {})


def test_a_difference_is_logged_once_counted_and_put_right(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lake = Lake(("one",))
    table = lake.views.view("/lake/one")
    sizes = [grow(lake.tables.made["/lake/one"], partition) for partition in PARTITIONS]
    with caplog.at_level(logging.WARNING):
        lake.check.check_next()
    assert lake.counts() == {"different": 1}
    assert lake.metrics.get("reloads", cause="check-failed") == 1
    (record,) = caplog.records
    said = record.getMessage()
    assert record.levelno == logging.WARNING
    assert said.startswith(f"{table.table_id}: the view differs from storage and is reloaded")
    assert "bytes and has" in said
    assert any(f"partition {partition!r}" in said for partition in PARTITIONS)
    files = [file for p in PARTITIONS for file in LocalView.newest(table).latest_base_files(p)]
    assert [file.size for file in files] == sizes
    for _ in range(6):
        lake.check.check_next()
    assert lake.counts() == {"different": 1, "equal": 6}


def test_a_clean_under_way_is_counted_as_skipped() -> None:
    lake = Lake(("one",))
    table = lake.tables.made["/lake/one"]
    for _ in range(3):
        table.write(("a", "f0-0"))
    clean = table.begin_clean(table.to_clean())
    lake.check.check_next()
    assert lake.counts() == {"skipped": 1}
    table.finish_clean(*clean)
    lake.check.check_next()
    assert lake.counts() == {"skipped": 1, "equal": 1}


@pytest.mark.parametrize(
    "error", [StorageUnavailableError("no network"), RuntimeError("unforeseen")]
)
def test_an_error_is_counted_and_logged_and_the_next_check_comes(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    lake = Lake(("one",))
    storage = lake.tables.made["/lake/one"].storage

    def fail(kind: str, path: str) -> None:
        raise error

    storage.fail.append(fail)
    with caplog.at_level(logging.WARNING):
        lake.check.check_next()
    storage.fail.remove(fail)
    lake.check.check_next()
    assert lake.counts() == {"failed": 1, "equal": 1}
    (record,) = caplog.records
    assert str(error) in (record.getMessage() + str(record.exc_info))


def test_a_reload_that_fails_is_made_up_for_by_the_next_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lake = Lake(("one",))
    view = lake.views.view("/lake/one")
    made = lake.tables.made["/lake/one"]
    sizes = [grow(made, partition) for partition in PARTITIONS]

    def fail_the_reload(kind: str, path: str) -> None:
        if made.storage.calls.snapshot().get(("stat", "table"), 0) > stats:
            raise StorageUnavailableError("no network")

    stats = made.storage.calls.snapshot().get(("stat", "table"), 0)
    made.storage.fail.append(fail_the_reload)
    with caplog.at_level(logging.WARNING):
        lake.check.check_next()
    assert (
        "can't reload, the next request tries again: no network" in caplog.records[-1].getMessage()
    )
    lake.check.check_next()  # nothing is held, so nothing is to be checked
    made.storage.fail.remove(fail_the_reload)
    files = [file for p in PARTITIONS for file in LocalView.newest(view).latest_base_files(p)]
    assert [file.size for file in files] == sizes
    assert lake.counts() == {"different": 1}


# In the running service.


class Service:
    """A service over the lake whose checks go by ticks."""

    def __init__(self, opener: Callable[..., Storage]) -> None:
        self.ticks = Ticks()
        options = PartsOptions(("/lake",), TOKEN, check_interval_s=60)
        self.server = ServiceServer(
            Parts(options, opener=opener, ending=self.ticks), ServerOptions()
        )

    def __enter__(self) -> Service:
        self.thread = self.server.start_thread()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()
        self.thread.join(PATIENCE_S)


def ask(client: HttpClient, partition: str) -> list[int]:
    """Return the sizes of a partition's newest base files."""
    asked = {"basepath": "/lake/one", "partition": partition, "refreshoff": "true"}
    status, body = client.ask("GET", LATEST, asked)
    assert status == 200, body
    return [file["fileLen"] for file in json.loads(body)]


def checking() -> list[threading.Thread]:
    """Return the threads that check."""
    return [thread for thread in threading.enumerate() if thread.name == "checks"]


def figures(client: HttpClient) -> dict[str, Any]:
    """Return the status of the lake's only table."""
    status, body = client.ask("GET", "/v1/strandline/status", {})
    assert status == 200
    (table,) = json.loads(body)["tables"].values()
    return table


def test_the_running_service_checks_and_shows_it() -> None:
    tables = Tables()
    with Service(tables) as service, HttpClient(service.server.port) as client:
        before = [ask(client, partition) for partition in PARTITIONS]
        service.ticks.tick()
        shown = figures(client)
        assert shown["counters"]["checks{outcome=equal}"] == 1
        assert {"kind": "list", "cause": "check", "count": 2} in shown["storage_calls"]
        sizes = [[grow(tables.made["/lake/one"], partition)] for partition in PARTITIONS]
        assert [ask(client, partition) for partition in PARTITIONS] == before
        service.ticks.tick()
        counters = figures(client)["counters"]
        assert counters["checks{outcome=different}"] == 1
        assert counters["reloads{cause=check-failed}"] == 1
        assert [ask(client, partition) for partition in PARTITIONS] == sizes
        assert len(checking()) == 1
    assert not checking()
    assert set(service.ticks.waited) == {60}


def test_the_end_breaks_off_a_check_and_does_not_wait_for_storage() -> None:
    began, go = threading.Event(), threading.Event()

    class Held(MemoryStorage):
        """Answers a check's list calls when it is let go."""

        def list(self, path: str) -> Any:
            if self._cause == "check":
                began.set()
                assert go.wait(PATIENCE_S)
            return super().list(path)

        def for_cause(self, cause: str) -> Held:
            other = object.__new__(Held)
            other.__dict__ = {**self.__dict__, "_cause": cause}
            return other

    def opener(base_path: str, options: Mapping[str, Any] | None) -> Storage:
        storage = Held(base_path)
        storage.files = Tables()(base_path, options).files  # type: ignore[attr-defined]  # of the fake
        return storage

    with Service(opener) as service, HttpClient(service.server.port) as client:
        ask(client, "a")
        service.ticks.begin()
        (thread,) = checking()
        assert began.wait(PATIENCE_S)
    assert service.server.wait(0)
    assert thread.is_alive()
    go.set()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_without_an_interval_no_thread_runs(tmp_path: Path) -> None:
    parts = Parts(PartsOptions((str(tmp_path),), None, check_interval_s=0))
    parts.start()
    assert not checking()
    parts.close()
