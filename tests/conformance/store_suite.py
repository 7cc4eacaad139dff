"""Conformance suite of stores: inherit ``StoreSuite`` and define the ``open_store`` fixture.

Stores that last inherit ``LastingStoreSuite``, which opens them again after closing them.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fsview.store.base import Handle, Rows, Store, StoredChunk
from timeline.errors import StoreError

OpenStore = Callable[[Path], Store]
"""Opens the store of a directory; another directory is another store. It is opened again only after
the store that it returned was closed."""


def content(seed: int, size: int) -> bytes:
    """Bytes that tell which blob they are, wherever one looks."""
    return random.Random(seed).randbytes(size)


class StoreSuite:
    """The promises of every store. Numbers of the random walks may be changed by who inherits."""

    examples = 30
    steps = 25

    @pytest.fixture
    def store(self, open_store: OpenStore, tmp_path: Path) -> Iterator[Store]:
        store = open_store(tmp_path / "store")
        yield store
        store.close()

    def test_committed_blobs_read_back_in_order(self, store: Store) -> None:
        blobs = [content(n, size) for n, size in enumerate((1, 0, 7, 8192, 100_000, 3_000_000))]
        chunks = store.commit(blobs)
        assert [chunk.read() for chunk in chunks] == blobs
        assert [store.get(chunk.handle) for chunk in chunks] == blobs
        assert [chunk.size for chunk in chunks] == [len(blob) for blob in blobs]

    def test_equal_blobs_are_blobs_of_their_own(self, store: Store) -> None:
        first, second = store.commit([b"same", b"same"])
        assert first.handle != second.handle
        del first
        store.collect()
        assert second.read() == b"same"

    def test_new_store_has_no_rows(self, store: Store) -> None:
        assert store.rows() == {}

    def test_unknown_handle_is_named(self, store: Store) -> None:
        with pytest.raises(StoreError, match="123456"):
            store.get(Handle(123456))

    def test_forgotten_chunk_is_gone_after_collect(self, store: Store) -> None:
        kept, forgotten = store.commit([b"kept", b"forgotten"])
        handle = forgotten.handle
        del forgotten
        store.collect()
        with pytest.raises(StoreError, match=str(handle)):
            store.get(handle)
        assert kept.read() == b"kept"

    def test_forgotten_chunk_is_gone_after_the_next_commit(self, store: Store) -> None:
        (chunk,) = store.commit([b"forgotten"])
        handle = chunk.handle
        del chunk
        kept = store.commit([b"kept"])
        with pytest.raises(StoreError, match=str(handle)):
            store.get(handle)
        assert [chunk.read() for chunk in kept] == [b"kept"]

    def test_space_of_the_forgotten_is_given_back(self, store: Store) -> None:
        held = store.commit([content(0, 9000)])
        for n in range(300):
            held = store.commit([content(n, 9000), content(-n, 100)])
        assert store.status()["blobs"] <= 4
        del held
        store.collect()
        assert store.status()["blobs"] == 0
        if not store.lasts:
            assert store.status()["bytes"] == 0

    def test_status_counts_and_is_fit_for_json(self, store: Store) -> None:
        sizes = (10, 20_000, 0)
        chunks = store.commit([content(n, size) for n, size in enumerate(sizes)])
        status = json.loads(json.dumps(store.status()))
        assert status["kind"] == store.kind
        assert status["blobs"] == len(chunks)
        assert status["bytes"] >= 0
        assert status["resident_bytes"] >= 0
        if not store.lasts:
            assert status["bytes"] == sum(sizes)

    def test_close_twice(self, store: Store) -> None:
        (chunk,) = store.commit([b"blob"])
        store.close()
        store.close()
        with pytest.raises(StoreError):
            chunk.read()
        with pytest.raises(StoreError):
            store.commit([b"late"])
        del chunk
        store.collect()

    def test_stores_are_apart(self, open_store: OpenStore, tmp_path: Path) -> None:
        first, second = open_store(tmp_path / "first"), open_store(tmp_path / "second")
        (one,) = first.commit([b"one"], lambda _: {"row": b"1"})
        (two,) = second.commit([b"two"], lambda _: {"row": b"2"})
        first.close()
        assert two.read() == b"two"
        assert second.rows() == ({"row": b"2"} if second.lasts else {})
        with pytest.raises(StoreError):
            one.read()
        second.close()

    def test_chunks_are_read_while_others_commit(self, store: Store) -> None:
        kept = store.commit([content(n, 500 * n) for n in range(40)])
        failed: list[BaseException] = []
        done = threading.Event()

        def read(seed: int) -> None:
            order = random.Random(seed)
            try:
                while not done.is_set():
                    n = order.randrange(len(kept))
                    assert kept[n].read() == content(n, 500 * n)
            except BaseException as exc:
                failed.append(exc)

        def commit(seed: int) -> None:
            try:
                for n in range(60):
                    chunks = store.commit([content(seed + n, 3000), content(seed - n, 30)])
                    assert chunks[0].read() == content(seed + n, 3000)
                    del chunks
                    store.collect()
            except BaseException as exc:
                failed.append(exc)

        readers = [threading.Thread(target=read, args=(n,)) for n in range(3)]
        writers = [threading.Thread(target=commit, args=(n * 1000,)) for n in range(1, 3)]
        for thread in readers + writers:
            thread.start()
        for thread in writers:
            thread.join()
        done.set()
        for thread in readers:
            thread.join()
        assert failed == []
        store.collect()
        assert store.status()["blobs"] == len(kept)

    def test_a_close_under_readers_is_an_error_of_the_store(self, store: Store) -> None:
        chunks = store.commit([content(n, 9000) for n in range(20)])
        failed: list[str] = []
        started = threading.Barrier(4)

        def read() -> None:
            started.wait()
            try:
                while True:
                    for n, chunk in enumerate(chunks):
                        if chunk.read() != content(n, 9000):
                            failed.append(f"chunk {n} is another's")
                            return
            except StoreError:
                return
            except BaseException as exc:
                failed.append(repr(exc))

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        started.wait()
        store.close()
        for thread in threads:
            thread.join()
        assert failed == []

    def test_threads_get_handles_of_their_own(self, store: Store) -> None:
        start = threading.Barrier(4)
        kept: list[StoredChunk] = []

        def commit(seed: int) -> None:
            start.wait()
            for n in range(30):
                kept.extend(store.commit([content(seed * 100 + n, 50)]))

        threads = [threading.Thread(target=commit, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({chunk.handle for chunk in kept}) == 120
        assert {chunk.read() for chunk in kept} == {
            content(seed * 100 + n, 50) for seed in range(4) for n in range(30)
        }

    def test_rows_are_made_only_by_stores_that_last(self, store: Store) -> None:
        asked: list[Sequence[Handle]] = []

        def rows(handles: Sequence[Handle]) -> Rows:
            asked.append(handles)
            return {"row": b"x"}

        chunks = store.commit([b"1", b"2"], rows)
        if store.lasts:
            assert [list(handles) for handles in asked] == [[chunk.handle for chunk in chunks]]
        else:
            assert asked == []
        assert store.rows() == ({"row": b"x"} if store.lasts else {})

    def test_clear_and_sweep_leave_what_this_process_holds(self, store: Store) -> None:
        (chunk,) = store.commit([b"blob"], lambda _: {"row": b"x"})
        store.clear()
        store.sweep([])
        assert store.rows() == {}
        assert chunk.read() == b"blob"

    def test_random_steps(self, open_store: OpenStore, tmp_path: Path) -> None:
        places = (tmp_path / f"example{n}" for n in range(1_000_000))
        run_state_machine_as_test(
            lambda: StoreMachine(open_store, next(places)),
            settings=settings(max_examples=self.examples, stateful_step_count=self.steps),
        )


class LastingStoreSuite(StoreSuite):
    """The promises of a store whose rows and blobs outlive the process."""

    def test_it_says_so(self, store: Store) -> None:
        assert store.lasts

    def test_rows_and_blobs_are_there_again(self, open_store: OpenStore, tmp_path: Path) -> None:
        store = open_store(tmp_path / "store")
        blobs = [content(n, n * 700) for n in range(20)]
        chunks = store.commit(blobs, lambda _: {"a": b"1", "b": b""})
        handles = [chunk.handle for chunk in chunks]
        store.close()
        again = open_store(tmp_path / "store")
        assert again.rows() == {"a": b"1", "b": b""}
        assert [again.get(handle) for handle in handles] == blobs
        del chunks  # those of the store that was closed: nothing of this one
        again.collect()
        assert again.chunk(handles[3], len(blobs[3])).read() == blobs[3]
        again.close()

    def test_rows_change_by_name(self, open_store: OpenStore, tmp_path: Path) -> None:
        store = open_store(tmp_path / "store")
        store.commit([], lambda _: {"kept": b"1", "changed": b"1", "gone": b"1"})
        store.commit([], lambda _: {"changed": b"2", "gone": None, "never there": None})
        assert store.rows() == {"kept": b"1", "changed": b"2"}
        store.close()
        again = open_store(tmp_path / "store")
        assert again.rows() == {"kept": b"1", "changed": b"2"}
        again.close()

    @pytest.mark.parametrize("name", ["", "a/b=c", "größe", "x\0y", "\U0010ffff", "n" * 3000])
    def test_names_are_any_text(self, open_store: OpenStore, tmp_path: Path, name: str) -> None:
        store = open_store(tmp_path / "store")
        chunks = store.commit([b"blob"], lambda _: {name: b"x", name + "2": b"y"})
        store.close()
        again = open_store(tmp_path / "store")
        assert again.rows() == {name: b"x", name + "2": b"y"}
        assert again.get(chunks[0].handle) == b"blob"
        again.close()

    def test_large_rows(self, open_store: OpenStore, tmp_path: Path) -> None:
        rows: dict[str, bytes | None] = {f"row {n}": content(n, 1_000_000) for n in range(3)}
        store = open_store(tmp_path / "store")
        store.commit([], lambda _: rows)
        store.close()
        again = open_store(tmp_path / "store")
        assert again.rows() == rows
        again.close()

    def test_rows_that_raise_leave_all_as_it_was(
        self, open_store: OpenStore, tmp_path: Path
    ) -> None:
        store = open_store(tmp_path / "store")
        (kept,) = store.commit([b"kept"], lambda _: {"row": b"1"})
        given: list[Handle] = []

        def rows(handles: Sequence[Handle]) -> Rows:
            given.extend(handles)
            raise KeyError("rows")

        with pytest.raises(KeyError, match="rows"):
            store.commit([b"new"], rows)
        assert store.rows() == {"row": b"1"}
        assert store.status()["blobs"] == 1
        with pytest.raises(StoreError):
            store.get(given[0])
        assert kept.read() == b"kept"
        handle = kept.handle
        store.close()
        again = open_store(tmp_path / "store")
        assert again.rows() == {"row": b"1"}
        assert again.get(handle) == b"kept"
        again.close()

    def test_sweep_takes_what_no_row_names(self, open_store: OpenStore, tmp_path: Path) -> None:
        store = open_store(tmp_path / "store")
        handles = [chunk.handle for chunk in store.commit([b"named", b"orphan", b"orphan 2"])]
        store.close()
        again = open_store(tmp_path / "store")
        (new,) = again.commit([b"new"])
        named = again.chunk(handles[0], 5)
        again.sweep({handles[0]})
        assert named.read() == b"named"
        assert new.read() == b"new"
        for orphan in handles[1:]:
            with pytest.raises(StoreError, match=str(orphan)):
                again.get(orphan)
        again.close()

    def test_clear_takes_the_rows_for_good(self, open_store: OpenStore, tmp_path: Path) -> None:
        store = open_store(tmp_path / "store")
        (chunk,) = store.commit([b"blob"], lambda _: {"a": b"1", "b": b"2"})
        store.clear()
        assert store.rows() == {}
        assert chunk.read() == b"blob"
        store.commit([], lambda _: {"c": b"3"})
        store.close()
        again = open_store(tmp_path / "store")
        assert again.rows() == {"c": b"3"}
        again.close()

    def test_rows_are_seen_of_one_commit(self, store: Store) -> None:
        store.commit([], lambda _: {"a": b"0", "b": b"0"})
        torn: list[object] = []
        done = threading.Event()

        def read() -> None:
            while not done.is_set():
                rows = store.rows()
                if rows["a"] != rows["b"]:
                    torn.append(rows)

        reader = threading.Thread(target=read)
        reader.start()
        for n in range(200):
            value = b"%d" % n
            store.commit([value], lambda _, value=value: {"a": value, "b": value})
        done.set()
        reader.join()
        assert torn == []

    def test_rows_of_all_threads_are_kept(self, store: Store) -> None:
        def commit(writer: int) -> None:
            for n in range(30):
                store.commit([b"blob"], lambda _, n=n: {f"row {writer}": b"%d" % n})

        threads = [threading.Thread(target=commit, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.rows() == {f"row {n}": b"29" for n in range(4)}


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
        self.keep(self.store.commit(new, lambda _: changed), new)
        if self.store.lasts:
            for name, value in changed.items():
                self.rows.pop(name, None)
                if value is not None:
                    self.rows[name] = value

    @rule(new=st.lists(blobs, min_size=1, max_size=3), which=st.integers(0, 99))
    def commit_that_fails(self, new: list[bytes], which: int) -> None:
        def rows(_: Sequence[Handle]) -> Rows:
            if self.live:
                self.forget(which)
            raise KeyError("rows")

        if self.store.lasts:
            with pytest.raises(KeyError):
                self.store.commit(new, rows)

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
        self.keep(self.store.commit([early]), [early])
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
