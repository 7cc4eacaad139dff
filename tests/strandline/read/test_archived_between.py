"""Commits that were archived while a savepoint kept an older one, which is still there."""

from __future__ import annotations

import pytest

from strandline.read.scan import Scan
from tests.strandline.read.archiving import archive
from tests.strandline.read.log_table import VERSIONS, LogTable, block_of, row
from timeline.errors import InputError
from timeline.instant import SAVEPOINT, Instant, State
from timeline.metadata.instant_metadata import SavepointMetadata


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


def test_digits_that_are_no_time():
    table, times = five_commits(6)
    archive(table, times[:1])
    with pytest.raises(InputError, match=f"since {'0' * 17} is before {times[0]}"):
        Scan.of_range(table.meta, "0" * 17)
    assert Scan.of_range(table.meta, "9" * 17).count() == 0
