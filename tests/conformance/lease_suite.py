"""Conformance suite of readers' leases on a storage: inherit it, define the ``storage`` fixture."""

from __future__ import annotations

import pytest

from strandline.read.state.reader_lease import CLOCK_PATH, LEASE_FOLDER, Lease, Leases
from tests.kit.concurrency.manual_clock import ManualClock
from timeline.clock import SystemClock
from timeline.errors import AlreadyExistsError
from timeline.storage.base import Storage

HOUR_MS = 3_600_000
ONE = Lease("1" * 32, "20260131120000000", "20260131120500000", 600.0, "process 1 on host")


def ahead(ms: int) -> ManualClock:
    """Return a clock that is ahead of the machine's."""
    return ManualClock(SystemClock().now_ms() + ms)


class LeaseSuite:
    def test_a_table_without_leases_has_none(self, storage: Storage) -> None:
        assert Leases(storage, SystemClock()).live(sweep=True) == ()
        assert storage.list(".hoodie") == ()

    def test_what_was_created_is_listed_with_the_storages_time(self, storage: Storage) -> None:
        before = SystemClock().now_ms()
        leases = Leases(storage, SystemClock())
        leases.create(ONE)
        (found,) = leases.live()
        assert (found.id, found.earliest, found.instant) == (ONE.id, ONE.earliest, ONE.instant)
        assert (found.ttl_s, found.holder, found.problem) == (600.0, "process 1 on host", "")
        assert before - 2_000 <= found.renewed_ms <= SystemClock().now_ms() + 1_000

    def test_a_lease_is_created_once(self, storage: Storage) -> None:
        leases = Leases(storage, SystemClock())
        leases.create(ONE)
        leases.create(ONE)  # the storage's client repeats its request
        other = Lease(ONE.id, "", "", 600.0, "another")
        with pytest.raises(AlreadyExistsError):
            leases.create(other)
        assert [each.holder for each in leases.all()] == [ONE.holder]

    def test_one_that_ended_is_neither_listed_nor_renewed(self, storage: Storage) -> None:
        leases = Leases(storage, SystemClock())
        leases.create(ONE)
        assert leases.renew(ONE)
        assert leases.delete(ONE.id)
        assert not leases.delete(ONE.id)
        assert not leases.renew(ONE)
        assert leases.all() == ()

    def test_a_clock_that_is_ahead_ends_no_lease(self, storage: Storage) -> None:
        Leases(storage, SystemClock()).create(ONE)
        for hours in (-10, 10):
            (found,) = Leases(storage, ahead(hours * HOUR_MS)).live(sweep=True)
            assert found.id == ONE.id

    def test_without_sweeping_nothing_is_written(self, storage: Storage) -> None:
        Leases(storage, SystemClock()).create(ONE)
        assert Leases(storage, ahead(10 * HOUR_MS)).live() == ()
        assert [info.name for info in storage.list(LEASE_FOLDER)] == [ONE.id]
        assert storage.stat(CLOCK_PATH) is None
