"""A plan's files are deleted at once where a storage can, and what fails is recorded by name."""

from __future__ import annotations

import pytest

from strandline.table_services.clean.execution import (
    delete_files,
    delete_planned,
    names_by_partition,
)
from timeline.errors import FilesNotDeletedError, StorageUnavailableError
from timeline.metadata.instant_metadata import CleanerPlan, CleanFileInfo
from timeline.storage.local import LocalStorage

NAMES = ("1.parquet", "2.parquet", "3.parquet")


class ObjectStore(LocalStorage):
    """A storage without directories, on which one file can't be deleted.

    Attributes:
        requests: The files of each request that deletes.
    """

    has_directories = False

    def __init__(self, base, denied=""):
        super().__init__(str(base))
        self.denied = denied
        self.requests = []

    def delete(self, path):
        if not self.requests or path not in self.requests[-1]:
            self.requests.append([path])
        if self.denied and path.endswith(self.denied):
            raise StorageUnavailableError(f"access denied: {path}")
        return super().delete(path)

    def delete_all(self, paths):
        self.requests.append(list(paths))
        super().delete_all(self.requests[-1])


@pytest.fixture
def plan(tmp_path):
    (tmp_path / "eu").mkdir()
    for name in NAMES:
        (tmp_path / "eu" / name).write_bytes(b"rows")
    files = tuple(CleanFileInfo(f"{tmp_path}/eu/{name}") for name in NAMES)
    return CleanerPlan(file_paths_to_be_deleted_per_partition={"eu": files})


def delete(storage, plan, parallelism):
    def in_threads(files, done):
        return delete_files(storage, files, parallelism, done)

    return delete_planned(storage, plan, names_by_partition(plan), in_threads)


def test_all_files_are_one_request(tmp_path, plan):
    storage = ObjectStore(tmp_path)
    (deleted,) = delete(storage, plan, 4).values()
    assert storage.requests == [[f"eu/{name}" for name in NAMES]]
    assert deleted.success_delete_files == NAMES
    assert list((tmp_path / "eu").iterdir()) == []


def test_after_a_failure_each_file_is_deleted_by_itself(tmp_path, plan):
    storage = ObjectStore(tmp_path, denied="2.parquet")
    (deleted,) = delete(storage, plan, 1).values()
    assert len(storage.requests[0]) == 3
    assert deleted.success_delete_files == ("1.parquet", "3.parquet")
    assert deleted.failed_delete_files == ("2.parquet",)
    assert [path.name for path in (tmp_path / "eu").iterdir()] == ["2.parquet"]


def test_only_files_that_a_request_could_not_delete_are_deleted_by_themselves(tmp_path, plan):
    """As S3 tells: of 100,000 files ten that fail cost ten requests more, not 100,000."""

    class Telling(ObjectStore):
        def delete_all(self, paths):
            names = list(paths)
            self.requests.append(names)
            for name in names:
                if not name.endswith(self.denied):
                    LocalStorage.delete(self, name)
            error = FilesNotDeletedError("1 of 3 keys weren't deleted")
            error.paths = frozenset({"eu/2.parquet"})
            raise error

        def delete(self, path):
            self.requests.append([path])
            return LocalStorage.delete(self, path)

    storage = Telling(tmp_path, denied="2.parquet")
    (deleted,) = delete(storage, plan, 4).values()
    assert storage.requests == [[f"eu/{name}" for name in NAMES], ["eu/2.parquet"]]
    assert deleted.success_delete_files == NAMES
    assert deleted.failed_delete_files == ()


@pytest.mark.parametrize("threads", [1, 4])
def test_a_request_has_a_thousand_files_and_its_failure_concerns_only_those(tmp_path, threads):
    class Refusing(ObjectStore):
        singles = 0

        def delete_all(self, paths):
            names = list(paths)
            self.requests.append(names)
            if "eu/1500.parquet" in names:
                raise StorageUnavailableError("slow down")

        def delete(self, path):
            self.singles += 1
            return True

    storage, counts = Refusing(tmp_path), []
    files = [("eu", f"{n}.parquet") for n in range(2500)]
    assert delete_files(storage, files, threads, counts.append) == frozenset()
    assert sorted(map(len, storage.requests)) == [500, 1000, 1000]
    assert storage.singles == 1000
    assert sorted(counts) == [500, 1000, 1000]
