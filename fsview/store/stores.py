"""``Stores``: the stores of a service's tables, of one kind, within one budget."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fsview.store.base import Store
from fsview.store.budget import Budget
from fsview.store.memory import MemoryStore
from fsview.store.rocksdb.store import RocksStore, RocksStores
from fsview.store.spill.store import SpillableStore, SpillArea
from timeline.errors import ConfigError, StoreError
from timeline.storage.table_id import TableId

KINDS: Final[Mapping[str, type[Store]]] = {
    "memory": MemoryStore,
    "spillable": SpillableStore,
    "rocksdb": RocksStore,
}
"""What settings call a kind of store → the kind; Hudi's name of it is its ``kind``."""

BUDGET_BYTES: Final = 512 << 20
_PAGE: Final = 4096
_CACHED: Final = 4
"""The part of the budget that RocksDB may take for its cache and its writes: one in so many."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Where a service keeps its views.

    Attributes:
        kind: One of ``KINDS``.
        directory: For files; ``None``: where the system has temporary files, which RocksDB's
            can't be.
        budget_bytes: What a service may hold in memory: answers, old snapshots, packed files.
    """

    kind: str = "memory"
    directory: str | None = None
    budget_bytes: int = BUDGET_BYTES

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"storage is {self.kind!r}; allowed: {', '.join(KINDS)}")
        if self.kind == "memory" and self.directory is not None:
            raise ConfigError(f"store directory {self.directory}: storage memory keeps no files")
        if self.kind == "rocksdb" and self.directory is None:
            raise ConfigError("storage rocksdb needs a store directory, where a restart finds it")


class Stores:
    """Opens the stores of one service.

    Attributes:
        budget: Of the whole service. Its accounts give in this order: ``answers``, ``retained``
            (snapshots for clients that are behind), ``records`` (packed files).
        lasts: Whether what is kept lies on disk and outlives the process.
    """

    def __init__(self, options: StoreOptions | None = None) -> None:
        """Make what the stores share; opens no table.

        Raises:
            ConfigError: The kind needs what isn't installed.
            StoreError: The directory can't be used.
        """
        self._options = options = options or StoreOptions()
        self.budget = Budget(options.budget_bytes)
        self.answers = self.budget.account("answers")
        self.retained = self.budget.account("retained")
        self._records = self.budget.account("records")
        directory = None if options.directory is None else Path(options.directory)
        self.lasts = KINDS[options.kind].lasts
        self._closed = False
        self._area: SpillArea | None = None
        self._rocks: RocksStores | None = None
        if options.kind == "spillable":
            self._area = SpillArea(directory, self._records, self.budget)
        if options.kind == "rocksdb" and directory is not None:
            _make(directory)
            cached = options.budget_bytes // _CACHED
            self._records.add(cached)
            self._rocks = RocksStores(directory, cached)

    def open(self, table_id: TableId) -> Store:
        """Return the store of a table.

        Raises:
            StoreLockedError: Another process has it open.
            StoreError: It can't be opened.
        """
        if self._area is not None:
            return SpillableStore(self._area)
        if self._rocks is not None:
            return self._rocks.open(table_id)
        return MemoryStore(self._records, self.budget)

    def check(self) -> None:
        """Find out whether the stores are open, and what they keep in files can be written.

        Raises:
            StoreError: They are closed, or their directory takes no file: it is gone, not ours, or
                full.
        """
        if self._closed:
            raise StoreError("the stores are closed")
        if self._options.kind == "memory":
            return
        place = self._options.directory or tempfile.gettempdir()
        try:
            with tempfile.TemporaryFile(dir=place, prefix="strandline-check-") as file:
                file.write(b"\0" * _PAGE)
                file.flush()
        except OSError as exc:
            raise StoreError(f"no file can be written in {place}: {exc.strerror}") from exc

    def close(self) -> None:
        """Give back what the stores share; close the stores before."""
        self._closed = True
        if self._area is not None:
            self._area.close()
        if self._rocks is not None:
            self._rocks.close()

    def status(self) -> dict[str, Any]:
        """Return figures, fit for JSON."""
        area = {} if self._area is None else {"file": self._area.status()}
        return {"kind": self._options.kind, "budget": self.budget.status(), **area}


def _make(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise StoreError(f"store directory {directory} can't be made: {exc.strerror}") from exc
