from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from fsview.store.base import Handle, RecordRows
from fsview.store.rocksdb.store import RocksStore, RocksStores
from tests.conformance.lasting_store_suite import LastingStoreSuite
from tests.conformance.store_machine import OpenStore
from tests.kit.servers.stores import blobs_of
from timeline.storage.table_id import TableId

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


@pytest.mark.property
def test_memory_is_shared_and_bounded(tmp_path: Path) -> None:
    stores = RocksStores(tmp_path, CACHE_BYTES)
    opened = [stores.open(TableId.of(f"/warehouse/{n}")) for n in range(20)]
    kept = [
        store.commit(blobs_of([random.randbytes(8000) for _ in range(100)])) for store in opened
    ]
    for chunks in kept:  # 16 MB, none of them enough for RocksDB itself to write it to files
        assert {len(chunk.read()) for chunk in chunks} == {8000}
    for n in range(5000):  # which takes its time
        opened[n % 20].commit([], lambda _: {"row": b""})
        if stores.engine.cache.get_usage() < 1.5 * CACHE_BYTES:
            break
    assert 0 < stores.engine.cache.get_usage() < 1.5 * CACHE_BYTES
    for store in opened:
        store.close()
    stores.close()
    assert stores.engine.cache.get_usage() < CACHE_BYTES // 10


def test_directories_tell_the_table(tmp_path: Path) -> None:
    stores = RocksStores(tmp_path, CACHE_BYTES)
    for path in ("s3://lake/sales/orders/", "s3a://lake/sales/orders", "/", "/tmp/größe 1"):
        stores.open(TableId.of(path)).close()
    names = sorted(path.name.rpartition("-")[0] for path in tmp_path.iterdir() if path.is_dir())
    assert names == ["", "sales-orders", "tmp-gr-e-1"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())


def test_failed_commit_uses_no_handle_again(tmp_path: Path) -> None:
    store = open_at(tmp_path)
    given: list[Handle] = []

    def rows(handles: Sequence[Handle]) -> RecordRows:
        given.extend(handles)
        raise KeyError("rows")

    with pytest.raises(KeyError):
        store.commit(blobs_of([b"1", b"2"]), rows)
    (chunk,) = store.commit(blobs_of([b"3"]))
    assert chunk.handle not in given
    store.close()


def test_blobs_are_counted_across_processes(tmp_path: Path) -> None:
    store = open_at(tmp_path)
    chunks = store.commit(blobs_of([b"blob"] * 10))
    named = chunks[0].handle
    store.close()
    store = open_at(tmp_path)
    assert store.status()["blobs"] == 10
    own = store.commit(blobs_of([b"own"]))
    store.sweep([named])
    assert store.status()["blobs"] == 2
    assert own[0].read() == b"own"
    store.close()


@pytest.mark.property
def test_files_stay_bounded(tmp_path: Path) -> None:
    store = open_at(tmp_path)
    order = random.Random(1)
    chunks = store.commit(blobs_of([order.randbytes(4096) for _ in range(500)]))
    live = 500 * 4096
    sizes = []
    for _ in range(8000):
        slots = order.sample(range(500), 10)
        new = store.commit(blobs_of([order.randbytes(4096) for _ in slots]))
        for slot, chunk in zip(slots, new, strict=True):
            chunks[slot] = chunk
        sizes.append(store.status()["bytes"])
    store.close()
    assert sum(map(int.__lt__, sizes[1:], sizes)) > 1  # they shrink
    assert max(sizes) < 3 * live + (48 << 20)
