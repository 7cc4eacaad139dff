"""Runs of changes: what they give, how many there may be, and when chunks are cut."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsview.files.partition import CHUNK_BYTES, MAX_RUNS, PartitionVersion
from fsview.files.row import UNKNOWN_SIZE, DataFile
from fsview.model.file_group import BaseFile, LogFile
from fsview.model.file_name import parse_data_file
from tests.fsview.files.drawn_files import OLD, a_base_file, change, files_of_few_groups

few_ghosts = st.sampled_from([*[1] * 12, *[2] * 12, 2**40, UNKNOWN_SIZE])
fewer = st.lists(files_of_few_groups(few_ghosts), max_size=3)


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
        for begin in (0, 1):
            blocks = [[*block.groups()] for block in changed.blocks(begin)]
            ids = [file_id for block in blocks for file_id, _ in block]
            groups = [g for g in changed.groups() if begin == 0 or g[0] >= ids[0]]
            assert [group for block in blocks for group in block] == groups
            assert len(blocks) == len(version.chunks) - begin > 0
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
