"""Packing loses nothing, finds every file, and changes one chunk at a time."""

from __future__ import annotations

import random
import string
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsview.files.change import PackedFiles
from fsview.files.chunk_layout import CHUNK_BYTES
from fsview.files.group import are_behind
from fsview.files.packed_id import id_end, pack_id, unpack_id
from fsview.files.partition import MAX_RUNS, PartitionVersion
from fsview.files.row import (
    REMOVED_SIZE,
    UNKNOWN_SIZE,
    DataFile,
    pack_removed,
    pack_row,
    row_order,
    unpack_rows,
)
from fsview.model.file_group import BaseFile, LogFile
from fsview.model.file_name import data_files, parse_base_file, parse_data_file, parse_log_file
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
sizes = st.one_of(st.integers(0, 2**40), st.integers(0, 2**63 - 1), st.just(UNKNOWN_SIZE))
mtimes = st.one_of(st.just(0), st.integers(0, 2**47), st.integers(-(2**63), 2**63 - 1))


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


@pytest.mark.parametrize("mtime", [-(2**63) - 1, -(2**80), 2**63, 2**80])
def test_a_time_beyond_javas_longs_is_the_last_there_is(mtime: int) -> None:
    """No file has such a time; a storage that reports one must not fail its partition (#12)."""
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
    assert version.has_ghosts == rebuilt.has_ghosts


few_times = st.sampled_from(
    ["20260101000000000", "20260101000000001", "20260102000000000", "20260101000000", "7"]
)
few_tokens = st.sampled_from(["0-1-2", "1-1-2", "10-1-2", "07-1-2"])
few_ids = st.sampled_from(["a", "A", "5f0c2f4e-9b1e-4d7a-8a5b-0c1d2e3f4a5b-0"])
few_sizes = st.sampled_from([1, 2, 2**40, UNKNOWN_SIZE])
few_mtimes = st.sampled_from([0, 0, 0, 5])


@st.composite
def files_of_few_groups(draw: st.DrawFn, sizes: st.SearchStrategy[int] = few_sizes) -> DataFile:
    file_id, time, token = draw(few_ids), draw(few_times), draw(few_tokens)
    name = f"{file_id}_{token}_{time}.parquet"
    if draw(st.booleans()):
        end = draw(st.sampled_from(["", ".cdc"]))
        name = f".{file_id}_{time}.log.{draw(st.integers(1, 3))}_{token}{end}"
    file = parse_data_file("p", name, draw(sizes), draw(few_mtimes), (".parquet",))
    assert file is not None
    return file


few = st.lists(files_of_few_groups(), max_size=12)
few_ghosts = st.sampled_from([*[1] * 12, *[2] * 12, 2**40, UNKNOWN_SIZE])
fewer = st.lists(files_of_few_groups(few_ghosts), max_size=3)


def change(held: dict[str, DataFile], added: list[DataFile], removed: list[str]) -> None:
    """Apply a change to files by name, as to a version."""
    for file in {file.name: file for file in added}.values():
        old = held.get(file.name)
        is_ghost = old is None or old.size == UNKNOWN_SIZE
        says_more = file.size != UNKNOWN_SIZE and (
            file.mtime_ms or (old is not None and file.size != old.size)
        )
        if is_ghost or says_more:
            held[file.name] = file
    for name in removed:
        held.pop(name, None)


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


OLD, NEW = "20260101000000000", "20260102000000000"


@pytest.mark.parametrize(
    ("there", "names", "behind"),
    [
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
    ],
)
def test_newer_files_go_behind_those_that_are_there(
    there: list[str], names: list[str], behind: bool
) -> None:
    def parsed(name: str) -> DataFile:
        file = parse_data_file("p", name, 7, 0, (".parquet",))
        assert file is not None
        return file

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


def a_base_file(number: int, time: str = "20260101000000000", size: int = 10_000) -> BaseFile:
    file_id = f"{uuid.UUID(int=number * 7919)}-0"
    name = f"{file_id}_{number}-12-{number + 40}_{time}.parquet"
    return BaseFile("p", name, size, 1_795_248_452_128, file_id, time)


