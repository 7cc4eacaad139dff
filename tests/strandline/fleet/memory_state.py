"""A state store in memory, whose clients can be cut off, or die right before or after a write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from strandline.fleet.state.base import (
    ABSENT,
    Check,
    Delete,
    Lease,
    Op,
    Put,
    StateStore,
    Versioned,
    conflict,
    is_within,
)
from timeline.clock import Clock
from timeline.errors import StateConflictError, StateUnavailableError


class ClientDiedError(Exception):
    """The client has died at a write."""


@dataclass
class Place:
    """What the clients share.

    Attributes:
        clock: Ends leases.
        ends: Key of a lease → when it ends.
        unfenced: Keys that a client has written after all of its leases had ended.
    """

    clock: Clock
    there: dict[str, Versioned] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)
    last: int = 0
    unfenced: list[str] = field(default_factory=list)
    watches: list[tuple[str, Callable[[], object]]] = field(default_factory=list)

    def living(self) -> dict[str, Versioned]:
        """Return what is there now."""
        for key, end in list(self.ends.items()):
            if self.clock.monotonic() >= end:
                del self.ends[key], self.there[key]
        return self.there

    def changed(self, *keys: str) -> None:
        for prefix, call in list(self.watches):
            if any(is_within(key, prefix) for key in keys):
                call()


class MemoryLease(Lease):
    def __init__(self, state: MemoryState, key: str, version: int, ttl_s: float) -> None:
        self.key, self.version = key, version
        self._state, self._ttl_s = state, ttl_s

    def renew(self, value: bytes | None = None) -> bool:
        place = self._state.reached()
        found = place.living().get(self.key)
        if found is None or self.key not in place.ends or found.version != self.version:
            return False
        place.ends[self.key] = place.clock.monotonic() + self._ttl_s
        if value is not None:
            place.last += 1
            self.version = place.last
            place.there[self.key] = Versioned(value, self.version)
            place.changed(self.key)
        return True

    def release(self) -> None:
        place = self._state.reached()
        found = place.living().get(self.key)
        if found is not None and found.version == self.version:
            del place.there[self.key], place.ends[self.key]
            place.changed(self.key)


class MemoryState(StateStore):
    """A client.

    Attributes:
        is_away: Whether it can't reach the store.
        dies_at: After so many writes the client dies; ``None``: never.
        dies_after: Whether that last write is carried out.
        before_write: Called with the operations before each write.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.is_away = False
        self.dies_at: int | None = None
        self.dies_after = False
        self.before_write: Callable[[tuple[Op, ...]], object] = lambda _: None
        self.writes = 0
        self._leases: set[str] = set()

    def reached(self) -> Place:
        if self.is_away:
            raise StateUnavailableError("no store")
        return self.place

    def get(self, key: str) -> Versioned | None:
        return self.reached().living().get(key)

    def read(self) -> dict[str, Versioned]:
        return dict(self.reached().living())

    def write(self, *ops: Op) -> int:
        self.before_write(ops)
        place = self.reached()
        there = place.living()
        for op in ops:
            found = there[op.key].version if op.key in there else ABSENT
            if found != op.version:
                raise conflict(op.key, found, op.version)
        dies = self.dies_at is not None and self.writes >= self.dies_at
        if dies and not self.dies_after:
            raise ClientDiedError
        self.writes += 1
        place.last += 1
        if self._leases and not any(key in place.ends for key in self._leases):
            place.unfenced += [op.key for op in ops]
        for op in ops:
            if isinstance(op, Put):
                there[op.key] = Versioned(op.value, place.last)
            elif isinstance(op, Delete):
                del there[op.key]
                place.ends.pop(op.key, None)
        place.changed(*(op.key for op in ops if not isinstance(op, Check)))
        if dies:
            raise ClientDiedError
        return place.last

    def hold(self, key: str, value: bytes, ttl_s: float) -> Lease:
        place = self.reached()
        if key in place.living():
            raise StateConflictError(f"{key!r} is there")
        place.last += 1
        place.there[key] = Versioned(value, place.last)
        place.ends[key] = place.clock.monotonic() + ttl_s
        place.changed(key)
        self._leases.add(key)
        return MemoryLease(self, key, place.last, ttl_s)

    def watch(self, prefix: str, call: Callable[[], object]) -> Callable[[], None]:
        entry = (prefix, call)
        self.place.watches.append(entry)

        def cancel() -> None:
            self.place.watches = [each for each in self.place.watches if each is not entry]

        return cancel

    def close(self) -> None:
        """Nothing has to be closed."""
