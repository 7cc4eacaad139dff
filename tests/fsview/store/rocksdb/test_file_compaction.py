"""Deleted data leaves RocksDB's files, even if an earlier compaction failed."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from fsview.store.rocksdb.engine import RocksDatabase, RocksEngine, RocksError
from fsview.store.rocksdb.store import RocksStore
from fsview.store.rocksdb.store_directory import StorePlace
from tests.fsview.store.rocks_child import CACHE_BYTES, TABLE
from tests.kit.concurrency.patience import PATIENCE_S
from timeline.clock import SystemClock

MANY_BYTES = 40 << 20


class Failing(RocksDatabase):
    """A database whose compactions end with the given errors first, and whose files may be large.

    Attributes:
        ends: What the next compactions end with.
        compactions: How many were begun.
        more_bytes: How much larger the files seem than they are.
    """

    def __init__(self, database: RocksDatabase) -> None:
        self.__dict__.update(database.__dict__)
        self.ends: list[RocksError] = []
        self.compactions = 0
        self.more_bytes = 0

    def compact(self) -> None:
        self.compactions += 1
        if self.ends:
            raise self.ends.pop(0)
        super().compact()
        self.more_bytes = 0

    def disk_bytes(self) -> int:
        return super().disk_bytes() + self.more_bytes


class Engine(RocksEngine):
    """Opens one ``Failing`` database."""

    database: Failing

    def open(self, path: Path, *, create: bool) -> RocksDatabase:
        self.database = Failing(super().open(path, create=create))
        return self.database


def commit(store: RocksStore) -> None:
    """Commit, and wait for the compaction that this began."""
    store.commit([], lambda _: {"row": b""})
    for thread in threading.enumerate():
        if thread.name.startswith("compaction of "):
            thread.join(PATIENCE_S)


def test_a_failed_compaction_is_logged_and_repeated_after_more_writes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    engine = Engine(CACHE_BYTES)
    store = RocksStore(StorePlace.of(tmp_path, TABLE), TABLE, engine, SystemClock())
    database = engine.database
    database.more_bytes = MANY_BYTES
    database.ends = [RocksError("IO error: No space left on device", full=True)]
    commit(store)
    assert database.compactions == 1
    (warning,) = caplog.messages
    assert "it isn't compacted: IO error: No space left on device" in warning
    commit(store)  # which isn't worth reading all files again
    assert database.compactions == 1
    database.more_bytes *= 2
    commit(store)
    assert database.compactions == 2
    assert database.more_bytes == 0
    database.more_bytes = MANY_BYTES  # as after any other that succeeded
    commit(store)
    assert database.compactions == 3
    store.close()
    engine.close()
    assert len(caplog.messages) == 1
