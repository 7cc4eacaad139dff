"""Numbered states of a store, and processes that work on them: ``python -m ... STEPS DIRECTORY``.

State ``n`` is 40 rows that all say ``n``, and one that names eight blobs: slot, handle, size, and
the state that wrote the blob, which tells its content. Each commit writes three of them anew.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

from fsview.store.base import RETRY_S, Handle, RecordRows, Store, StoredChunk
from fsview.store.rocksdb.store import RocksStore, RocksStores
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.servers.stores import blobs_of
from timeline.errors import StoreError, StoreLockedError
from timeline.storage.table_id import TableId

TABLE = TableId.of("/warehouse/sales/orders")
CACHE_BYTES = 1 << 20  # a quarter of it is for writes, so files come and go
SLOTS = 8
MAX_BLOB = 20_000
ROWS = 40
NAMES = "names"


clock = ManualClock(0)


def open_at(directory: Path) -> RocksStore:
    return RocksStores(directory, CACHE_BYTES, clock).open(TABLE)


def content(slot: int, number: int) -> bytes:
    order = random.Random(number * SLOTS + slot)
    return order.randbytes(order.randrange(MAX_BLOB))


class Numbered:
    """A store with its newest state."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.number = 0
        self.names: dict[str, tuple[int, int, int]] = {}
        rows = dict(store.rows())
        if rows:
            self.names = {slot: tuple(at) for slot, at in json.loads(rows.pop(NAMES)).items()}
            numbers = {int(row) for row in rows.values()}
            assert len(rows) == ROWS
            assert len(numbers) == 1, f"rows of several commits: {sorted(numbers)}"
            (self.number,) = numbers
        self.chunks = {
            slot: store.chunk(Handle(handle), size)
            for slot, (handle, size, _) in self.names.items()
        }
        self.older: list[list[StoredChunk]] = []
        self.kept_older = 5

    def check_blobs(self) -> list[StoreError]:
        """Return the errors of reads; check the content of what is read."""
        raised = []
        for slot, (_, _, number) in self.names.items():
            try:
                blob = self.chunks[slot].read()
            except StoreError as exc:
                raised.append(exc)
            else:
                assert blob == content(int(slot), number), f"slot {slot} of state {self.number}"
        return raised

    def commit(self) -> None:
        number = self.number + 1
        slots = random.Random(number).sample(range(SLOTS), 3)
        blobs = [content(slot, number) for slot in slots]
        names = dict(self.names)

        def rows(handles: Sequence[Handle]) -> RecordRows:
            for slot, handle, blob in zip(slots, handles, blobs, strict=True):
                names[str(slot)] = handle, len(blob), number
            told = json.dumps(names).encode()
            return {NAMES: told} | {f"row {n}": b"%d" % number for n in range(ROWS)}

        chunks = self.store.commit(blobs_of(blobs), rows)
        # Older snapshots hold what they had for a while; a crash leaves it behind.
        self.older = [*self.older[-self.kept_older :], [*self.chunks.values()]]
        self.chunks |= {str(slot): chunk for slot, chunk in zip(slots, chunks, strict=True)}
        self.number, self.names = number, names


def say(*words: object) -> None:
    print(*words, flush=True)


def work(directory: Path) -> None:
    """Commit for ever."""
    say("opening")
    state = Numbered(open_at(directory))
    assert state.check_blobs() == []
    state.store.sweep([Handle(handle) for handle, _, _ in state.names.values()])
    while True:
        state.commit()
        say(state.number)


def hold(directory: Path) -> None:
    """Open the store and keep it open until this process is ended."""
    try:
        state = Numbered(open_at(directory))
    except StoreLockedError as exc:
        say(exc)
        return
    say("open")
    sys.stdin.read()
    state.commit()


def write_until_refused(state: Numbered) -> StoreError:
    state.kept_older = 5000
    for _ in range(5000):
        try:
            state.commit()
        except StoreError as exc:
            return exc
    raise AssertionError("the disk never got full")


def small_files(directory: Path) -> None:
    """Commit with a limit of file sizes; print what is intact afterwards."""
    state = Numbered(open_at(directory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, resource.RLIM_INFINITY))
    refused = write_until_refused(state)
    assert state.check_blobs() == []
    say(state.number, refused)
    os._exit(0)  # as if it were killed


def room_again(directory: Path) -> None:
    """Commit with a limit of file sizes, then without, while others read; print what is intact."""
    state = Numbered(open_at(directory))
    state.commit()
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, resource.RLIM_INFINITY))
    refused = write_until_refused(state)
    for _ in range(3):
        refused = write_until_refused(state)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    kept, ended = list(state.chunks.values()), threading.Event()

    def read() -> int:
        reads = 0
        while not ended.is_set():
            for chunk in kept:
                assert len(chunk.read()) == chunk.size
            reads += 1
        return reads

    with ThreadPoolExecutor(2) as pool:
        reading = [pool.submit(read) for _ in range(2)]
        try:
            clock.advance(int(RETRY_S * 1000))
            for _ in range(20):
                state.commit()
        finally:
            ended.set()
        assert all(read.result() for read in reading)
    assert state.check_blobs() == []
    say(state.number, refused)
    os._exit(0)  # as if it were killed


def as_nobody(directory: Path) -> None:
    """Open the store as a user who may not write there."""
    stores = RocksStores(directory, CACHE_BYTES)
    import_module("pickle")  # rocksdict does so late, and nobody may read where Python lies
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    try:
        stores.open(TABLE).rows()
    except StoreError as exc:
        say(type(exc).__name__, exc)


def fork(directory: Path) -> None:
    """Fork with the store open: the child can't use it, ends, and leaves it to the parent."""
    stores = RocksStores(directory, CACHE_BYTES)
    state = Numbered(stores.open(TABLE))
    state.commit()
    chunk = next(iter(state.chunks.values()))

    def another() -> None:
        stores.open(TableId.of("/warehouse/sales/customers"))

    child = os.fork()
    if child == 0:
        for call in (state.commit, state.store.rows, state.store.clear, chunk.read, another):
            try:
                call()
            except StoreError as exc:
                assert f"process {os.getppid()}" in str(exc), exc  # noqa: PT017 - raises() isn't for a child
            else:
                os._exit(3)
        state.store.collect()
        state.store.status()
        state.store.close()
        sys.exit(0)  # with all that the end of an interpreter does
    assert os.waitpid(child, 0)[1] == 0
    for _ in range(100):
        state.commit()
    assert state.check_blobs() == []
    say(state.number)


if __name__ == "__main__":
    todo = (work, hold, small_files, room_again, as_nobody, fork)
    {step.__name__: step for step in todo}[sys.argv[1]](Path(sys.argv[2]))
