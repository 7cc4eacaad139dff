"""Files that are too large, or not regular, aren't read: on every storage, whatever their size."""

from __future__ import annotations

import errno
import os
import pickle
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest

from tests.kit.tables.small_table import SmallTable
from tests.timeline.storage.test_local_path import below
from timeline.errors import CorruptMetadataError, PathNotFoundError, StorageUnavailableError
from timeline.instant import COMMIT
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CommitMetadata, WriteStat
from timeline.storage.base import FileKind, ReadLimits, Storage
from timeline.storage.fsspec_storage import FsspecStorage
from timeline.storage.local import LocalStorage
from timeline.table.config_file import read_table_config
from timeline.table.partition_metadata import read_partition_metadata

LIMITS = ReadLimits(10, 20, 30, 40, 50)
MIB, GIB = 1 << 20, 1 << 30


@pytest.fixture(params=["local", "confined", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "memory":
        fsspec.filesystem("memory").store.clear()
        return FsspecStorage(f"memory:/{tmp_path}", limits=LIMITS)
    local = LocalStorage(str(tmp_path), limits=LIMITS)
    return local.confined(below(tmp_path)) if request.param == "confined" else local


def test_a_file_larger_than_its_kind_may_be_is_refused(
    subtests: pytest.Subtests, storage: Storage
) -> None:
    """1.5 GB of zeros took 3 GB as properties, 11 GB as a commit."""
    for kind, most in zip(FileKind, (10, 20, 30, 40, 50), strict=True):
        with subtests.test(kind=kind, most=most):
            storage.create(f"file{most}", b"x" * most)
            assert storage.read(f"file{most}", kind) == b"x" * most
            storage.create(f"large{most}", b"x" * (most + 1))
            expected = (
                rf"/large{most} has {most + 1} bytes or more; {kind.setting} allows {most} \(raise"
            )
            with pytest.raises(CorruptMetadataError, match=expected):
                storage.read(f"large{most}", kind)
            with (
                pytest.raises(CorruptMetadataError, match=expected),
                storage.open_input(f"large{most}", kind),
            ):
                pass
            with storage.open_input(f"large{most}") as file:
                assert file.read(1) == b"x"


def test_an_empty_file_is_read(storage: Storage) -> None:
    storage.create("empty")
    assert storage.read("empty", FileKind.INSTANT) == b""
    assert storage.read("empty", FileKind.INSTANT, 0) == b""
    with pytest.raises(PathNotFoundError):
        storage.read("nothing", FileKind.INSTANT)


def test_limits_travel_with_the_storage(storage: Storage) -> None:
    storage.create("large", b"x" * 21)
    for other in (storage.for_cause("x"), pickle.loads(pickle.dumps(storage))):
        with pytest.raises(CorruptMetadataError, match="allows 20"):
            other.read("large", FileKind.INSTANT)


@pytest.mark.parametrize("confined", [False, True])
@pytest.mark.parametrize("size", [0, 1])
def test_special_files_are_refused_without_blocking(
    tmp_path: Path, confined: bool, size: int
) -> None:
    """A FIFO's reader waited for a writer that never came."""
    storage = LocalStorage(str(tmp_path))
    storage = storage.confined(below(tmp_path, Path("/dev"))) if confined else storage
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "zero").symlink_to("/dev/zero")
    writer = os.open(tmp_path / "fifo", os.O_RDWR | os.O_NONBLOCK)
    os.write(writer, b"x" * size)
    try:
        for path, called in (("fifo", "a FIFO"), ("zero", "a device")):
            with pytest.raises(CorruptMetadataError, match=f"/{path} is no regular file, but"):
                storage.read(path)
            with pytest.raises(CorruptMetadataError, match=f"regular file, but {called}"):
                storage.open_input(path)
    finally:
        os.close(writer)
    (tmp_path / "dir").mkdir()
    with pytest.raises(StorageUnavailableError, match="directory"):
        storage.read("dir")


def test_a_sparse_file_takes_no_memory(tmp_path: Path) -> None:
    for path in (".hoodie/hoodie.properties", "p/.hoodie_partition_metadata"):
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).touch()
        os.truncate(tmp_path / path, 1500 << 20)
    storage = LocalStorage(str(tmp_path))
    with pytest.raises(CorruptMetadataError, match=r"strandline\.read\.properties\.max\.bytes"):
        read_table_config(storage)
    with pytest.raises(CorruptMetadataError, match=r"has 1572864000 bytes or more"):
        read_partition_metadata(storage, "p")


