"""Random steps on a store, compared with a model, and blobs to store."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fsview.store.base import Handle, RecordRows, Store, StoredChunk
from tests.kit.servers.stores import blobs_of
from timeline.errors import StoreError

OpenStore = Callable[[Path], Store]
"""Opens the store of a directory; another directory is another store. It is opened again only after
the store that it returned was closed."""


def content(seed: int, size: int) -> bytes:
    """Bytes that tell which blob they are, wherever one looks."""
    return random.Random(seed).randbytes(size)


blobs = st.one_of(
    st.binary(max_size=200),
    st.builds(content, st.integers(0, 99), st.sampled_from([0, 1, 4096, 9000, 30_000])),
)
names = st.sampled_from(["timeline", "partition a", "partition b", ""])
changes = st.dictionaries(names, st.none() | st.binary(max_size=50), max_size=3)
NAMED = "named"


class StoreMachine(RuleBasedStateMachine):
    """Whatever is done: live chunks read back, rows are the model's, handles are new."""

    def __init__(self, open_store: OpenStore, directory: Path) -> None:
        super().__init__()
        self.open_store = open_store
        self.directory = directory
        self.store = open_store(directory)
        self.live: dict[Handle, tuple[StoredChunk, bytes]] = {}
        self.rows: dict[str, bytes] = {}
        self.seen: set[Handle] = set()
        self.forgotten: list[Handle] = []

    def teardown(self) -> None:
        self.store.close()

    def keep(self, chunks: Sequence[StoredChunk], contents: Sequence[bytes]) -> None:
        assert [chunk.size for chunk in chunks] == [len(blob) for blob in contents]
        handles = [chunk.handle for chunk in chunks]
        assert len(set(handles)) == len(handles)
        assert self.seen.isdisjoint(handles)
        self.seen.update(handles)
        self.live |= {c.handle: (c, blob) for c, blob in zip(chunks, contents, strict=True)}

    def forget(self, which: int) -> None:
        handle = sorted(self.live)[which % len(self.live)]
        del self.live[handle]
        self.forgotten.append(handle)

    @rule(new=st.lists(blobs, max_size=6), changed=changes)
    def commit(self, new: list[bytes], changed: dict[str, bytes | None]) -> None:
        self.keep(self.store.commit(blobs_of(new), lambda _: changed), new)
        if self.store.lasts:
            for name, value in changed.items():
                self.rows.pop(name, None)
                if value is not None:
                    self.rows[name] = value

    @rule(new=st.lists(blobs, min_size=1, max_size=3), which=st.integers(0, 99))
    def commit_that_fails(self, new: list[bytes], which: int) -> None:
        def rows(_: Sequence[Handle]) -> RecordRows:
            if self.live:
                self.forget(which)
            raise KeyError("rows")

        if self.store.lasts:
            with pytest.raises(KeyError):
                self.store.commit(blobs_of(new), rows)

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 99))
    def forget_one(self, which: int) -> None:
        self.forget(which)

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 99), times=st.integers(1, 5))
    def read_often(self, which: int, times: int) -> None:
        chunk, blob = self.live[sorted(self.live)[which % len(self.live)]]
        assert [chunk.read() for _ in range(times)] == [blob] * times

    @rule()
    def collect(self) -> None:
        self.store.collect()
        for handle in self.forgotten:
            with pytest.raises(StoreError):
                self.store.get(handle)

    @rule()
    def clear(self) -> None:
        self.store.clear()
        self.rows = {}

    @precondition(lambda self: self.store.lasts)
    @rule(named=st.integers(0, 255), sweeps=st.booleans(), early=blobs)
    def open_again(self, named: int, sweeps: bool, early: bytes) -> None:
        keep = [h for n, h in enumerate(sorted(self.live)) if named >> (n % 8) & 1]
        sizes = json.dumps({handle: len(self.live[handle][1]) for handle in keep}).encode()
        self.store.commit([], lambda _: {NAMED: sizes})
        self.rows[NAMED] = sizes
        self.store.close()
        contents = {handle: blob for handle, (_, blob) in self.live.items()}
        self.live = {}
        self.store = self.open_store(self.directory)
        told = json.loads(self.store.rows()[NAMED])
        for handle in map(Handle, map(int, told)):
            chunk = self.store.chunk(handle, told[str(handle)])
            self.live[handle] = (chunk, contents.pop(handle))
        self.keep(self.store.commit(blobs_of([early])), [early])
        self.forgotten = []
        if sweeps:
            self.store.sweep(set(keep))
            for handle in contents:
                with pytest.raises(StoreError):
                    self.store.get(handle)

    @invariant()
    def live_chunks_read_back(self) -> None:
        for handle, (chunk, blob) in self.live.items():
            assert chunk.handle == handle
            assert chunk.read() == blob

    @invariant()
    def rows_are_the_models(self) -> None:
        assert self.store.rows() == self.rows
