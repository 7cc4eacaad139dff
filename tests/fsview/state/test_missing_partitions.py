"""Requests for paths that aren't partitions are answered, and remembered only up to a limit."""

from __future__ import annotations

import threading
from collections.abc import Collection
from itertools import count
from pathlib import Path
from sys import getsizeof
from typing import Any

import pytest

from fsview.local_view import LocalView
from fsview.model.file_system_view import LookupQuery
from fsview.record.shared import kept_in
from fsview.state.missing_partitions import MOST_MISSING, MOST_MISSING_BYTES
from fsview.table_view import TableView
from tests.fsview.load.wide_table import archived, small_table
from tests.fsview.store.lasting_store import Kept, LastingStore
from tests.kit.servers.stores import Restarted
from timeline.errors import StoreFullError, ViewBehindError


def invented(start: int, count: int) -> list[str]:
    return [f"no/such={number}" for number in range(start, start + count)]


def held_missing(view: TableView) -> int:
    return sum(name.startswith("no/") for name in view.held_partitions())


def test_a_path_without_files_is_listed_once() -> None:
    table = small_table()
    view = TableView(table.storage)
    for _ in range(3):
        assert LocalView.newest(view).latest_base_files("new") == ()
        LocalView.newest(view).load_partitions(["new", "new/"])
    assert table.storage.calls.snapshot()["list", "lookup"] == 1


def test_a_partition_that_was_asked_for_before_it_was_made_counts_as_loaded() -> None:
    table = small_table()
    view = TableView(table.storage)
    LocalView.newest(view).load_partitions(["new"])
    table.write(("new", "n1-0"))
    view.sync()
    assert [file.file_id for file in LocalView.newest(view).all_latest_base_files()] == ["n1-0"]


@pytest.mark.property
def test_very_many_paths_that_are_nothing_are_not_all_kept() -> None:
    table = small_table()
    view = TableView(table.storage)
    names = invented(0, MOST_MISSING + 500)
    for _ in range(2):
        LocalView.newest(view).load_partitions(["a", *names, "b"])
    assert held_missing(view) == MOST_MISSING
    assert len(view.loaded.in_order()) == MOST_MISSING + 2
    lists = table.storage.calls.snapshot()["list", "lookup"]
    for name in (names[100], names[-1], names[100]):
        assert LocalView.newest(view).latest_base_files(name) == ()
    assert table.storage.calls.snapshot()["list", "lookup"] == lists + 1
    assert held_missing(view) == MOST_MISSING
    assert {f.partition for f in LocalView.newest(view).all_latest_base_files()} == {"a", "b"}


@pytest.mark.property
def test_a_batch_of_very_many_paths_that_are_nothing_lists_each_once_and_syncs_once() -> None:
    """Those that are forgotten at once aren't looked for one by one (#32)."""
    table = small_table()
    archived(table)  # so that nothing is read from commits
    view = TableView(table.storage)
    view.newest()
    names = invented(0, MOST_MISSING + 3000)
    calls = [table.storage.calls.snapshot()]
    for _ in range(2):
        client = LocalView.newest(view)
        client.load_partitions([*names[-5:], *names])
        assert all(client.latest_base_files(name) == () for name in names)
        calls.append(table.storage.calls.snapshot())
    listed = [count.get(("list", "lookup"), 0) for count in calls]
    assert listed[1] - listed[0] == len(names)
    assert listed[2] - listed[1] == 3000
    assert [count["list", "sync"] for count in calls[1:]] == [1, 2]
    assert held_missing(view) == MOST_MISSING
    assert view.status()["partitions_loaded"] == 0


