"""Which tables a manager opens, and how a table finds the snapshot that a client means."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.table_view import TableView
from fsview.view_manager import ViewManager, open_view, resolved
from tests.kit import golden
from tests.kit.patience import PATIENCE_S
from tests.kit.small_table import SmallTable
from tests.kit.stores import ALL_KINDS, OTHER_KINDS, stores_of
from tests.kit.troubled_storage import TroubledStorage
from timeline.errors import (
    InputError,
    RootNotAllowedError,
    StorageUnavailableError,
    TableNotFoundError,
    ViewBehindError,
)
from timeline.storage.base import Storage
from timeline.storage.local import LocalStorage
from timeline.timeline import Timeline


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Return a directory with a table ``t`` in it, and one outside."""
    golden.build("cow_basic_v9", 0, tmp_path / "lake" / "t")
    golden.build("cow_basic_v9", 0, tmp_path / "outside" / "t")
    return tmp_path / "lake"


def test_every_spelling_of_a_base_path_is_one_table(lake: Path) -> None:
    views = ViewManager([str(lake)])
    table = views.view(f"{lake}/t")
    for spelling in (f"{lake}/t/", f"file:{lake}/t", f"file://{lake}/t", f"{lake}/x/../t"):
        assert views.view(spelling) is table
    (lake / "link").symlink_to(lake / "t")
    assert views.view(f"{lake}/link") is table
    assert list(views.status()) == [f"file://{lake.resolve()}/t"]


@pytest.mark.parametrize("end", ["t", "t/", "../outside/t", "link", "t2"])
def test_what_lies_outside_the_roots_is_refused(lake: Path, end: str) -> None:
    """A root is a directory, not the beginning of a name; no ``..`` and no link leads out."""
    golden.build("cow_basic_v9", 0, lake / "allowed2" / "t")
    (lake / "allowed").mkdir()
    (lake / "allowed" / "link").symlink_to(lake.parent / "outside" / "t")
    views = ViewManager([str(lake / "allowed")])
    path = {
        "t": f"{lake}/t",
        "t/": f"file://{lake}/t/",
        "../outside/t": f"{lake}/allowed/../../outside/t",
        "link": f"{lake}/allowed/link",
        "t2": f"{lake}/allowed2/t",
    }[end]
    with pytest.raises(RootNotAllowedError, match="outside the roots"):
        views.view(path)
    assert views.status() == {}


@pytest.mark.parametrize("path", ["", "\0", "/t\0"])
def test_a_base_path_that_is_none_is_refused(lake: Path, path: str) -> None:
    with pytest.raises(InputError, match="base path"):
        ViewManager([str(lake)]).view(path)


def test_a_root_added_later_allows_what_it_holds(lake: Path) -> None:
    views = ViewManager()
    with pytest.raises(RootNotAllowedError, match="none"):
        views.view(f"{lake}/t")
    views.add_root(f"file://{lake}/t")
    assert LocalView.newest(views.view(f"{lake}/t")).last_instant() is not None


def test_other_stores_are_compared_by_family_and_bucket() -> None:
    assert resolved("s3a://bucket/lake/x/../t/") == resolved("s3://bucket/lake/t")
    views = ViewManager(["s3://bucket/lake"])
    for path in ("s3://other/lake/t", "s3://bucket/lake/../t", "gs://bucket/lake/t", "/lake/t"):
        with pytest.raises(RootNotAllowedError):
            views.view(path)


def test_a_path_without_a_table_is_not_kept(lake: Path) -> None:
    views = ViewManager([str(lake)])
    for _ in range(2):
        with pytest.raises(TableNotFoundError):
            views.view(f"{lake}/nothing")
    with pytest.raises(InputError, match="empty"):
        views.view("")
    assert views.status() == {}
    golden.build("cow_basic_v9", 0, lake / "nothing")
    assert views.view(f"{lake}/nothing")


def test_a_view_needs_no_manager(lake: Path) -> None:
    storage = golden.GoldenStorage("cow_basic_v9", 0)
    view = open_view(storage)
    assert len(view.latest_base_files("2024-01-01")) > 0
    status = view.table.status()
    assert status["partitions_loaded"] == 1
    assert status["snapshots"] == 1
    assert {(c["kind"], c["cause"]) for c in status["storage_calls"]} >= {
        ("list", "timeline"),
        ("list", "lookup"),
    }


