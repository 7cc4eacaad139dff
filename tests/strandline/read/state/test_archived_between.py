"""Commits that were archived while a savepoint kept an older one, which is still there."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from strandline import Table
from strandline.read.scan import Scan
from strandline.records.meta_fields import with_meta_fields
from strandline.records.schema.avro_schema import arrow_to_avro
from tests.kit.formats.base_files import write_base_file
from tests.kit.servers.live_service import TOKEN, serving
from tests.strandline.read.logs.log_table import SCHEMA, VERSIONS, LogTable, block_of, row
from tests.strandline.read.state.archiving import archive
from timeline.errors import InputError
from timeline.instant import REPLACE_COMMIT, SAVEPOINT, Instant, State
from timeline.metadata.instant_metadata import CommitMetadata, SavepointMetadata, WriteStat
from timeline.storage.local import LocalStorage


def committed(table: LogTable, *keys: str) -> str:
    """Commit a log with a row for each key; return its commit's requested time."""

    def content(time: str) -> bytes:
        return block_of(time, *(row(key, 1, key) | {"_hoodie_commit_time": time} for key in keys))

    return table.log(content).instant.requested_time


def five_commits(version: int) -> tuple[LogTable, list[str]]:
    """Return a table with commits of the rows ``a`` to ``e``, each after the one before."""
    table = LogTable(version=version)
    return table, [committed(table, key) for key in "abcde"]


def place(table: LogTable, time: str) -> str:
    """Return when a commit on the timeline is ordered."""
    found = table.meta.active_timeline().find(time)
    assert found is not None
    return time if table.meta.config.version == 6 else found.completion_time or ""


def keys(scan: Scan) -> list[str]:
    return sorted(scan.to_arrow()["id"].to_pylist())


def save(table: LogTable, time: str) -> None:
    inflight = table.meta.transition_to_inflight(Instant(time, SAVEPOINT, State.REQUESTED))
    table.clock.advance(1)
    table.meta.complete(inflight, SavepointMetadata(), str(int(time) + 999))


@VERSIONS
@pytest.mark.parametrize("is_saved", [True, False])
def test_a_range_with_commits_that_were_archived_is_refused(version, is_saved):
    table, times = five_commits(version)
    places = [place(table, time) for time in times]
    if is_saved:
        save(table, times[0])
    archive(table, times[1:3])
    archive(table, times[3:4])
    for since in places[:3]:
        with pytest.raises(InputError, match=f"since {since} is before {places[3]}.*'earliest'"):
            Scan.of_range(table.meta, since)
    assert keys(Scan.of_range(table.meta, places[3])) == ["e"]
    if not is_saved:  # else nothing before the second one on the timeline is read
        assert Scan.of_range(table.meta, places[0], places[0]).count() == 0


@VERSIONS
def test_commits_archived_but_not_yet_deleted_are_in_a_range(version):
    """A writer died while it archived."""
    table, times = five_commits(version)
    places = [place(table, time) for time in times]
    before = dict(table.storage.files)
    archive(table, times[:2])
    table.storage.files.update(before)
    assert keys(Scan.of_range(table.meta, places[0])) == ["b", "c", "d", "e"]


def test_only_late_files_of_the_archive_are_read_in_version_6():
    table, times = five_commits(6)
    archive(table, times[:1])
    archive(table, times[1:2])
    times += [committed(table, key) for key in "fg"]
    folder = table.meta.config.archive_folder
    read = []
    table.storage.fail.append(
        lambda kind, path: read.append(path) if kind == "read" and folder in path else None
    )
    assert keys(Scan.of_range(table.meta, times[4])) == ["f", "g"]
    assert len(read) == 2  # they were written after the commit before
    assert keys(Scan.of_range(table.meta, times[6])) == []
    assert len(read) == 2


def test_the_first_and_the_last_time_that_there_are():
    table, times = five_commits(6)
    archive(table, times[:1])
    with pytest.raises(InputError, match=f"since 00010101000000000 is before {times[0]}"):
        Scan.of_range(table.meta, "00010101000000000")
    assert Scan.of_range(table.meta, "99991231235959999").count() == 0


@pytest.mark.parametrize("digit", "09")
def test_digits_that_are_no_time_are_refused(digit):
    table, _ = five_commits(6)
    with pytest.raises(InputError, match=f"since is '{digit * 17}', which is no time"):
        Scan.of_range(table.meta, digit * 17)


