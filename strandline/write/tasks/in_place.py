"""Writes rows in the parts where they lie: each part opens its own groups in its partitions.

Moving rows costs as much as writing them. Rows that needn't be matched or sorted may stay if this
opens only a few more groups than moving would, and gives no task much more work than others. Hudi's
bulk inserts always stay, whatever the number of files.

Source: Hudi 1.2.0 ``NonSortPartitioner``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.meta_fields import PARTITION_PATH
from strandline.write.engine.base import TaskAttempt
from strandline.write.engine.hash_grouping import TOGETHER_VALUES, places_of
from strandline.write.tasks.columns import (
    BUCKET,
    TASK,
    assigned_schema,
    changed,
    fill_from,
    refuse_without_key,
)
from strandline.write.tasks.placement import (
    Bucket,
    GroupRows,
    Placement,
    Sizing,
    heaviest,
    new_file_id,
    pack,
)

_GROUPS: Final = 2
"""Factor by which more groups may be opened so that rows needn't move."""
_HEAVIER: Final = 2
"""Factor by which a part may be heavier than a task of moved rows: moving its rows is that task's
work, too, and takes at least half as long as writing them."""


def placed_in_parts(
    parts: Mapping[int, Mapping[str, int]],
    moved: Placement,
    sizing: Sizing,
    cores: int,
    new_file_id: Callable[[], str] = new_file_id,
) -> Placement | None:
    """Return the placement of rows that stay in their parts; ``None`` if moving them is better.

    Args:
        parts: Part → partition path → its number of rows, all of them new.
        moved: The placement of the same rows if they move; its buckets are new groups.
        sizing: Sizes of files and records, for the rows that stay.
        cores: Number of tasks that can run at the same time.
        new_file_id: Makes the id of a new group.
    """
    room = max(sizing.room(0), 1)
    groups = sum(-(-rows // room) for counts in parts.values() for rows in counts.values())
    too_many = groups > _GROUPS * len(moved.buckets)
    if not parts or too_many or not _is_spread(parts, moved, cores):
        return None
    paths = {part: _in_order(counts) for part, counts in parts.items()}
    if not all(paths.values()):
        return None
    buckets: list[Bucket] = []
    weights: list[int] = []
    tasks: list[int] = []
    in_parts: dict[int, dict[str, tuple[GroupRows, ...]]] = {}
    for part, of_part in sorted(paths.items()):
        in_parts[part] = {}
        for path in of_part:
            shares = [
                GroupRows(len(buckets) + at, rows)
                for at, rows in enumerate(_even(parts[part][path], room))
            ]
            in_parts[part][path] = tuple(shares)
            buckets += [Bucket(each.bucket, path, new_file_id()) for each in shares]
            weights += [each.rows * sizing.record_bytes for each in shares]
            tasks += [part] * len(shares)
    return Placement(tuple(buckets), tuple(weights), in_parts=in_parts)


def _is_spread(parts: Mapping[int, Mapping[str, int]], moved: Placement, cores: int) -> bool:
    """Whether no part takes longer to write in place than to move and then write on all cores."""
    rows = sum(sum(counts.values()) for counts in parts.values())
    tasks = pack(moved.weights, min(cores, len(moved.weights)))
    least = rows * heaviest(moved.weights, tasks) // sum(moved.weights)
    return max(sum(counts.values()) for counts in parts.values()) <= _HEAVIER * least


def _in_order(paths: Mapping[str, int]) -> list[str]:
    """Return the paths in the order in which an engine yields their rows; empty if it may not."""
    if len(paths) > TOGETHER_VALUES:
        return []
    places = places_of(pa.array(paths, pa.string()))
    if len(set(places)) < len(places):
        return []
    return [path for _, path in sorted(zip(places, paths, strict=True))]


def _even(rows: int, room: int) -> list[int]:
    """Return the numbers of rows per group, for the fewest groups that hold all rows."""
    groups = -(-rows // room)
    return [rows // groups + (number < rows % groups) for number in range(groups)]


@dataclass(frozen=True, slots=True)
class AssignInPartTask:
    """Turns keyed rows into assigned rows; rows of one partition path are adjacent.

    Attributes:
        schema: The columns of the rows.
        in_parts: The groups of each partition path by the number of the part.
        attempt: Returns the running attempt.
    """

    schema: pa.Schema
    in_parts: Mapping[int, Mapping[str, tuple[GroupRows, ...]]]
    attempt: Callable[[], TaskAttempt]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the numbers of their bucket and task, which is the part.

        Raises:
            RowsChangedError: A row came that wasn't there when the rows were counted.
        """
        part = self.attempt().partition
        form = assigned_schema(self.schema)
        left = {path: list(groups) for path, groups in self.in_parts.get(part, {}).items()}
        for rows in chain.from_iterable(map(_of_one_path, batches)):
            refuse_without_key(rows)
            path = rows.column(PARTITION_PATH)[0].as_py()
            begin = 0
            while begin < rows.num_rows:
                if not left.get(path):
                    raise changed(path, "new rows weren't counted")
                group = left[path][0]
                taken = rows.slice(begin, group.rows)
                begin += taken.num_rows
                left[path][0] = replace(group, rows=group.rows - taken.num_rows)
                if not left[path][0].rows:
                    del left[path][0]
                numbers = {BUCKET: group.bucket, TASK: part}
                added = {
                    name: pa.repeat(pa.scalar(number, pa.int32()), taken.num_rows)
                    for name, number in numbers.items()
                }
                yield fill_from(form, taken, **added)


def _of_one_path(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the runs of rows with the same partition path."""
    runs = pc.run_end_encode(batch.column(PARTITION_PATH), run_end_type=pa.int32())
    begin = 0
    for end in runs.run_ends.to_pylist():
        yield batch.slice(begin, end - begin)
        begin = end
