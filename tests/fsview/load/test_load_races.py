"""Partitions that are loaded while writers commit and other callers sync are listed once each.

The table changes at the one call between a load's read of the timeline and the loaded files'
publication: the read of the plan of a clean under way. Another caller syncs then, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest

from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.state.current_history import SPARED
from fsview.table_view import TableView
from tests.fsview.load.wide_table import assert_as_listed
from tests.fsview.shared_work import wait_until, waits_in
from tests.kit.tables.small_table import SmallTable
from timeline.errors import StorageUnavailableError
from timeline.instant import CLEAN, State


def a_table() -> SmallTable:
    """Return a table of two partitions with files that a clean may delete."""
    table = SmallTable()
    for _ in range(4):
        table.write(("a", "f1-0"), ("b", "f2-0"))
    return table


class Moves:
    """Changes a table during a load, and counts how often its directories are listed."""

    def __init__(self, table: SmallTable, view: TableView) -> None:
        self.listed: Counter[str] = Counter()
        self.happened = 0
        self._table = table
        self._view = view
        self._busy = False

    @contextmanager
    def at_each_look(self, move: Callable[[int], object]) -> Iterator[None]:
        """Change the table, and sync it elsewhere, each time a load has read the timeline."""

        def act(kind: str, path: str) -> None:
            if kind == "list":
                self.listed[path] += 1
            is_plan = kind == "read" and path.endswith(f".{CLEAN}.requested")
            if self._busy or not is_plan:
                return
            self._busy = True  # what happens here moves nothing
            move(self.happened)
            self.happened += 1
            self._view.sync()
            self._view.state.drop_oldest()  # as when memory is short
            self._busy = False

        self._table.storage.fail.append(act)
        try:
            yield
        finally:
            self._table.storage.fail.remove(act)


@pytest.mark.parametrize("retained", [1, 256])
def test_a_load_under_steady_commits_lists_each_partition_once(retained: int) -> None:
    table = a_table()
    table.begin_clean(table.to_clean())
    metrics = Metrics()
    view = TableView(table.storage, metrics=metrics, retained_snapshots=retained)
    view.newest()
    moves = Moves(table, view)

    def commit(_: int) -> None:
        for _ in range(3):
            table.write(("a", "f1-0"), ("b", "f3-0"))

    with moves.at_each_look(commit):
        LocalView.newest(view).load_partitions(["a", "b"])
    assert moves.happened == 1
    assert (moves.listed["a"], moves.listed["b"]) == (1, 1)
    assert metrics.get("partition_reloads") == 0
    for _ in range(SPARED):
        commit(0)
        newest = LocalView.synced(view)
    while view.state.drop_oldest() is not None:
        pass
    assert view.status()["snapshots"] == min(retained, SPARED), "the load is over"
    for partition in ("a", "b"):
        shown = {f.file_id: (f.name, f.size) for f in newest.latest_base_files(partition)}
        assert shown == table.model.latest(partition)


def test_a_clean_that_ends_during_a_load_leaves_no_ghosts_of_what_it_deleted() -> None:
    table = a_table()
    clean, files = table.begin_clean(table.to_clean())
    view = TableView(table.storage)
    view.newest()
    moves = Moves(table, view)
    with moves.at_each_look(lambda _: table.finish_clean(clean, files)):
        LocalView.newest(view).load_partitions(["a", "b"])
    assert moves.happened == 1
    assert (moves.listed["a"], moves.listed["b"]) == (1, 1)
    LocalView.newest(view).load_all_partitions()
    assert_as_listed(view, table)


def test_only_what_cannot_be_followed_during_a_load_is_listed_again() -> None:
    """A write in flight vanishes without a trace: where it was listed, its files may remain."""
    table = a_table()
    table.begin_clean(table.to_clean())
    write = table.begin([("b", "f9-0")])
    metrics = Metrics()
    view = TableView(table.storage, metrics=metrics)
    view.newest()
    moves = Moves(table, view)

    def give_up(happened: int) -> None:
        if happened == 0:
            for file in write.files:
                table.storage.delete(file.path)
            asked = replace(write.instant, state=State.REQUESTED)
            table.meta.delete_instant_file(write.instant)
            table.meta.delete_instant_file(asked)

    with moves.at_each_look(give_up):
        LocalView.newest(view).load_partitions(["a", "b"])
    assert (moves.listed["a"], moves.listed["b"]) == (1, 2)
    assert metrics.get("partition_reloads", cause="instant-vanished") == 1
    names = {file.name for file in LocalView.newest(view).all_base_files("b")}
    assert not any(name.startswith("f9") for name in names)


def test_a_failed_listing_fails_once_for_all_waiters() -> None:
    """Each that had waited listed in turn, the last after all the others had failed."""
    table, callers = a_table(), 8
    view = TableView(table.storage)
    view.newest()
    listed: list[str] = []

    def fail_once_all_wait(kind: str, path: str) -> None:
        if (kind, path) == ("list", "a"):
            listed.append(path)
            if len(listed) == 1:
                wait_until(lambda: waits_in("_wait_for") == callers - 1)
            raise StorageUnavailableError("injected")

    table.storage.fail.append(fail_once_all_wait)
    with ThreadPoolExecutor(callers) as pool:
        asked = [pool.submit(LocalView.newest(view).latest_base_files, "a") for _ in range(callers)]
        errors = [one.exception() for one in asked]
    assert {(type(error), str(error)) for error in errors} == {
        (StorageUnavailableError, "injected")
    }
    assert listed == ["a"]
    table.storage.fail.remove(fail_once_all_wait)
    assert len(LocalView.newest(view).latest_base_files("a")) == 1
