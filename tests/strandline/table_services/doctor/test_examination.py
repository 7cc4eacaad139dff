"""Examinations: what they read, tables that change meanwhile, large tables, the public methods."""

from __future__ import annotations

import os
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from strandline import Table
from strandline.table_services.doctor.examination import _archived_base_files, examine
from strandline.table_services.doctor.file_checks import MANY_SMALL
from strandline.table_services.doctor.finding import FINDINGS_SCHEMA
from strandline.table_services.doctor.picture import DAY_MS, read_picture
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables import golden
from tests.kit.tables.small_table import SmallTable
from tests.strandline.table_services.doctor.planted import (
    PLANTS,
    Recorded,
    beside,
    rollback_of,
    time_of,
)
from tests.strandline.write.tables import client, row, table
from timeline.clock import format_instant_time
from timeline.errors import TableNotFoundError, UnsupportedTableError
from timeline.instant import CLEAN, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata import codec
from timeline.metadata.instant_metadata import CleanMetadata, CleanPartitionMetadata
from timeline.timeline import Timeline


class NotedStorage(MemoryStorage):
    """Notes what is read of each file, and at which place."""

    def __init__(self, inner: MemoryStorage) -> None:
        super().__init__(inner.base_path)
        self.files = inner.files
        self.opened: Counter[str] = Counter()
        self.listed: Counter[str] = Counter()
        self.fail.append(self._note)

    def _note(self, kind: str, path: str) -> None:
        if kind == "list":
            self.listed[path] += 1
        elif kind == "read":
            self.opened[path] += 1


def noted(scenario: str, *, deep: bool) -> tuple[Recorded, NotedStorage]:
    recorded = Recorded(scenario)
    storage = NotedStorage(recorded.storage)
    assert examine(storage, recorded.clock, deep=deep) == ()
    return recorded, storage


@pytest.mark.parametrize("scenario", ["cow_basic_v9", "mor_basic_v6", "mor_basic_v9"])
def test_base_files_are_opened_on_request_only_and_partitions_are_listed_once(scenario):
    recorded, storage = noted(scenario, deep=False)
    opened = {path for path in storage.opened if not path.startswith(".hoodie/")}
    assert opened == set(recorded.logs())
    assert {path: count for path, count in storage.listed.items() if ".hoodie" not in path} == {
        "": 1,
        **dict.fromkeys({base.rpartition("/")[0] for base in recorded.bases()}, 1),
    }
    _, storage = noted(scenario, deep=True)
    newest = {path for path in storage.opened if path.endswith(".parquet")}
    assert newest
    assert newest <= set(recorded.bases())


@pytest.mark.parametrize("scenario", golden.scenarios())
def test_a_sound_table_has_no_findings_after_any_step(scenario):
    for step in golden.steps(scenario):
        newest_ms = max(entry.mtime_ms for entry in golden.listing(scenario, step))
        storage = golden.GoldenStorage(scenario, step)
        assert examine(storage, ManualClock(newest_ms + 1000)) == (), step


GROUPS = [("p=1", "a-0"), ("p=1", "b-0"), ("p=2", "c-0")]


@pytest.mark.parametrize("version", [6, 9])
def test_what_is_under_way_is_no_fault(version):
    small = SmallTable(version=version)
    for _ in range(4):
        small.write(*GROUPS)
    small.savepoint(small.model.writes[-1])
    small.write(*GROUPS[:2], replaces=GROUPS[2:])
    small.begin(GROUPS[:1], leftover=True)
    small.begin(GROUPS[1:2], inflight=False)
    clean, files = small.begin_clean(small.to_clean())
    assert examine(small.storage, small.clock) == ()
    for file in files[::2]:
        small.storage.delete(file.path)
    assert examine(small.storage, small.clock) == ()
    small.finish_clean(clean, files)
    assert examine(small.storage, small.clock) == ()
    small.roll_back(small.pending[0])
    assert examine(small.storage, small.clock) == ()


def test_a_write_that_completes_while_partitions_are_listed_is_no_fault():
    small = SmallTable()
    small.write(*GROUPS)
    written = []

    def write(kind: str, path: str) -> None:
        if (kind, path) == ("list", "p=1") and not written:
            written.append(path)
            small.write(*GROUPS)
            small.write(*GROUPS, replaces=[("p=2", "c-0")])

    small.storage.fail.append(write)
    assert examine(small.storage, small.clock) == ()
    assert written


