"""Stores in RocksDB, used by child processes."""

from __future__ import annotations

import sys
from pathlib import Path

from fsview.store.rocksdb.store_directory import StorePlace
from tests.fsview.store.rocks_child import TABLE
from timeline.storage.table_id import TableId

ROOT = Path(__file__).parents[3]
CHILD = (sys.executable, "-m", "tests.fsview.store.rocks_child")


def place(directory: Path, table_id: TableId = TABLE) -> StorePlace:
    return StorePlace.of(directory, table_id)


def set_aside(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.aside-*"))
