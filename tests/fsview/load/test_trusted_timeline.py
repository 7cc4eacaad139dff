"""Loads that trust the last sync of the timeline: what they save, and when they cannot trust it."""

from __future__ import annotations

import pytest

from fsview.local_view import LocalView
from fsview.table_view import TableView
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.tables.small_table import SmallTable
from timeline.errors import ViewBehindError

PARTITIONS = [f"p={n}" for n in range(6)]
TRUSTED_S = 60.0


class Worker:
    """A table of six partitions, and a view of it as an executor opens one."""

    def __init__(self, *, commits: int = 12) -> None:
        self.table = SmallTable()
        # So many commits that reading them all would cost more than to list a few partitions.
        for _ in range(commits):
            self.table.write(*[(p, f"{p}-0") for p in PARTITIONS])
        self.clock = ManualClock(0)
        self.storage = self.table.storage
        self.view_table = TableView(self.storage, clock=self.clock, trusted_s=TRUSTED_S)
        self.view = LocalView.at(self.view_table, *self.table.known())

    def lists(self) -> int:
        """Return the list calls since this was asked last."""
        calls = self.storage.calls.snapshot()
        total = sum(n for (kind, _), n in calls.items() if kind == "list")
        since, self._before = total - getattr(self, "_before", 0), total
        return since

    def paths(self, partition: str) -> set[str]:
        return {file.path for file in self.view.latest_base_files(partition)}


@pytest.fixture
def worker() -> Worker:
    made = Worker()
    made.lists()
    return made


def test_a_partition_costs_one_list_and_none_of_the_timeline(worker):
    for partition in PARTITIONS[:3]:
        worker.paths(partition)
        assert worker.lists() == 1


def test_files_of_an_unknown_instant_have_the_timeline_listed(worker):
    before = worker.table.model.read_at("9")
    worker.table.write((PARTITIONS[0], f"{PARTITIONS[0]}-0"))
    worker.lists()
    assert worker.paths(PARTITIONS[0]) < before
    assert worker.lists() == 2
    assert worker.paths(PARTITIONS[1]) < before
    assert worker.lists() == 2, "the view isn't at the newest instant any more"


def test_a_partition_without_files_has_the_timeline_listed(worker):
    assert worker.paths("p=none") == set()
    assert worker.lists() == 2


def test_an_old_look_doesnt_hold_any_more(worker):
    worker.paths(PARTITIONS[0])
    worker.lists()
    worker.clock.advance(int(TRUSTED_S * 1000) + 1)
    worker.paths(PARTITIONS[1])
    assert worker.lists() == 2
    worker.paths(PARTITIONS[2])
    assert worker.lists() == 1


def test_a_service_lists_the_timeline_with_each_load(worker):
    view = LocalView.newest(TableView(worker.storage, clock=worker.clock))
    worker.lists()
    for partition in PARTITIONS[:3]:
        view.latest_base_files(partition)
        assert worker.lists() == 2


def test_a_view_behind_the_newest_instant_trusts_nothing():
    """What it needs may have been cleaned without a trace among the files that it lists."""
    table = SmallTable()
    for _ in range(12):
        table.write(("p=1", "a-0"), ("p=1", "b-0"), ("p=2", "c-0"))
    known = table.known()
    needed = table.model.read_at(known[0])
    table.write(("p=1", "a-0"))
    view = LocalView.at(TableView(table.storage, trusted_s=TRUSTED_S), *known)
    view.latest_base_files("p=2")
    gone = [f for f in table.model.files.values() if f.path in needed and f.file_id == "a-0"]
    table.finish_clean(*table.begin_clean(gone))
    with pytest.raises(ViewBehindError):
        view.latest_base_files("p=1")
