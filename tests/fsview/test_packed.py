"""Packing loses nothing, finds what is there, and changes one chunk at a time."""

from __future__ import annotations

import string
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsview.file_names import data_files, parse_base_file, parse_log_file
from fsview.model import BaseFile, LogFile
from fsview.packed import PartitionVersion, file_id_of_name
from fsview.rows import UNKNOWN_SIZE, DataFile, pack_id, pack_row, row_order, unpack_id, unpack_rows
from timeline.storage.base import FileInfo

uuids = st.uuids().map(str)
file_ids = st.one_of(
    uuids,
    st.builds("{}-{}".format, uuids, st.integers(0, 70_000)),
    uuids.map(str.upper),
    st.text(string.ascii_letters + string.digits + "-é中", min_size=1, max_size=50),
)
times = st.one_of(
    st.text(string.digits, min_size=17, max_size=17),
    st.text(string.digits, min_size=14, max_size=14),
    st.text(string.digits, min_size=1, max_size=20),
)
numbers = st.integers(0, 2**33)
tokens = st.one_of(
    st.builds("{}-{}-{}".format, numbers, numbers, numbers), st.sampled_from(["0-1", "00-1-2", "x"])
)
sizes = st.one_of(st.integers(0, 2**40), st.just(UNKNOWN_SIZE))
mtimes = st.one_of(st.just(0), st.integers(0, 2**47), st.integers(2**48, 2**60))


@st.composite
def base_files(draw: st.DrawFn) -> BaseFile:
    ext = draw(st.sampled_from([".parquet", ".orc", ".parquet.gz", ".parquet_x"]))
    name = f"{draw(file_ids)}_{draw(tokens)}_{draw(times)}{ext}"
    file = parse_base_file("p", name, draw(sizes), draw(mtimes), (".parquet", ".orc"))
    assert file is not None
    return file


@st.composite
def log_files(draw: st.DrawFn) -> LogFile:
    token = draw(st.none() | st.builds("{}-{}-{}".format, numbers, numbers, numbers))
    suffix = draw(st.sampled_from(["", ".cdc"])) if token is not None else ""
    end = "" if token is None else f"_{token}{suffix}"
    version = draw(st.integers(0, 2**17))
    name = f".{draw(file_ids)}_{draw(times)}.log.{version}{end}"
    file = parse_log_file("p", name, draw(sizes), draw(mtimes))
    assert file is not None
    return file


files = st.one_of(base_files(), log_files())
many = st.lists(files, max_size=30, unique_by=lambda file: file.name)


@given(files)
def test_a_row_is_read_back_as_it_was(file: DataFile) -> None:
    row = pack_row(file)
    assert list(unpack_rows("p", file.file_id, b"xx" + row, 2, 2 + len(row))) == [file]


@given(file_ids)
def test_an_id_is_read_back_as_it_was(file_id: str) -> None:
    packed = pack_id(file_id)
    assert unpack_id(b"x" + packed + b"rows", 1) == (file_id, 1 + len(packed))


@given(many)
def test_a_partition_gives_back_its_files_in_order(files: list[DataFile]) -> None:
    version = PartitionVersion.of("p", files)
    expected = sorted(files, key=lambda file: (file.file_id, row_order(file)))
    assert list(version.files()) == expected
    for file_id in {file.file_id for file in files}:
        assert version.group(file_id) == tuple(f for f in expected if f.file_id == file_id)
    assert version.group("no-such-id") == ()
    assert version.has_ghosts == any(file.size == UNKNOWN_SIZE for file in files)


plain_names = st.builds(
    "{}_{}-{}-{}_{}{}".format,
    st.sampled_from(["a", "5f0c2f4e-9b1e-4d7a-8a5b-0c1d2e3f4a5b-0", "a.log", ".a", "x.orc"]),
    *[st.sampled_from(["0", "7", "07", "999999999", "1000000000", "4294967296"])] * 3,
    st.sampled_from(["20260101000000000", "20260102000000000", "20260101000000", "x"]),
    st.sampled_from([".parquet", ".orc", ".lance", ".parquet.crc", ".log"]),
)
listed = st.builds(
    FileInfo,
    st.one_of(plain_names, files.map(lambda file: file.name), st.text("a_.-0", min_size=1)),
    st.one_of(st.integers(0, 2**20), st.integers(2**32, 2**40)),
    mtimes,
    st.integers(0, 9).map(lambda n: n == 0),
)


