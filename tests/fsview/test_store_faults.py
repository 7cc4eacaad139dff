"""A view whose store fails: it answers rightly or raises an error, and recovers."""

from __future__ import annotations

import logging
import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from fsview.local_view import HeldView, LocalView, NotHeldError
from fsview.metrics import Metrics
from fsview.store.rocksdb.store_directory import StorePlace
from fsview.table_view import TableView
from tests.fsview.lasting_store import Kept, LastingStore
from tests.fsview.store.test_rocksdb_faults import CASES, DAMAGES
from tests.kit.memory_storage import MemoryStorage
from tests.kit.model import upgrading, writes
from tests.kit.model.table import ModelTable
from tests.kit.patience import PATIENCE_S
from tests.kit.rebuilt import differences_from_rebuilt
from tests.kit.small_model import Group, Write
from tests.kit.small_table import SmallTable
from tests.kit.stores import Restarted
from timeline.errors import (
    StorageUnavailableError,
    StoreError,
    StoreFullError,
    TableNotFoundError,
)
from timeline.storage.base import Storage
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.property

ROOT = Path(__file__).parents[2]
PARTITIONS = ("a", "b/c", "d")
EVERYWHERE: list[Group] = [(p, f"{p[-1]}{n}") for p in PARTITIONS for n in range(3)]


@pytest.fixture
def table() -> SmallTable:
    return small()


def small(storage: Storage | None = None) -> SmallTable:
    """Return a table with three partitions that was written to a few times."""
    table = SmallTable(storage)
    for _ in range(3):
        table.write(*EVERYWHERE)
    return table


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def check(view: LocalView, storage: Storage) -> None:
    """Check that a view of the newest snapshot agrees with storage in all partitions."""
    view.load_all_partitions()
    for partition in view.table.held_partitions():
        view.all_file_slices(partition)
    found = differences_from_rebuilt(view.snapshot, storage)
    assert not found, str(found)


def opened(table: SmallTable, kept: Kept, metrics: Metrics | None = None) -> TableView:
    return TableView(table.storage, metrics=metrics, store=LastingStore(kept))


# Calls of the store that fail.


def in_steps(table: SmallTable, kept: Kept, asked: Callable[[TableView], None]) -> None:
    """Have a table followed by two services, one after another."""
    view = opened(table, kept)
    asked(view)
    table.write(("a", "a0"), ("e", "e0"))
    asked(view)
    pending = table.begin([("a", "a1"), ("d", "d9")])
    asked(view)
    view = opened(table, kept)
    asked(view)
    table.take_back(pending)
    table.write(("d", "d1"), replaces=[("d", "d0")])
    asked(view)


def failing_once(nth: int, error: type[StoreError]) -> Callable[[str], None]:
    calls = iter(range(nth + 1))

    def fail(name: str) -> None:
        if next(calls, None) == nth:
            raise error(f"{name} fails")

    return fail


def looked(view: TableView) -> None:
    check(LocalView.synced(view), view.storage)


def test_every_call_of_a_store_fails_once() -> None:
    """A second try gets the right answer, then and from the next service."""
    calls: list[str] = []
    in_steps(small(), Kept(fail=calls.append), looked)
    assert {"rows", "commit", "get", "sweep"} <= set(calls)
    for nth in range(len(calls)):
        table, kept = small(), Kept()
        kept.fail = failing_once(nth, StoreFullError if nth % 2 else StoreError)

        def twice(view: TableView) -> None:
            try:
                looked(view)
            except StoreError:
                looked(view)

        in_steps(table, kept, twice)
        looked(opened(table, kept))


