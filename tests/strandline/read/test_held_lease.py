"""A reader's own lease: renewal, loss, refusal, and a reader that dies at any storage call."""

from __future__ import annotations

import contextlib
import threading

import pytest

from strandline.read.state.held_lease import HeldLease
from strandline.read.state.reader_lease import LEASE_FOLDER, Lease, Leases
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.storage.faulty_storage import Crash, Effect, Fault, FaultyStorage, distinct_calls
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables.small_table import SmallTable
from timeline.errors import InputError, LeaseError, StorageUnavailableError, StrandlineError
from timeline.instant import CLEAN
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import ActionInstant, CleanerPlan

A = ("p=1", "a-0")
TTL_S = 600.0


@pytest.fixture
def table() -> SmallTable:
    found = SmallTable()
    for _ in range(3):
        found.write(A)
    return found


def acquired(table: SmallTable, as_of: str | None = None, ttl_s: float = TTL_S) -> HeldLease:
    return HeldLease.acquire(table.meta, as_of, ttl_s, table.clock)


def ids(table: SmallTable) -> list[str]:
    return [each.id for each in Leases(table.storage, table.clock).all()]


def request_clean(table: SmallTable, earliest: str | None) -> str:
    """Request a clean that retains what readers at a write need, or file versions."""
    kept = None if earliest is None else ActionInstant(earliest, "commit", "COMPLETED")
    time = table.tick()
    table.meta.create_requested(CLEAN, time, CleanerPlan(earliest_instant_to_retain=kept))
    return time


def test_it_is_there_until_it_is_released(table):
    held = acquired(table)
    assert ids(table) == [held.lease.id]
    assert held.is_held
    held.release()
    assert ids(table) == []
    assert not held.is_held
    with pytest.raises(LeaseError, match=f"the lease {held.lease.id} .* was released"):
        held.check()


def test_renewed_in_time_it_never_ends(table):
    held = acquired(table)
    for _ in range(5):
        table.clock.advance(599_000)
        assert held.renew()
        assert len(Leases(table.storage, table.clock).live(sweep=True)) == 1
    held.release()


@pytest.mark.parametrize("steps", [[600_000], [599_000, 1_000]])
def test_unrenewed_it_is_lost_before_a_cleaner_takes_it_for_that_and_for_good(table, steps):
    held = acquired(table)
    for ms in steps:
        assert held.is_held
        table.clock.advance(ms)
    assert not held.is_held
    assert len(Leases(table.storage, table.clock).live(sweep=True)) == 1
    assert not held.renew()
    table.clock.advance(-10_000)  # the wall clock is set back
    assert not held.renew()
    with pytest.raises(LeaseError, match="expired: it wasn't renewed for 600 s"):
        held.check()
    held.release()


def test_revoked_it_is_lost_with_the_next_renewal_and_not_made_again(table):
    held = acquired(table)
    Leases(table.storage, table.clock).delete(held.lease.id)
    assert not held.renew()
    assert ids(table) == []
    with pytest.raises(LeaseError, match="was revoked"):
        held.check()
    held.release()


def test_a_renewal_that_came_too_late_loses_it(table):
    """The cleaner may have taken it for expired before the request arrived."""
    held = acquired(table)
    table.clock.advance(500_000)

    def dawdle(kind: str, path: str) -> None:
        if kind == "replace":
            table.clock.advance(100_000)

    table.storage.fail.append(dawdle)
    assert not held.renew()
    table.storage.fail.clear()
    held.release()
    assert ids(table) == []


def test_a_renewal_that_fails_leaves_it_until_it_expires(table):
    held = acquired(table)
    table.clock.advance(500_000)

    def refuse(kind: str, path: str) -> None:
        raise StorageUnavailableError("away")

    table.storage.fail.append(refuse)
    with pytest.raises(StorageUnavailableError):
        held.renew()
    assert held.is_held
    table.storage.fail.clear()
    assert held.renew()
    table.clock.advance(500_000)
    assert held.is_held
    table.storage.fail.append(refuse)
    held.release()  # no error: the file is left to expire
    table.storage.fail.clear()
    assert len(ids(table)) == 1


def test_a_thread_renews_it_while_it_is_held(table):
    renewed = threading.Event()

    def look(kind: str, path: str) -> None:
        if kind == "replace" and path.startswith(LEASE_FOLDER):
            renewed.set()

    lease = Lease.at("1" * 32, table.meta.active_timeline(), TTL_S, "a test")
    Leases(table.storage, table.clock).create(lease)
    table.storage.fail.append(look)
    held = HeldLease(table.meta, lease, table.clock, between_s=0.001)
    held.keep_renewing()
    assert renewed.wait(PATIENCE_S)
    held.release()


def test_a_time_that_cannot_be_read_any_more_is_refused_and_leaves_nothing(table):
    first, second, _ = table.model.writes
    request_clean(table, second)
    with pytest.raises(InputError, match=f"as_of {first} is before {second}"):
        acquired(table, first)
    for bad in ("2026", "20261340000000000"):
        with pytest.raises(InputError, match="as_of is"):
            acquired(table, bad)
    with pytest.raises(InputError, match="ttl is 5"):
        acquired(table, ttl_s=5)
    assert ids(table) == []
    assert LEASE_FOLDER not in " ".join(table.storage.files)


