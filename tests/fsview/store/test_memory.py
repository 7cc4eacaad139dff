from __future__ import annotations

import pytest

from fsview.store.base import BLOB_OVERHEAD_BYTES, MemoryStore
from fsview.store.budget import Budget
from tests.conformance.store_machine import OpenStore
from tests.conformance.store_suite import StoreSuite
from tests.kit.servers.stores import blobs_of


@pytest.fixture
def open_store() -> OpenStore:
    return lambda _: MemoryStore()


class TestMemoryStore(StoreSuite):
    """The promises of every store, kept in memory."""


def test_account_follows_what_is_held() -> None:
    records = Budget(1 << 20).account("records")
    store = MemoryStore(records)
    chunks = store.commit(blobs_of([b"12345", b""]))
    assert records.used == 5 + 2 * BLOB_OVERHEAD_BYTES
    chunks.pop(0)
    store.collect()
    assert records.used == BLOB_OVERHEAD_BYTES
    store.close()
    assert records.used == 0
    del chunks
    store.collect()
    assert records.used == 0


def test_the_very_bytes_are_kept() -> None:
    blob = b"x" * 100
    store = MemoryStore()
    (chunk,) = store.commit(blobs_of([blob]))
    assert chunk.read() is blob