def test_full_disk_leaves_the_snapshot_before(table: SmallTable) -> None:
    kept = Kept()
    view = opened(table, kept)
    before = LocalView.newest(view)
    before.load_all_partitions()
    rows, was = dict(kept.rows), before.latest_base_files("a")

    def full(name: str) -> None:
        if name in ("commit", "clear"):
            raise StoreFullError("the disk is full")

    kept.fail = full
    table.write(("a", "a0"))
    for _ in range(3):
        with pytest.raises(StoreFullError):
            view.sync()
        assert LocalView.newest(view).latest_base_files("a") == was
        assert kept.rows == rows
    with pytest.raises(StoreFullError):  # nor does another start say what isn't so any more
        opened(table, kept).newest()
    kept.fail = lambda name: None
    check(LocalView.synced(view), table.storage)
    assert LocalView.newest(view).latest_base_files("a") != was
    metrics = Metrics()
    check(LocalView.newest(opened(table, kept, metrics)), table.storage)
    assert metrics.get("partition_loads", source="record") == len(PARTITIONS)


def test_storage_fails_while_a_service_begins(table: SmallTable) -> None:
    """Partitions saved in the store are neither dropped nor listed again because of it."""
    kept = Kept()
    LocalView.newest(opened(table, kept)).load_all_partitions()
    table.write(("a", "a0"), ("b/c", "c1"))
    storage = table.storage
    calls = 0
    nth = 0
    while calls >= nth:
        metrics, calls, nth = Metrics(), 0, nth + 1

        def fail(kind: str, path: str, nth: int = nth) -> None:
            nonlocal calls
            calls += 1
            if calls == nth:
                raise StorageUnavailableError(f"{kind} {path}")

        view = opened(table, kept, metrics)
        storage.fail.append(fail)
        for _ in range(2):
            with suppress(StorageUnavailableError):
                view.newest()
        storage.fail.clear()
        table.write(("d", "d0"))
        check(LocalView.synced(view), storage)
        assert metrics.get("partition_loads") == metrics.get("partition_loads", source="record")
    assert nth > 3


SPOILT = (b"{", b"null", b"7", b'"x"', b"\xff\xfe", b'{"a": 1}', b"[1]")


