import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.storage_suite import StorageSuite
from tests.kit.concurrency.interrupts import interrupted
from tests.kit.storage.full_disk import file_size_limit
from timeline.errors import (
    AlreadyExistsError,
    PathNotFoundError,
    RootNotAllowedError,
    StorageUnavailableError,
)
from timeline.storage import local
from timeline.storage.local import LOGGED_LINKS, LocalStorage
from timeline.storage.local_files import ATTEMPTS
from timeline.storage.local_path import PlaceOf


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


def test_no_checksum_outlives_its_file_at_any_step_of_a_deletion(tmp_path: Path) -> None:
    storage, steps, seen = LocalStorage(str(tmp_path)), count(1), set()
    file, checksum = tmp_path / "file", tmp_path / ".file.crc"
    while True:
        file.write_bytes(b"")
        checksum.write_bytes(b"crc")
        was_interrupted = interrupted(lambda: storage.delete("file"), next(steps), (local,))
        seen.add((file.exists(), checksum.exists()))
        if not was_interrupted:
            break
    assert seen == {(True, True), (True, False), (False, False)}


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


def test_modification_times_are_whole_milliseconds(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    os.utime(tmp_path / "file", ns=(0, 1_795_248_376_123_999_999))
    assert LocalStorage(str(tmp_path)).list("")[0].mtime_ms == 1_795_248_376_123


def test_a_link_to_nothing_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    assert LocalStorage(str(tmp_path)).list("") == ()


@pytest.mark.parametrize("roots", [False, True])
def test_links_to_ancestors_are_not_descended_into(tmp_path: Path, roots: bool) -> None:
    """Two of them would give 2^40 paths."""
    table = tmp_path / "table"
    for name in ("dir/sub/file", "other/file"):
        (table / name).parent.mkdir(parents=True)
        (table / name).touch()
    for name, target in {
        "dir/a": ".",
        "dir/b": ".",
        "dir/sub/up": "..",
        "dir/sub/base": str(table),
        "dir/other": "../other",
        "other/dir": "../dir",
        "loop": "loop",
    }.items():
        (table / name).symlink_to(target)
    storage = LocalStorage(str(table))
    if roots:
        storage = storage.confined(below(tmp_path))
    assert [info.name for info in storage.list_tree("")] == [
        "dir/other/file",
        "dir/sub/file",
        "other/dir/sub/file",
        "other/file",
    ]


TOO_LONG = ["x" * 300, "/".join("x" * 2100), f"{'y' * 256}/z"]


def test_where_nothing_can_be_nothing_is(subtests: pytest.Subtests, tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.create("file", b"x")
    (tmp_path / "loop").symlink_to("loop")
    for path in [*TOO_LONG, "file/below", "loop", "loop/below"]:
        with subtests.test(path=path):
            assert storage.list(path) == ()
            assert storage.stat(path) is None
            assert storage.delete_tree(path) is False
            with pytest.raises(PathNotFoundError):
                storage.read(path)


def test_where_nothing_can_be_nothing_is_deleted(subtests: pytest.Subtests, tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    (tmp_path / "loop").symlink_to("loop")
    for path in [*TOO_LONG, "file/below", "loop/below"]:
        with subtests.test(path=path):
            storage.create("file", b"x")
            assert storage.delete(path) is False
            storage.delete_all(["file", path])
            assert os.listdir(tmp_path) == ["loop"]


def test_where_nothing_can_be_nothing_is_made(subtests: pytest.Subtests, tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.create("file", b"x")
    for path in [*TOO_LONG, "file/below", "file/below/that"]:
        with subtests.test(path=path):
            for make in (storage.create, storage.replace):
                with pytest.raises(PathNotFoundError, match="nothing can be at"):
                    make(path, b"data")
            with pytest.raises(PathNotFoundError, match="nothing can be at"):
                storage.make_dir(path)
            assert os.listdir(tmp_path) == ["file"]


class ShortLivedFolders(LocalStorage):
    """Another process deletes each directory as soon as it is made, ``times`` times."""

    times = 1

    @contextmanager
    def _at(self, full: str, *, follow: bool = True, make: bool = False) -> Iterator[Any]:
        with super()._at(full, follow=follow, make=make) as place:
            if make and self.times:
                self.times -= 1
                shutil.rmtree(os.path.dirname(full))
            yield place


def write_stream(storage: LocalStorage, path: str, data: bytes = b"") -> None:
    with storage.create_stream(path) as stream:
        stream.write(data)


WRITES = {
    "create": LocalStorage.create,
    "replace": LocalStorage.replace,
    "create_stream": write_stream,
}


@pytest.mark.parametrize("is_confined", [False, True])
@pytest.mark.parametrize("data", [b"", b"data"])
@pytest.mark.parametrize("name", WRITES)
def test_a_folder_that_is_deleted_meanwhile_is_made_again(
    tmp_path: Path, name: str, data: bytes, is_confined: bool
) -> None:
    storage = ShortLivedFolders(str(tmp_path))
    if is_confined:
        storage = storage.confined(below(tmp_path))
    storage.times = 3
    WRITES[name](storage, "dir/inner/file", data)
    assert storage.times == 0
    assert (tmp_path / "dir/inner/file").read_bytes() == data
    assert os.listdir(tmp_path / "dir/inner") == ["file"]


def test_a_folder_that_is_always_deleted_is_an_error(tmp_path: Path) -> None:
    storage = ShortLivedFolders(str(tmp_path))
    storage.times = 1_000
    with pytest.raises(PathNotFoundError, match="dir/file"):
        storage.create("dir/file")


@pytest.mark.parametrize("times", [3, 1_000])
def test_files_that_appear_while_a_tree_is_deleted_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.create("dir/inner/file")
    remove_empty = os.rmdir
    appeared: list[str] = []

    def rmdir(name: str, **place: Any) -> None:
        if len(appeared) < times:
            appeared.append(f"dir/inner/late{len(appeared)}")
            (tmp_path / appeared[-1]).touch()
        remove_empty(name, **place)

    monkeypatch.setattr(os, "rmdir", rmdir)
    if times > ATTEMPTS:
        with pytest.raises(StorageUnavailableError, match="dir"):
            storage.delete_tree("dir")
    else:
        assert storage.delete_tree("dir") is True
        assert os.listdir(tmp_path) == []
    assert len(appeared) == min(times, ATTEMPTS)


def test_a_confined_storage_is_not_lead_out_by_links(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    outside.mkdir(parents=True)
    (outside / "file").write_bytes(b"secret")
    LocalStorage(str(inside)).create("dir/file", b"x")
    (inside / "link").symlink_to(outside)
    (inside / "dir" / "link").symlink_to(outside / "file")
    (inside / "fine").symlink_to(inside / "dir")
    storage = LocalStorage(str(inside)).confined(below(inside))
    assert storage.for_cause("x").read("fine/file") == b"x"
    for call in (storage.list, storage.stat, storage.delete_tree, storage.make_dir):
        with pytest.raises(RootNotAllowedError, match="outside the roots"):
            call("link")
    for path in ("link/file", "dir/link"):
        for call in (storage.read, storage.create, storage.delete):
            with pytest.raises(RootNotAllowedError, match="outside the roots"):
                call(path)
    assert (outside / "file").read_bytes() == b"secret"


def test_a_confined_listing_leaves_out_what_a_link_leads_out_to(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    outside.mkdir(parents=True)
    (outside / "file").write_bytes(b"secret")
    LocalStorage(str(inside)).create("dir/file", b"x")
    for name, target in (
        ("file", outside / "file"),
        ("folder", outside),
        ("twice", inside / "file"),
        ("nothing", outside / "nothing"),
        ("fine", inside / "dir"),
        ("finer", Path("fine/file")),
        ("gone", inside / "gone"),
    ):
        (inside / name).symlink_to(target)
    storage = LocalStorage(str(inside)).confined(below(inside))
    for _ in range(2):
        listed = storage.for_cause("x").list("")
        assert [(info.name, info.size, info.is_dir) for info in listed] == [
            ("dir", 0, True),
            ("fine", 0, True),
            ("finer", 1, False),
        ]
    left_out = [record.getMessage().split()[0] for record in caplog.records]
    assert sorted(left_out) == [f"{inside}/{n}" for n in ("file", "folder", "nothing", "twice")]
    assert len(LocalStorage(str(inside)).list("")) == 6, "without roots links are followed"


def test_of_links_that_lead_out_the_first_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(LOGGED_LINKS + 5):
        (tmp_path / f"link{number}").symlink_to("/dev/null")
    assert LocalStorage(str(tmp_path)).confined(below(tmp_path)).list("") == ()
    assert len(caplog.records) == LOGGED_LINKS


def below(root: Path) -> PlaceOf:
    """Return a function that allows paths below one root."""
    return lambda path: path if Path(path).is_relative_to(root) else None


def test_a_name_that_is_no_text_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / "é").touch()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.parquet")).touch()
    assert [info.name for info in LocalStorage(str(tmp_path)).list("")] == ["é"]


@pytest.mark.parametrize("size", [1, 8_192, 8_193, 1 << 20])
@pytest.mark.parametrize("kind", ["create", "replace", "stream", "stream in pieces"])
def test_a_write_that_fails_leaves_no_file_whatever_its_size(
    tmp_path: Path, kind: str, size: int
) -> None:
    """As on a full disk: what is buffered fails when the file is closed (#32)."""
    storage = LocalStorage(str(tmp_path))
    data, step = b"x" * size, size if kind == "stream" else -(-size // 4)

    def write() -> None:
        if not kind.startswith("stream"):
            getattr(storage, kind)("file", data)
            return
        with storage.create_stream("file") as file:
            for at in range(0, size, step):
                file.write(data[at : at + step])

    with file_size_limit(0), pytest.raises(StorageUnavailableError, match="file: File too large"):
        write()
    assert os.listdir(tmp_path) == []


def test_the_time_of_calls_is_measured_by_kind_and_cause(tmp_path) -> None:
    storage = LocalStorage(str(tmp_path)).for_cause("sync")
    storage.create("a/b", b"x")
    assert storage.read("a/b") == b"x"
    with pytest.raises(PathNotFoundError):
        storage.for_cause("load").read("none")
    storage.list_tree("")
    times = storage.calls.times()
    assert times.longest_s == {}
    assert times.ended_s.keys() == storage.calls.snapshot().keys()
    assert all(seconds > 0 for seconds in times.ended_s.values())
