"""Commits to stores that last, without a service around them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.command import Bench
from benchmarks.results.figures import Figure
from fsview.store.base import Blob, Store, StoredChunk
from fsview.store.rocksdb.store import RocksStores
from fsview.store.sql.sqlite.database import SqliteDatabase
from fsview.store.sql.store import SharedStore
from timeline.storage.table_id import TableId

SIZES: Final = ((10, 6144), (1000, 64), (1000, 6144))
"""Numbers of blobs of a commit, and their bytes: each replaces one, and its row's 100 bytes."""

HELD: Final = 3000
COMMITS: Final = 12

_TABLE: Final = TableId.of("/benchmarks/table")
_ROW: Final = b"x" * 100
_CACHE_BYTES: Final = 128 << 20


def _rocksdb(folder: Path) -> tuple[Store, Callable[[], None]]:
    stores = RocksStores(folder, _CACHE_BYTES)
    return stores.open(_TABLE), stores.close


def _sqlite(folder: Path) -> tuple[Store, Callable[[], None]]:
    database = SqliteDatabase(folder / "views.db")
    return SharedStore(database, _TABLE), database.close


OPEN: Final[Mapping[str, Callable[[Path], tuple[Store, Callable[[], None]]]]] = {
    "RocksDB": _rocksdb,
    "SQLite": _sqlite,
}


def commits(bench: Bench) -> Iterator[Figure]:
    """Measure commits that replace some of a store's blobs, for all kinds in alternation."""
    held = bench.many(HELD)
    choice = random.Random(held)
    opened = {kind: Replacing(kind, bench.folder / kind, held, choice) for kind in OPEN}
    found: dict[tuple[int, int, str], list[tuple[float, float]]] = {}
    for _ in range(bench.rounds):
        for count, size in SIZES:
            for kind, store in opened.items():
                taken = [store.replace(min(count, held), size) for _ in range(COMMITS)]
                wall, cpu = (median(values) * 1e3 for values in zip(*taken, strict=True))
                found.setdefault((count, size, kind), []).append((wall, cpu))
    for store in opened.values():
        store.close()
    for (count, size, kind), values in found.items():
        what = f"commit of {count:,} blobs of {size:,} bytes, {kind}"
        yield Figure(f"{what}: ms", [wall for wall, _ in values])
        yield Figure(f"{what}: CPU ms", [cpu for _, cpu in values])


class Replacing:
    """A store whose blobs are replaced."""

    def __init__(self, kind: str, folder: Path, held: int, choice: random.Random) -> None:
        self._choice = choice
        self._store, self._close = OPEN[kind](folder)
        self._chunks: list[StoredChunk] = []
        self.replace(held, SIZES[-1][1])

    def replace(self, count: int, size: int) -> tuple[float, float]:
        """Commit new blobs for the first ones; return wall and CPU seconds."""
        blobs = [Blob(self._choice.randbytes(size), f"p/{n}") for n in range(count)]
        rows = {blob.near: _ROW for blob in blobs}
        wall, cpu = time.perf_counter(), time.process_time()
        chunks = self._store.commit(blobs, lambda _: rows)
        taken = time.perf_counter() - wall, time.process_time() - cpu
        self._chunks[:count] = chunks
        return taken

    def close(self) -> None:
        """Close the store."""
        self._chunks.clear()
        self._store.close()
        self._close()
