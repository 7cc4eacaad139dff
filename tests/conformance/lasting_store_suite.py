"""Conformance suite of stores whose rows and blobs outlive the process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from fsview.store.base import Handle, RecordRows, Store
from tests.conformance.store_machine import OpenStore, content
from tests.conformance.store_suite import StoreSuite
from tests.kit.servers.stores import blobs_of
from timeline.errors import StoreError


class LastingStoreSuite(StoreSuite):
    """The promises of a store whose rows and blobs outlive the process."""

    def test_the_store_says_that_it_lasts(self, store: Store) -> None:
        assert store.lasts

    def test_rows_and_blobs_are_there_again(self, open_store: OpenStore, tmp_path: Path) -> None:
        store = open_store(tmp_path / "store")
        blobs = [content(n, n * 700) for n in range(20)]
        chunks = store.commit(blobs_of(blobs), lambda _: {"a": b"1", "b": b""})
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
        chunks = store.commit(blobs_of([b"blob"]), lambda _: {name: b"x", name + "2": b"y"})
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
        (kept,) = store.commit(blobs_of([b"kept"]), lambda _: {"row": b"1"})
        given: list[Handle] = []

        def rows(handles: Sequence[Handle]) -> RecordRows:
            given.extend(handles)
            raise KeyError("rows")

        with pytest.raises(KeyError, match="rows"):
            store.commit(blobs_of([b"new"]), rows)
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
        handles = [
            chunk.handle for chunk in store.commit(blobs_of([b"named", b"orphan", b"orphan 2"]))
        ]
        store.close()
        again = open_store(tmp_path / "store")
        (new,) = again.commit(blobs_of([b"new"]))
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
        (chunk,) = store.commit(blobs_of([b"blob"]), lambda _: {"a": b"1", "b": b"2"})
        store.clear()
        assert store.rows() == {}
        assert chunk.read() == b"blob"
        store.commit([], lambda _: {"c": b"3"})
        store.close()
        again = open_store(tmp_path / "store")
        assert again.rows() == {"c": b"3"}
        again.close()

    @pytest.mark.property
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
            store.commit(blobs_of([value]), lambda _, value=value: {"a": value, "b": value})
        done.set()
        reader.join()
        assert torn == []

    def test_rows_of_all_threads_are_kept(self, store: Store) -> None:
        def commit(writer: int) -> None:
            for n in range(30):
                store.commit(blobs_of([b"blob"]), lambda _, n=n: {f"row {writer}": b"%d" % n})

        threads = [threading.Thread(target=commit, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.rows() == {f"row {n}": b"29" for n in range(4)}