@pytest.mark.parametrize("name", ["snapshot", "p/a", "compaction", "clustering", "replaced"])
def test_spoilt_rows_are_taken_away(
    table: SmallTable, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Kept()
    for spoilt in SPOILT:
        LocalView.newest(opened(table, kept)).load_all_partitions()
        kept.rows[name] = spoilt
        kept.rows["p/gone"] = kept.rows["p/d"]
        caplog.clear()
        view = opened(table, kept)
        check(LocalView.newest(view), table.storage)
        (warning,) = warnings(caplog)
        assert str(view.table_id) in warning
        assert "p/gone" not in kept.rows
        metrics = Metrics()
        check(LocalView.newest(opened(table, kept, metrics)), table.storage)
        assert metrics.get("partition_loads", source="record") == len(PARTITIONS)


def test_blob_that_is_lost_is_listed_anew(
    table: SmallTable, caplog: pytest.LogCaptureFixture
) -> None:
    """The first request fails with an error that says so; the second is answered."""
    kept = Kept()
    LocalView.newest(opened(table, kept)).load_all_partitions()
    lost = 0
    for move in (lambda: None, lambda: table.write(("a", "a0"))):
        for handle in list(kept.blobs):
            view = opened(table, kept)
            view.newest()
            blob = kept.blobs.pop(handle, None)
            if blob is None:
                continue
            lost += 1
            caplog.clear()
            move()
            with suppress(StoreError):
                check(LocalView.synced(view), table.storage)
            check(LocalView.synced(view), table.storage)
            assert len(warnings(caplog)) <= 1
    assert lost


def test_blob_that_an_earlier_instant_needs_is_listed_anew(table: SmallTable) -> None:
    """A client that is behind meets it, and the next one is answered."""
    kept, metrics = Kept(), Metrics()
    view = opened(table, kept, metrics)
    behind = LocalView.newest(view)
    table.write(("a", "a0"))
    LocalView.synced(view).load_all_partitions()
    kept.blobs.clear()
    with pytest.raises(StoreError):
        behind.all_file_slices("a")
    check(LocalView.newest(view), table.storage)
    assert metrics.get("reloads", cause="store-damaged") == 1


def test_held_view_meets_a_lost_blob_without_waiting_for_a_commit(table: SmallTable) -> None:
    """The event loop must not wait for the lock of a commit; the next thread reports the loss."""
    kept, committing, go = Kept(), threading.Event(), threading.Event()
    view = opened(table, kept)
    LocalView.newest(view).load_all_partitions()
    held = HeldView(view, view.newest())
    table.write(("a", "a0"))

    def wait_in_commit(name: str) -> None:
        if name == "commit":
            committing.set()
            assert go.wait(PATIENCE_S)

    kept.fail = wait_in_commit
    with ThreadPoolExecutor(2) as pool:
        syncing = pool.submit(view.sync)
        try:
            assert committing.wait(PATIENCE_S)
            kept.blobs.clear()
            with pytest.raises(NotHeldError):
                pool.submit(held.all_file_slices, "a").result(PATIENCE_S)
        finally:
            go.set()
        syncing.result()
    with pytest.raises(StoreError):
        LocalView.newest(view).all_file_slices("b/c")
    check(LocalView.newest(view), table.storage)


# A store in RocksDB.


def lists_of_data(storage: Storage) -> int:
    """Return how many directories of data were listed."""
    counted = storage.calls.snapshot().items()
    return sum(n for (kind, cause), n in counted if (kind, cause) == ("list", "lookup"))


def from_record(service: Restarted) -> int:
    return service.metrics.get("partition_loads", source="record")


def check_resumed(directory: Path, storage: Storage, partitions: int) -> None:
    """Check that a service continues from what the previous one saved."""
    before = lists_of_data(storage)
    service = Restarted("rocksdb", directory, storage)
    try:
        service.view.newest()
        assert from_record(service) >= partitions
        assert lists_of_data(storage) == before
        check(LocalView.newest(service.view), storage)
    finally:
        service.close()


def filled(directory: Path, storage: Storage) -> None:
    """Have a service save all of a table, and end."""
    service = Restarted("rocksdb", directory, storage)
    LocalView.newest(service.view).load_all_partitions()
    service.close()


def set_aside(directory: Path) -> list[str]:
    return [path.name for path in directory.glob("*.aside-*")]


class Written:
    """A table on the disk that is written to at random."""

    def __init__(self, path: Path, seed: int) -> None:
        self.storage = LocalStorage(str(path))
        self._table = SmallTable(self.storage)
        self._table.write(*EVERYWHERE)
        self._order = random.Random(seed)
        self._pending: list[Write] = []

    def move(self) -> str | None:
        """Do something; return the requested time of what completed."""
        table, order = self._table, self._order
        busy = {group for pending in self._pending for group in pending.groups}
        groups = [g for g in order.sample(EVERYWHERE, order.randint(1, 4)) if g not in busy]
        what = order.random()
        if what < 0.2 and groups:
            self._pending.append(table.begin(groups))
            return None
        if what < 0.35 and self._pending:
            return table.complete(self._pending.pop(0))
        if what < 0.45 and self._pending:
            table.take_back(self._pending.pop(0))
            return None
        return table.write(*groups, (f"new{order.randrange(5)}", "n"))


def killing(tmp_path: Path, times: int) -> None:
    """Kill a process that follows a table, repeatedly; the next continues from what it saved."""
    table, directory = Written(tmp_path / "t", times), tmp_path / "stores"
    filled(directory, table.storage)
    order = random.Random(times)
    command = [sys.executable, "-m", "tests.fsview.store_child", table.storage.base_path]
    for _ in range(times):
        child = subprocess.Popen(
            [*command, str(directory)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        with child.stdout as said:
            assert said.readline()
            for _ in range(order.randrange(8)):
                if table.move() is not None and order.random() < 0.5:
                    assert said.readline()
            child.kill()
            child.wait(timeout=PATIENCE_S)
        check_resumed(directory, table.storage, len(PARTITIONS))
    assert set_aside(directory) == []


@pytest.mark.property
def test_killed_a_hundred_times(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    killing(tmp_path, 100)
    assert warnings(caplog) == []


@pytest.mark.parametrize(("pattern", "damage"), CASES)
def test_damaged_files_never_make_wrong_answers(
    table: SmallTable, pattern: str, damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path, table.storage)
    for _ in range(2):  # what was in the log only lies in a file after that
        table.write(*EVERYWHERE)
        filled(tmp_path, table.storage)
    place = StorePlace.of(tmp_path, opened(table, Kept()).table_id)
    damaged = [
        path for path in place.path.glob(pattern) if path.stat().st_size or damage == "deleted"
    ]
    assert damaged
    for path in damaged:
        DAMAGES[damage](path)
    table.write(("a", "a0"))
    service = Restarted("rocksdb", tmp_path, table.storage)
    try:
        for _ in range(3):
            with suppress(StoreError):
                check(LocalView.synced(service.view), table.storage)
        check(LocalView.synced(service.view), table.storage)
    finally:
        service.close()
    again = Restarted("rocksdb", tmp_path, table.storage)
    check(LocalView.synced(again.view), table.storage)
    again.close()
    assert len(set_aside(tmp_path)) <= 1


def test_store_of_another_machine(table: SmallTable, tmp_path: Path) -> None:
    """A copy is this table's as of then, wherever the table itself was copied from."""
    filled(tmp_path / "here", table.storage)
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    table.write(("a", "a0"), ("e", "e0"))
    check_resumed(tmp_path / "there", table.storage, len(PARTITIONS))


def test_rows_of_another_table(table: SmallTable, caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept()
    LocalView.newest(opened(table, kept)).load_all_partitions()
    other = small(MemoryStorage("/memory/other"))
    check(LocalView.newest(opened(other, kept)), other.storage)
    (warning,) = warnings(caplog)
    assert "/memory/t" in warning
    assert "/memory/other" in warning


@pytest.mark.parametrize("days", [-4000, 4000])
def test_clock_set_elsewhere(table: SmallTable, tmp_path: Path, days: int) -> None:
    """Neither this machine's clock nor files' times decide what is held."""
    filled(tmp_path, table.storage)
    for path in tmp_path.rglob("*"):
        when = path.stat().st_mtime + days * 86400
        os.utime(path, (when, when))
    table.clock.advance(-3_600_000)  # and a writer's is an hour behind
    table.write(("a", "a0"), ("b/c", "c0"))
    check_resumed(tmp_path, table.storage, len(PARTITIONS))


def test_table_that_was_deleted_meanwhile(table: SmallTable, tmp_path: Path) -> None:
    filled(tmp_path, table.storage)
    files = dict(table.storage.files)
    table.storage.files.clear()
    service = Restarted("rocksdb", tmp_path, table.storage)
    for _ in range(2):
        with pytest.raises(TableNotFoundError):
            service.view.newest()
    table.storage.files.update(files)
    check(LocalView.newest(service.view), table.storage)
    service.close()
    check_resumed(tmp_path, table.storage, len(PARTITIONS))


def test_table_that_was_written_anew_meanwhile(table: SmallTable, tmp_path: Path) -> None:
    filled(tmp_path, table.storage)
    table.storage.files.clear()
    other = SmallTable(table.storage)
    other.clock.advance(86_400_000)
    other.write(("a", "x0"), ("z", "z0"))
    service = Restarted("rocksdb", tmp_path, table.storage)
    check(LocalView.newest(service.view), table.storage)
    assert sorted(service.view.held_partitions()) == ["a", "z"]
    service.close()
    check_resumed(tmp_path, table.storage, 2)


@pytest.mark.parametrize("to", [6, 8])
def test_table_that_was_moved_to_another_version_meanwhile(to: int, tmp_path: Path) -> None:
    table = ModelTable(9, "MERGE_ON_READ", change_data=False)
    writes.complete(table, writes.begin(table, [(table.group("a", 0), "base")]))
    filled(tmp_path, table.storage)
    upgrading.move(table, to)
    writes.complete(table, writes.begin(table, [(table.group("a", 0), "log")]))
    service = Restarted("rocksdb", tmp_path, table.storage)
    check(LocalView.newest(service.view), table.storage)
    assert service.metrics.get("reloads", cause="table-upgraded") == 1
    service.close()
    check_resumed(tmp_path, table.storage, 1)