def other_group(table: LogTable, key: str, begun: Instant | None = None) -> str:
    """Commit a file group of one base file with a row; return the commit's requested time.

    Args:
        table: The table.
        key: The row's.
        begun: The delta commit; ``None`` for a new one.
    """
    instant = begun or table.begin()
    time = instant.requested_time
    path = f"p/{key}-0_0-0-0_{time}.parquet"
    rows = [row(key, 1, key) | {"_hoodie_commit_time": time}]
    columns = pa.Table.from_pylist(rows, with_meta_fields(SCHEMA))
    written = write_base_file(table.storage, path, columns, arrow_to_avro(SCHEMA, "t"))
    table.complete(instant, path, written.size)
    return time


@pytest.mark.property
@VERSIONS
@pytest.mark.parametrize("is_saved", [True, False])
def test_file_groups_that_only_archived_commits_wrote_are_read(version, is_saved):
    table = LogTable(version=version)
    times = [committed(table, "a"), other_group(table, "b"), committed(table, "c")]
    times += [other_group(table, "d"), committed(table, "e")]
    failed = table.begin()
    table.storage.create(f"p/f-9_0-0-0_{failed.requested_time}.parquet", b"PAR1 half a file")
    last = committed(table, "f")
    end = place(table, times[4])
    if is_saved:
        save(table, times[0])
    archive(table, times[1:4])
    assert keys(Scan.of(table.meta)) == [*"abcdef"]
    assert keys(Scan.of(table.meta, as_of=last)) == [*"abcdef"]
    assert keys(Scan.of(table.meta, as_of=times[4])) == [*"abcde"]
    assert keys(Scan.of_range(table.meta, "earliest", end)) == [*"abcde"]
    # Rolled back, so that it is on no timeline.
    table.meta.delete_instant_file(failed)
    table.meta.delete_instant_file(replace(failed, state=State.REQUESTED))
    assert keys(Scan.of(table.meta)) == [*"abcdef"]


@pytest.mark.parametrize("version", [8, 9])
def test_an_archived_commit_that_completed_after_the_end_of_a_range(version):
    table = LogTable(version=version)
    other_group(table, "a")
    slow = table.begin()
    end = other_group(table, "b")
    until = place(table, end)
    other_group(table, "slow", slow)
    last = other_group(table, "c")
    archive(table, [slow.requested_time, end])
    assert keys(Scan.of_range(table.meta, "earliest", until)) == ["a", "b"]
    assert keys(Scan.of_range(table.meta, "earliest", place(table, last))) == [
        "a",
        "b",
        "c",
        "slow",
    ]


@VERSIONS
def test_the_archive_is_not_read_if_all_instants_are_on_the_timeline(version):
    table = LogTable(version=version)
    times = [other_group(table, key) for key in "abcd"]
    archive(table, times[:2])
    folder = table.meta.config.archive_folder
    read = []
    table.storage.fail.append(lambda kind, path: read.append(path) if folder in path else None)
    assert keys(Scan.of(table.meta)) == [*"abcd"]
    assert not read


def test_a_service_that_hides_them_is_not_asked(tmp_path):
    table = LogTable()
    times = [other_group(table, key) for key in "abc"]
    save(table, times[0])
    archive(table, times[1:2])
    for path, (data, _) in table.storage.files.items():
        LocalStorage(str(tmp_path)).create(path, data)
    with serving(str(tmp_path)) as server:
        asking = Table(tmp_path, service=f"http://127.0.0.1:{server.port}", token=TOKEN)
        assert asking.files().num_rows == 2  # as Hudi's
        assert keys(asking.scan()) == ["a", "b", "c"]


@VERSIONS
def test_file_groups_that_an_archived_commit_replaced_are_not_read(version):
    """Hudi shows them again; a savepoint keeps their files."""
    table = LogTable(version=version)
    times = [other_group(table, "a")]
    table.clock.advance(1000)
    begun = table.meta.create_requested(REPLACE_COMMIT, str(int(times[0]) + 2000))
    path = f"p/b-0_0-0-0_{begun.requested_time}.parquet"
    columns = pa.Table.from_pylist([row("b", 1, "b")], with_meta_fields(SCHEMA))
    size = write_base_file(table.storage, path, columns, arrow_to_avro(SCHEMA, "t")).size
    done = CommitMetadata(
        {"p": (WriteStat("b-0", path, file_size_in_bytes=size),)},
        operation_type="INSERT_OVERWRITE",
        partition_to_replace_file_ids={"p": ("a-0",)},
    )
    inflight = table.meta.transition_to_inflight(begun)
    table.meta.complete(inflight, done, str(int(times[0]) + 2500))
    table.clock.advance(2000)
    times += [begun.requested_time, other_group(table, "c")]
    assert keys(Scan.of(table.meta)) == ["b", "c"]
    archive(table, times[1:2])
    assert keys(Scan.of(table.meta)) == ["b", "c"]