@pytest.mark.property
def test_a_look_up_of_very_many_paths_that_are_nothing_syncs_once() -> None:
    table = small_table()
    archived(table)  # so that nothing is read from commits
    view = TableView(table.storage)
    view.newest()
    names = tuple(invented(0, MOST_MISSING + 3000))
    queries = [
        LookupQuery("latest_base_files", ("a", *names)),
        LookupQuery("latest_file_slices", names),
    ]
    (files, *missing), slices = LocalView.newest(view).look_up(queries)
    assert [file.file_id for file in files] == [
        f.file_id for f in LocalView.newest(view).latest_base_files("a")
    ]
    assert {*missing, *slices} == {()}
    assert len(missing) == len(slices) == len(names)
    calls = table.storage.calls.snapshot()
    assert (calls["list", "lookup"], calls["list", "sync"]) == (len(names) + 1, 1)
    assert view.status()["partitions_loaded"] == 1


@pytest.mark.property
def test_a_path_that_becomes_a_partition_while_many_are_looked_for_has_its_files() -> None:
    """Each client sees it as of its own instant (#32)."""
    table = small_table()
    view = TableView(table.storage)
    before = LocalView.newest(view)
    names = invented(0, MOST_MISSING + 10)
    made = names[-1]

    def make(kind: str, path: str) -> None:
        if (kind, path) == ("list", table.meta.layout.folder):
            table.storage.fail.clear()
            table.write((made, "n1-0"))

    table.storage.fail.append(make)
    after = LocalView.newest(view)
    after.load_partitions(names)
    assert after.latest_base_files(made) == before.latest_base_files(made) == ()
    newest = LocalView.newest(view)
    newest.load_partitions(names)
    assert [file.file_id for file in newest.latest_base_files(made)] == ["n1-0"]
    view.sync()
    assert after.latest_base_files(made) == ()


@pytest.mark.property
def test_what_a_load_did_not_find_says_nothing_of_a_later_snapshot() -> None:
    """Another thread syncs the view between the load's end and what the load leaves behind."""
    table = small_table()
    archived(table)  # so that nothing is read from commits
    shared = LocalView.newest(TableView(table.storage))
    made, *others = invented(0, MOST_MISSING + 2)
    names = ["a", *others, made]
    calls = count()

    def meanwhile() -> None:
        # Called before each is listed, then for each that is held.
        if next(calls) == len(names):
            table.write((made, "n1-0"))
            shared.sync()

    shared.load_partitions(names, meanwhile)
    assert [file.file_id for file in shared.latest_base_files(made)] == ["n1-0"]


@pytest.mark.property
def test_a_sync_of_another_thread_within_a_look_up_costs_no_further_list() -> None:
    table = small_table()
    archived(table)  # so that nothing is read from commits
    names = tuple(invented(0, MOST_MISSING + 2))
    lists = []

    class Shared(LocalView):
        """One that is synced just after a look-up has loaded."""

        def _load(self, *arguments: Any, **more: Any) -> Collection[str]:
            held = super()._load(*arguments, **more)
            table.write(("a", "a9-0"))
            shared.sync()
            lists.append(table.storage.calls.snapshot()["list", "lookup"])
            return held

    shared = Shared.newest(TableView(table.storage))
    (found,) = shared.look_up([LookupQuery("latest_base_files", names)])
    assert {*found} == {()}
    assert [table.storage.calls.snapshot()["list", "lookup"]] == lists == [len(names)]


@pytest.mark.property
@pytest.mark.parametrize("finished", [False, True])
def test_a_partition_that_is_deleted_while_many_are_looked_for_is_not_taken_for_nothing(
    finished: bool,
) -> None:
    """Its files may be gone before the clean completes (#32)."""
    table = small_table()
    archived(table)
    gone = table.write(("gone", "g1-0"))
    table.write(("a", "a9-0"), replaces=[("gone", "g1-0")])
    view = TableView(table.storage)
    pinned = LocalView.synced(view)
    files = [f for f in table.model.committed[gone].files if f.partition == "gone"]
    clean = table.begin_clean(files)
    if finished:
        table.finish_clean(*clean)
        table.write(("a", "a8-0"))
    table.storage.delete("gone/.hoodie_partition_metadata")
    pinned.load_partitions([*invented(0, MOST_MISSING + 10), "gone"])
    with pytest.raises(ViewBehindError):
        pinned.all_replaced_file_groups("gone")


