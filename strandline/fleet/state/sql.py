"""``SqlState``: the common part of state stores in SQL databases, and what it asks of them.

Each method is one transaction over ``StateRows``. A lease is a row with a time
to live and random bytes that only its holder knows.
"""

from __future__ import annotations

import logging
import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final

from strandline.fleet.state.base import (
    ABSENT,
    Cancel,
    Delete,
    Lease,
    Op,
    Put,
    StateStore,
    Versioned,
    conflict,
)
from strandline.fleet.state.checks import (
    check_key,
    check_ops,
    check_prefix,
    check_ttl,
    check_value,
)
from strandline.fleet.state.watches import Poller, Watches
from timeline.errors import ConfigError, StateUnavailableError, StoreError

PURPOSE: Final = "the state store"
"""What the database is, before its name in messages."""

_HOLDER_BYTES: Final = 16

Holding = tuple[bytes, float]
"""Random bytes of a lease, and its time to live in seconds."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredKey:
    """An existing key.

    Attributes:
        version: Its version.
        holder: The random bytes of the lease; ``None`` if it isn't a lease.
    """

    version: int
    holder: bytes | None


class StateRows(ABC):
    """A fleet's rows within a transaction; expired leases don't exist."""

    @abstractmethod
    def get(self, key: str) -> Versioned | None:
        """Return a key's value and version."""

    @abstractmethod
    def all(self) -> dict[str, Versioned]:
        """Return all keys with their values and versions."""

    @abstractmethod
    def renew(self, key: str, holder: bytes) -> int | None:
        """Restart a lease's time to live; return its version, ``None`` if it has expired."""

    # Only in a writing transaction.

    @abstractmethod
    def next_version(self) -> int:
        """Return a version never used before; blocks other writers until the transaction ends."""

    @abstractmethod
    def find(self, *keys: str) -> dict[str, StoredKey]:
        """Return the keys that exist, locked until the transaction ends."""

    @abstractmethod
    def insert(self, key: str, value: bytes, version: int, holding: Holding | None = None) -> None:
        """Create a key, a lease if it is held; replace an expired lease if there is one."""

    @abstractmethod
    def update(self, key: str, value: bytes, version: int) -> None:
        """Change a key, which stays a lease if it is one."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Delete a key."""

    @abstractmethod
    def delete_ended(self) -> None:
        """Delete the rows of expired leases."""


def _never(_: StoreError) -> bool:
    return False


@contextmanager
def mapped(is_wrong: Callable[[StoreError], bool] = _never) -> Iterator[None]:
    """Map errors of the database in the block to ``StateUnavailableError``.

    Args:
        is_wrong: Whether an error means that the database isn't this state store's: ``ConfigError``
            is raised instead.
    """
    try:
        yield
    except StoreError as error:
        kind = ConfigError if is_wrong(error) else StateUnavailableError
        raise kind(f"{PURPOSE} {error.message}", hint=error.hint) from error


@dataclass(frozen=True, slots=True)
class Looking:
    """The search for changes.

    Attributes:
        poller: The thread that polls.
        end: Ends it, and closes what it uses.
    """

    poller: Poller
    end: Callable[[], object]


