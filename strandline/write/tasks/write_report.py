"""``WriteReport``: what the tasks of a write, or of a compaction, report to the driver.

A task yields rows with one JSON column: one for each file, with its statistics for the commit, and
one for the markers that the timeline service should have written.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from executor_proxy.report import Fallback
from fsview.model.file_group import FileSlice
from fsview.model.file_name import parse_base_name
from strandline.commit.markers import APPEND, CREATE, MERGE, marker_name
from strandline.records.file.base_file_writer import FileWritten
from strandline.records.merge import MergeCounts
from strandline.write.tasks.columns import RowCount, by_partition
from strandline.write.tasks.placement import Bucket
from timeline.metadata.instant_metadata import NULL_COMMIT, WriteStat

STATUS: Final = "status"
STATUS_SCHEMA: Final = pa.schema([(STATUS, pa.string())])


def file_row(
    stat: WriteStat, counts: MergeCounts, given: RowCount, null_elements: Collection[str] = ()
) -> pa.RecordBatch:
    """Return the status row of a file.

    Args:
        stat: Its statistics for the commit.
        counts: Its rows by outcome.
        given: The task's input rows for it.
        null_elements: First-written columns in which a list has a null element.
    """
    rows = [stat.partition_path, given.rows, given.keys]
    status = {"stat": _plain(stat), "counts": _plain(counts), "rows": rows}
    return _row({**status, "null_elements": sorted(null_elements)})


def fallbacks_row(fallbacks: Sequence[Fallback]) -> pa.RecordBatch:
    """Return the status row of a task that wrote markers instead of the timeline service."""
    return _row({"fallbacks": [[each.cause, each.reason] for each in fallbacks]})


def base_file_stat(
    group: Bucket | FileSlice,
    previous: str | None,
    path: str,
    written: FileWritten,
    counts: MergeCounts,
    taken_ms: int,
) -> WriteStat:
    """Return the commit's statistics of a base file.

    Args:
        group: Names the file's group and partition.
        previous: Name of the base file that it replaces, if any.
        path: Its path below the table's base path.
        written: What was written.
        counts: Its rows by outcome.
        taken_ms: How long that took, in milliseconds.
    """
    replaced = parse_base_name(previous) if previous else None
    return WriteStat(
        file_id=group.file_id,
        path=path,
        prev_commit=NULL_COMMIT if replaced is None else replaced[1],
        num_writes=written.rows,
        num_deletes=counts.deletes,
        num_update_writes=counts.updates,
        num_inserts=counts.inserts,
        total_write_bytes=written.size,
        partition_path=group.partition,
        file_size_in_bytes=written.size,
        prev_base_file=previous,
        total_create_time=taken_ms if replaced is None else 0,
        total_upsert_time=0 if replaced is None else taken_ms,
    )


@dataclass(frozen=True, slots=True)
class WriteReport:
    """The sum of the write tasks' status rows.

    Attributes:
        stats: Statistics of each file, in order of paths.
        counts: Numbers of rows by outcome, over all files.
        given: Partition → count of the tasks' input rows.
        fallbacks: Why tasks wrote markers that the timeline service should have written.
        null_elements: First-written columns in which a list has a null element.
    """

    stats: tuple[WriteStat, ...] = ()
    counts: MergeCounts = field(default_factory=MergeCounts)
    given: Mapping[str, RowCount] = field(default_factory=dict)
    fallbacks: tuple[Fallback, ...] = ()
    null_elements: tuple[str, ...] = ()

    @property
    def paths(self) -> list[str]:
        """The files' paths below the table's base path."""
        return [stat.path for stat in self.stats if stat.path]

    def markers(self, instant: str) -> list[str]:
        """Return the markers of the files of a write, relative to its marker folder."""
        return [
            marker_name(stat.path, _marker_kind(stat, instant)) for stat in self.stats if stat.path
        ]

    @classmethod
    def read(cls, statuses: pa.Table) -> WriteReport:
        """Return the sum of status rows."""
        stats: list[WriteStat] = []
        totals: Counter[str] = Counter()
        read: list[tuple[str, RowCount]] = []
        fallbacks: list[Fallback] = []
        nulls: set[str] = set()
        for text in statuses.column(STATUS).to_pylist():
            status = json.loads(text)
            if "stat" in status:
                logs = status["stat"]["log_files"]
                stat = {**status["stat"], "log_files": None if logs is None else tuple(logs)}
                stats.append(WriteStat(**stat))
                partition, rows, keys = status["rows"]
                read.append((partition, RowCount(rows, keys)))
            totals.update(status.get("counts", {}))
            fallbacks += [Fallback(*each) for each in status.get("fallbacks", ())]
            nulls.update(status.get("null_elements", ()))
        ordered = sorted(stats, key=lambda stat: stat.path or "")
        counts = MergeCounts(**totals)
        given = by_partition(read)
        return cls(tuple(ordered), counts, given, tuple(fallbacks), tuple(sorted(nulls)))


def _marker_kind(stat: WriteStat, instant: str) -> str:
    if stat.log_files is None:
        return CREATE if stat.prev_base_file is None else MERGE
    # A log is named by its predecessor: the write itself, or its slice.
    return CREATE if stat.prev_commit == instant else APPEND


def _plain(flat: WriteStat | MergeCounts) -> dict[str, Any]:
    """Return a flat value's fields as a dict; ``asdict`` would copy them deeply."""
    return {name: getattr(flat, name) for name in type(flat).__slots__}


def _row(status: Mapping[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([json.dumps(status)])], schema=STATUS_SCHEMA)
