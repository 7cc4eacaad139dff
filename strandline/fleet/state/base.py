"""``StateStore``: the contract of the store in which the servers of a fleet agree.

A key is one or more names joined by ``/``: ``epoch``, ``seats/3``. Keys are independent: ``seats``
may have a value whether or not ``seats/3`` has one, and no folder is made first. A value is bytes.

Each change of a key gives it a version that is greater than all before it in the whole store, and
no version ever comes twice. So a decision can't be applied to anything but what it was made from,
even if a key was deleted and made anew in between.

A *lease* is a key that ends with its holder: if that doesn't renew it for its time to live, the key
is gone, as if deleted. A holder that was stopped learns of that too late, so a lease protects
nothing by itself. Writes that need it name its version in a ``Check`` of the same ``write``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from timeline.errors import StateConflictError

MAX_VALUE_BYTES: Final = 512 * 1024
"""Most bytes of the values of one ``write``: ZooKeeper cuts the connection of larger requests."""
MAX_KEY_LENGTH: Final = 200
MIN_TTL_S: Final = 1.0
MAX_TTL_S: Final = 86_400.0

ABSENT: Final = 0
"""The version of a key that isn't there."""

Cancel = Callable[[], None]
"""Ends a watch: no call begins after it has returned. One may be running. May be repeated."""


@dataclass(frozen=True, slots=True)
class Versioned:
    """A key's value.

    Attributes:
        value: The bytes.
        version: Of the write that made it what it is; greater than 0.
    """

    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Put:
    """Set a key's value; a lease stays one.

    Attributes:
        key: The key.
        value: Its new value.
        version: The version that it must have before; ``ABSENT``: it must not be there.
    """

    key: str
    value: bytes
    version: int = ABSENT


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a key, also a lease, which is lost for its holder.

    Attributes:
        key: The key.
        version: The version that it must have before; not ``ABSENT``.
    """

    key: str
    version: int


@dataclass(frozen=True, slots=True)
class Check:
    """Leave a key as it is, but let the write fail if it isn't at a version.

    Attributes:
        key: The key.
        version: The version that it must have; ``ABSENT``: it must not be there.
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

        To be called three times in a time to live, or oftener. A store may renew its leases by
        itself as long as the process runs.

        Args:
            value: The key's new value, whatever its version; ``None`` changes neither.

        Returns:
            Whether it is held. Once it isn't, it never will be again: ``hold`` makes another one.

        Raises:
            InputError: The value is too long.
            StateUnavailableError: The store can't be reached. The lease may end meanwhile.
        """

    @abstractmethod
    def release(self) -> None:
        """Delete the key if it is still held; otherwise do nothing.

        Raises:
            StateUnavailableError: The store can't be reached; the lease ends by itself.
        """


class StateStore(ABC):
    """A client of the store; thread-safe.

    Guarantees:

    * ``write`` is atomic, lasting, and seen by every read that begins after it has returned;
    * a client never reads a key older than it has read or written it before;
    * versions grow with each write of any client, and never come twice.

    All methods raise ``InputError`` for keys, values or times to live that aren't allowed, and
    ``StateUnavailableError`` if the store can't be reached. Whether a write was carried out, or
    will be, is then unknown: its keys tell, and once they have changed it can't be any more.
    """

    @abstractmethod
    def get(self, key: str) -> Versioned | None:
        """Return a key's value and version; ``None`` if it isn't there."""

    @abstractmethod
    def children(self, key: str) -> tuple[str, ...]:
        """Return the names that follow a key in longer ones.

        Args:
            key: A key, whether or not it is there; ``""`` is above all keys.

        Returns:
            Sorted as text, so ``"10"`` is before ``"2"``.
        """

    @abstractmethod
    def write(self, *ops: Op) -> int:
        """Change keys, all or none.

        Args:
            ops: What to do, each with another key; at least one.

        Returns:
            The version that every ``Put`` of it has given.

        Raises:
            StateConflictError: A key isn't at its expected version; nothing was changed.
            InputError: A key comes twice, or the values have more than ``MAX_VALUE_BYTES`` in all.
        """

    @abstractmethod
    def hold(self, key: str, value: bytes, ttl_s: float) -> Lease:
        """Make a key that ends with this process.

        Args:
            key: A key that isn't there.
            value: Its value.
            ttl_s: Time to live in seconds, 1 to 86,400.

        Raises:
            StateConflictError: The key is there.
        """

    @abstractmethod
    def watch(self, prefix: str, call: Callable[[], object]) -> Cancel:
        """Have a function called after each change of a key or of one below it.

        It is called on a thread of the store after the last of some changes, not once for each, and
        sometimes without any. Everything after ``watch`` has returned counts as a change, also that
        a lease has ended. So: watch, then read; read again in each call, or wake who does.

        Args:
            prefix: The key; ``""`` is above all keys.
            call: Returns soon. What it raises is logged.
        """

    @abstractmethod
    def close(self) -> None:
        """End the watches and release the leases; may be repeated, not from a watch's call."""


def conflict(key: str, found: int, expected: int) -> StateConflictError:
    """Return the error of a key that isn't at its expected version."""
    is_, wanted = (f"at version {v}" if v != ABSENT else "absent" for v in (found, expected))
    return StateConflictError(f"{key!r} is {is_}; expected: {wanted}")


def is_within(key: str, prefix: str) -> bool:
    """Return whether a key is the prefix or below it, by whole names."""
    return prefix in ("", key) or key.startswith(prefix + "/")