@pytest.mark.property
def test_changes_of_one_group_make_one_chunk_of_many_anew() -> None:
    version = PartitionVersion.of("p", map(a_base_file, range(5000)))
    changed = version
    added = [a_base_file(2500, f"2026010100000001{number}") for number in range(MAX_RUNS + 1)]
    for file in added:
        changed = changed.with_changes([file])
    assert changed.runs == ()
    assert len(version.chunks) > 20
    assert len(set(changed.chunks) - set(version.chunks)) <= 2  # a full chunk is cut in two
    assert len(changed.group(a_base_file(2500).file_id)) == MAX_RUNS + 2
    again = changed.with_changes((), [a_base_file(n).name for n in range(5000)])
    assert [f.name for f in again.files()] == [f.name for f in added]


def many_files() -> PartitionVersion:
    """Return a version that has room for some runs, with files of the few groups among others."""
    few_files = [
        parse_data_file("p", f"{file_id}_0-1-2_{OLD}.parquet", 1, 0, (".parquet",))
        for file_id in ("a", "A", "5f0c2f4e-9b1e-4d7a-8a5b-0c1d2e3f4a5b-0")
    ]
    others = map(a_base_file, range(60))
    return PartitionVersion.of("p", (*others, *(file for file in few_files if file is not None)))


MANY_FILES = many_files()


@given(st.lists(st.tuples(fewer, st.integers(0, 3)), min_size=1, max_size=6), st.data())
def test_runs_give_what_packing_anew_gives(
    commits: list[tuple[list[DataFile], int]], data: st.DataObject
) -> None:
    version = MANY_FILES
    held = {file.name: file for file in version.files()}
    for added, removals in commits:
        before, had = version, dict(held)
        names = st.sampled_from(sorted(held))
        removed = data.draw(st.lists(names, min_size=removals, max_size=removals))
        change(held, added, removed)
        version = version.with_changes(added, removed)
        anew = PartitionVersion.of("p", held.values())
        assert list(version.files()) == list(anew.files())
        assert version == anew
        assert version.has_ghosts == anew.has_ghosts
        assert version.instants() == anew.instants()
        for file_id in {file.file_id for file in added}:
            assert version.group(file_id) == anew.group(file_id)
        assert len(version.runs) <= MAX_RUNS
        assert not (version.runs and version.has_ghosts)
        assert {f.name: f for f in before.files()} == had, "the one before stays as it was"


def test_a_change_shares_all_that_is_there_until_runs_are_many() -> None:
    version = PartitionVersion.of("p", map(a_base_file, range(400)))
    changed = version
    for number in range(MAX_RUNS):
        before = changed
        added = a_base_file(number, f"2026010100000001{number}")
        changed = before.with_changes([added], [a_base_file(300 + number).name])
        assert changed.chunks is version.chunks
        assert changed.runs[:-1] == before.runs
        assert changed.runs[-1].size < 150
        assert changed.shares_with(before)
        assert changed.parts == (*changed.chunks, *changed.runs)
    merged = changed.with_changes([a_base_file(7, "20260101000000020")])
    assert merged.runs == ()
    assert len(list(merged.files())) == 401
    assert not merged.is_empty


def test_runs_come_to_a_share_of_the_chunks_at_most() -> None:
    version = PartitionVersion.of("p", map(a_base_file, range(400)))
    whole = sum(chunk.size for chunk in version.chunks)
    merges = 0
    for number in range(1, 40):
        added = [a_base_file(n, f"202601010000{number:05d}") for n in range(0, 400, 20)]
        before, version = version, version.with_changes(added)
        merges += before.runs != () and version.runs == ()
        assert sum(run.size for run in version.runs) <= sum(c.size for c in version.chunks) / 4
    assert 5 <= merges <= 10
    assert len(list(version.files())) == 400 + 39 * 20
    assert version.size_bytes > whole


def test_a_change_of_most_groups_is_no_run() -> None:
    version = PartitionVersion.of("p", map(a_base_file, range(400)))
    changed = version.with_changes([a_base_file(n, "20260101000000001") for n in range(400)])
    assert changed.runs == ()


