import pickle
import uuid
from datetime import datetime, timezone
from typing import ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.conformance.storage_suite import StorageSuite
from timeline.errors import AlreadyExistsError, ConfigError
from timeline.storage.fsspec_storage import FsspecStorage, _modified_ms


@pytest.fixture
def storage() -> FsspecStorage:
    return FsspecStorage(f"memory://{uuid.uuid4()}/table")


class TestFsspecStorage(StorageSuite):
    """The promises of every storage, kept on fsspec's memory file system."""


class TestFsspecStorageOnLocalFiles(StorageSuite):
    """The same through fsspec's local file system."""

    @pytest.fixture
    def storage(self, tmp_path) -> FsspecStorage:
        return FsspecStorage(f"file://{tmp_path}/table")


class LooksFirst(MemoryFileSystem):
    """A file system whose exclusive create looks first, as fsspec's own does."""

    protocol = "looksfirst"
    store: ClassVar[dict] = {}
    pseudo_dirs: ClassVar[list] = [""]


@pytest.fixture
def looks_first():
    fsspec.register_implementation("looksfirst", LooksFirst, clobber=True)
    yield "looksfirst://t"
    LooksFirst.store.clear()


def test_file_system_that_looks_first_is_refused(looks_first):
    with pytest.raises(ConfigError) as raised:
        FsspecStorage(looks_first).create("file", b"x")
    for part in (looks_first, "looksfirst", "s3, gs, abfs", "hoodie.write.lock.provider"):
        assert part in str(raised.value)
    assert LooksFirst.store == {}


def test_only_creator_may_look_first(looks_first):
    storage = FsspecStorage(looks_first).as_only_creator()
    storage.create("file", b"x")
    copied = pickle.loads(pickle.dumps(storage))
    with pytest.raises(AlreadyExistsError):
        copied.create("file", b"y")
    assert storage.read("file") == b"x"
    with pytest.raises(ConfigError):
        FsspecStorage(looks_first).create("other")


def test_modification_times_of_different_file_systems(subtests: pytest.Subtests) -> None:
    for entry, ms in [
        ({"mtime": 1.5}, 1500),
        ({"LastModified": datetime(1970, 1, 1, 0, 0, 2, tzinfo=timezone.utc)}, 2000),
        ({"updated": "1970-01-01T00:00:03.500Z"}, 3500),
        ({"last_modified": datetime(1970, 1, 1, 0, 0, 4)}, 4000),
        ({"mtime": None, "created": 5}, 5000),
        ({"modificationTime": 6000}, 6000),
        ({}, 0),
    ]:
        with subtests.test(entry=entry):
            assert _modified_ms(entry) == ms