def test_a_fault_is_found_while_another_writer_is_busy():
    small = SmallTable()
    small.write(*GROUPS)
    lost = next(path for path in small.storage.files if path.startswith("p=2/c-0"))
    del small.storage.files[lost]
    wrote = []

    def write(kind: str, path: str) -> None:
        if (kind, path) == ("list", "p=1") and len(wrote) < 2:
            wrote.append(path)
            small.write(GROUPS[0])

    small.storage.fail.append(write)
    found = examine(small.storage, small.clock)
    assert [(each.code, each.names) for each in found] == [("missing-file", (lost,))]


def test_a_copy_is_found_while_another_writer_is_busy():
    table = Recorded("archival_cow_v9")
    names = next(p for p in PLANTS if p.code == "duplicate-file-name").plant(table)
    time = table.time()
    _when_listed(
        table.storage,
        max(names or ()).rpartition("/")[0],
        lambda: table.put(f"{table.folder()}/{time}.commit.requested", b"", 0),
    )
    found = examine(table.storage, table.clock)
    assert [set(each.names) for each in found] == [names]


def _when_listed(storage: MemoryStorage, folder: str, act: Callable[[], object]) -> None:
    done = []

    def look(kind: str, path: str) -> None:
        if kind in ("list", "stat") and path == folder and not done:
            done.append(path)
            act()

    storage.fail.append(look)


def test_a_metadata_table_that_a_writer_drops_meanwhile_is_not_missed():
    table = Recorded("mdt_mor_v9")

    def drop() -> None:
        table.change_properties(hoodie_table_metadata_partitions="")
        table.storage.delete_tree(".hoodie/metadata")

    _when_listed(table.storage, ".hoodie/metadata", drop)
    assert examine(table.storage, table.clock) == ()
    assert not table.paths(".hoodie/metadata/")


def test_logs_of_before_an_upgrade_belong_to_their_slice():
    table = Recorded("mor_basic_v9")
    base = next(p for p in table.bases() if table.meta.active_timeline().find(time_of(p)))
    folder, _, name = base.rpartition("/")
    file_id, time = name.split("_")[0], time_of(base)
    instant = table.meta.active_timeline().find(time)
    assert instant is not None
    table.move(table.instant_file(instant), f"{table.folder()}/{time}.{instant.action}")
    table.put(f"{folder}/.{file_id}_{time}.log.9_0-1-2", b"")
    codes = {each.code for each in examine(table.storage, table.clock)}
    assert "visible-orphan" not in codes


def test_savepoints_keep_files_that_must_be_there():
    small = SmallTable()
    small.write(*GROUPS)
    small.savepoint(small.model.writes[-1])
    old = next(path for path in small.storage.files if path.startswith("p=1/a-0"))
    small.write(*GROUPS)
    del small.storage.files[old]
    (found,) = examine(small.storage, small.clock)
    assert (found.code, found.names) == ("missing-file", (old,))
    assert "savepoint" in found.what


def test_a_partition_that_vanished_is_missing():
    small = SmallTable()
    small.write(*GROUPS)
    small.storage.delete_tree("p=2")
    (found,) = examine(small.storage, small.clock)
    assert (found.code, found.partition) == ("missing-file", "p=2")


def test_many_small_files_of_a_partition_are_one_finding():
    small = SmallTable()
    small.write(*(("p=1", f"a{n}-0") for n in range(MANY_SMALL)))
    small.write(*(("p=2", f"b{n}-0") for n in range(MANY_SMALL - 1)))
    (found,) = examine(small.storage, small.clock)
    assert (found.code, found.partition) == ("small-files", "p=1")
    assert found.bytes == sum(
        len(data) for path, (data, _) in small.storage.files.items() if path.endswith(".parquet")
        and path.startswith("p=1/")
    )  # fmt: skip
    assert found.what.startswith(f"{MANY_SMALL} of {MANY_SMALL}")


def test_calls_grow_with_partitions_and_not_with_files():
    def calls(partitions: int, files: int) -> int:
        small = SmallTable()
        small.write(*((f"p={p}", f"a{n}-0") for p in range(partitions) for n in range(files)))
        small.storage.calls.__init__()
        examine(small.storage, small.clock)
        return sum(small.storage.calls.snapshot().values())

    assert calls(3, 2) == calls(3, 12)
    assert calls(13, 2) - calls(3, 2) == 10


