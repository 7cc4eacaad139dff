"""``WriteReport``: the write tasks' report to the driver, as rows with one JSON column."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from executor_proxy.report import Fallback
from strandline.commit.write_markers import CREATE, MERGE, marker_name
from strandline.records.merge import MergeCounts
from strandline.write.tasks.row_count import RowCount, by_partition
from timeline.metadata.instant_metadata import WriteStat

STATUS: Final = "status"
STATUS_SCHEMA: Final = pa.schema([(STATUS, pa.string())])


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

    @property
    def markers(self) -> list[str]:
        """The files' markers, relative to the write's marker folder."""
        return [
            marker_name(stat.path, CREATE if stat.prev_base_file is None else MERGE)
            for stat in self.stats
            if stat.path
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
                stats.append(WriteStat(**status["stat"]))
                partition, rows, keys = status["rows"]
                read.append((partition, RowCount(rows, keys)))
            totals.update(status.get("counts", {}))
            fallbacks += [Fallback(*each) for each in status.get("fallbacks", ())]
            nulls.update(status.get("null_elements", ()))
        ordered = sorted(stats, key=lambda stat: stat.path or "")
        counts = MergeCounts(**totals)
        given = by_partition(read)
        return cls(tuple(ordered), counts, given, tuple(fallbacks), tuple(sorted(nulls)))


def plain(flat: WriteStat | MergeCounts) -> dict[str, Any]:
    """Return a flat value's fields as a dict; ``asdict`` would copy them deeply."""
    return {name: getattr(flat, name) for name in type(flat).__slots__}


def status_row(status: Mapping[str, Any]) -> pa.RecordBatch:
    """Return a status row, which ``WriteReport.read`` reads."""
    return pa.RecordBatch.from_arrays([pa.array([json.dumps(status)])], schema=STATUS_SCHEMA)
