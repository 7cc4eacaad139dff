"""``StateStore``: the contract of the store by which the servers of a fleet agree.

A key is one or more names joined by ``/``: ``epoch``, ``seats/3``. Keys are independent: ``seats``
may have a value whether or not ``seats/3`` has one, and no folder is made first. A value is bytes.

Each change of a key gives it a version greater than all earlier ones in the whole store; versions
are never reused. So a decision can be applied only to the state that it was based on, even if a key
was deleted and created again in between (no ABA problem).

A *lease* is a key that expires: if its holder doesn't renew it within its time to live, the key is
gone, as if deleted. A holder that was paused notices too late, so a lease protects nothing by
itself. Writes that depend on it have its version in a ``Check`` of the same ``write`` (fencing).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from timeline.errors import StateConflictError

MAX_VALUE_BYTES: Final = 512 * 1024
"""Most bytes of the values of one ``write``: ZooKeeper cuts the connection of larger requests."""
MAX_KEY_LENGTH: Final = 200
MIN_TTL_S: Final = 1.0
MAX_TTL_S: Final = 86_400.0

ABSENT: Final = 0
"""The version of a key that doesn't exist."""

Cancel = Callable[[], None]
"""Ends a watch: no call begins after it has returned. One may be running. May be repeated."""


@dataclass(frozen=True, slots=True)
class Versioned:
    """A key's value.

    Attributes:
        value: The bytes.
        version: The version of its last write; greater than 0.
    """

    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Put:
    """Set a key's value; a lease stays one.

    Attributes:
        key: The key.
        value: Its new value.
        version: The version that it must have before; ``ABSENT``: it must not exist.
    """

    key: str
    value: bytes
    version: int = ABSENT


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a key; its holder loses it if it is a lease.

    Attributes:
        key: The key.
        version: The version that it must have before; not ``ABSENT``.
    """

    key: str
    version: int


@dataclass(frozen=True, slots=True)
class Check:
    """Change nothing, but fail the write if a key doesn't have a version.

    Attributes:
        key: The key.
        version: The version that it must have; ``ABSENT``: it must not exist.
    """

    key: str
    version: int


Op = Put | Delete | Check


class Lease(ABC):
    """A key that this client holds; thread-safe.

    Attributes:
        key: The key.
        version: The version that ``hold``, or the last ``renew`` with a value, gave it.
    """

    key: str
    version: int

    @abstractmethod
    def renew(self, value: bytes | None = None) -> bool:
        """Keep the lease for another time to live.

        Call it at least three times per time to live. A store may renew its leases by itself as
        long as the process runs.

        Args:
            value: The key's new value, whatever its version; ``None`` keeps value and version.

        Returns:
            Whether it is still held. A lost lease stays lost: ``hold`` makes another one.

        Raises:
            ConfigError: The store ends leases sooner than ``hold`` was told.
            InputError: The value is too long.
            StateUnavailableError: The store can't be reached. The lease may expire meanwhile.
        """

    @abstractmethod
    def release(self) -> None:
        """Delete the key if it is still held; otherwise do nothing.

        Raises:
            StateUnavailableError: The store can't be reached; the lease expires by itself.
        """


class StateStore(ABC):
    """A client of the store; thread-safe.

    Guarantees:

    * ``write`` is atomic, durable, and visible to every read that begins after it has returned;
    * a client never reads an older state of a key than it has read or written before;
    * versions grow with each write of any client, and are never reused.

    All methods raise ``InputError`` for keys, values or times to live that aren't allowed, and
    ``StateUnavailableError`` if the store can't be reached. The outcome of a write is then unknown,
    and it may still be carried out: reading its keys shows it, and once their versions have changed
    it can't be carried out any more.
    """

    @abstractmethod
    def get(self, key: str) -> Versioned | None:
        """Return a key's value and version; ``None`` if it doesn't exist."""

    @abstractmethod
    def read(self) -> Mapping[str, Versioned]:
        """Return all keys with their values and versions, as they are at one time."""

    @abstractmethod
    def write(self, *ops: Op) -> int:
        """Change keys, all or none.

        Args:
            ops: The operations, at least one, each on a different key.

        Returns:
            The version that every ``Put`` of the write has given its key.

        Raises:
            StateConflictError: A key isn't at its expected version; nothing was changed.
            InputError: A key occurs twice, or the values have more than ``MAX_VALUE_BYTES`` in all.
        """

    @abstractmethod
    def hold(self, key: str, value: bytes, ttl_s: float) -> Lease:
        """Create a lease: a key that expires after this process has ended.

        Args:
            key: A key that doesn't exist.
            value: Its value.
            ttl_s: Time to live in seconds, 1 to 86,400.

        Raises:
            ConfigError: The store ends leases sooner than that.
            StateConflictError: The key exists.
        """

    @abstractmethod
    def watch(self, prefix: str, call: Callable[[], object]) -> Cancel:
        """Have a function called after each change of a key or of one below it.

        It is called on a thread of the store, once for several changes, and sometimes without any.
        Every change after ``watch`` has returned counts, the expiry of a lease included. So: watch,
        then read; in each call read again, or wake the thread that does.

        Args:
            prefix: The key; ``""`` is above all keys.
            call: Must return soon. Its exceptions are logged.
        """

    @abstractmethod
    def close(self) -> None:
        """End the watches and release the leases; may be repeated, but not from a watch's call."""


def conflict(key: str, found: int, expected: int) -> StateConflictError:
    """Return the error for a key that doesn't have its expected version."""
    is_, wanted = (f"at version {v}" if v != ABSENT else "absent" for v in (found, expected))
    return StateConflictError(f"{key!r} is {is_}; expected: {wanted}")


def is_within(key: str, prefix: str) -> bool:
    """Return whether a key is the prefix or below it, name by name."""
    return prefix in ("", key) or key.startswith(prefix + "/")