@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("by", ["commits", "versions"])
@pytest.mark.parametrize("further", [True, False])
def test_a_clean_that_comes_between_refuses_it_if_it_goes_further(version, by, further):
    table = SmallTable(version=version)
    _, second, third = (table.write(A) for _ in range(3))
    pinned = second if further else third
    cleans: list[str] = []

    def clean(kind: str, path: str) -> None:
        if kind == "create" and path.startswith(LEASE_FOLDER) and not cleans:
            cleans.append("")
            cleans[0] = request_clean(table, third if by == "commits" else None)

    table.storage.fail.append(clean)
    if further:
        with pytest.raises(LeaseError, match=f"retains only .* {third} or later") as raised:
            acquired(table, pinned)
        assert raised.value.retryable
        assert cleans[0] in str(raised.value)
        assert ids(table) == []
    else:
        held = acquired(table, pinned)
        assert ids(table) == [held.lease.id]
        held.release()


@pytest.mark.parametrize("at", ["pin", "lease"])
def test_a_clean_that_is_withdrawn_while_it_is_looked_at_does_not_refuse_it(table, at):
    """It was an ``InstantNotFoundError``; a cleaner withdraws what would break a lease."""
    _, second, third = table.model.writes
    cleans: list[str] = []

    def clean(kind: str, path: str) -> None:
        if at == "lease" and not cleans and kind == "create" and path.startswith(LEASE_FOLDER):
            cleans.append(request_clean(table, third))
        if kind == "read" and path.endswith(".clean.requested"):
            table.storage.files.pop(path)

    if at == "pin":
        cleans.append(request_clean(table, third))
    table.storage.fail.append(clean)
    held = acquired(table, second)
    table.storage.fail.clear()
    assert not [path for path in table.storage.files if ".clean" in path]
    assert held.lease.instant == second
    held.release()


def test_what_was_pending_when_a_clean_was_planned_does_not_refuse_it(table):
    """Such a clean kept what it would supersede; one that is planned now may not."""
    newest = table.write(A)
    table.begin([A])
    last = table.write(("p=2", "b-0"))
    request_clean(table, None)
    held = acquired(table)
    assert (held.lease.earliest, held.lease.instant) == (newest, last)
    held.release()


def test_a_clean_that_was_planned_while_the_timeline_was_listed_refuses_it(table):
    """The listing has seen a write before it completed, and then the clean."""
    late = table.begin([A])
    last = table.write(("p=2", "b-0"))
    request_clean(table, last)

    def complete(kind: str, path: str) -> None:
        if kind == "create" and path.startswith(LEASE_FOLDER):
            table.storage.fail.clear()
            table.complete(late)

    table.storage.fail.append(complete)
    with pytest.raises(LeaseError, match=f"retains only .* {last} or later"):
        acquired(table)
    held = acquired(table)
    assert held.lease.earliest == last
    held.release()


def test_a_savepoint_can_be_pinned_however_far_cleans_went(table):
    first, _, third = table.model.writes
    table.savepoint(first)
    request_clean(table, third)
    held = acquired(table, first)
    assert held.lease.instant == first
    held.refuse_cleaned(table.meta, table.meta.active_timeline(), first, "as_of")
    held.release()


def test_reading_is_refused_once_a_clean_ignored_it(table):
    """Hudi's cleaner doesn't know leases."""
    _, second, third = table.model.writes
    held = acquired(table, second)
    held.refuse_cleaned(table.meta, table.meta.active_timeline(), second, "as_of")
    request_clean(table, second)
    held.refuse_cleaned(table.meta, table.meta.active_timeline(), second, "as_of")
    time = request_clean(table, third)
    with pytest.raises(LeaseError, match=time):
        held.refuse_cleaned(table.meta, table.meta.active_timeline(), second, "as_of")
    held.release()


def with_faults(table: SmallTable, faults: list[Fault]) -> tuple[FaultyStorage, HeldLease | None]:
    storage = FaultyStorage(table.storage, faults)
    meta = TableMetaClient(storage, table.meta.config)
    held = None
    with contextlib.suppress(*((Crash, StrandlineError) if faults else ())):
        held = HeldLease.acquire(meta, table.model.writes[-2], TTL_S, table.clock)
    return storage, held


def prepared() -> SmallTable:
    table = SmallTable(MemoryStorage())
    table.storage._now_ms = table.clock.now_ms
    for _ in range(3):
        table.write(A)
    request_clean(table, table.model.writes[1])
    return table


LOG = with_faults(prepared(), [])[0].log
FAULTS = [(at, effect) for effect in Effect for at in distinct_calls(LOG, effect)]


def test_a_reader_that_fails_anywhere_leaves_a_lease_that_expires(subtests):
    assert [kind for kind, _ in LOG] == ["list", "read", "create", "list"]
    assert len(FAULTS) >= 8
    for at, effect in FAULTS:
        with subtests.test(at=at, effect=effect):
            table = prepared()
            storage, held = with_faults(table, [Fault(at, effect)])
            if held is not None:  # the answer of the create was lost, or repeated
                assert effect is Effect.EXISTS_AFTER
                held.release()
            if storage.crashed:
                assert len(ids(table)) <= 1
            else:
                assert ids(table) == []
            table.clock.advance(700_000)
            assert Leases(table.storage, table.clock).live(sweep=True) == ()
            assert ids(table) == []
