import os
import stat
from pathlib import Path

import pytest

from tests.conformance.storage_suite import StorageSuite
from timeline.errors import AlreadyExistsError, StorageUnavailableError
from timeline.storage.local import LocalStorage


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path / "table"))


class TestLocalStorage(StorageSuite):
    """The promises of every storage, kept on the machine's file system."""


@pytest.mark.parametrize("spelling", ["{}", "{}/", "file:{}", "file://{}", "file://{}/"])
def test_spellings_of_the_base_path(tmp_path: Path, spelling: str) -> None:
    storage = LocalStorage(spelling.format(tmp_path))
    storage.create("file", b"x")
    assert (tmp_path / "file").read_bytes() == b"x"
    assert storage.base_path == spelling.format(tmp_path).rstrip("/")


@pytest.mark.parametrize("change", ["replace", "delete"])
def test_hadoops_checksum_goes_with_its_file(tmp_path: Path, change: str) -> None:
    storage = LocalStorage(str(tmp_path))
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / ".file.crc").write_bytes(b"crc")
    if change == "replace":
        storage.replace("file", b"new")
    else:
        storage.delete("file")
    assert not (tmp_path / ".file.crc").exists()


def test_a_stale_checksum_is_deleted_even_without_its_file(tmp_path: Path) -> None:
    (tmp_path / ".file.crc").write_bytes(b"crc")
    assert not LocalStorage(str(tmp_path)).delete("file")
    assert not (tmp_path / ".file.crc").exists()


def test_a_lost_race_leaves_no_temporary_file(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.create("file", b"x")
    with pytest.raises(AlreadyExistsError):
        storage.create("file", b"y")
    assert os.listdir(tmp_path) == ["file"]


def test_files_are_readable_by_others_as_the_umask_allows(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    before = os.umask(0o022)
    try:
        storage.create("a", b"x")
        storage.create("b")
        storage.replace("c", b"x")
        with storage.create_stream("d") as file:
            file.write(b"x")
    finally:
        os.umask(before)
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "abcd"} == {0o644}


def test_a_file_where_a_directory_belongs_is_no_missing_file(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.create("file", b"x")
    with pytest.raises(StorageUnavailableError, match="file/below"):
        storage.read("file/below")
    assert storage.list("file") == ()
    assert storage.stat("file/below") is None


def test_modification_times_are_whole_milliseconds(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    os.utime(tmp_path / "file", ns=(0, 1_795_248_376_123_999_999))
    assert LocalStorage(str(tmp_path)).list("")[0].mtime_ms == 1_795_248_376_123


def test_a_link_to_nothing_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    assert LocalStorage(str(tmp_path)).list("") == ()
