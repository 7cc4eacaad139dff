"""Plans that a client's hash doesn't cover: storage is asked each time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fsview.local_view import LocalView
from fsview.table_view import TableView
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.tables.model import services, upgrading, writes
from tests.kit.tables.model.asking import Pin
from tests.kit.tables.model.cases import GROUP, a_table
from tests.kit.tables.model.table import ModelTable
from timeline.errors import StorageUnavailableError, ViewBehindError
from timeline.instant import State

KINDS = pytest.mark.parametrize("kind", ["clustering", "log compaction"])


def table_of(kind: str) -> ModelTable:
    """Return a table with a group that may be planned for."""
    table = a_table(9, "MERGE_ON_READ")
    if kind == "log compaction":
        for _ in range(2):
            writes.complete(table, writes.begin(table, [(GROUP, "log")]))
    return table


def plan(table: ModelTable, kind: str) -> None:
    """Put a plan on the timeline."""
    if kind == "clustering":
        services.request_clustering(table, [GROUP])
    else:
        services.request_compaction(table, [GROUP], logs_only=True)


def pending(view: LocalView, kind: str) -> list[tuple[str, str]]:
    """Return the groups that pend for a view."""
    found = (
        view.file_groups_in_pending_clustering()
        if kind == "clustering"
        else view.pending_log_compaction_operations()
    )
    return [(operation.partition, operation.file_id) for operation in found]


@KINDS
def test_a_plan_made_after_the_last_sync_pends(kind: str) -> None:
    table = table_of(kind)
    view = TableView(table.storage)
    LocalView.newest(view).load_all_partitions()
    client = Pin.of(table)
    held = LocalView.at(view, client.last_instant, client.timeline_hash)
    assert pending(held, kind) == []
    plan(table, kind)
    assert Pin.of(table).timeline_hash == client.timeline_hash
    before = table.storage.calls.snapshot()
    assert pending(held, kind) == [GROUP]
    assert pending(LocalView.at(view, client.last_instant, client.timeline_hash), kind) == [GROUP]
    after = table.storage.calls.snapshot()
    assert after["list", "sync"] - before.get(("list", "sync"), 0) == 2, "a look for each question"


@KINDS
def test_a_deleted_plan_does_not_pend(kind: str) -> None:
    table = table_of(kind)
    plan(table, kind)
    view = TableView(table.storage)
    client = Pin.of(table)
    held = LocalView.at(view, client.last_instant, client.timeline_hash)
    assert pending(held, kind) == [GROUP]
    (write,) = [write for write in table.writes if not write.completion]
    table.remove(write.instant, State.REQUESTED)
    assert pending(held, kind) == []


@KINDS
def test_no_plans_are_answered_while_storage_is_away(kind: str) -> None:
    table = table_of(kind)
    view = TableView(table.storage)
    client = Pin.of(table)
    held = LocalView.at(view, client.last_instant, client.timeline_hash)
    assert pending(held, kind) == []

    def fail(what: str, path: str) -> None:
        raise StorageUnavailableError(f"injected: {what} {path}")

    table.storage.fail.append(fail)
    with pytest.raises(StorageUnavailableError, match="injected"):
        pending(held, kind)
    assert held.pending_compaction_operations() == (), "the hash says which compactions there are"
    table.storage.fail.remove(fail)
    plan(table, kind)
    assert pending(held, kind) == [GROUP]


def test_what_pends_at_a_snapshot_that_only_the_asking_view_has_is_refused() -> None:
    """If the steps since it are unknown, there may still have been some (#12)."""
    table = table_of("clustering")
    view = TableView(table.storage)
    LocalView.newest(view).load_all_partitions()
    client = Pin.of(table)
    held = LocalView.at(view, client.last_instant, client.timeline_hash)
    clustering = services.request_clustering(table, [GROUP])
    services.start(table, clustering)
    writes.complete(table, clustering)
    view.reload("check-failed")
    with pytest.raises(ViewBehindError, match="what pends at"):
        pending(held, "clustering")
    with pytest.raises(ViewBehindError, match="what pends at"):
        pending(held, "log compaction")


def test_the_look_for_plans_keeps_the_snapshot_that_it_is_asked_for() -> None:
    """Neither the client's view nor the number of retained snapshots would keep it."""
    table = table_of("clustering")
    view = TableView(table.storage, retained_snapshots=1)
    held = LocalView.newest(view)
    held.load_all_partitions()
    clustering = services.request_clustering(table, [GROUP])
    services.start(table, clustering)
    writes.complete(table, clustering)
    assert pending(held, "clustering") == [GROUP]
    writes.complete(table, writes.begin(table, [(("b", "b0-0"), "base")]))
    view.sync()
    assert view.status()["snapshots"] == 1, "the look is over"


def test_callers_do_not_share_a_look_that_began_before_them() -> None:
    table = table_of("clustering")
    view = TableView(table.storage)
    held = LocalView.newest(view)
    began, may_go_on = threading.Event(), threading.Event()

    def wait(what: str, path: str) -> None:
        if what == "list":
            began.set()
            assert may_go_on.wait(PATIENCE_S)

    with ThreadPoolExecutor(7) as pool:
        table.storage.fail.append(wait)
        first = pool.submit(pending, held, "clustering")
        assert began.wait(PATIENCE_S)
        plan(table, "clustering")
        later = [pool.submit(pending, held, "clustering") for _ in range(6)]
        may_go_on.set()
        first.result(PATIENCE_S)
        assert [future.result(PATIENCE_S) for future in later] == [[GROUP]] * 6


@KINDS
@pytest.mark.parametrize("planned", [False, True])
def test_an_upgrade_that_leaves_the_hash_as_it_was_refuses_nobody(kind: str, planned: bool) -> None:
    """The client's timeline is the newest one, though the table is loaded anew (#32)."""
    table = a_table(6)
    view = TableView(table.storage)
    LocalView.newest(view).load_all_partitions()
    client = Pin.of(table)
    held = LocalView.at(view, client.last_instant, client.timeline_hash)
    assert pending(held, kind) == []
    upgrading.move(table, 8)
    assert Pin.of(table).timeline_hash == client.timeline_hash
    if planned:
        services.request_clustering(table, [GROUP])
    right = [GROUP] if planned and kind == "clustering" else []
    assert pending(held, kind) == right
    assert pending(LocalView.at(view, client.last_instant, client.timeline_hash), kind) == right
    writes.complete(table, writes.begin(table, [(("b", "b0-0"), "base")]))
    view.sync()
    assert pending(LocalView.at(view, client.last_instant, client.timeline_hash), kind) == right