def test_nothing_is_left_when_all_is_taken_away() -> None:
    files = [a_base_file(7, f"202601010000{n:05d}") for n in range(200)]
    version = PartitionVersion.of("p", files)
    for file in files[:-1]:
        version = version.with_changes((), [file.name])
        assert not version.is_empty
    version = version.with_changes((), [files[-1].name])
    assert version.is_empty
    assert version == PartitionVersion("p")
    assert version.group(files[0].file_id) == ()


def test_files_with_long_names_are_taken_away_without_a_trace() -> None:
    files = [
        BaseFile("p", f"{'f' * 200}_0-0-{n}_{OLD}.parquet", 2**33, 0, "f" * 200, OLD)
        for n in range(100)
    ]
    version = PartitionVersion.of("p", files)
    for n in range(0, 100, 10):
        version = version.with_changes((), [file.name for file in files[n : n + 10]])
    assert version.is_empty


@pytest.mark.property
def test_a_group_of_very_many_files_makes_no_room_for_runs_of_many_groups() -> None:
    logs = [
        LogFile("p", f".g_{OLD}.log.{n}_0-0-{n}", 7, 0, "g", OLD, n, f"0-0-{n}", "")
        for n in range(1, 20_001)
    ]
    version = PartitionVersion.of("p", logs)
    one_more = version.with_changes([a_base_file(1)])
    assert len(one_more.runs) == 1
    changed = one_more.with_changes([*map(a_base_file, range(2, 100)), logs[7]], [logs[8].name])
    assert changed.runs == ()
    assert len(list(changed.files())) == 20_000 + 99 - 1
    assert changed.group(a_base_file(50).file_id) == (a_base_file(50),)
    assert len(changed.group("g")) == 19_999


def test_names_that_no_file_can_have_take_nothing_away() -> None:
    version = PartitionVersion.of("p", map(a_base_file, range(100)))
    long = [f"a_{'x' * 70_000}.parquet", f".{'x' * 2000}_{OLD}.log.1_0-1-2", "no-underscore"]
    assert version.with_changes((), long) is version


@given(many)
def test_packed_files_are_as_many_as_they_give(files: list[DataFile]) -> None:
    packed = PackedFiles.of("p", [*files, *files])
    assert len(packed) == len(files)
    assert sorted(packed, key=lambda f: f.name) == sorted(files, key=lambda f: f.name)
    named = [(file.name, file.size, file.mtime_ms) for file in files]
    again = PackedFiles.named("p", named, (".parquet", ".orc"))
    read = [parse_data_file("p", *each, (".parquet", ".orc")) for each in named]
    assert again == PackedFiles.of("p", [file for file in read if file is not None])


def test_chunks_that_grow_by_many_commits_are_cut() -> None:
    """New groups come between others, and every commit puts rows behind those of some groups."""
    chance = random.Random(5)
    version = PartitionVersion.of("p", map(a_base_file, range(0, 600, 2)))
    held = {file.name: file for file in version.files()}
    for number in range(1, 40):
        time = f"202601010000{number:05d}"
        added = [a_base_file(n, time, number) for n in chance.sample(range(600), 60)]
        gone = chance.sample(sorted(held), 10)
        version = version.with_changes(added, gone)
        held = {f.name: f for f in (*held.values(), *added) if f.name not in gone}
    anew = PartitionVersion.of("p", held.values())
    assert list(version.files()) == list(anew.files())
    assert max(chunk.size for chunk in version.chunks) <= CHUNK_BYTES + 400  # and a group
    assert sum(chunk.size for chunk in version.chunks) <= anew.size_bytes * 1.001
    assert list(version.first_ids) == sorted(version.first_ids)
    for file in list(held.values())[::17]:
        assert file in version.group(file.file_id)


@pytest.mark.property
def test_more_groups_come_to_a_partition_than_a_chunk_can_count() -> None:
    version = PartitionVersion.of("p", [a_base_file(1)])
    version = version.with_changes(map(a_base_file, range(2, 66_000)))
    assert len(list(version.files())) == 65_999


def test_a_file_takes_about_fifty_bytes() -> None:
    slices = [a_base_file(n, f"2026010100000000{k}") for n in range(1000) for k in range(3)]
    version = PartitionVersion.of("p", slices)
    assert version.size_bytes / len(slices) < 50
    assert len(list(version.files())) == 3000


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