# Finding the snapshot that a client means.


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
    assert metrics.as_json(table=str(view.table_id))["sync_instants"] == 4
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


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_what_is_no_table_leaves_nothing_in_the_store_directory(kind: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    manager = ViewManager([str(tmp_path)], stores=stores_of(kind, store))
    before = sorted(store.iterdir())
    with pytest.raises(TableNotFoundError):
        manager.view(str(tmp_path / "nothing"))
    assert sorted(store.iterdir()) == before
    manager.close()


@pytest.fixture
def many_switches() -> Iterator[None]:
    """Have threads take turns as often as they can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.property
@pytest.mark.usefixtures("many_switches")
def test_a_table_that_many_ask_for_first_is_opened_once() -> None:
    """A caller that looked before it was open, and leads after that, finds it open (#12)."""
    model = SmallTable()
    model.write(("a", "f1-0"))
    for _ in range(200):
        opened: list[str] = []
        begin = threading.Barrier(8, timeout=PATIENCE_S)

        def opener(path: str, _options: object, opened: list[str] = opened) -> Storage:
            opened.append(path)
            return model.storage

        manager = ViewManager(["/memory"], opener=opener)

        def ask(begin: threading.Barrier = begin, manager: ViewManager = manager) -> TableView:
            begin.wait()
            return manager.view("/memory/t")

        with ThreadPoolExecutor(8) as pool:
            found = {future.result(PATIENCE_S) for future in [pool.submit(ask) for _ in range(8)]}
        assert len(found) == len(opened) == 1


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_table_that_could_not_be_opened_can_be_tried_again(kind: str, tmp_path: Path) -> None:
    """Its store is closed, also RocksDB's, which can't be opened twice."""
    model = SmallTable()
    model.write(("a", "f1-0"))

    def fail(kind: str, path: str) -> None:
        if kind == "list":
            raise StorageUnavailableError(f"{path}: injected")

    stores = stores_of(kind, tmp_path)
    manager = ViewManager(["/memory"], opener=lambda *_: model.storage, stores=stores)
    model.storage.fail.append(fail)
    for _ in range(2):
        with pytest.raises(StorageUnavailableError, match="injected"):
            manager.view("/memory/t")
    model.storage.fail.clear()
    assert LocalView.newest(manager.view("/memory/t")).latest_base_files("a")
    manager.close()


@pytest.mark.parametrize("base_path", ["t", "./t", "file:t", "lake/t"])
def test_a_relative_base_path_is_refused(
    lake: Path, base_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be taken from the working directory of the service."""
    monkeypatch.chdir(lake)
    views = ViewManager([str(lake)])
    with pytest.raises(InputError, match="relative; allowed: a URL"):
        views.view(base_path)


def test_a_partition_outside_the_roots_is_refused(lake: Path) -> None:
    (lake / "t" / "link").symlink_to(lake.parent / "outside" / "t" / "2024-01-01")
    (lake / "t" / "inner").symlink_to(lake / "t" / "2024-01-01")
    view = LocalView.newest(ViewManager([str(lake)]).view(f"{lake}/t"))
    assert len(view.latest_base_files("inner")) == len(view.latest_base_files("2024-01-01")) == 1
    with pytest.raises(RootNotAllowedError, match="link leads to"):
        view.latest_base_files("link")


def test_a_partition_outside_the_roots_is_none_of_the_table(lake: Path) -> None:
    """Otherwise any writer of a partition could make it unloadable with one link."""
    (lake / "t" / "link").symlink_to(lake.parent / "outside" / "t" / "2024-01-01")
    table = ViewManager([str(lake)]).view(f"{lake}/t")
    LocalView.newest(table).load_all_partitions()
    without_link = TableView(LocalStorage(f"{lake.parent}/outside/t"))
    LocalView.newest(without_link).load_all_partitions()
    assert table.loaded.in_order() == without_link.loaded.in_order() != []


@pytest.mark.parametrize(
    "path",
    ["/proc/1/root", "/proc/self/cwd/etc", "/nowhere/t", "{lake}/link/x", "{lake}/t/proc"],
)
def test_a_base_path_outside_the_roots_is_refused_by_its_text(
    lake: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 12, line 28: a path that the process may not access was a 500, not a 403."""
    (lake / "link").symlink_to("/proc/1/root")
    (lake / "t" / "proc").symlink_to("../../../../../../../../proc/1/root")
    looked_at: list[str] = []
    readlink = os.readlink

    def noted(at: str) -> str:
        # Not audited by Python, so that it is seen only here.
        looked_at.append(at)
        return readlink(at)

    views = ViewManager([str(lake)])
    monkeypatch.setattr(os, "readlink", noted)
    with pytest.raises(RootNotAllowedError, match="is outside the roots served"):
        views.view(path.format(lake=lake))
    beyond = [at for at in looked_at if not Path(at).is_relative_to(lake)]
    assert {Path(at) for at in beyond} <= set(lake.parents)


def test_a_root_is_known_as_it_was_given_and_as_it_resolves(lake: Path) -> None:
    given = lake.parent / "given"
    given.symlink_to(lake)
    views = ViewManager([str(given)])
    table = views.view(f"{given}/t")
    assert views.view(f"{lake}/t") is table
    (lake / "absolute").symlink_to(given / "t")
    assert views.view(f"{given}/absolute") is table
    (lake.parent / "third").symlink_to(lake)
    with pytest.raises(RootNotAllowedError, match="is outside the roots served"):
        views.view(f"{lake.parent}/third/t")
    assert views.roots() == (str(lake),)


def test_the_root_may_be_all_of_the_machine(lake: Path) -> None:
    views = ViewManager(["/"])
    (lake / "link").symlink_to(lake / "t")
    assert views.view(f"{lake}/link") is views.view(f"{lake}/t")
    assert views.storage_of("/")[1].stat("tmp") is not None
