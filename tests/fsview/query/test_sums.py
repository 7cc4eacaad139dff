"""Sums made from packed rows equal those counted from the answers of queries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fsview.files.partition import PartitionVersion
from fsview.files.row import UNKNOWN_SIZE
from fsview.model.file_group import BaseFile
from fsview.query import queries as query
from fsview.query.sums import NEWEST, PartitionSums, partition_sums
from fsview.snapshot.snapshot import Snapshot
from tests.fsview.query.drawn import TIMES, snapshots, versions
from timeline.completion import CompletionTimes
from timeline.instant import COMMIT, Instant, State
from timeline.table.config import TableConfig
from timeline.timeline import Timeline


def counted(s: Snapshot, v: PartitionVersion) -> PartitionSums:
    """Return the sums of a partition, counted file by file."""
    newest = query.latest_file_slices_before_or_on(s, v, NEWEST, include_pending_compaction=True)
    every = [found for group in query.all_file_groups(s, v) for found in group.slices]
    sizes = [size for found in newest for size in found.sizes.values()]
    return PartitionSums(
        partitions=1,
        file_groups=len(newest),
        base_files=sum(found.base_file is not None for found in newest),
        log_files=sum(len(found.log_files) for found in newest),
        bytes=sum(size for size in sizes if size != UNKNOWN_SIZE),
        slices=len(query.all_file_slices(s, v)),
        files=sum(len(found.sizes) for found in every),
    )


@given(st.data())
def test_sums_equal_those_of_the_queries(data: st.DataObject) -> None:
    version = data.draw(versions())
    snapshot = data.draw(snapshots(version.partition))
    assert partition_sums(snapshot, version) == counted(snapshot, version)


def test_groups_of_one_row_each_are_counted_together() -> None:
    timeline = Timeline.of([Instant(time, COMMIT, State.COMPLETED, time) for time in TIMES[1:4]])
    snapshot = Snapshot(
        TableConfig.create(name="t", version=9), timeline, CompletionTimes.of(timeline, 9)
    )
    ids = [f"{n:08d}-1111-2222-3333-444444444444-0" for n in range(400)]
    # Those of the last time aren't committed.
    times = [TIMES[1 + n % 4] for n in range(400)]
    files = [
        BaseFile("p", f"{i}_0-1-0_{time}.parquet", 10 + n, 0, i, time)
        for n, (i, time) in enumerate(zip(ids, times, strict=True))
    ]
    version = PartitionVersion.of("p", files)
    found = partition_sums(snapshot, version)
    assert found == counted(snapshot, version)
    assert (found.files, found.file_groups) == (400, 300)
    assert PartitionSums.total([found.packed()] * 2).bytes == 2 * found.bytes
    assert PartitionSums.of_packed(found.packed()) == found
