"""Gives each row its bucket, and has the rows of a bucket together in the task that writes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

from strandline.records.meta_fields import PARTITION_PATH
from strandline.write.engine.base import D, EngineContext
from strandline.write.index.tagging import TaggedRows
from strandline.write.tasks.assign_task import AssignTask
from strandline.write.tasks.columns import TASK, assigned_schema
from strandline.write.tasks.in_place import AssignInPartTask
from strandline.write.tasks.partition_order import PartitionOrderTask
from strandline.write.tasks.placement import Placement


@dataclass(frozen=True, slots=True)
class AssignedRows(Generic[D]):
    """Rows with their buckets.

    Attributes:
        data: The rows in the engine's form; those of each part are sorted by bucket.
        tasks: Number of the task that writes each bucket.
    """

    data: D
    tasks: tuple[int, ...]


def assigned_rows(
    engine: EngineContext[D], tagged: TaggedRows[D], placement: Placement, order: Sequence[str]
) -> AssignedRows[D]:
    """Assign rows to buckets, and move them to the tasks that write these, if they aren't there.

    Args:
        engine: Runs the tasks.
        tagged: The rows.
        placement: The buckets; there must be one.
        order: What the rows of a task are sorted by, the bucket first.
    """
    form = assigned_schema(tagged.columns)
    if placement.in_parts is not None:
        together = engine.together(tagged.data, PARTITION_PATH)
        in_part = AssignInPartTask(tagged.columns, placement.in_parts, engine.attempt)
        return AssignedRows(engine.transform(together, in_part, form), placement.parts)
    here = placement.tasks_in_place(tagged.parts, engine.cores)
    tasks = placement.tasks(engine.cores) if here is None else here
    assign = AssignTask(tagged.columns, placement.of_file, placement.inserts, tasks)
    assigned = engine.transform(tagged.data, assign, form)
    if here is None:
        return AssignedRows(engine.shuffle(assigned, TASK, max(tasks) + 1, order), tasks)
    return AssignedRows(engine.transform(assigned, PartitionOrderTask(tuple(order)), form), tasks)
