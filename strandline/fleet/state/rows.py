"""``StateRows``, ``RowStore``: rows and transactions of a state store in an SQL database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass

from strandline.fleet.state.base import Versioned


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
    def beginning_with(self, start: str) -> list[str]:
        """Return the keys that begin with a text: ``""``, or a key and a slash."""

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
    def insert(
        self,
        key: str,
        value: bytes,
        version: int,
        holder: bytes | None = None,
        ttl_s: float | None = None,
    ) -> None:
        """Create a key; replace an expired lease if there is one."""

    @abstractmethod
    def update(self, key: str, value: bytes, version: int) -> None:
        """Change a key, which stays a lease if it is one."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Delete a key."""

    @abstractmethod
    def delete_ended(self) -> None:
        """Delete the rows of expired leases."""


class RowStore(ABC):
    """The database with the rows; thread-safe.

    Attributes:
        place: For messages; without a password.
        is_closed: Whether ``close`` was called.
    """

    place: str
    is_closed: bool

    @abstractmethod
    def reading(self) -> AbstractContextManager[StateRows]:
        """Run the block in a read-only transaction.

        Raises:
            StateUnavailableError: The database can't be used; also raised by ``renewing`` and
                ``writing``.
        """

    @abstractmethod
    def renewing(self) -> AbstractContextManager[StateRows]:
        """Run the block in a transaction that renews one lease."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[StateRows]:
        """Run the block in an exclusive transaction; an error in it rolls everything back."""

    @abstractmethod
    def check_open(self) -> None:
        """Raise ``StateUnavailableError`` after ``close``."""

    @abstractmethod
    def close(self) -> None:
        """Close it; may be repeated."""