class SqlState(StateStore):
    """A client; ``_lock`` guards leases and the poller, and is held while that starts.

    Args:
        place: The database for messages; without a password.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._is_closed = False
        self._lock = threading.Lock()
        self._leases: list[SqlLease] = []
        self._watches = Watches()
        self._looking: Looking | None = None

    def get(self, key: str) -> Versioned | None:
        """Return a key's value and version; ``None`` if it doesn't exist."""
        check_key(key)
        with self._reading() as rows:
            return rows.get(key)

    def read(self) -> dict[str, Versioned]:
        """Return all keys with their values and versions, as they are at one time."""
        with self._reading() as rows:
            return rows.all()

    def write(self, *ops: Op) -> int:
        """Change keys, all or none; return the version that they have now."""
        check_ops(ops)
        with self._writing() as rows:
            # Before any read: from here on other writers wait.
            version = rows.next_version()
            found = rows.find(*(op.key for op in ops))
            for op in ops:
                row = found.get(op.key)
                if op.version != (ABSENT if row is None else row.version):
                    raise conflict(op.key, ABSENT if row is None else row.version, op.version)
            for op in ops:
                if isinstance(op, Delete):
                    rows.delete(op.key)
                elif isinstance(op, Put) and op.version == ABSENT:
                    rows.insert(op.key, op.value, version)
                elif isinstance(op, Put):
                    rows.update(op.key, op.value, version)
        self._has_changed()
        return version

    def hold(self, key: str, value: bytes, ttl_s: float) -> Lease:
        """Create a lease: a key that expires after this process has ended."""
        check_value(check_key(key), value)
        ttl_s = check_ttl(ttl_s)
        holder = secrets.token_bytes(_HOLDER_BYTES)
        with self._writing() as rows:
            version = rows.next_version()
            row = rows.find(key).get(key)
            if row is not None:
                raise conflict(key, row.version, ABSENT)
            rows.delete_ended()
            rows.insert(key, value, version, (holder, ttl_s))
        lease = SqlLease(self, key, version, holder)
        with self._lock:
            self._leases.append(lease)
        self._has_changed()
        return lease

    def watch(self, prefix: str, call: Callable[[], object]) -> Cancel:
        """Have a function called after each change of a key or of one below it."""
        check_prefix(prefix)
        with self._lock:
            if self._is_closed:
                raise StateUnavailableError(f"{self._place} is closed")
            if self._looking is None:
                self._looking = self._look_for(self._watches)
            return self._watches.add(prefix, call)

    def close(self) -> None:
        """End the watches, release the leases and close the database; may be repeated."""
        with self._lock:
            looking, self._looking = self._looking, None
            leases, self._leases = self._leases, []
        self._watches.clear()
        if looking is not None:
            looking.end()
        try:
            for lease in leases:
                lease.release()
        except StateUnavailableError as error:
            logger.warning("leases end by themselves, they weren't released: %s", error)
        finally:
            self._is_closed = True
            self._close()

    def renew(self, lease: SqlLease, value: bytes | None) -> int | None:
        """Renew a lease; return the key's version, ``None`` if the lease is lost."""
        if value is not None:
            check_value(lease.key, value)
        if self._is_closed:
            return None
        version = self._renewed(lease, value)
        if version is None:
            self._forget(lease)
        return version

    def release(self, lease: SqlLease) -> None:
        """Delete a lease if it is still held."""
        # Even if the delete fails: ``close`` must not try, and wait, again.
        self._forget(lease)
        if self._is_closed:
            return
        with self._writing() as rows:
            rows.next_version()
            row = rows.find(lease.key).get(lease.key)
            if row is not None and row.holder == lease.holder:
                rows.delete(lease.key)
        self._has_changed()

    def _renewed(self, lease: SqlLease, value: bytes | None) -> int | None:
        if value is None:
            with self._renewing() as rows:
                return rows.renew(lease.key, lease.holder)
        with self._writing() as rows:
            version = rows.next_version()
            if rows.renew(lease.key, lease.holder) is None:
                return None
            rows.update(lease.key, value, version)
        self._has_changed()
        return version

    def _forget(self, lease: SqlLease) -> None:
        with self._lock:
            self._leases = [each for each in self._leases if each is not lease]

    def _has_changed(self) -> None:
        """Have this client's watches poll at once."""
        looking = self._looking
        if looking is not None:
            looking.poller.hurry()

    @abstractmethod
    def _reading(self) -> AbstractContextManager[StateRows]:
        """Run the block in a read-only transaction.

        Raises:
            StateUnavailableError: The database can't be used; also raised by the next two.
        """

    @abstractmethod
    def _writing(self) -> AbstractContextManager[StateRows]:
        """Run the block in an exclusive transaction; an error in it rolls everything back."""

    def _renewing(self) -> AbstractContextManager[StateRows]:
        """Run the block in a transaction that renews one lease."""
        return self._writing()

    @abstractmethod
    def _close(self) -> None:
        """Close the database; may be repeated."""

    @abstractmethod
    def _look_for(self, watches: Watches) -> Looking:
        """Begin to poll for changes and to notify watches.

        Raises:
            StateUnavailableError: The database can't be used.
        """


class SqlLease(Lease):
    """A row with random bytes that only this lease knows.

    Attributes:
        holder: The random bytes.
    """

    def __init__(self, state: SqlState, key: str, version: int, holder: bytes) -> None:
        self._state = state
        self.key = key
        self.version = version
        self.holder = holder

    def renew(self, value: bytes | None = None) -> bool:
        """Keep the lease for another time to live; return whether it is held."""
        version = self._state.renew(self, value)
        if version is not None and value is not None:
            self.version = version
        return version is not None

    def release(self) -> None:
        """Delete the key if it is still held; otherwise do nothing."""
        self._state.release(self)