def test_a_file_that_shows_no_size_is_read_within_its_bound() -> None:
    """The size of a file of ``/proc`` is 0, whatever it holds."""
    proc = LocalStorage("/proc/self", limits=LIMITS)
    with pytest.raises(CorruptMetadataError, match="allows 20"):
        proc.read("environ", FileKind.INSTANT)
    assert LocalStorage("/proc/self").read("comm")


def test_an_instant_that_was_listed_is_refused_without_a_call(tmp_path: Path) -> None:
    storage = FsspecStorage(f"memory:/{tmp_path}", limits=replace(LIMITS, properties_bytes=MIB))
    made = SmallTable(storage)
    made.write(("a", "g"))
    client = TableMetaClient.open(storage)
    (instant,) = client.active_timeline().completed()
    before = storage.calls.snapshot()
    with pytest.raises(CorruptMetadataError, match=r"commit has \d+ bytes or more"):
        client.read_files(instant)
    assert storage.calls.snapshot() == before


@pytest.mark.property
@pytest.mark.parametrize("version", [6, 9])
def test_a_large_commit_is_read_as_long_as_its_setting_allows(tmp_path: Path, version: int) -> None:
    storage = LocalStorage(str(tmp_path), limits=ReadLimits(instant_bytes=3 * MIB))
    client = SmallTable(storage, version=version).meta
    stats = [WriteStat(f"{n}-0", f"a/{n}-0_0-0-0_20260101000000000.parquet") for n in range(12_000)]
    stats = stats if version > 6 else stats[:1500]
    written = client.create_requested(COMMIT, "20260101000000000")
    written = client.transition_to_inflight(written)
    client.complete(written, CommitMetadata({"a": tuple(stats)}), "20260101000000001")
    (instant,) = client.active_timeline().completed()
    assert MIB < (instant.size_bytes or 0) < 3 * MIB
    assert len(client.read_files(instant).files["a"]) == len(stats)
    low = TableMetaClient.open(LocalStorage(str(tmp_path), limits=ReadLimits(instant_bytes=MIB)))
    with pytest.raises(CorruptMetadataError, match=f"instant.max.bytes allows {MIB}"):
        low.read_files(instant)


class _Bucket(fsspec.AbstractFileSystem):
    """An object store that records its reads; it refuses ranges of empty objects."""

    protocol = "bucket"
    cachable = False

    def __init__(self, objects: dict[str, int]) -> None:
        super().__init__()
        self.objects, self.asked = objects, []

    def cat_file(self, path, start=None, end=None, **_):
        self.asked.append(("cat", path, end))
        size = self.objects[path]
        if size == 0 and end is not None:
            raise OSError(errno.EINVAL, "The requested range is not satisfiable")
        return bytes(size if end is None else min(size, end))

    def info(self, path, **_):
        self.asked.append(("info", path, None))
        return {"name": path, "size": self.objects[path], "type": "file"}


def bucket(**objects: int) -> tuple[FsspecStorage, _Bucket]:
    storage = FsspecStorage("memory://b", limits=LIMITS)
    storage._fs = _Bucket({f"/b/{name}": size for name, size in objects.items()})
    return storage, storage._fs


def test_a_size_that_was_listed_costs_no_call() -> None:
    storage, store = bucket(large=GIB, small=15)
    with pytest.raises(CorruptMetadataError, match=f"large has {GIB} bytes or more"):
        storage.read("large", FileKind.INSTANT, GIB)
    assert store.asked == []
    assert storage.read("small", FileKind.INSTANT, 15) == bytes(15)
    assert store.asked == [("cat", "/b/small", 21)]


def test_of_a_file_that_has_grown_since_it_was_listed_no_more_is_read_than_may_be() -> None:
    storage, store = bucket(grown=GIB, emptied=0)
    with pytest.raises(CorruptMetadataError, match="grown has 21 bytes or more"):
        storage.read("grown", FileKind.INSTANT, 10)
    assert store.asked == [("cat", "/b/grown", 21)]
    assert storage.read("emptied", FileKind.INSTANT, 10) == b""


def test_without_a_listing_no_more_is_read_than_may_be() -> None:
    storage, store = bucket(large=GIB, small=15, empty=0)
    with pytest.raises(CorruptMetadataError, match="large has 11 bytes or more"):
        storage.read("large", FileKind.PROPERTIES)
    assert storage.read("small", FileKind.INSTANT) == bytes(15)
    assert store.asked == [("cat", "/b/large", 11), ("cat", "/b/small", 21)]
    assert storage.read("empty", FileKind.INSTANT) == b""
    assert storage.read("empty", FileKind.INSTANT, 0) == b""
