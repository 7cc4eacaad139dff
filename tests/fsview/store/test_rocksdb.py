from __future__ import annotations

from pathlib import Path

import pytest

from fsview.store.rocksdb import RocksStore, RocksStores
from tests.conformance.store_suite import LastingStoreSuite, OpenStore
from timeline.table_id import TableId

CACHE_BYTES = 4 << 20
TABLE = TableId.of("/warehouse/sales/orders")


def open_at(directory: Path) -> RocksStore:
    return RocksStores(directory, CACHE_BYTES).open(TABLE)


class TestRocksStore(LastingStoreSuite):
    """The promises of every store that lasts, kept by RocksDB."""

    examples = 5
    steps = 15

    @pytest.fixture
    def open_store(self) -> OpenStore:
        return open_at
