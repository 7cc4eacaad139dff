"""Snapshots in use are kept as long as they are used, and no longer."""

from __future__ import annotations

import linecache
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest

import fsview.state.current_history
import fsview.state.table_state
import fsview.sync.follower
from fsview.local_view import LocalView
from fsview.snapshot.history import MAX_LINKS_IN_USE
from fsview.state.current_history import SPARED
from fsview.store.stores import Stores
from fsview.table_view import TableView
from fsview.view_manager import ViewManager
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.tables.small_table import SmallTable
from timeline.errors import ViewBehindError

MOST_LINES = 2000
FILES = {
    fsview.state.current_history.__file__,
    fsview.state.table_state.__file__,
    fsview.sync.follower.__file__,
}
PARTITIONS = ("a", "b", "c")


def commit(table: SmallTable, *partitions: str) -> tuple[str, str]:
    """Commit once; return the last instant and hash of a client that has synced then."""
    table.write(*((partition, f"{partition}1-0") for partition in partitions))
    return table.known()


def short_of_memory(table: SmallTable) -> TableView:
    """Return a view of a table whose service has given up all it can."""
    stores = Stores()
    views = ViewManager(["/memory"], opener=lambda *_: table.storage, stores=stores)
    view = views.view("/memory/t")
    held = stores.budget.account("held")  # as the packed files of a memory store: it can't give
    held.add(stores.budget.limit_bytes + 1)
    return view


def reads(view: TableView) -> int:
    """Return how often clients that are behind were read for."""
    return sum(n for (_, cause), n in view.storage.calls.snapshot().items() if cause == "past")


def test_a_timeline_never_held_is_read_once_while_memory_is_short() -> None:
    table = SmallTable()
    clients = [commit(table, *PARTITIONS) for _ in range(4)]
    view = short_of_memory(table)
    for _ in range(3):
        shown = LocalView.at(view, *clients[0])
        assert [file.instant for file in shown.latest_base_files("b")] == [clients[0][0]]
    read = reads(view)
    assert read > 0
    view.at(*clients[0])
    assert reads(view) == read


def test_recent_snapshots_are_kept_while_memory_is_short() -> None:
    table = SmallTable()
    commit(table, *PARTITIONS)
    view = short_of_memory(table)
    LocalView.newest(view).load_all_partitions()
    for _ in range(2 * SPARED):
        clients = [commit(table, "a") for _ in range(2)]
        view.sync()
    for client in clients:
        assert LocalView.at(view, *client).last_instant() is not None
    assert view.status()["snapshots"] == SPARED
    assert reads(view) == 0


def test_clients_that_are_read_for_at_one_time_do_not_push_each_other_out() -> None:
    table = SmallTable()
    clients = [commit(table, *PARTITIONS) for _ in range(6)]
    view = short_of_memory(table)
    shown = [LocalView.at(view, *client) for client in clients[:5]]
    for _ in range(3):
        commit(table, "a")
        view.sync()
    for client, each in zip(clients, shown, strict=False):
        assert [file.instant for file in each.latest_base_files("b")] == [client[0]]
    del shown, each
    view.sync()
    while view.state.drop_oldest() is not None:
        pass
    assert [view.held(*client) is not None for client in clients[:5]].count(True) == 1


@pytest.mark.property
def test_what_a_request_is_answered_from_stays_while_the_table_moves_on() -> None:
    table = SmallTable()
    commit(table, *PARTITIONS)
    client = commit(table, "a")
    view = TableView(table.storage, retained_snapshots=1)
    view.newest()
    shown = LocalView.at(view, *client)
    for _ in range(MAX_LINKS_IN_USE - 1):
        commit(table, "a")
        view.sync()
    assert view.status()["snapshots"] == MAX_LINKS_IN_USE
    assert [file.instant for file in shown.latest_base_files("a")] == [client[0]]
    shown.sync()
    commit(table, "a")
    view.sync()
    assert view.status()["snapshots"] == 1


@pytest.mark.property
def test_a_load_that_hangs_keeps_no_more_than_a_bounded_way() -> None:
    table = SmallTable()
    commit(table, *PARTITIONS)
    view = TableView(table.storage, retained_snapshots=2)
    view.newest()
    listing, may_end = threading.Event(), threading.Event()

    def hang(kind: str, path: str) -> None:
        if (kind, path) == ("list", "b") and not listing.is_set():
            listing.set()
            assert may_end.wait(PATIENCE_S)

    table.storage.fail.append(hang)
    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(lambda: LocalView.newest(view).latest_base_files("b"))
        assert listing.wait(PATIENCE_S)
        kept = []
        for _ in range(MAX_LINKS_IN_USE + 5):
            commit(table, "a")
            view.sync()
            kept.append(view.status()["snapshots"])
        assert max(kept) == MAX_LINKS_IN_USE
        assert kept[-1] == 2
        may_end.set()
        with pytest.raises(ViewBehindError):  # who asked was left behind, too
            hanging.result(PATIENCE_S)
    assert len(LocalView.newest(view).latest_base_files("b")) == 1


class Interrupts:
    """Raises ``KeyboardInterrupt`` at one line of what has to do with snapshots in use.

    Attributes:
        lines: How many lines there were up to now.
    """

    def __init__(self, at: int) -> None:
        self.lines = 0
        self._at = at

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in FILES:
            return None
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        # At the end of a ``with`` block no interrupt comes between it and the release of its lock;
        # nor does one come at ``try``, which is no instruction.
        if event == "line" and not line.lstrip().startswith(("with ", "try:")):
            self.lines += 1
            if self.lines == self._at:
                raise KeyboardInterrupt
        return self


def interrupted(view: TableView, at: int) -> bool:
    """Load a partition, interrupted at a line; return whether there are so many."""
    before, interrupts = sys.gettrace(), Interrupts(at)
    sys.settrace(interrupts)
    try:
        LocalView.newest(view).latest_base_files("b")
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return interrupts.lines >= at


@pytest.mark.property
def test_a_load_interrupted_anywhere_keeps_nothing() -> None:
    for at in range(1, MOST_LINES):
        table = SmallTable()
        commit(table, *PARTITIONS)
        view = TableView(table.storage, retained_snapshots=2)
        view.newest()
        if not interrupted(view, at):
            assert at > 20
            return
        for _ in range(3):
            commit(table, "a")
            view.sync()
        assert view.status()["snapshots"] == 2, f"interrupted at line {at}"
    pytest.fail("a load never ends")
