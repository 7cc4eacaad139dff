"""A table that is changed while it is read: the rows of one state, or an error that says why."""

from __future__ import annotations

import pytest

from strandline.read.scan import Scan
from strandline.read.state.changed_table import ATTEMPTS, RETENTION
from strandline.table_api.table import Table
from tests.kit.storage.hooked_storage import HookedStorage
from tests.strandline.read.logs.log_table import BASE, LogTable, row
from timeline.errors import InstantNotFoundError, PathNotFoundError, ViewBehindError
from timeline.instant import CLEAN, ROLLBACK, State
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CleanerPlan, CleanMetadata
from timeline.storage.local import LocalStorage


@pytest.fixture
def table(tmp_path):
    """A local table whose one slice has a base file and a log."""
    made = LogTable(LocalStorage(str(tmp_path)))
    made.base(BASE)
    made.rows_log(row("a", 2, "new"))
    return made


def clean(table, *, complete=True):
    """Clean nothing; return the clean's requested time."""
    time = table.begin().requested_time[:-1] + "9"
    started = table.meta.create_requested(CLEAN, time, CleanerPlan())
    started = table.meta.transition_to_inflight(started)
    if complete:
        table.meta.complete(started, CleanMetadata(), str(int(time) + 1))
    return time


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize("kind", ["base_file", "logs"])
def test_a_file_that_was_cleaned_while_it_was_read(table, tmp_path, kind, complete):
    scan = Table(tmp_path).scan()
    time = clean(table, complete=complete)
    path = scan.plan().flatten().column(kind).combine_chunks()[0].as_py()
    path = path if isinstance(path, str) else path[0]
    table.storage.delete(path)
    state = State.COMPLETED if complete else State.INFLIGHT
    for read in (scan.to_arrow, scan.to_reader().read_all, scan.count):
        with pytest.raises(PathNotFoundError, match="make the scan again") as error:
            read()
        text = str(error.value)
        assert path in text
        assert f"deleted by clean {time} ({state.value.lower()})" in text
        assert all(setting in text for setting in RETENTION)


def test_a_file_that_nothing_on_the_timeline_deleted(table, tmp_path):
    clean(table)
    scan = Table(tmp_path).scan()
    table.storage.delete(scan.plan()["base_file"][0].as_py())
    with pytest.raises(PathNotFoundError, match="no clean or rollback on the timeline has deleted"):
        scan.to_arrow()


def test_the_scan_can_be_made_again(table, tmp_path):
    scan = Table(tmp_path).scan(["id", "v"])
    old = scan.plan()["base_file"][0].as_py()
    table.base([row("a", 3, "newest")])
    table.storage.delete(old)
    with pytest.raises(PathNotFoundError, match="make the scan again"):
        scan.to_arrow()
    again = Table(tmp_path).scan(["id", "v"]).to_arrow()
    assert again.to_pylist() == [{"id": "a", "v": "newest"}]


class Archiving:
    """Archives the newest commit each time a partition is listed, after a new one has begun."""

    def __init__(self, table, times):
        self.table, self.times, self.done = table, times, 0

    def __call__(self, kind, path):
        if (kind, path) == ("list", "p") and self.done < self.times:
            self.done += 1
            meta = self.table.meta
            newest = meta.active_timeline().completed().last
            self.table.base([row("a", 9, f"{self.done}")])
            self.table.storage.delete(meta.path_of(newest))


def test_a_commit_that_is_archived_while_the_state_is_read(table, tmp_path):
    archiving = Archiving(table, ATTEMPTS - 1)
    meta = TableMetaClient.open(HookedStorage(tmp_path, before=archiving))
    assert Scan.of(meta, columns=["v"]).to_arrow()["v"].to_pylist() == [f"{ATTEMPTS - 1}"]
    assert archiving.done == ATTEMPTS - 1


def test_a_table_that_changes_each_time_stays_an_error(table, tmp_path):
    archiving = Archiving(table, 99)
    meta = TableMetaClient.open(HookedStorage(tmp_path, before=archiving))
    with pytest.raises((InstantNotFoundError, PathNotFoundError, ViewBehindError)):
        Scan.of(meta)
    assert archiving.done == ATTEMPTS


def test_pending_rollbacks_are_named(table, tmp_path):
    time = table.begin().requested_time[:-1] + "9"
    scan = Table(tmp_path).scan()
    table.meta.create_requested(ROLLBACK, time)
    table.storage.delete(scan.plan()["logs"][0].as_py()[0])
    with pytest.raises(PathNotFoundError, match=rf"rollback {time} \(requested\)"):
        scan.to_arrow()
