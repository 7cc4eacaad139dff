"""A partition version: files read back, changes of groups, and times once known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsview.files.group import PackedFiles, are_behind
from fsview.files.partition import PartitionVersion
from fsview.files.row import (
    REMOVED_SIZE,
    UNKNOWN_SIZE,
    DataFile,
    id_end,
    pack_id,
    pack_removed,
    pack_row,
    row_order,
    unpack_id,
    unpack_rows,
)
from fsview.model.file_group import BaseFile
from fsview.model.file_name import data_files, parse_data_file
from tests.fsview.files.drawn_files import (
    NEW,
    OLD,
    a_base_file,
    change,
    file_ids,
    files,
    files_of_few_groups,
    mtimes,
)
from timeline.storage.base import FileInfo

many = st.lists(files, max_size=30, unique_by=lambda file: file.name)


@given(files)
def test_a_row_is_read_back_as_it_was(file: DataFile) -> None:
    row = pack_row(file)
    assert list(unpack_rows("p", file.file_id, b"xx" + row, 2, 2 + len(row))) == [file]


def test_a_time_beyond_javas_longs_is_the_last_there_is(subtests: pytest.Subtests) -> None:
    """No file has such a time; a storage that reports one must not fail its partition (#12)."""
    for mtime in [-(2**63) - 1, -(2**80), 2**63, 2**80]:
        with subtests.test(mtime=mtime):
            listing = [FileInfo("f_0-1-2_20240101000000000.parquet", 2**80, mtime)]
            (file,) = PartitionVersion.of_listing("p", listing, (".parquet",)).files()
            assert (file.size, file.mtime_ms) == (2**63 - 1, max(-(2**63), min(mtime, 2**63 - 1)))


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
    groups = list(version.groups())
    assert [group for block in version.blocks() for group in block.groups()] == groups
    assert version.has_ghosts == rebuilt.has_ghosts


few = st.lists(files_of_few_groups(), max_size=12)


@given(few, st.lists(few, max_size=4), st.data())
def test_changes_of_groups_give_what_packing_anew_gives(
    before: list[DataFile], commits: list[list[DataFile]], data: st.DataObject
) -> None:
    version = PartitionVersion.of("p", before)
    held = {file.name: file for file in version.files()}
    for added in commits:
        removed = data.draw(st.lists(st.sampled_from(sorted(held)), max_size=2)) if held else []
        change(held, added, removed)
        version = version.with_changes(added, removed)
        assert version == PartitionVersion.of("p", held.values())


@given(few, files_of_few_groups())
def test_rows_put_behind_others_are_those_of_the_group_packed_anew(
    before: list[DataFile], file: DataFile
) -> None:
    held = {old.name: old for old in before if old.file_id == file.file_id}
    in_order = sorted(held.values(), key=row_order)
    group = pack_id(file.file_id) + b"".join(map(pack_row, in_order))
    row = pack_row(file)
    start = id_end(group)
    if in_order and are_behind(group[:start] + row, group, start):
        assert file.name not in held
        anew = sorted((*in_order, file), key=row_order)
        assert group + row == pack_id(file.file_id) + b"".join(map(pack_row, anew))


BEHIND = [
    ([f"f_0-1-2_{OLD}.parquet"], [f"f_0-1-2_{NEW}.parquet"], True),
    ([f"f_0-1-2_{OLD}.parquet"], [f".f_{NEW}.log.1_0-1-2"], True),  # as from version 8 on
    ([f"f_0-1-2_{OLD}.parquet"], [f".f_{OLD}.log.1_0-1-2"], True),  # as in version 6
    ([f".f_{OLD}.log.1_0-1-2"], [f".f_{OLD}.log.2_0-1-2"], True),
    ([f".f_{OLD}.log.9_0-1-2"], [f".f_{OLD}.log.10_0-1-2"], True),
    ([f"f_0-1-2_{OLD}.parquet"], [f".f_{NEW}.log.2_0-1-2", f".f_{NEW}.log.1_0-1-2"], True),
    ([f"f_0-1-2_{NEW}.parquet"], [f"f_0-1-2_{OLD}.parquet"], False),
    ([f"f_0-1-2_{NEW}.parquet"], [f".f_{OLD}.log.1_0-1-2"], False),
    ([f"f_0-1-2_{OLD}.parquet"], [f"f_0-1-2_{OLD}.parquet"], False),
    ([f"f_0-1-2_{OLD}.parquet"], [f"f_1-1-2_{OLD}.parquet"], False),
    ([f".f_{OLD}.log.2_0-1-2"], [f".f_{OLD}.log.2_1-1-2"], False),
    ([f".f_{OLD}.log.2_0-1-2"], [f".f_{OLD}.log.1_0-1-2"], False),
    ([f"f_0-1-2_{OLD}.parquet"], [f"f_0-1-2_{NEW}.parquet"] * 2, True),
    ([f"f_0-1-2_{OLD}.parquet"], [f"f_x_{NEW}.parquet"], False),
    ([f"f_x_{OLD}.parquet"], [f"f_0-1-2_{NEW}.parquet"], False),
    (["f_0-1-2_20260101000000.parquet"], [f"f_0-1-2_{NEW}.parquet"], False),
]


def test_newer_files_go_behind_those_that_are_there(subtests: pytest.Subtests) -> None:
    def parsed(name: str) -> DataFile:
        file = parse_data_file("p", name, 7, 0, (".parquet",))
        assert file is not None
        return file

    for there, names, behind in BEHIND:
        with subtests.test(there=there, names=names):
            group = pack_id("f") + b"".join(pack_row(parsed(name)) for name in there)
            ((_, change),) = PackedFiles.of("p", map(parsed, names)).groups
            assert are_behind(change, group, id_end(group)) == behind


@given(files)
def test_the_id_in_a_name_is_the_files(file: DataFile) -> None:
    packed = pack_removed(file.name)
    assert packed is not None
    assert packed[0] == file.file_id
    assert len(packed[1]) * 4 > len(pack_row(file)), "so a run can't take all away"
    (gone,) = unpack_rows("p", *packed, 0, len(packed[1]))
    assert (gone.name, gone.size) == (file.name, REMOVED_SIZE)


@given(many)
def test_packed_files_are_as_many_as_they_give(files: list[DataFile]) -> None:
    packed = PackedFiles.of("p", [*files, *files])
    assert len(packed) == len(files)
    assert sorted(packed, key=lambda f: f.name) == sorted(files, key=lambda f: f.name)
    named = [(file.name, file.size, file.mtime_ms) for file in files]
    again = PackedFiles.named("p", named, (".parquet", ".orc"))
    read = [parse_data_file("p", *each, (".parquet", ".orc")) for each in named]
    assert again == PackedFiles.of("p", [file for file in read if file is not None])


def test_a_time_once_known_is_kept_while_the_size_is_the_same(subtests: pytest.Subtests) -> None:
    for size, mtime_ms, kept in [
        (10_000, 0, 1_795_248_452_128),
        (10_001, 0, 0),
        (10_000, 5, 5),
        (UNKNOWN_SIZE, 0, None),
    ]:
        with subtests.test(size=size, mtime_ms=mtime_ms, kept=kept):
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
