"""Leases while a clock jumps: the storage's, that of the cleaner's machine, or of the reader's."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import nullcontext, suppress
from itertools import product

import pytest

from strandline.read.state.held_lease import HeldLease
from strandline.read.state.reader_lease import MAX_TTL_S, Leases
from strandline.table_services.clean.policy import (
    KEEP_LATEST_FILE_VERSIONS,
    POLICIES,
    CleanSettings,
)
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.tables.small_table import SmallTable
from tests.strandline.table_services.clean.subject import A, B, Subject, cleans
from timeline.errors import ConfigError, LeaseError

HOUR_MS = 3_600_000
LONG_MS = round(MAX_TTL_S * 1000) + HOUR_MS
"""Longer than a lease lives."""
JUMPS = (-LONG_MS, -5 * HOUR_MS, 5 * HOUR_MS, LONG_MS)
WHOSE = (("storage",), ("cleaner",), ("reader",), ("storage", "cleaner"))


class Clocks:
    """A table whose storage, cleaner and reader have a clock each; the reader holds a lease."""

    def __init__(self, policy: str, ttl_s: float = MAX_TTL_S) -> None:
        table = self.table = SmallTable()
        start = table.clock.now_ms()
        self.of = {"storage": ManualClock(start), "reader": ManualClock(start)}
        self.of["cleaner"] = table.clock
        table.storage._now_ms = self.of["storage"].now_ms
        self.subject = Subject(table)
        self.subject.settings = CleanSettings(
            policy=policy, retained=1, hours=1, versions=1, parallelism=1
        )
        for _ in range(3):
            self.write()
        self.held = HeldLease.acquire(table.meta, None, ttl_s, self.of["reader"])
        self.held._stopping.set()  # the test renews it
        self.files = table.model.read_at(self.held.lease.instant)
        for _ in range(3):
            self.write()
        # A new process, so that no view has been synced.
        self.subject.restart()
        self.subject.view.load_partitions(["p=1", "p=2"])

    def pass_on(self, ms: int) -> None:
        for clock in self.of.values():
            clock.advance(ms)

    def write(self) -> None:
        """Write, an hour later."""
        self.pass_on(HOUR_MS)
        self.table.write(A, B)

    def jump(self, whose: Collection[str], ms: int) -> None:
        for each in whose:
            self.of[each].advance(ms)

    def clean(self, jump_at: int = 0, whose: Collection[str] = (), ms: int = 0) -> int:
        """Clean; clocks jump before a call. Return the number of calls."""
        calls = 0

        def jump(kind: str, path: str) -> None:
            nonlocal calls
            calls += 1
            if calls == jump_at:
                self.jump(whose, ms)

        self.table.storage.fail.append(jump)
        self.subject.cleaner.run()
        self.table.storage.fail.clear()
        return calls

    def is_told(self) -> bool:
        """Return whether the reader is told before it reads anything more."""
        meta, lease = self.table.meta, self.held.lease
        if not self.held.renew():
            return True
        try:
            self.held.refuse_cleaned(meta, meta.active_timeline(), lease.instant, "as_of")
        except LeaseError:
            return True
        return False


@pytest.mark.property
@pytest.mark.parametrize("policy", POLICIES)
def test_a_clock_that_jumps_during_a_clean_takes_no_file_without_telling(policy, subtests):
    calls = Clocks(policy).clean()
    lost = 0
    for whose, ms, at in product(WHOSE, JUMPS, range(1, calls + 1)):
        with subtests.test(whose=whose, ms=ms, at=at):
            clocks = Clocks(policy)
            # Instants' times may be two hours ahead of a writer's clock.
            is_refused = "cleaner" in whose and ms < -2 * HOUR_MS
            with suppress(ConfigError) if is_refused else nullcontext():
                clocks.clean(at, whose, ms)
            are_there, is_told = clocks.files <= clocks.table.data_files(), clocks.is_told()
            assert are_there or is_told
            # A lease has expired if the cleaner's clock and the storage's say so; the reader takes
            # it for expired if its own does.
            if ms < LONG_MS or whose in (("storage",), ("cleaner",)):
                assert (are_there, is_told) == (True, False)
            lost += not are_there
            times = [i.requested_time for i in cleans(clocks.table)]
            assert all(time > clocks.table.model.writes[-1] for time in times)
    assert lost > 0


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("whose", "ms"),
    # Writers refuse a timeline whose newest time is hours ahead of their clock.
    [
        *((whose, ms) for whose in ("storage", "reader") for ms in JUMPS),
        *(("cleaner", ms) for ms in (-HOUR_MS, HOUR_MS)),
    ],
)
def test_after_a_jump_and_the_end_of_the_lease_its_files_go(policy, whose, ms):
    clocks = Clocks(policy)
    clocks.jump([whose], ms)
    clocks.clean()
    assert clocks.files <= clocks.table.data_files()
    clocks.jump([whose], -ms)
    clocks.held.release()
    for _ in range(2):
        clocks.write()
    clocks.clean()
    assert not clocks.files & clocks.table.data_files()


@pytest.mark.parametrize("ms", [-5 * HOUR_MS, 5 * HOUR_MS])
def test_a_lease_whose_holder_died_expires_by_the_storages_clock(ms):
    """Set back, it counts from when the lease was written, by the same clock."""
    clocks = Clocks(KEEP_LATEST_FILE_VERSIONS)
    clocks.of["storage"].advance(ms)
    leases = Leases(clocks.table.storage, clocks.of["cleaner"])
    left_ms = round(MAX_TTL_S * 1000) - 3 * HOUR_MS - ms
    clocks.pass_on(left_ms - HOUR_MS)
    assert [lease.id for lease in leases.live(sweep=True)] == [clocks.held.lease.id]
    clocks.pass_on(2 * HOUR_MS + 5 * HOUR_MS)
    assert leases.live(sweep=True) == ()
    clocks.clean()
    assert not clocks.files & clocks.table.data_files()
