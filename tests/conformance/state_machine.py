"""Random steps of two clients of a state store, compared with a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from strandline.fleet.state.base import ABSENT, Check, Delete, Lease, Op, Put, StateStore, Versioned
from tests.conformance.state_subject import children
from tests.kit.concurrency.manual_clock import ManualClock
from timeline.errors import StateConflictError

TTL_S = 10.0
KEYS = ("seats", "seats/1", "seats/2", "members/a", "members/a/b")

keys = st.sampled_from(KEYS)
clients = st.integers(0, 1)
values = st.binary(max_size=3)


@dataclass
class Held:
    """A lease, and what the model knows of it.

    Attributes:
        ends_ms: When it ends, in the clock's elapsed milliseconds.
    """

    lease: Lease
    key: str
    ends_ms: float


@dataclass
class Model:
    """What is there: a mapping and the leases that live."""

    there: dict[str, Versioned] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)
    last_version: int = 0

    def end_leases(self, now_ms: float) -> None:
        for key, held in list(self.held.items()):
            if now_ms >= held.ends_ms:
                del self.held[key], self.there[key]

    def version(self, key: str) -> int:
        return self.there[key].version if key in self.there else ABSENT


class StateMachine(RuleBasedStateMachine):
    """Whatever two clients do: both read what the model has; versions are new.

    Args:
        open_state: Opens a client of the machine's store.
        clock: The clients' clock; ``None`` if tests can't set it.
    """

    def __init__(
        self, open_state: Callable[[], StateStore], clock: ManualClock | None = None
    ) -> None:
        super().__init__()
        self.clock = clock
        self.states = (open_state(), open_state())
        self.model = Model()
        self.leases: list[Held] = []

    def teardown(self) -> None:
        for state in self.states:
            state.close()

    @property
    def now_ms(self) -> int:
        # Rounded: the clock's seconds are no exact numbers of milliseconds.
        return 0 if self.clock is None else round(self.clock.monotonic() * 1000)

    @rule(
        client=clients,
        wanted=st.lists(
            st.tuples(st.sampled_from([Put, Delete, Check]), keys, values, st.integers(-1, 1)),
            min_size=1,
            max_size=3,
            unique_by=lambda op: op[1],
        ),
    )
    def write(self, client: int, wanted: list[tuple[type[Op], str, bytes, int]]) -> None:
        """Write with versions that are right, or one off."""
        model = self.model
        ops: list[Op] = []
        for kind, key, value, off in wanted:
            version = max(model.version(key) + off, ABSENT)
            if kind is Put:
                ops.append(Put(key, value, version))
            elif kind is Delete:
                ops.append(Delete(key, max(version, 1)))
            else:
                ops.append(Check(key, version))
        fits = all(model.version(op.key) == op.version for op in ops)
        try:
            version = self.states[client].write(*ops)
        except StateConflictError:
            assert not fits
            return
        assert fits
        assert version > model.last_version
        model.last_version = version
        for op in ops:
            if isinstance(op, Put):
                model.there[op.key] = Versioned(op.value, version)
            elif isinstance(op, Delete):
                del model.there[op.key]
                model.held.pop(op.key, None)

    @rule(client=clients, key=keys, value=values)
    def hold(self, client: int, key: str, value: bytes) -> None:
        try:
            lease = self.states[client].hold(key, value, TTL_S)
        except StateConflictError:
            assert key in self.model.there
            return
        assert key not in self.model.there
        assert lease.version > self.model.last_version
        self.model.last_version = lease.version
        self.model.there[key] = Versioned(value, lease.version)
        held = Held(lease, key, self.now_ms + TTL_S * 1000)
        self.model.held[key] = held
        self.leases.append(held)

    @precondition(lambda self: self.leases)
    @rule(which=st.integers(0, 99), value=st.none() | values)
    def renew(self, which: int, value: bytes | None) -> None:
        held = self.leases[which % len(self.leases)]
        is_held = self.model.held.get(held.key) is held
        assert held.lease.renew(value) == is_held
        if not is_held:
            return
        held.ends_ms = self.now_ms + TTL_S * 1000
        if value is not None:
            assert held.lease.version > self.model.last_version
            self.model.last_version = held.lease.version
            self.model.there[held.key] = Versioned(value, held.lease.version)

    @precondition(lambda self: self.leases)
    @rule(which=st.integers(0, 99))
    def release(self, which: int) -> None:
        held = self.leases[which % len(self.leases)]
        held.lease.release()
        if self.model.held.get(held.key) is held:
            del self.model.held[held.key], self.model.there[held.key]

    @precondition(lambda self: self.clock is not None)
    @rule(ms=st.sampled_from([1, 4_000, 9_999, 10_000, -50_000]))
    def wait(self, ms: int) -> None:
        assert self.clock is not None
        self.clock.advance(ms)
        self.model.end_leases(self.now_ms)

    @invariant()
    def both_clients_read_what_the_model_has(self) -> None:
        names = {key.partition("/")[0] for key in self.model.there}
        below = {key.split("/")[1] for key in self.model.there if key.startswith("members/")}
        for state in self.states:
            assert {key: state.get(key) for key in KEYS} == {
                key: self.model.there.get(key) for key in KEYS
            }
            assert children(state, "") == tuple(sorted(names))
            assert children(state, "members") == tuple(sorted(below))
