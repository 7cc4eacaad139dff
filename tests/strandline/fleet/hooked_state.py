"""A state store in which something happens at chosen moments."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from strandline.fleet.state.base import Lease, Op, StateStore, Versioned
from timeline.errors import StateUnavailableError


class HookedLease(Lease):
    """A lease in a store that may be away, or may take no values.

    Attributes:
        loses_answer: Whether the next renewal is carried out, and its answer lost.
    """

    def __init__(self, store: Meanwhile, inner: Lease) -> None:
        self.store, self.inner = store, inner
        self.key, self.version = inner.key, inner.version
        self.loses_answer = False

    def renew(self, value: bytes | None = None) -> bool:
        if self.store.is_away or not (value is None or self.store.has_room):
            raise StateUnavailableError("no store")
        is_held = self.inner.renew(value)
        if self.loses_answer:
            self.loses_answer, self.inner.version = False, self.version
            raise StateUnavailableError("no answer")
        self.version = self.inner.version
        return is_held

    def release(self) -> None:
        if self.store.is_away:
            raise StateUnavailableError("no store")
        self.inner.release()


class Meanwhile(StateStore):
    """A store that can be unavailable, or calls a function before its next write."""

    def __init__(self, inner: StateStore) -> None:
        self.inner = inner
        self.before_read: Callable[[], object] = lambda: None
        self.before_write: Callable[[], object] = lambda: None
        self.after_hold: Callable[[], object] = lambda: None
        self.is_away = False
        self.has_room = True
        self.leases: list[HookedLease] = []

    def go_away(self) -> None:
        self.is_away = True

    def _reached(self) -> StateStore:
        if self.is_away:
            raise StateUnavailableError("no store")
        return self.inner

    def get(self, key: str) -> Versioned | None:
        return self._reached().get(key)

    def read(self) -> Mapping[str, Versioned]:
        self.before_read()
        return self._reached().read()

    def write(self, *ops: Op) -> int:
        self.before_write()
        return self._reached().write(*ops)

    def hold(self, key: str, value: bytes, ttl_s: float) -> Lease:
        lease = HookedLease(self, self._reached().hold(key, value, ttl_s))
        self.leases.append(lease)
        self.after_hold()
        return lease

    def watch(self, prefix: str, call: Callable[[], object]) -> Callable[[], None]:
        return self._reached().watch(prefix, call)

    def close(self) -> None:
        self.inner.close()
