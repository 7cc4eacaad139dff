"""Merge-on-read tables of version 6: their logs are named by their slice, not by their write."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from fsview.local_view import LocalView, open_view
from fsview.model.file_system_view import FileSystemView
from fsview.table_view import TableView
from strandline import Table
from strandline.table_services.rollback.pending_files import files_of_pending
from tests.kit.concurrency.manual_clock import LaterClock
from tests.kit.storage.faulty_storage import Crash
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import reader
from tests.strandline.write.faults.fault_scenarios import LOCK
from tests.strandline.write.logged_table import (
    BUCKETS,
    LOGS,
    VERSION_6,
    compactions,
    dead_write,
    optimized,
    rows,
    write_logs,
)
from tests.strandline.write.tables import client, row, table
from timeline.encoding.log_block import COMMAND, INSTANT_TIME, read_blocks
from timeline.errors import ConcurrentWriteError
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.property


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """A table with logs."""
    return write_logs(tmp_path_factory.mktemp("written") / "t", VERSION_6)


@pytest.fixture
def base(written, tmp_path) -> Path:
    """A copy of that table."""
    return Path(shutil.copytree(written, tmp_path / "t"))


def test_a_delta_commit_that_was_made_while_a_compaction_was_planned_forbids_it(base):
    """Without a lock; its log belongs to a slice whose files were listed before."""
    made = []

    def write_between(kind, path):
        if kind == "list" and path == "us" and not made:
            made.append(path)
            with client(base, **LOGS) as other:
                other.upsert(table(row("a", ts=9)))

    # After the look-up of its partition, and before the plan is requested.
    hooked = HookedStorage(base, after=write_between)
    with client(base, hooked, **LOGS) as c:
        with pytest.raises(ConcurrentWriteError, match=r"delta commit \d+ .* the plan lacks its"):
            c.schedule_compaction()
        assert (made, compactions(base)) == (["us"], [])
        c.compact()
    assert [each["ts"] for each in optimized(base)] == [9, 3]


def test_what_was_compacted_is_returned_if_a_writer_forbids_the_next_plan(base):
    with client(base, **LOGS, **LOCK) as c:
        planned, done = c.schedule_compaction(), []

    def compact_between(kind, path):
        if kind == "create" and path.endswith(".deltacommit.inflight") and not done:
            with client(base, **LOGS, **LOCK) as other:
                done.append(other.compact())

    with client(base, HookedStorage(base, compact_between), **LOGS, **LOCK) as c:
        c.upsert(table(row("a", ts=9)))
    assert [each.instant for each in done] == [planned]
    assert [each["ts"] for each in rows(base)] == [9, 3]


@pytest.mark.parametrize("index", ["SIMPLE", "BLOOM"])
def test_a_key_in_a_log_that_was_rolled_back_is_stored_once(tmp_path, index):
    """The log lies on a compaction that dropped the key, and that is archived."""
    base = tmp_path / "t"
    with client(base, **LOGS, **VERSION_6, index__type=index) as c:
        c.upsert(table(row("a"), row("b")))
        c.delete(table(row("a")))
        planned = c.schedule_compaction()
        c.rollback(c.upsert(table(row("a", ts=2))).instant)
        assert c.compact_planned().instant == planned
        # The group has logs, so the row goes to another one.
        assert c.insert(table(row("a", ts=3))).rows_inserted == 1
    for instant in reader.timeline_folder(base).glob("*.*"):
        if instant.name[:17].isdigit() and instant.name[:17] <= planned:
            instant.unlink()
    with client(base, **LOGS, index__type=index) as c:
        result = c.upsert(table(row("a", ts=4)))
        assert (result.rows_updated, result.rows_inserted) == (1, 0)
    assert [(each["id"], each["ts"]) for each in rows(base)] == [("a", 4), ("b", 1)]


def test_logs_of_undone_writes_go_with_the_compaction_on_which_they_lie(base):
    with client(base, **LOGS) as c:
        before, compaction = rows(base), c.compact()
        c.rollback(c.upsert(table(row("a", ts=9))).instant)
        assert any(compaction.instant in log.name for log in (base / "eu").iterdir())
        with closing(open_view(LocalStorage(str(base)))) as view:
            view.load_all_partitions()
            c.rollback(compaction.instant)
            view.sync()
            with closing(open_view(LocalStorage(str(base)))) as fresh:
                fresh.load_all_partitions()
                assert files_of(view) == files_of(fresh)
        assert not any(compaction.instant in log.name for log in (base / "eu").iterdir())
        assert rows(base) == before
        c.compact()
    assert rows(base) == optimized(base) == before


def test_a_lazy_writer_rolls_back_a_dead_delta_commit_before_it_plans(base):
    """It leaves it to the clean before a write, but it would forbid each plan."""

    def die(kind, path):
        if kind == "create" and path.endswith(".deltacommit.inflight"):
            raise Crash

    before = rows(base)
    with client(base, HookedStorage(base, after=die), **LOGS) as c, pytest.raises(Crash):
        c.upsert(table(row("a", ts=9)))
    lazy = {**LOCK, "clean__failed__writes__policy": "LAZY"}
    with client(base, **LOGS, **lazy, clock=LaterClock()) as c:
        assert c.compact() is not None
    assert reader.pending(base) == set()
    assert rows(base) == optimized(base) == before


def test_a_log_that_is_gone_meanwhile_has_no_blocks_of_a_dead_write(base):
    dead = dead_write(base, keep_markers=False)
    meta = TableMetaClient.open(VanishingLogs(str(base)))
    (target,) = meta.active_timeline().pending()
    found = files_of_pending(meta, target)
    assert {path.rpartition(".")[2] for path in found} == {"parquet"}
    # Without a lock its inflight file may be gone, too.
    meta.delete_instant_file(target)
    assert files_of_pending(meta, target) == found
    assert target.requested_time == dead


def test_logs_of_undone_writes_go_with_the_base_file_on_which_they_lie(tmp_path):
    base = tmp_path / "t"
    with client(base, **BUCKETS, **VERSION_6) as c:
        first = c.insert(table(row("a"))).instant
        c.rollback(c.upsert(table(row("a", ts=2))).instant)
        c.rollback(first)
        assert list(reader.logs(base)) == []
        c.insert(table(row("b")))
        c.upsert(table(row("b", ts=2)))
        c.compact()
        assert Table(base).to_arrow()["id"].to_pylist() == ["b"]
        assert len(list((base / "eu").glob("*.parquet"))) == 2


def test_the_check_of_a_view_knows_why_a_log_is_empty(base):
    """Its write failed after another writer had rolled it back, and had named the log's size."""
    with client(base, **LOGS) as c:
        undone = c.upsert(table(row("a", ts=9))).instant
        c.rollback(undone)
    view = TableView(LocalStorage(str(base)))
    LocalView.newest(view).load_all_partitions()
    logs = sorted((base / "eu").glob(".*.log.*"), key=lambda path: path.name)
    (left,) = [log for log in logs if is_of(log, undone)]
    left.write_bytes(b"")
    checked = view.check("eu")
    assert (checked.outcome, checked.differences.unnamed) == ("equal", {left.name})
    # One that a delta commit names has lost its rows.
    logs[0].write_bytes(b"")
    assert view.check("eu").outcome == "different"


def is_of(log: Path, instant: str) -> bool:
    """Return whether a log has rows of an instant."""
    blocks = read_blocks(log.read_bytes(), log.name)
    return any(b.header[INSTANT_TIME] == instant and b.kind != COMMAND for b in blocks)


def files_of(view: FileSystemView) -> list[dict[str, int]]:
    """Return name → size of the files of each slice."""
    return [each.sizes for partition in ("eu", "us") for each in view.all_file_slices(partition)]


class VanishingLogs(LocalStorage):
    """Storage in which another writer deletes each log before it is opened."""

    def open_input(self, path):
        if ".log." in path:
            self.delete(path)
        return super().open_input(path)
