"""``Stores``: the stores of a service's tables, of one kind, within one budget."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fsview.store.base import MemoryStore, Store
from fsview.store.budget import BUDGET_BYTES, Budget
from fsview.store.rocksdb.store import RocksStore, RocksStores
from fsview.store.spill.area import SpillableStore, SpillArea
from fsview.store.sql.database_ring import DatabaseRing, Databases
from fsview.store.sql.store import SharedStore
from fsview.store.sql.upkeep import Upkeep
from timeline.clock import Clock
from timeline.errors import ConfigError, StoreError
from timeline.storage.table_id import TableId

KINDS: Final[Mapping[str, type[Store]]] = {
    "memory": MemoryStore,
    "spillable": SpillableStore,
    "rocksdb": RocksStore,
    "sql": SharedStore,
}
"""Name in settings → class; Hudi's name is the class's ``kind``."""

TABLE_BYTES: Final = 32 << 10
"""Memory of an open table that no account counts: its view, state, storage, counters."""
ROCKS_BYTES: Final = 288 << 10
"""The same with a database of RocksDB."""
ROCKS_FILES: Final = 8
"""Descriptors of such a database."""
LEAST_OPEN: Final = 16
"""Tables that may be open however small the budget is."""
_TABLES_SHARE: Final = 2
"""Open tables may take half of the budget beyond what its accounts count."""
KEPT_STEPS: Final = 256
"""Steps of a table that servers which share a database may be behind and still follow."""
_PAGE: Final = 4096
_CACHE_SHARE: Final = 4
"""RocksDB's cache and write buffers get a quarter of the budget."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Where a service keeps its views.

    Attributes:
        kind: One of ``KINDS``.
        directory: Directory for files; ``None`` is the system's directory for temporary files,
            which RocksDB can't use.
        budget_bytes: Most memory of a service: answers, old snapshots, packed files.
        urls: Of the databases of ``sql`` (``fsview.store.sql.url``), in any order. Never shown.
    """

    kind: str = "memory"
    directory: str | None = None
    budget_bytes: int = BUDGET_BYTES
    urls: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"storage is {self.kind!r}; allowed: {', '.join(KINDS)}")
        if self.kind in ("memory", "sql") and self.directory is not None:
            kind = self.kind
            raise ConfigError(f"store directory {self.directory}: storage {kind} keeps no files")
        if self.kind == "rocksdb" and self.directory is None:
            raise ConfigError("storage rocksdb needs a store directory, where a restart finds it")
        if self.kind == "sql":
            if not self.urls:
                raise ConfigError("storage sql needs a store URL, --store-url, of its database")
            DatabaseRing(self.urls)
        elif self.urls:
            raise ConfigError(f"a store URL is given: storage {self.kind} has no database")


class Stores:
    """Opens the stores of one service.

    Attributes:
        budget: Budget of the whole service. Its accounts evict in this order: ``answers``,
            ``retained`` (snapshots for clients that are behind), ``records`` (packed files).
        lasts: Whether the stores outlive the process.
        leads: Returns whether this service deletes what isn't needed any more from databases that
            it shares with others; replaced by a server of a fleet, whose leader does.
    """

    def __init__(self, options: StoreOptions | None = None, clock: Clock | None = None) -> None:
        """Set up what the stores share, and open none; ``clock`` times attempts to open a store.

        Raises:
            ConfigError: The kind needs a package that isn't installed.
            StoreError: The directory or a database can't be used.
        """
        self._options = options = options or StoreOptions()
        self.budget = Budget(options.budget_bytes)
        self.answers = self.budget.account("answers")
        self.retained = self.budget.account("retained")
        self._records = self.budget.account("records")
        directory = None if options.directory is None else Path(options.directory)
        self.lasts = KINDS[options.kind].lasts
        self.leads: Callable[[], bool] = lambda: True
        self._closed = False
        self._area: SpillArea | None = None
        self._rocks: RocksStores | None = None
        self._databases: Databases | None = None
        if options.kind == "sql":
            self._databases = Databases(DatabaseRing(options.urls))
        if options.kind == "spillable":
            self._area = SpillArea(directory, self._records, self.budget)
        if options.kind == "rocksdb" and directory is not None:
            _make(directory)
            cached = options.budget_bytes // _CACHE_SHARE
            self._records.add(cached)
            self._rocks = RocksStores(directory, cached, clock)

    def open(self, table_id: TableId) -> Store:
        """Return the store of a table.

        Raises:
            StoreLockedError: Another process has the store open.
            StoreError: The store can't be opened.
        """
        if self._area is not None:
            return SpillableStore(self._area)
        store: Store
        if self._rocks is not None:
            store = self._rocks.open(table_id)
        elif self._databases is not None:
            database = self._databases.of(table_id)
            store = SharedStore(database, table_id, KEPT_STEPS, leads=lambda: self.leads())
        else:
            return MemoryStore(self._records, self.budget)
        store.spare = MemoryStore(self._records, self.budget, is_spare=True)
        return store

    def most_open(self, asked: int) -> int:
        """Return how many tables may be open: as many as asked for, as far as memory suffices."""
        each = ROCKS_BYTES if self._rocks is not None else TABLE_BYTES
        return min(asked, max(LEAST_OPEN, self.budget.limit_bytes // _TABLES_SHARE // each))

    @property
    def files_of_a_table(self) -> int:
        """How many files an open table has open."""
        return 0 if self._rocks is None else ROCKS_FILES

    @property
    def is_overfull(self) -> bool:
        """Whether packed files in memory exceed the budget, and only closing a table frees some."""
        return self._options.kind == "memory" and self.budget.used > self.budget.limit_bytes

    def upkeep(self) -> Upkeep | None:
        """Return what deletes from all tables of the databases; ``None``: there are none."""
        return None if self._databases is None else Upkeep(self._databases.all(), KEPT_STEPS)

    def reasons(self) -> list[str]:
        """Return what is wrong with what the stores share; tables are answered all the same.

        Raises:
            StoreError: The stores are closed.
        """
        if self._closed:
            raise StoreError("the stores are closed")
        if self._options.kind in ("memory", "sql"):
            return []
        failure = None if self._area is None else self._area.failure
        if failure is not None:
            return [f"chunks can't be spilled: {failure}"]
        place = self._options.directory or tempfile.gettempdir()
        try:
            with tempfile.TemporaryFile(dir=place, prefix="strandline-check-") as file:
                file.write(b"\0" * _PAGE)
                file.flush()
        except OSError as exc:
            return [f"no file can be written in {place}: {exc.strerror}"]
        return []

    def close(self) -> None:
        """Free what the stores share; the stores must be closed before."""
        self._closed = True
        if self._area is not None:
            self._area.close()
        if self._rocks is not None:
            self._rocks.close()
        if self._databases is not None:
            self._databases.close()

    def status(self) -> dict[str, Any]:
        """Return JSON values."""
        place: dict[str, Any] = {} if self._area is None else {"file": self._area.status()}
        if self._databases is not None:
            place = {"databases": self._databases.names()}
        return {"kind": self._options.kind, "budget": self.budget.status(), **place}


def _make(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise StoreError(f"store directory {directory} can't be made: {exc.strerror}") from exc