@given(
    st.lists(listed, max_size=40, unique_by=lambda info: info.name),
    st.sampled_from([(".parquet",), (".parquet", ".orc", ".hfile")]),
)
def test_a_listing_is_packed_as_its_files_are(
    listing: list[FileInfo], extensions: tuple[str, ...]
) -> None:
    version = PartitionVersion.of_listing("p", listing, extensions)
    assert version == PartitionVersion.of("p", data_files("p", listing, extensions))


@given(many)
def test_instants_are_those_of_the_files(files: list[DataFile]) -> None:
    assert PartitionVersion.of("p", files).instants() == {file.instant for file in files}


@given(many, many, st.data())
def test_changes_are_what_they_are_for_a_dict(
    before: list[DataFile], added: list[DataFile], data: st.DataObject
) -> None:
    names = [file.name for file in (*before, *added)]
    removed = data.draw(st.lists(st.sampled_from(names))) if names else []
    held = {file.name: file for file in before}
    for file in added:
        if file.name not in held or file.size != UNKNOWN_SIZE:
            held[file.name] = file
    for name in removed:
        held.pop(name, None)
    version = PartitionVersion.of("p", before).with_changes(added, removed)
    rebuilt = PartitionVersion.of("p", held.values())
    assert list(version.files()) == list(rebuilt.files())
    assert version.has_ghosts == rebuilt.has_ghosts


@given(files)
def test_the_id_in_a_name_is_the_files(file: DataFile) -> None:
    assert file_id_of_name(file.name) == file.file_id


def a_base_file(number: int, time: str = "20260101000000000", size: int = 10_000) -> BaseFile:
    file_id = f"{uuid.UUID(int=number * 7919)}-0"
    name = f"{file_id}_{number}-12-{number + 40}_{time}.parquet"
    return BaseFile("p", name, size, 1_795_248_452_128, file_id, time)


def test_one_change_rewrites_one_chunk_of_many() -> None:
    version = PartitionVersion.of("p", map(a_base_file, range(5000)))
    changed = version.with_changes([a_base_file(2500, "20260101000000001")])
    assert len(version.chunks) > 20
    assert len(set(changed.chunks) - set(version.chunks)) <= 2  # a full chunk is cut in two
    assert len(changed.group(a_base_file(2500).file_id)) == 2
    again = changed.with_changes((), [a_base_file(n).name for n in range(5000)])
    assert [f.name for f in again.files()] == [a_base_file(2500, "20260101000000001").name]


def test_a_file_takes_about_fifty_bytes() -> None:
    slices = [a_base_file(n, f"2026010100000000{k}") for n in range(1000) for k in range(3)]
    version = PartitionVersion.of("p", slices)
    assert version.size_bytes / len(slices) < 50
    assert version.file_count == 3000


@pytest.mark.parametrize(
    ("size", "mtime_ms", "kept"),
    [(10_000, 0, 1_795_248_452_128), (10_001, 0, 0), (10_000, 5, 5), (UNKNOWN_SIZE, 0, None)],
)
def test_a_time_once_known_is_kept_while_the_size_is_the_same(
    size: int, mtime_ms: int, kept: int | None
) -> None:
    first = a_base_file(1)
    told = BaseFile("p", first.name, size, mtime_ms, first.file_id, first.instant)
    (now,) = PartitionVersion.of("p", [first]).with_changes([told]).files()
    assert now.mtime_ms == (first.mtime_ms if kept is None else kept)
    assert now.size == (first.size if size == UNKNOWN_SIZE else size)


def test_a_version_is_equal_to_another_of_the_same_files_and_answers_are_its_own() -> None:
    one, other = (PartitionVersion.of("p", map(a_base_file, range(5))) for _ in range(2))
    one.answers["q"] = b"body"
    assert one == other
    assert other.answers == {}
    assert one.renewed().answers == {}
    assert one.with_changes([a_base_file(9)]).answers == {}
