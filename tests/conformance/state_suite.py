"""Conformance suites of state stores: inherit one and define the ``subject`` fixture.

``StateSuite`` is about keys and writes, ``LeaseSuite`` (``state_lease_suite.py``) about leases, and
``WatchSuite`` (``state_watch_suite.py``) about watches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing

import pytest

from strandline.fleet.state.base import (
    ABSENT,
    MAX_KEY_LENGTH,
    MAX_VALUE_BYTES,
    Check,
    Delete,
    Op,
    Put,
    StateStore,
    Versioned,
)
from tests.conformance.state_subject import TTL_S, StateSubject, WithState, children
from tests.kit.servers.processes import FORKS
from timeline.errors import InputError, StateConflictError

CLIENTS = 4
ROUNDS = 10
SEATS = 256

HOSTILE = (
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "a/../b",
    "a/./b",
    "a b",
    "a\n",
    "a\0",
    "é",
    "a:b",
    "a%",
    "a'; DROP TABLE state; --",
    "a" * (MAX_KEY_LENGTH + 1),
    None,
    7,
)
ALLOWED = ("a", "A", "0", "a.b", "...", "-", "_", "a/b/c/d", "x" * MAX_KEY_LENGTH)


def add_ones(state: StateStore) -> None:
    """Count to ``ROUNDS`` in a key that others change as well."""
    for _ in range(ROUNDS):
        while True:
            found = state.get("counter")
            before, version = (int(found.value), found.version) if found else (0, ABSENT)
            try:
                state.write(Put("counter", str(before + 1).encode(), version))
                break
            except StateConflictError:
                continue


def add_ones_in_process(subject: StateSubject) -> None:
    with closing(subject.open()) as state:
        add_ones(state)


class StateSuite(WithState):
    """What every store promises."""

    def test_a_key_that_was_never_written_is_absent(self, state: StateStore) -> None:
        assert state.get("seats/1") is None
        assert children(state, "seats") == children(state, "") == ()

    def test_what_was_written_is_read_by_every_client(
        self, subject: StateSubject, state: StateStore
    ) -> None:
        version = state.write(Put("seats/1", b"one"), Put("epoch", b""))
        with closing(subject.open()) as other:
            for client in (state, other):
                assert client.get("seats/1") == Versioned(b"one", version)
                assert client.get("epoch") == Versioned(b"", version)
                assert client.get("seats") is None
                both = {"seats/1": Versioned(b"one", version), "epoch": Versioned(b"", version)}
                assert client.read() == both

    def test_versions_grow_and_never_come_twice(self, state: StateStore) -> None:
        first = state.write(Put("seats/1", b"a"))
        other = state.write(Put("seats/2", b"a"))
        second = state.write(Put("seats/1", b"a", first))
        state.write(Delete("seats/1", second))
        again = state.write(Put("seats/1", b"a"))
        assert 0 < first < other < second < again
        with pytest.raises(StateConflictError, match=f"'seats/1' is at version {again}"):
            state.write(Put("seats/1", b"late", first))

    @pytest.mark.parametrize(
        ("make", "said"),
        [
            (lambda v: Put("there", b"x"), "'there' is at version {v}; expected: absent"),
            (lambda v: Put("there", b"x", v + 7), "'there' is at version {v}; expected: at ver"),
            (lambda v: Put("gone", b"x", v), "'gone' is absent; expected: at version {v}"),
            (lambda v: Delete("gone", v), "'gone' is absent; expected: at version {v}"),
            (lambda v: Delete("there", v + 7), "'there' is at version {v}; expected: at ver"),
            (lambda v: Check("there", ABSENT), "'there' is at version {v}; expected: absent"),
            (lambda v: Check("there", v + 7), "'there' is at version {v}; expected: at ver"),
            (lambda v: Check("gone", v), "'gone' is absent; expected: at version {v}"),
        ],
    )
    @pytest.mark.parametrize("place", [0, 1, 2])
    def test_one_conflict_leaves_everything_as_it_was(
        self, state: StateStore, make: Callable[[int], Op], said: str, place: int
    ) -> None:
        version = state.write(Put("there", b"x"), Put("other", b"y"))
        ops: list[Op] = [Put("new", b"z"), Delete("other", version)]
        ops.insert(place, make(version))
        with pytest.raises(StateConflictError, match=said.format(v=version)) as raised:
            state.write(*ops)
        assert raised.value.retryable
        assert state.get("there") == Versioned(b"x", version)
        assert state.get("other") == Versioned(b"y", version)
        assert state.get("new") is state.get("gone") is None

    def test_checks_change_nothing(self, state: StateStore) -> None:
        version = state.write(Put("epoch", b"1"))
        later = state.write(Check("epoch", version), Check("gone", ABSENT), Put("new", b"x"))
        assert later > version
        state.write(Check("epoch", version))
        assert state.get("epoch") == Versioned(b"1", version)
        assert state.get("gone") is None

    @pytest.mark.property
    def test_one_write_changes_all_seats_of_a_large_fleet(self, state: StateStore) -> None:
        """And checks two members for each; the values are as long as all together may be."""
        seats = [f"seats/{number}" for number in range(SEATS)]
        members = [f"members/{number:016x}" for number in range(2 * SEATS)]
        value = b"x" * (MAX_VALUE_BYTES // SEATS)
        before = state.write(
            *(Put(key, value) for key in seats), *(Put(key, b"") for key in members)
        )
        checks = [Check(key, before) for key in members]
        after = state.write(*(Put(key, value, before) for key in seats), *checks)
        found = state.read()
        assert {found[key].version for key in seats} == {after}
        assert {found[key].version for key in members} == {before}
        state.write(Put(members[-1], b"", before))
        with pytest.raises(StateConflictError, match=members[-1]):
            state.write(*(Put(key, value, after) for key in seats), *checks)

    def test_children_are_the_next_names_of_longer_keys(self, state: StateStore) -> None:
        keys = ("seats", "seats/10", "seats/2", "seats/2/a/b", "seats-old/1", "seats0", "deep/a/b")
        state.write(*(Put(key, b"") for key in keys))
        assert children(state, "") == ("deep", "seats", "seats-old", "seats0")
        assert children(state, "seats") == ("10", "2")
        assert children(state, "seats/2") == ("a",)
        assert children(state, "seats/2/a") == ("b",)
        assert children(state, "seats/2/a/b") == children(state, "seat") == ()
        assert children(state, "deep") == ("a",)

    def test_a_key_and_those_below_it_are_independent(self, state: StateStore) -> None:
        below = state.write(Put("a/b/c", b"below"))
        above = state.write(Put("a/b", b"above"))
        state.write(Delete("a/b", above))
        assert state.get("a/b") is None
        assert children(state, "a/b") == ("c",)
        state.write(Delete("a/b/c", below))
        assert children(state, "a") == children(state, "") == ()
        lease = state.hold("a", b"", TTL_S)
        state.write(Put("a/b/c", b"below a lease"))
        lease.release()
        assert state.get("a") is None
        assert children(state, "a") == ("b",)

    @pytest.mark.parametrize("key", ALLOWED)
    def test_allowed_keys(self, state: StateStore, key: str) -> None:
        version = state.write(Put(key, b"x"))
        assert state.get(key) == Versioned(b"x", version)
        assert children(state, "") == (key.partition("/")[0],)

    @pytest.mark.parametrize("key", HOSTILE, ids=lambda key: ascii(key)[:20])
    def test_hostile_keys_are_refused_by_name(self, state: StateStore, key: str) -> None:
        for use in (
            lambda: state.get(key),
            lambda: state.write(Put(key, b"x")),
            lambda: state.write(Delete(key, 1)),
            lambda: state.write(Check(key, ABSENT)),
            lambda: state.hold(key, b"x", TTL_S),
        ):
            with pytest.raises(InputError, match="is no key of a state store; allowed:"):
                use()
        if key != "":
            with pytest.raises(InputError, match="is no key of a state store"):
                state.watch(key, lambda: None)
        assert children(state, "") == ()

    @pytest.mark.parametrize("value", [b"", bytes(range(256)), b"x" * MAX_VALUE_BYTES])
    def test_any_bytes_are_a_value(self, state: StateStore, value: bytes) -> None:
        state.write(Put("k", value))
        found = state.get("k")
        assert found is not None
        assert found.value == value
        lease = state.hold("held", value, TTL_S)
        assert lease.renew(value)
        held = state.get("held")
        assert held is not None
        assert held.value == value

    def test_values_that_are_too_long_are_refused_by_name(self, state: StateStore) -> None:
        long = b"x" * (MAX_VALUE_BYTES + 1)
        said = f"the value of 'k' has {len(long)} bytes; allowed: at most {MAX_VALUE_BYTES}"
        lease = state.hold("held", b"", TTL_S)
        with pytest.raises(InputError, match=said):
            state.write(Put("k", long))
        with pytest.raises(InputError, match=said):
            state.hold("k", long, TTL_S)
        with pytest.raises(InputError, match="the value of 'held' has"):
            lease.renew(long)
        half = b"x" * (MAX_VALUE_BYTES // 2)
        with pytest.raises(InputError, match="the values of a write have"):
            state.write(Put("k", half), Put("l", half), Put("m", b"1"))
        assert children(state, "") == ("held",)

    @pytest.mark.parametrize(
        ("ops", "said"),
        [
            ((), "a write has no operation"),
            ((Put("k", b""), Delete("k", 1)), "a write has 'k' twice"),
            ((Put("k", b"", -1),), "expected version of 'k' is -1; allowed: .* at least 0"),
            ((Delete("k", ABSENT),), "expected version of 'k' is 0; allowed: .* at least 1"),
            ((Check("k", "1"),), "expected version of 'k' is '1'"),  # type: ignore[arg-type]
            ((Put("k", "text"),), "the value of 'k' is of str"),  # type: ignore[arg-type]
        ],
    )
    def test_writes_that_mean_nothing_are_refused(
        self, state: StateStore, ops: tuple[Op, ...], said: str
    ) -> None:
        with pytest.raises(InputError, match=said):
            state.write(*ops)

    @pytest.mark.property
    def test_threads_lose_no_change(self, subject: StateSubject, state: StateStore) -> None:
        shared = [state, state, *(subject.open() for _ in range(CLIENTS - 2))]
        threads = [threading.Thread(target=add_ones, args=(client,)) for client in shared]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for client in shared[2:]:
            client.close()
        found = state.get("counter")
        assert found is not None
        assert int(found.value) == CLIENTS * ROUNDS

    @pytest.mark.property
    def test_processes_lose_no_change(self, subject: StateSubject, state: StateStore) -> None:
        processes = [
            FORKS.Process(target=add_ones_in_process, args=(subject,), daemon=True)
            for _ in range(CLIENTS)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0] * CLIENTS
        found = state.get("counter")
        assert found is not None
        assert int(found.value) == CLIENTS * ROUNDS
