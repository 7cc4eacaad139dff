"""Which snapshot answers a client, and how many snapshots are kept."""

from __future__ import annotations

import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fsview.local_view import LocalView, open_view
from fsview.metrics import Metrics
from fsview.table_view import TableView
from fsview.view_manager import ViewManager
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.storage.troubled_storage import TroubledStorage
from tests.kit.tables import golden
from tests.kit.tables.small_table import SmallTable
from timeline.errors import ViewBehindError
from timeline.timeline import Timeline


def test_a_held_snapshot_answers_without_a_storage_call() -> None:
    storage = TroubledStorage("cow_basic_v9")
    table = TableView(storage)
    pinned = []
    for step in range(4):
        storage.step(step)
        view = LocalView.synced(table)
        view.load_all_partitions()
        last = view.last_instant()
        assert last is not None
        pinned.append((last.requested_time, view.timeline.hash, view.all_latest_base_files()))
    before = storage.calls.snapshot()
    for last_instant, timeline_hash, files in pinned:
        assert LocalView.at(table, last_instant, timeline_hash).all_latest_base_files() == files
    assert storage.calls.snapshot() == before


def test_an_unknown_hash_costs_one_sync_and_then_is_refused_as_java_does() -> None:
    table = TableView(golden.GoldenStorage("cow_basic_v9", 2))
    view = LocalView.newest(table)
    told = ", ".join(map(str, view.timeline))
    with pytest.raises(ViewBehindError) as caught:
        table.at("20261121080720429", "no such hash")
    assert caught.value.message == (
        "Last known instant from client was 20261121080720429 but server has the following "
        f"timeline [{told}]"
    )
    calls = table.storage.calls.snapshot()
    assert calls["list", "sync"] == 1


def test_a_refusal_tells_a_long_timeline_by_its_newest_hundred_instants() -> None:
    """A body of 100,000 instants was 5.9 MB, for each client that isn't known."""
    table = SmallTable()
    for _ in range(120):
        table.write(("p", "a"))
    with pytest.raises(ViewBehindError) as caught:
        TableView(table.storage).at("1", "no such hash")
    view = open_view(table.storage)
    newest = ", ".join(map(str, view.timeline.instants[-100:]))
    assert caught.value.message == (
        "Last known instant from client was 1 but server has the following timeline "
        f"[{newest}], the newest 100 of {len(view.timeline)} instants"
    )


def test_a_last_instant_that_is_not_on_the_timeline_is_refused() -> None:
    table = TableView(golden.GoldenStorage("cow_basic_v9", 2))
    view = LocalView.newest(table)
    assert LocalView.at(table, "00000000000000000", view.timeline.hash)  # before its start
    with pytest.raises(ViewBehindError):
        table.at("99991231235959999", view.timeline.hash)


def test_a_client_that_has_not_seen_the_table_sees_it_empty() -> None:
    table = TableView(golden.GoldenStorage("cow_basic_v9", 2))
    view = LocalView.at(table, "0", Timeline().hash)
    assert view.latest_base_files("2024-01-01") == ()
    assert view.all_file_groups("2024-01-01") == ()
    assert view.all_latest_file_slices_before_or_on("99991231235959999") == {}
    assert view.last_instant() is None


def test_a_clean_at_the_end_may_be_unknown_to_a_client() -> None:
    table = SmallTable()
    for _ in range(4):
        table.write(("a", "f1-0"))
    before = LocalView.newest(TableView(table.storage))
    table.finish_clean(*table.begin_clean(table.to_clean()))
    fresh = TableView(table.storage)
    last = before.last_instant()
    assert last is not None
    view = LocalView.at(fresh, last.requested_time, before.timeline.hash)
    assert view.latest_base_files("a") == before.latest_base_files("a")


def test_snapshots_beyond_the_bound_are_forgotten_oldest_first() -> None:
    table = SmallTable()
    metrics = Metrics()
    view = TableView(table.storage, retained_snapshots=3, metrics=metrics)
    pinned = []
    for _ in range(5):
        table.write(("a", "f1-0"))
        seen = LocalView.synced(view)
        last = seen.last_instant()
        assert last is not None
        pinned.append((last.requested_time, seen.timeline.hash))
    assert view.status()["snapshots"] == 3
    for last_instant, timeline_hash in pinned[-3:]:
        view.at(last_instant, timeline_hash)
    assert metrics.get("branches") == 0
    assert metrics.of_table(str(view.table_id))["sync_instants"] == 4
    # What was forgotten is read again, once, from what is on the timeline.
    view.at(*pinned[0])
    view.at(*pinned[1])
    assert metrics.get("branches", outcome="read") == 1
    assert metrics.get("syncs", table=str(view.table_id)) == 5


def test_commits_between_two_syncs_each_have_a_snapshot() -> None:
    table = SmallTable()
    table.write(("a", "f1-0"))
    view = TableView(table.storage)
    LocalView.newest(view).load_partitions(["a"])
    seen = []
    for _ in range(3):
        table.write(("a", "f1-0"))
        seen.append(table.known())
    for last_instant, timeline_hash in reversed(seen):
        (file,) = LocalView.at(view, last_instant, timeline_hash).latest_base_files("a")
        assert file.instant == last_instant
    assert view.storage.calls.snapshot()["list", "sync"] == 2  # after the listing of "a", and one


def test_clearing_the_loaded_partitions_forgets_no_file() -> None:
    storage = TroubledStorage("cow_basic_v9")
    view = LocalView.newest(TableView(storage))
    view.load_partitions(["2024-01-01/"])
    assert {file.partition for file in view.all_latest_base_files()} == {"2024-01-01"}
    view.refresh()
    assert view.all_latest_base_files() == ()
    assert view.latest_base_files("2024-01-01")
    assert storage.listed["2024-01-01"] == 1
    assert os.fspath(storage.base_path) == view.table.storage.base_path
    view.close()


def test_as_many_snapshots_are_kept_as_were_asked_for(tmp_path: Path) -> None:
    """A table that is followed keeps no more of its past than that."""
    golden.build("cow_basic_v9", 0, tmp_path / "t")
    table = ViewManager([str(tmp_path)], retained_snapshots=2).view(f"{tmp_path}/t")
    shutil.rmtree(tmp_path / "t")
    golden.build("cow_basic_v9", 7, tmp_path / "t")
    table.sync()
    assert table.status()["snapshots"] == 2


def test_requests_for_a_new_instant_share_a_sync() -> None:
    """At most one sync runs and one waits, however many ask."""
    table = SmallTable()
    table.write(("a", "f1-0"))
    view = TableView(table.storage)
    view.newest()
    table.write(("a", "f1-0"))
    timeline = table.meta.active_timeline().client_timeline()
    assert timeline.last is not None
    last = timeline.last.requested_time
    listing, go_on = threading.Event(), threading.Event()

    def hold(kind: str, path: str) -> None:
        if kind == "list" and not listing.is_set():
            listing.set()
            assert go_on.wait(PATIENCE_S)

    table.storage.fail.append(hold)
    with ThreadPoolExecutor(16) as pool:
        asked = [pool.submit(view.at, last, timeline.hash) for _ in range(16)]
        assert listing.wait(PATIENCE_S)
        # Nobody who holds a snapshot waits for the sync under way.
        assert view.newest().timeline.last != timeline.last
        go_on.set()
        assert {future.result(PATIENCE_S).snapshot.timeline.hash for future in asked} == {
            timeline.hash
        }
    assert view.storage.calls.snapshot()["list", "sync"] <= 2
