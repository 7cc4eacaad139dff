from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.storage_suite import StorageSuite
from tests.kit.storage.faulty_storage import Crash, Effect, Fault, FaultyStorage
from timeline.errors import AlreadyExistsError, StorageUnavailableError
from timeline.storage.local import LocalStorage


@pytest.fixture
def inner(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path / "table"))


class TestFaultyStorageWithoutFaults(StorageSuite):
    """A faulty storage with nothing planned is a storage like any other."""

    @pytest.fixture
    def storage(self, inner: LocalStorage) -> FaultyStorage:
        return FaultyStorage(inner)

    # It counts the calls of one process.
    test_a_pickled_storage_sees_the_table_and_counts_from_zero = None


def run(storage: FaultyStorage, act: Callable[[FaultyStorage], object]) -> type[BaseException]:
    with pytest.raises((StorageUnavailableError, AlreadyExistsError, Crash)) as caught:
        act(storage)
    return caught.type


CREATED = [
    (Effect.ERROR_BEFORE, StorageUnavailableError, False),
    (Effect.ERROR_AFTER, StorageUnavailableError, True),
    (Effect.EXISTS_AFTER, AlreadyExistsError, True),
    (Effect.CRASH_BEFORE, Crash, False),
    (Effect.CRASH_AFTER, Crash, True),
    (Effect.CRASH_TORN, Crash, False),
]


def test_a_fault_of_a_creation_leaves_the_whole_file_or_none(
    subtests: pytest.Subtests, tmp_path: Path
) -> None:
    for number, (effect, error, there) in enumerate(CREATED):
        with subtests.test(effect=effect):
            inner = LocalStorage(str(tmp_path / str(number)))
            storage = FaultyStorage(inner, [Fault(2, effect)])
            storage.stat("file")
            assert run(storage, lambda s: s.create("file", b"data")) is error
            assert (inner.stat("file") is not None) is there
            assert storage.log == [("stat", "file"), ("create", "file")]


def write_two(storage: FaultyStorage) -> None:
    with storage.create_stream("data") as file:
        file.write(b"1234")
        file.write(b"5678")


def test_a_stream_is_an_open_its_writes_and_an_end(inner: LocalStorage) -> None:
    storage = FaultyStorage(inner)
    write_two(storage)
    assert [kind for kind, _ in storage.log] == ["create_stream", "write", "write", "close"]


LEFT = [
    (1, Effect.CRASH_BEFORE, None),
    (1, Effect.CRASH_AFTER, b""),
    (2, Effect.CRASH_BEFORE, b""),
    (2, Effect.CRASH_TORN, b"12"),
    (3, Effect.CRASH_TORN, b"123456"),
    (3, Effect.CRASH_AFTER, b"12345678"),
    (4, Effect.CRASH_BEFORE, b"12345678"),
    (4, Effect.CRASH_AFTER, b"12345678"),
    (1, Effect.ERROR_AFTER, None),
    (3, Effect.ERROR_BEFORE, None),
    (3, Effect.ERROR_AFTER, None),
    (4, Effect.ERROR_BEFORE, None),
    (4, Effect.ERROR_AFTER, b"12345678"),
]


def test_a_fault_of_a_stream_leaves_what_was_written_before(
    subtests: pytest.Subtests, tmp_path: Path
) -> None:
    for number, (at, effect, left) in enumerate(LEFT):
        with subtests.test(at=at, effect=effect):
            inner = LocalStorage(str(tmp_path / str(number)))
            run(FaultyStorage(inner, [Fault(at, effect)]), write_two)
            assert (inner.read("data") if inner.stat("data") else None) == left


def test_a_dead_process_does_nothing_more(inner: LocalStorage) -> None:
    storage = FaultyStorage(inner, [Fault(1, Effect.CRASH_AFTER)])
    with pytest.raises(Crash):
        storage.create("a")
    with pytest.raises(Crash):
        storage.for_cause("rollback").delete("a")
    assert storage.crashed
    assert inner.stat("a") is not None


def test_a_crash_elsewhere_tears_an_open_stream(inner: LocalStorage) -> None:
    storage = FaultyStorage(inner, [Fault(3, Effect.CRASH_BEFORE)])

    def act(storage: FaultyStorage) -> None:
        with storage.create_stream("data") as file:
            file.write(b"1234")
            storage.list("")

    assert run(storage, act) is Crash
    assert inner.read("data") == b"1234"


def test_a_torn_delete_leaves_half_of_the_tree(inner: LocalStorage) -> None:
    for name in "abcd":
        inner.create(f"dir/{name}")
    run(FaultyStorage(inner, [Fault(1, Effect.CRASH_TORN)]), lambda s: s.delete_tree("dir"))
    assert [info.name for info in inner.list("dir")] == ["c", "d"]