@pytest.mark.property
def test_a_store_that_is_full_for_a_while_does_not_raise_the_limit() -> None:
    table, kept = small_table(), Kept()
    view = TableView(table.storage, record=kept_in(LastingStore(kept)))
    names = invented(0, MOST_MISSING + 100)
    LocalView.newest(view).load_partitions(names[:MOST_MISSING])

    def full(name: str) -> None:
        raise StoreFullError(f"{name} fails")

    kept.fail = full
    for name in names[MOST_MISSING:]:
        LocalView.newest(view).load_partitions([name])
        assert held_missing(view) == MOST_MISSING
    kept.fail = lambda name: None
    LocalView.newest(view).load_partitions(names)
    assert held_missing(view) == MOST_MISSING
    assert set(names[-100:]) <= set(view.held_partitions())


@pytest.mark.property
def test_what_has_come_to_be_a_partition_is_not_forgotten() -> None:
    table = small_table()
    view = TableView(table.storage)
    LocalView.newest(view).latest_base_files("new")
    table.write(("new", "n1-0"))
    view.sync()
    LocalView.newest(view).load_partitions(invented(0, MOST_MISSING + 1))
    lists = table.storage.calls.snapshot()["list", "lookup"]
    assert [file.file_id for file in LocalView.newest(view).latest_base_files("new")] == ["n1-0"]
    assert table.storage.calls.snapshot()["list", "lookup"] == lists
    assert "new" in view.loaded.in_order()


def test_a_pinned_client_keeps_no_missing_partitions() -> None:
    table = small_table()
    view = TableView(table.storage)
    pinned = LocalView.newest(view)
    pinned.load_all_partitions()
    table.write(("a", "n1-0"))
    view.sync()
    pinned.load_partitions(invented(0, 50))
    assert all(pinned.latest_base_files(name) == () for name in invented(0, 50))
    assert sorted(pinned.snapshot.files.versions) == ["a", "b"]
    assert held_missing(view) == 50


@pytest.mark.property
def test_many_callers_at_a_time_are_all_answered() -> None:
    table = small_table()
    view = TableView(table.storage)
    wrong: list[str] = []

    def ask(start: int) -> None:
        LocalView.newest(view).load_partitions(invented(start, MOST_MISSING // 2))
        for name in invented(start, 20):
            if LocalView.newest(view).latest_base_files(name) != ():
                wrong.append(name)

    threads = [threading.Thread(target=ask, args=(n * MOST_MISSING,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert held_missing(view) == MOST_MISSING


@pytest.mark.property
def test_a_restart_goes_on_without_missing_partitions(tmp_path: Path) -> None:
    table = small_table()
    service = Restarted("rocksdb", tmp_path, table.storage)
    LocalView.newest(service.view).load_partitions(
        ["a", "b", "new", *invented(0, MOST_MISSING + 10)]
    )
    service.restart()
    assert sorted(service.view.held_partitions()) == []
    service.view.newest()
    assert sorted(service.view.held_partitions()) == ["a", "b"]
    table.write(("new", "n1-0"))
    service.view.sync()
    assert [file.file_id for file in LocalView.newest(service.view).latest_base_files("new")] == [
        "n1-0"
    ]
    service.close()


@pytest.mark.property
def test_long_paths_that_are_nothing_take_no_more_memory_than_short_ones() -> None:
    table = small_table()
    view = TableView(table.storage)
    names = [f"no/{number}{chr(0x1F600) * 4000}" for number in range(3000)]
    for start in range(0, len(names), 500):
        LocalView.newest(view).load_partitions(names[start : start + 500])
    held = [name for name in view.held_partitions() if name.startswith("no/")]
    assert 0 < sum(map(getsizeof, held)) < MOST_MISSING_BYTES
    assert set(held) == set(names[-len(held) :])
    assert len(view.loaded.in_order()) == len(held)
