"""``StateRows``, ``RowStore``: what a state store in an SQL database is made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass

from strandline.fleet.state.base import Versioned


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key that is there.

    Attributes:
        version: Its version.
        holder: The random bytes of the lease; ``None`` if it is none.
    """

    version: int
    holder: bytes | None


class StateRows(ABC):
    """A fleet's rows within a transaction; leases that have ended aren't there."""

    @abstractmethod
    def get(self, key: str) -> Versioned | None:
        """Return a key's value and version."""

    @abstractmethod
    def beginning_with(self, start: str) -> list[str]:
        """Return the keys that begin with a text: ``""``, or a key and a slash."""

    @abstractmethod
    def renew(self, key: str, holder: bytes) -> int | None:
        """Let a lease's time to live begin anew; return its version, ``None`` if it has ended."""

    # In a transaction that writes.

    @abstractmethod
    def next_version(self) -> int:
        """Return a version that was never before; others can't write until the transaction ends."""

    @abstractmethod
    def find(self, *keys: str) -> dict[str, StoredKey]:
        """Return those of some keys that are there, and stay so until the transaction ends."""

    @abstractmethod
    def insert(
        self,
        key: str,
        value: bytes,
        version: int,
        holder: bytes | None = None,
        ttl_s: float | None = None,
    ) -> None:
        """Make a key, in the place of a lease that has ended if there is one."""

    @abstractmethod
    def update(self, key: str, value: bytes, version: int) -> None:
        """Change a key, which stays a lease if it is one."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Delete a key."""

    @abstractmethod
    def delete_ended(self) -> None:
        """Delete the rows of leases that have ended."""


class RowStore(ABC):
    """Where rows are; thread-safe.

    Attributes:
        place: For messages; without a password.
        is_closed: Whether ``close`` was called.
    """

    place: str
    is_closed: bool

    @abstractmethod
    def reading(self) -> AbstractContextManager[StateRows]:
        """Run a transaction within the block that reads.

        Raises:
            StateUnavailableError: The database can't be used, as with the next two.
        """

    @abstractmethod
    def renewing(self) -> AbstractContextManager[StateRows]:
        """Run a transaction within the block that renews one lease."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[StateRows]:
        """Run a transaction within the block, alone; its error leaves everything unchanged."""

    @abstractmethod
    def check_open(self) -> None:
        """Raise ``StateUnavailableError`` after ``close``."""

    @abstractmethod
    def close(self) -> None:
        """Close it; may be repeated."""
