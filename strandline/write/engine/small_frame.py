"""Brings the rows of a small frame to the driver by Spark's Arrow collect, without Python tasks.

A frame is small by Spark's estimate, which is the size of the files that it reads, if nothing in
its plan makes more rows of those or calls Python. By the same estimate Spark decides which side of
a join it brings to the driver, to broadcast it, and allows five times as much there. The estimate
may be wrong, as files are compressed, so the caller compares what has come with its own limits.

Source: none. Spark: ``Dataset.collectAsArrowToPython``,
``SizeInBytesOnlyStatsPlanVisitor``, ``spark.sql.autoBroadcastJoinThreshold``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from strandline.write.engine.arrow_rows import with_offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NODES: Final = {
    # What a frame may read. ``LogicalRDD``, as a checkpoint or a micro-batch, isn't among them: it
    # has the estimate of another plan, which may make more rows and isn't shown.
    *("Relation", "RelationV2", "LocalRelation", "Range", "OneRowRelation"),
    *("Project", "Filter", "Sort", "GlobalLimit", "LocalLimit", "Offset", "Union"),
    *("Repartition", "RepartitionByExpression", "SubqueryAlias", "View"),
}
"""Names of logical plans that return at most the rows that they get, and call no Python."""
_NODE: Final = re.compile(r"[\s:+-]*(\w*).*")


def fetched(frame: DataFrame, schema: pa.Schema, max_bytes: int) -> pa.Table | None:
    """Return the rows of a small frame in the order of its partitions; ``None``: it isn't small.

    Args:
        frame: The frame, which is evaluated at most once.
        schema: Its Arrow schema, for a frame without rows.
        max_bytes: Greatest estimate of a small frame.
    """
    if not _is_small(frame, max_bytes):
        return None
    batches = [with_offsets(batch) for batch in frame._collect_as_arrow()]
    return pa.Table.from_batches(batches) if batches else schema.empty_table()


def _is_small(frame: DataFrame, max_bytes: int) -> bool:
    execution = frame._jdf.queryExecution()
    # Optimizing a long plan takes time, and this write would optimize it a second time.
    if not keeps_rows(execution.analyzed().treeString()):
        return False
    plan = execution.optimizedPlan()
    # Calls of Python have nodes of their own only there.
    return keeps_rows(plan.treeString()) and int(str(plan.stats().sizeInBytes())) <= max_bytes


def keeps_rows(plan: str) -> bool:
    """Whether each node of a plan returns at most the rows that it gets, and calls no Python.

    Text of a constant that looks like other nodes can only make the answer no.

    Args:
        plan: The tree of a logical plan as text, a node a line.
    """
    nodes = [_NODE.sub(r"\1", line) for line in plan.splitlines()]
    return bool(nodes) and _NODES.issuperset(nodes)
