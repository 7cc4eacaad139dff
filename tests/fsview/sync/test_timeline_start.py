"""Rollbacks that stay on the timeline longer than writes, before the timeline's start."""

from __future__ import annotations

import pytest

from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.table_view import TableView
from tests.kit.tables.small_model import Write
from tests.kit.tables.small_table import SmallTable
from timeline.instant import Instant, State


def commit(table: SmallTable) -> Write:
    write = table.begin([("a", "f1-0")])
    table.complete(write)
    return write


def followed(table: SmallTable) -> tuple[TableView, Metrics]:
    metrics = Metrics()
    view = TableView(table.storage, metrics=metrics)
    LocalView.newest(view).load_partitions(["a"])
    return view, metrics


def nothing_was_loaded_anew(metrics: Metrics) -> bool:
    return metrics.get("reloads") == metrics.get("partition_reloads") == 0


@pytest.mark.parametrize("version", [6, 9])
def test_a_write_archived_from_behind_a_rollback_is_not_a_lost_one(version: int) -> None:
    table = SmallTable(version=version)
    commit(table)
    failed = table.begin([("a", "f1-0")])
    table.roll_back(failed)
    writes = [commit(table) for _ in range(4)]
    view, metrics = followed(table)
    first = min(table.model.committed)
    for time in (first, writes[0].instant.requested_time):
        found = table.meta.active_timeline().find(time)
        assert found is not None
        table.meta.delete_instant_file(found)
        for state in (State.INFLIGHT, State.REQUESTED):
            table.meta.delete_instant_file(Instant(time, found.action, state))
    before = LocalView.newest(view)
    last = commit(table).files[0].name
    view.sync()
    assert nothing_was_loaded_anew(metrics)
    assert [file.name for file in LocalView.newest(view).latest_base_files("a")] == [last]
    # Archived isn't undone: who knew them is still answered.
    known = before.last_instant()
    assert known is not None
    held = LocalView.at(view, known.requested_time, before.timeline.hash)
    assert [file.name for file in held.latest_base_files("a")] == [writes[-1].files[0].name]


@pytest.mark.parametrize("version", [6, 9])
def test_a_table_whose_only_write_is_rolled_back_is_the_same_table(version: int) -> None:
    table = SmallTable(version=version)
    only = commit(table)
    view, metrics = followed(table)
    table.uncomplete(only)
    table.roll_back(only)
    view.sync()
    assert nothing_was_loaded_anew(metrics)
    assert LocalView.newest(view).latest_base_files("a") == ()
