"""Conformance suite of stores: inherit ``StoreSuite`` and define the ``open_store`` fixture.

Stores that last inherit ``tests.conformance.lasting_store_suite.LastingStoreSuite``.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from fsview.store.base import Handle, RecordRows, Store, StoredChunk
from tests.conformance.store_machine import OpenStore, StoreMachine, content
from tests.kit.servers.stores import blobs_of
from tests.kit.short_runs import examples
from timeline.errors import StoreError


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
        chunks = store.commit(blobs_of(blobs))
        assert [chunk.read() for chunk in chunks] == blobs
        assert [store.get(chunk.handle) for chunk in chunks] == blobs
        assert [chunk.size for chunk in chunks] == [len(blob) for blob in blobs]

    def test_equal_blobs_are_blobs_of_their_own(self, store: Store) -> None:
        first, second = store.commit(blobs_of([b"same", b"same"]))
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
        kept, forgotten = store.commit(blobs_of([b"kept", b"forgotten"]))
        handle = forgotten.handle
        del forgotten
        store.collect()
        with pytest.raises(StoreError, match=str(handle)):
            store.get(handle)
        assert kept.read() == b"kept"

    def test_forgotten_chunk_is_gone_after_the_next_commit(self, store: Store) -> None:
        (chunk,) = store.commit(blobs_of([b"forgotten"]))
        handle = chunk.handle
        del chunk
        kept = store.commit(blobs_of([b"kept"]))
        with pytest.raises(StoreError, match=str(handle)):
            store.get(handle)
        assert [chunk.read() for chunk in kept] == [b"kept"]

    def test_space_of_the_forgotten_is_given_back(self, store: Store) -> None:
        held = store.commit(blobs_of([content(0, 9000)]))
        for n in range(300):
            held = store.commit(blobs_of([content(n, 9000), content(-n, 100)]))
        assert store.status()["blobs"] <= 4
        del held
        store.collect()
        assert store.status()["blobs"] == 0
        if not store.lasts:
            assert store.status()["bytes"] == 0

    def test_status_counts_and_is_fit_for_json(self, store: Store) -> None:
        sizes = (10, 20_000, 0)
        chunks = store.commit(blobs_of([content(n, size) for n, size in enumerate(sizes)]))
        status = json.loads(json.dumps(store.status()))
        assert status["kind"] == store.kind
        assert status["blobs"] == len(chunks)
        assert status["bytes"] >= 0
        assert status["resident_bytes"] >= 0
        if not store.lasts:
            assert status["bytes"] == sum(sizes)

    def test_close_twice(self, store: Store) -> None:
        (chunk,) = store.commit(blobs_of([b"blob"]))
        store.close()
        store.close()
        with pytest.raises(StoreError):
            chunk.read()
        with pytest.raises(StoreError):
            store.commit(blobs_of([b"late"]))
        del chunk
        store.collect()

    def test_stores_are_apart(self, open_store: OpenStore, tmp_path: Path) -> None:
        first, second = open_store(tmp_path / "first"), open_store(tmp_path / "second")
        (one,) = first.commit(blobs_of([b"one"]), lambda _: {"row": b"1"})
        (two,) = second.commit(blobs_of([b"two"]), lambda _: {"row": b"2"})
        first.close()
        assert two.read() == b"two"
        assert second.rows() == ({"row": b"2"} if second.lasts else {})
        with pytest.raises(StoreError):
            one.read()
        second.close()

    @pytest.mark.property
    def test_chunks_are_read_while_others_commit(self, store: Store) -> None:
        kept = store.commit(blobs_of([content(n, 500 * n) for n in range(40)]))
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
                    chunks = store.commit(
                        blobs_of([content(seed + n, 3000), content(seed - n, 30)])
                    )
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
        chunks = store.commit(blobs_of([content(n, 9000) for n in range(20)]))
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
                kept.extend(store.commit(blobs_of([content(seed * 100 + n, 50)])))

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

        def rows(handles: Sequence[Handle]) -> RecordRows:
            asked.append(handles)
            return {"row": b"x"}

        chunks = store.commit(blobs_of([b"1", b"2"]), rows)
        if store.lasts:
            assert [list(handles) for handles in asked] == [[chunk.handle for chunk in chunks]]
        else:
            assert asked == []
        assert store.rows() == ({"row": b"x"} if store.lasts else {})

    def test_clear_and_sweep_leave_what_this_process_holds(self, store: Store) -> None:
        (chunk,) = store.commit(blobs_of([b"blob"]), lambda _: {"row": b"x"})
        store.clear()
        store.sweep([])
        assert store.rows() == {}
        assert chunk.read() == b"blob"

    @pytest.mark.property
    def test_random_steps(self, open_store: OpenStore, tmp_path: Path) -> None:
        places = (tmp_path / f"example{n}" for n in range(1_000_000))
        run_state_machine_as_test(
            lambda: StoreMachine(open_store, next(places)),
            settings=settings(max_examples=examples(self.examples), stateful_step_count=self.steps),
        )
