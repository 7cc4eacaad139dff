"""A database that servers share in the suites below, and connections to it that fail."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fsview.store.sql.database import Database
from fsview.store.sql.store import SharedStore
from timeline.storage.table_id import TableId


@dataclass
class Faults:
    """Which statement of a server fails.

    Attributes:
        at: Number of the statement, from 0; ``None`` if none fails.
        is_done: Whether it takes effect before its answer is lost.
        statements: What was executed.
        is_away: Whether all fail.
        takes_no_writes: Whether those fail that lock a table to write to it.
    """

    at: int | None = None
    is_done: bool = False
    statements: list[str] = field(default_factory=list)
    is_away: bool = False
    takes_no_writes: bool = False

    @contextmanager
    def statement(self, sql: str, error: Exception) -> Iterator[None]:
        """Execute a statement in the block, or raise an error before or after it."""
        locks = "IMMEDIATE" in sql or "FOR NO KEY UPDATE" in sql
        if self.is_away or (self.takes_no_writes and locks):
            raise error
        fails = len(self.statements) == self.at
        self.statements.append(sql)
        if fails and not self.is_done:
            raise error
        yield
        if fails:
            raise error


class SharedPlace(ABC):
    """A new database, without tables.

    Attributes:
        url: Where it is, as for ``--store-url``.
        trouble: The text of the errors of ``Faults``.
    """

    url: str
    trouble: str

    @abstractmethod
    def open(self, faults: Faults | None = None, **options: Any) -> Database:
        """Open it as a server does; ``options`` are those of its kind."""

    @abstractmethod
    def count(self, kind: str, table: TableId) -> int:
        """Return how many rows of a table ``row``, ``blob`` or ``garbage`` has."""

    @abstractmethod
    def replace_blobs(self, change: Callable[[bytes], bytes]) -> None:
        """Change the stored bytes of all blobs."""

    @abstractmethod
    def lose_row(self, name: str) -> None:
        """Delete a row of all tables."""

    @abstractmethod
    def lose_heads(self) -> None:
        """Delete the heads of all tables, and nothing else."""

    @abstractmethod
    def damage_heads(self, table: TableId) -> None:
        """Add heads of no table, and make that of one as odd as the database lets it be."""

    @abstractmethod
    def save(self) -> None:
        """Keep a copy of what it has now."""

    @abstractmethod
    def fall_back(self) -> None:
        """Make it what it was when it was saved, in one transaction."""


NewPlace = Callable[[], SharedPlace]
"""Makes a place; the one that it made before may be gone then."""


@dataclass(frozen=True)
class State:
    """What the store of a table holds, as a new server finds it."""

    step: int
    rows: dict[str, bytes]
    blobs: dict[int, bytes]
    counted: tuple[int, int]
    journal: list[tuple[int, tuple[str, ...]]]

    @classmethod
    def of(cls, place: SharedPlace, table: TableId) -> State:
        database = place.open()
        store = SharedStore(database, table)
        status = store.status()
        with database.reading(table) as session:
            handles = session.handles(garbage=True)
            blobs = {int(handle): blob for handle, blob in session.blobs(handles).items()}
            journal = [(step.head.step, step.rows) for step in session.journal(0)]
        state = cls(
            store.head().step,
            dict(store.rows()),
            blobs,
            (status["blobs"], status["bytes"]),
            journal,
        )
        database.close()
        return state