@pytest.mark.property
@pytest.mark.parametrize(("kind", "version"), [("COPY_ON_WRITE", "6"), ("MERGE_ON_READ", "9")])
def test_tables_of_this_writer_are_sound(tmp_path: Path, kind: str, version: str):
    base = tmp_path / "t"
    options = {
        "datasource__write__table__type": kind,
        "write__table__version": version,
        "clean__automatic": "true",
        "clean__commits__retained": 1,
        "keep__min__commits": 2,
        "keep__max__commits": 3,
    }
    with client(base, **options) as writer:
        for n in range(5):
            writer.upsert(table(row("a", ts=n), row("b", region="us", ts=n)))
        if kind == "MERGE_ON_READ":
            assert writer.compact() is not None
        writer.delete_partition(["us"])
        assert writer.repair() == ()
    found = Table(base).doctor(deep=True)
    assert found.schema == FINDINGS_SCHEMA
    assert found.to_pylist() == []


@pytest.mark.property
def test_the_table_tells_and_the_client_repairs(tmp_path: Path):
    base = tmp_path / "t"
    clock = ManualClock(time.time_ns() // 1_000_000 - 3 * DAY_MS)
    with client(base, clock=clock) as writer:
        writer.upsert(table(row("a")))
        clock.advance(DAY_MS)
        path = next(base.glob("eu/*.parquet"))
        other = base / beside(f"eu/{path.name}", time=format_instant_time(clock.now_ms(), "UTC"))
        other.write_bytes(path.read_bytes())
        os.utime(other, (clock.now_ms() / 1000, clock.now_ms() / 1000))
        times = (format_instant_time(clock.now_ms() + ms, "UTC") for ms in (0, 1000))
        for name, data in rollback_of(Table(base)._meta, *times).items():
            (base / name).write_bytes(data)
        clock.advance(2 * DAY_MS)
        (found,) = Table(base).doctor().to_pylist()
        assert (found["code"], found["fixable"]) == ("orphan-file", True)
        assert found["names"] == [f"eu/{other.name}"]
        (done,) = writer.repair()
        assert (done.name, done.done, done.bytes) == (f"eu/{other.name}", True, found["bytes"])
        assert Table(base).doctor().num_rows == 0
        assert Table(base).to_arrow().num_rows == 1


def test_no_table_is_an_error():
    with pytest.raises(TableNotFoundError, match="no table"):
        examine(MemoryStorage(), ManualClock(DAY_MS))


def test_a_table_of_a_version_that_is_not_supported_is_an_error():
    table = Recorded("cow_basic_v9")
    table.change_properties(hoodie_table_version="10")
    with pytest.raises(UnsupportedTableError, match="version 10"):
        examine(table.storage, table.clock)


def test_an_interrupted_archival_is_no_fault():
    """It deletes the files of earlier states of instants that the archive has, then the last."""
    table = Recorded("archival_cow_v9")
    archived = next(i for i in table.meta.archived_timeline().timeline if i.action == "commit")
    data = codec.encode(table.meta.archived_timeline().read(archived), 9)
    table.put(table.instant_file(archived), data)
    assert "missing-predecessor" not in {f.code for f in examine(table.storage, table.clock)}


def test_a_log_that_an_upgrade_has_left_in_its_slice_is_no_orphan():
    """A write of version 6 was undone, and its log named by the compaction that began the slice."""
    found = Recorded("mor_basic_v9")
    folder, _, name = found.bases()[-1].rpartition("/")
    log = f"{folder}/.{name.split('_')[0]}_{time_of(name)}.log.1_0-1-7"
    found.put(log, found.data(found.logs()[-1]))
    assert examine(found.storage, found.clock) == ()


@dataclass(frozen=True)
class Cleans:
    """An archive of cleans, each of some files."""

    timeline: Timeline
    files: int

    def read(self, instant: Instant) -> CleanMetadata:
        time = instant.requested_time
        names = tuple(f"{n:036}_0-1-2_{time}.parquet" for n in range(self.files))
        done = CleanPartitionMetadata("p", success_delete_files=names)
        return CleanMetadata(partition_metadata={"p": done})


class CleanedTable(TableMetaClient):
    """A table with an archive of 100 cleans."""

    def archived_timeline(self) -> Any:
        times = (f"2026010100{n:07}" for n in range(100))
        cleans = (Instant(time, CLEAN, State.COMPLETED, f"{int(time) + 1}") for time in times)
        return Cleans(Timeline.of(cleans), 200)


def test_of_archived_cleans_one_at_a_time_is_in_memory():
    found = Recorded("cow_basic_v9")
    picture = read_picture(found.meta, found.clock.now_ms())
    table = CleanedTable(found.storage, found.meta.config)
    tracemalloc.start()
    try:
        assert _archived_base_files(table, picture) == {}
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 500_000, "20,000 names are more than 2 MB"
