"""Views over a store whose calls fail, or whose rows and blobs are spoilt or lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from fsview.local_view import HeldView, LocalView, NotHeldError
from fsview.metrics import Metrics
from fsview.record.shared import kept_in
from fsview.store.base import MemoryStore
from fsview.store.budget import Budget
from fsview.table_view import TableView
from tests.fsview.store.lasting_store import Kept, LastingStore
from tests.fsview.store.stored_views import PARTITIONS, check, opened, small, warnings
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.tables.small_table import SmallTable
from timeline.errors import (
    BlobLostError,
    StorageUnavailableError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
)

pytestmark = pytest.mark.property


@pytest.fixture
def table() -> SmallTable:
    return small()


def in_steps(table: SmallTable, kept: Kept, asked: Callable[[TableView], None]) -> None:
    """Have a table followed by two services, one after another."""
    view = opened(table, kept)
    asked(view)
    table.write(("a", "a0"), ("e", "e0"))
    asked(view)
    pending = table.begin([("a", "a1"), ("d", "d9")])
    asked(view)
    view = opened(table, kept)
    asked(view)
    table.take_back(pending)
    table.write(("d", "d1"), replaces=[("d", "d0")])
    asked(view)


def failing_once(nth: int, error: type[StoreError]) -> Callable[[str], None]:
    calls = iter(range(nth + 1))

    def fail(name: str) -> None:
        if next(calls, None) == nth:
            raise error(f"{name} fails")

    return fail


def looked(view: TableView) -> None:
    check(LocalView.synced(view), view.storage)


def test_every_call_of_a_store_fails_once() -> None:
    """A second try gets the right answer, then and from the next service."""
    calls: list[str] = []
    in_steps(small(), Kept(fail=calls.append), looked)
    assert {"rows", "commit", "get", "sweep"} <= set(calls)
    for nth in range(len(calls)):
        table, kept = small(), Kept()
        kept.fail = failing_once(nth, StoreFullError if nth % 2 else StoreError)

        def twice(view: TableView) -> None:
            try:
                looked(view)
            except StoreError:
                looked(view)

        in_steps(table, kept, twice)
        looked(opened(table, kept))


def failing(*names: str, error: type[StoreError]) -> Callable[[str], None]:
    def fail(name: str) -> None:
        if name in names:
            raise error("the disk is full")

    return fail


@pytest.mark.parametrize("error", [StoreFullError, StoreUnavailableError, StoreError])
def test_a_store_that_takes_nothing_costs_no_answer(
    table: SmallTable, error: type[StoreError], caplog: pytest.LogCaptureFixture
) -> None:
    """It is followed in memory, told once, and written again when the store takes it (#32)."""
    kept = Kept()
    view = opened(table, kept)
    LocalView.newest(view).load_all_partitions()
    rows, blobs = dict(kept.rows), dict(kept.blobs)
    kept.fail = failing("commit", "clear", error=error)
    for n in range(3):
        table.write(("a", f"a{n}"), ("e", f"e{n}"))
        check(LocalView.synced(view), table.storage)
        # A crash at this moment leaves what was recorded last, with all that its rows name.
        view.state.drop_oldest()
        assert (kept.rows, kept.blobs) == (rows, blobs)
    assert view.status()["store"]["failure"] == "the disk is full"
    assert view.status()["store"]["waiting_bytes"] > 0
    assert not view.state.save_rest()
    (warning,) = warnings(caplog)
    assert "is followed in memory: the disk is full" in warning
    kept.fail = lambda name: None
    assert view.state.save_rest()
    assert view.status()["store"]["failure"] is None
    table.write(("d", "d0"))
    check(LocalView.synced(view), table.storage)
    metrics = Metrics()
    check(LocalView.newest(opened(table, kept, metrics)), table.storage)
    assert metrics.get("partition_loads", source="record") == len({*PARTITIONS, "e"})
    assert metrics.get("partition_loads") == len({*PARTITIONS, "e"})


def test_a_store_that_is_away_at_the_start_is_written_once_it_is_there(table: SmallTable) -> None:
    """What it had is replaced as a whole, and no partition of it comes back."""
    kept = Kept()
    LocalView.newest(opened(table, kept)).load_all_partitions()
    kept.rows["p/gone"] = kept.rows["p/d"]
    kept.fail = failing("rows", "commit", "clear", error=StoreFullError)
    view = opened(table, kept)
    check(LocalView.newest(view), table.storage)
    kept.fail = lambda name: None
    table.write(("a", "a0"))
    check(LocalView.synced(view), table.storage)
    assert view.state.record.failure is None
    metrics = Metrics()
    check(LocalView.newest(opened(table, kept, metrics)), table.storage)
    assert metrics.get("partition_loads") == metrics.get("partition_loads", source="record")
    assert metrics.get("partition_loads") == len(PARTITIONS)


def test_a_store_that_lost_its_blobs_is_loaded_anew(table: SmallTable) -> None:
    kept, metrics = Kept(), Metrics()
    view = opened(table, kept, metrics)
    LocalView.newest(view).load_all_partitions()

    def replaced(name: str) -> None:
        if name == "commit":
            kept.blobs.clear()
            kept.rows.clear()
            kept.fail = lambda name: None
            raise BlobLostError("it is a new one")

    kept.fail = replaced
    table.write(("a", "a0"))
    view.sync()
    check(LocalView.synced(view), table.storage)
    assert metrics.get("reloads", cause="store-damaged") == 1
    check(LocalView.newest(opened(table, kept)), table.storage)


def test_a_store_that_is_closed_is_no_outage(
    table: SmallTable, caplog: pytest.LogCaptureFixture
) -> None:
    """What is under way when a service stops fails, and isn't told as followed in memory."""
    kept = Kept()
    view = opened(table, kept)
    LocalView.newest(view).load_all_partitions()
    table.write(("a", "a0"))
    view.close()
    kept.fail = failing("commit", error=StoreError)
    with pytest.raises(StoreError):
        view.sync()
    assert warnings(caplog) == []


def test_beyond_the_budget_what_can_not_be_written_is_refused(table: SmallTable) -> None:
    """With 507, and the snapshot before is answered; older chunks give their memory back."""
    budget = Budget(1 << 20)
    records = budget.account("records")
    kept = Kept()
    store = LastingStore(kept)
    store.spare = MemoryStore(records, budget, is_spare=True)
    view = TableView(table.storage, record=kept_in(store))
    LocalView.newest(view).load_all_partitions()
    assert records.used == 0
    kept.fail = failing("commit", error=StoreFullError)
    table.write(("a", "a0"))
    before = LocalView.synced(view)
    assert 0 < records.used < budget.limit_bytes
    was = before.latest_base_files("a")
    others = budget.account("others")
    others.add(budget.limit_bytes)
    table.write(("a", "a0"))
    held = records.used
    for _ in range(3):
        with pytest.raises(StoreFullError, match="the budget of 1048576 bytes is used up"):
            view.sync()
        assert LocalView.newest(view).latest_base_files("a") == was
        assert records.used == held
    kept.fail = lambda name: None
    check(LocalView.synced(view), table.storage)
    others.add(-budget.limit_bytes)
    view.close()
    assert records.used == 0


def test_storage_fails_while_a_service_begins(table: SmallTable) -> None:
    """Partitions saved in the store are neither dropped nor listed again because of it."""
    kept = Kept()
    LocalView.newest(opened(table, kept)).load_all_partitions()
    table.write(("a", "a0"), ("b/c", "c1"))
    storage = table.storage
    calls = 0
    nth = 0
    while calls >= nth:
        metrics, calls, nth = Metrics(), 0, nth + 1

        def fail(kind: str, path: str, nth: int = nth) -> None:
            nonlocal calls
            calls += 1
            if calls == nth:
                raise StorageUnavailableError(f"{kind} {path}")

        view = opened(table, kept, metrics)
        storage.fail.append(fail)
        for _ in range(2):
            with suppress(StorageUnavailableError):
                view.newest()
        storage.fail.clear()
        table.write(("d", "d0"))
        check(LocalView.synced(view), storage)
        assert metrics.get("partition_loads") == metrics.get("partition_loads", source="record")
    assert nth > 3


SPOILT = (b"{", b"null", b"7", b'"x"', b"\xff\xfe", b'{"a": 1}', b"[1]")


@pytest.mark.parametrize("name", ["snapshot", "p/a", "compaction", "clustering", "replaced"])
def test_spoilt_rows_are_taken_away(
    table: SmallTable, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Kept()
    for spoilt in SPOILT:
        LocalView.newest(opened(table, kept)).load_all_partitions()
        kept.rows[name] = spoilt
        kept.rows["p/gone"] = kept.rows["p/d"]
        caplog.clear()
        view = opened(table, kept)
        check(LocalView.newest(view), table.storage)
        (warning,) = warnings(caplog)
        assert str(view.table_id) in warning
        assert "p/gone" not in kept.rows
        metrics = Metrics()
        check(LocalView.newest(opened(table, kept, metrics)), table.storage)
        assert metrics.get("partition_loads", source="record") == len(PARTITIONS)


def test_blob_that_is_lost_is_listed_anew(
    table: SmallTable, caplog: pytest.LogCaptureFixture
) -> None:
    """The first request fails with an error that says so; the second is answered."""
    kept = Kept()
    LocalView.newest(opened(table, kept)).load_all_partitions()
    lost = 0
    for move in (lambda: None, lambda: table.write(("a", "a0"))):
        for handle in list(kept.blobs):
            view = opened(table, kept)
            view.newest()
            blob = kept.blobs.pop(handle, None)
            if blob is None:
                continue
            lost += 1
            caplog.clear()
            move()
            with suppress(StoreError):
                check(LocalView.synced(view), table.storage)
            check(LocalView.synced(view), table.storage)
            assert len(warnings(caplog)) <= 1
    assert lost


def test_blob_that_an_earlier_instant_needs_is_listed_anew(table: SmallTable) -> None:
    """A client that is behind meets it, and the next one is answered."""
    kept, metrics = Kept(), Metrics()
    view = opened(table, kept, metrics)
    behind = LocalView.newest(view)
    table.write(("a", "a0"))
    LocalView.synced(view).load_all_partitions()
    kept.blobs.clear()
    with pytest.raises(StoreError):
        behind.all_file_slices("a")
    check(LocalView.newest(view), table.storage)
    assert metrics.get("reloads", cause="store-damaged") == 1


def test_held_view_meets_a_lost_blob_without_waiting_for_a_commit(table: SmallTable) -> None:
    """The event loop must not wait for the lock of a commit; the next thread reports the loss."""
    kept, committing, go = Kept(), threading.Event(), threading.Event()
    view = opened(table, kept)
    LocalView.newest(view).load_all_partitions()
    held = HeldView(view, view.newest())
    table.write(("a", "a0"))

    def wait_in_commit(name: str) -> None:
        if name == "commit":
            committing.set()
            assert go.wait(PATIENCE_S)

    kept.fail = wait_in_commit
    with ThreadPoolExecutor(2) as pool:
        syncing = pool.submit(view.sync)
        try:
            assert committing.wait(PATIENCE_S)
            kept.blobs.clear()
            with pytest.raises(NotHeldError):
                pool.submit(held.all_file_slices, "a").result(PATIENCE_S)
        finally:
            go.set()
        syncing.result()
    with pytest.raises(StoreError):
        LocalView.newest(view).all_file_slices("b/c")
    check(LocalView.newest(view), table.storage)
