"""Views over RocksDB after a kill, damage, or a change of table, clock or machine."""

from __future__ import annotations

import os
import random
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from fsview.local_view import LocalView
from fsview.store.rocksdb.store_directory import StorePlace
from tests.fsview.store.lasting_store import Kept
from tests.fsview.store.store_child import follow
from tests.fsview.store.stored_views import EVERYWHERE, PARTITIONS, check, opened, small, warnings
from tests.fsview.store.test_rocksdb_faults import CASES, DAMAGES
from tests.kit.servers.processes import Forked
from tests.kit.servers.stores import Restarted
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables.model import upgrading, writes
from tests.kit.tables.model.table import ModelTable
from tests.kit.tables.small_model import Write
from tests.kit.tables.small_table import SmallTable
from timeline.errors import StoreError, TableNotFoundError
from timeline.storage.base import Storage
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.property


@pytest.fixture
def table() -> SmallTable:
    return small()


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
    for _ in range(times):
        with Forked(follow, table.storage.base_path, str(directory)) as child:
            assert child.stdout.readline()
            for _ in range(order.randrange(8)):
                if table.move() is not None and order.random() < 0.5:
                    assert child.stdout.readline()
            child.kill()
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
