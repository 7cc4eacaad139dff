import uuid
from datetime import datetime, timezone

import pytest

from tests.conformance.storage_suite import StorageSuite
from timeline.storage.fsspec_storage import FsspecStorage, _modified_ms


@pytest.fixture
def storage() -> FsspecStorage:
    return FsspecStorage(f"memory://{uuid.uuid4()}/table")


class TestFsspecStorage(StorageSuite):
    """The promises of every storage, kept on fsspec's memory file system."""


class TestFsspecStorageOnLocalFiles(StorageSuite):
    """The same through fsspec's local file system, except for promises that it can't keep."""

    @pytest.fixture
    def storage(self, tmp_path) -> FsspecStorage:
        return FsspecStorage(f"file://{tmp_path}/table")

    # fsspec's local file system creates in two steps.
    test_one_of_many_creators_wins = None


@pytest.mark.parametrize(
    ("entry", "ms"),
    [
        ({"mtime": 1.5}, 1500),
        ({"LastModified": datetime(1970, 1, 1, 0, 0, 2, tzinfo=timezone.utc)}, 2000),
        ({"updated": "1970-01-01T00:00:03.500Z"}, 3500),
        ({"last_modified": datetime(1970, 1, 1, 0, 0, 4)}, 4000),
        ({"mtime": None, "created": 5}, 5000),
        ({}, 0),
    ],
)
def test_modification_times_of_different_file_systems(entry: dict, ms: int) -> None:
    assert _modified_ms(entry) == ms
