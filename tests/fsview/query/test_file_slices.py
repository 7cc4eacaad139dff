"""Grouping of logs into slices; the cases are from real Hudi's random walks."""

from __future__ import annotations

import pytest

from fsview.files.partition import PartitionVersion
from fsview.model.file_name import parse_data_file
from fsview.query.queries import raw_group
from fsview.snapshot.snapshot import Snapshot
from timeline.completion import CompletionTimes
from timeline.instant import COMMIT, DELTA_COMMIT, Instant, State
from timeline.table.config import TableConfig
from timeline.timeline import Timeline

FIRST, SECOND, THIRD, FOURTH = (f"2026112115000000{n}" for n in range(1, 5))


def slices(version: int, timeline: Timeline, *names: str) -> list[tuple[str, list[str]]]:
    """Return (base instant, names of files) of a group's slices, newest first."""
    config = TableConfig.create(name="t", version=version)
    files = [parse_data_file("p", name, 1, 0, (".parquet",)) for name in names]
    partition = PartitionVersion.of("p", [file for file in files if file is not None])
    snapshot = Snapshot(config, timeline, CompletionTimes.of(timeline, version))
    group = raw_group(snapshot, partition, "f-0")
    assert group is not None
    return [
        (
            one.base_instant,
            [one.base_file.name if one.base_file else ""] + [log.name for log in one.log_files],
        )
        for one in group.slices
    ]


def completed(*instants: tuple[str, str]) -> Timeline:
    return Timeline.of([Instant(time, action, State.COMPLETED, time) for time, action in instants])


BASE = f"f-0_0-1-1_{FIRST}.parquet"
LATER_BASE = f"f-0_0-1-1_{FOURTH}.parquet"
LOG = f".f-0_{FIRST}.log.1_0-2-2"
LOG_COMPACTED = f".f-0_{SECOND}.log.1_0-3-3"
CHANGES = f".f-0_{THIRD}.log.1_0-4-4.cdc"


@pytest.mark.parametrize("version", [6, 9])
def test_what_a_log_compaction_wrote_belongs_to_the_slice_before_it(version: int) -> None:
    timeline = completed((FIRST, COMMIT), (SECOND, DELTA_COMMIT))
    assert slices(version, timeline, BASE, LOG, LOG_COMPACTED) == [
        (FIRST, [BASE, LOG_COMPACTED, LOG])
    ]
    later = completed((FIRST, COMMIT), (SECOND, DELTA_COMMIT), (FOURTH, COMMIT))
    assert slices(version, later, BASE, LOG, LOG_COMPACTED, LATER_BASE) == [
        (FOURTH, [LATER_BASE]),
        (FIRST, [BASE, LOG_COMPACTED, LOG]),
    ]


@pytest.mark.parametrize("version", [6, 9])
def test_change_data_of_a_write_rolled_back_is_in_the_newest_slice(version: int) -> None:
    timeline = completed((FIRST, COMMIT), (FOURTH, COMMIT))
    assert slices(version, timeline, BASE, CHANGES) == [(FIRST, [BASE, CHANGES])]
    assert slices(version, timeline, BASE, CHANGES, LATER_BASE) == [
        (FOURTH, [LATER_BASE, CHANGES]),
        (FIRST, [BASE]),
    ]


def test_version_6_needs_no_times_for_a_log_that_names_its_slice() -> None:
    copied = Timeline.of(
        [Instant(time, COMMIT, State.COMPLETED, "20991231000000000") for time in (FIRST, FOURTH)]
    )
    assert slices(6, copied, BASE, LOG, LATER_BASE) == [
        (FOURTH, [LATER_BASE]),
        (FIRST, [BASE, LOG]),
    ]
