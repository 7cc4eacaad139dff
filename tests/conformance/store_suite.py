"""What every store of chunks must do; inherit and define ``store``."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fsview.store import Handle, Store


def committed(store: Store, *blobs: bytes, record: bytes = b"r") -> list[Handle]:
    """Commit blobs; return their handles."""
    handles: list[Handle] = []

    def make(given: Sequence[Handle]) -> bytes:
        handles.extend(given)
        return record

    store.commit(make, blobs)
    return handles


class StoreSuite:
    @pytest.fixture
    def store(self) -> Store:
        raise NotImplementedError

    def test_a_new_store_has_no_record(self, store: Store) -> None:
        assert store.open() is None
        assert store.size_bytes == 0

    def test_blobs_and_record_are_there_once_committed(self, store: Store) -> None:
        first = committed(store, b"a", b"bc", record=b"1")
        second = committed(store, b"def", record=b"2")
        assert store.open() == b"2"
        assert [store.get(handle) for handle in (*first, *second)] == [b"a", b"bc", b"def"]
        assert store.size_bytes == 6

    def test_a_handle_is_never_used_again(self, store: Store) -> None:
        first = committed(store, b"a")
        store.release(first)
        second = committed(store, b"b")
        assert set(first).isdisjoint(second)
        with pytest.raises(KeyError):
            store.get(first[0])
        store.release(first)
        assert store.size_bytes == 1

    def test_a_commit_that_fails_leaves_the_store_as_it_was(self, store: Store) -> None:
        committed(store, b"a", record=b"1")

        def fail(handles: Sequence[Handle]) -> bytes:
            raise ValueError("injected")

        with pytest.raises(ValueError, match="injected"):
            store.commit(fail, [b"b"])
        assert store.open() == b"1"
        assert store.size_bytes == 1
