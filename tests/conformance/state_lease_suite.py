"""Conformance suites of state stores about leases, see ``state_suite.py``.

``ClockLeaseSuite`` adds what holds where leases end by a clock that tests can set.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

import pytest

from strandline.fleet.state.base import Check, Delete, Put, StateStore, Versioned
from tests.conformance.state_subject import TTL_S, StateSubject, WithState, children
from tests.conformance.state_watch_suite import Told
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.concurrency.patience import PROCESS_S
from tests.kit.servers.processes import FORKS
from timeline.clock import SystemClock
from timeline.errors import InputError, StateConflictError, StateUnavailableError


def hold_forever(subject: StateSubject, parent: Connection) -> None:
    lease = subject.open().hold("members/killed", b"here", TTL_S)
    parent.send(lease.version)
    signal.pause()


@contextmanager
def holding_process(subject: StateSubject) -> Iterator[SpawnProcess]:
    """Run a process that holds ``members/killed`` until it is killed."""
    ours, theirs = FORKS.Pipe()
    process = FORKS.Process(target=hold_forever, args=(subject, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        with ours:
            assert ours.poll(PROCESS_S)
            assert ours.recv() > 0  # the end of a process that failed is an EOFError
            yield process
    finally:
        process.kill()
        process.join()


class LeaseSuite(WithState):
    """What every store promises about leases."""

    def test_a_held_key_is_there_until_it_is_released(
        self, subject: StateSubject, state: StateStore
    ) -> None:
        with closing(subject.open()) as other:
            lease = state.hold("members/a", b"url", TTL_S)
            assert lease.key == "members/a"
            assert other.get("members/a") == Versioned(b"url", lease.version)
            assert children(other, "members") == ("a",)
            for client in (state, other):
                with pytest.raises(StateConflictError, match="'members/a' is at version"):
                    client.hold("members/a", b"", TTL_S)
            assert lease.renew()
            assert other.get("members/a") == Versioned(b"url", lease.version)
            lease.release()
            lease.release()
            assert not lease.renew()
            assert not lease.renew(b"again")
            assert other.get("members/a") is None
            next_one = other.hold("members/a", b"next", TTL_S)
            assert next_one.version > lease.version

    def test_a_holder_changes_its_value(self, state: StateStore) -> None:
        lease = state.hold("members/a", b"1", TTL_S)
        before = lease.version
        assert lease.renew(b"2")
        assert lease.version > before
        assert state.get("members/a") == Versioned(b"2", lease.version)
        written = state.write(Put("members/a", b"3", lease.version))
        assert lease.renew()
        assert state.get("members/a") == Versioned(b"3", written)
        assert lease.renew(b"4")
        lease.release()
        assert state.get("members/a") is None

    def test_a_lease_is_lost_when_its_key_is_deleted(self, state: StateStore) -> None:
        lost = state.hold("members/a", b"1", TTL_S)
        state.write(Delete("members/a", lost.version))
        assert not lost.renew()
        held = state.hold("members/a", b"2", TTL_S)
        assert not lost.renew(b"still me")
        lost.release()
        assert held.renew()
        assert state.get("members/a") == Versioned(b"2", held.version)

    def test_a_write_can_need_a_lease(self, state: StateStore) -> None:
        lease = state.hold("members/a", b"1", TTL_S)
        state.write(Check(lease.key, lease.version), Put("seats/1", b"a"))
        lease.release()
        with pytest.raises(StateConflictError, match="'members/a' is absent"):
            state.write(Check(lease.key, lease.version), Put("seats/2", b"a"))
        assert state.get("seats/2") is None

    def test_close_releases_and_may_be_repeated(
        self, subject: StateSubject, state: StateStore
    ) -> None:
        other = subject.open()
        lease = other.hold("members/a", b"1", TTL_S)
        kept = other.write(Put("seats/1", b"a"))
        other.close()
        other.close()
        assert state.get("members/a") is None
        assert state.get("seats/1") == Versioned(b"a", kept)
        assert not lease.renew()
        lease.release()
        for use in (lambda: other.get("k"), lambda: other.write(Put("k", b""))):
            with pytest.raises(StateUnavailableError, match="closed"):
                use()

    @pytest.mark.parametrize("ttl_s", [0, 0.5, -1, 86_401, float("nan"), float("inf"), "10", True])
    def test_times_to_live_that_are_not_allowed(self, state: StateStore, ttl_s: float) -> None:
        with pytest.raises(InputError, match=r"time to live is .* allowed: 1 to 86400"):
            state.hold("k", b"", ttl_s)
        assert state.get("k") is None


class ClockLeaseSuite:
    """What holds of leases that end by a clock."""

    def test_a_lease_ends_when_its_holder_is_silent(self, subject: StateSubject) -> None:
        clock = ManualClock(SystemClock().now_ms())
        with closing(subject.open(clock)) as one, closing(subject.open(clock)) as two:
            lease = one.hold("members/a", b"1", TTL_S)
            clock.advance(9_999)
            assert lease.renew()
            clock.advance(9_999)
            assert children(two, "members") == ("a",)
            clock.advance(1)
            assert two.get("members/a") is None
            assert children(two, "members") == ()
            with pytest.raises(StateConflictError, match="'members/a' is absent"):
                two.write(Check("members/a", lease.version), Put("seats/1", b""))
            assert not lease.renew()
            held = two.hold("members/a", b"2", TTL_S)
            assert not lease.renew(b"still me")
            lease.release()
            assert one.get("members/a") == Versioned(b"2", held.version)

    def test_a_key_can_be_put_where_a_lease_has_ended(self, subject: StateSubject) -> None:
        clock = ManualClock(SystemClock().now_ms())
        with closing(subject.open(clock)) as state:
            lease = state.hold("a", b"1", TTL_S)
            clock.advance(10_000)
            version = state.write(Put("a", b"2"))
            assert version > lease.version
            clock.advance(100_000)
            assert state.get("a") == Versioned(b"2", version)
            assert not lease.renew()

    def test_the_wall_clock_does_not_count(self, subject: StateSubject) -> None:
        clock = ManualClock(SystemClock().now_ms())
        with closing(subject.open(clock)) as state:
            lease = state.hold("a", b"1", TTL_S)
            clock.advance(-86_400_000)  # sets only the wall clock
            assert lease.renew()
            assert state.get("a") is not None

    def test_the_end_of_a_lease_is_told(self, subject: StateSubject) -> None:
        clock = ManualClock(SystemClock().now_ms())
        with closing(subject.open(clock)) as one, closing(subject.open(clock)) as two:
            one.hold("members/a", b"1", TTL_S)
            told = Told()
            two.watch("members", told)
            clock.advance(10_000)
            told.wait()
            assert two.get("members/a") is None

    @pytest.mark.property
    def test_the_lease_of_a_killed_process_ends(self, subject: StateSubject) -> None:
        with holding_process(subject) as process:
            clock = ManualClock(SystemClock().now_ms())
            clock.advance(round(SystemClock().monotonic() * 1000))
            with closing(subject.open(clock)) as state:
                assert children(state, "members") == ("killed",)
                process.kill()
                process.join()
                assert children(state, "members") == ("killed",)
                clock.advance(round(TTL_S * 1000))
                assert children(state, "members") == ()
