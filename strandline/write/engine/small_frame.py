"""Brings the rows of a small frame to the driver by Spark's Arrow collect, without Python tasks.

Spark's estimate decides whether a frame is small. If no node of its plan adds rows or calls Python,
the estimate is the size of the files that it reads. Spark uses the same estimate to decide which
side of a join the driver broadcasts, with five times this limit.

The estimate may be wrong by any factor, as files are compressed, and a task that returns rows holds
all of them in its executor's memory. So a frame is *bounded* (``_bounded``) by each row's number
and size: if that many rows of this size were too large, the task fails with ``TOO_LARGE``, and none
of the rows is used.

Source: none. Spark: ``Dataset.collectAsArrowToPython``,
``SizeInBytesOnlyStatsPlanVisitor``, ``spark.sql.autoBroadcastJoinThreshold``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from strandline.write.engine.arrow_rows import with_offsets
from strandline.write.engine.base import RESULT_BYTES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NODES: Final = {
    # Sources of a frame. ``LogicalRDD``, such as a checkpoint or a micro-batch, isn't allowed: its
    # estimate is that of a hidden plan, which may add rows.
    *("Relation", "RelationV2", "LocalRelation", "Range", "OneRowRelation"),
    *("Project", "Filter", "Sort", "GlobalLimit", "LocalLimit", "Offset", "Union"),
    *("Repartition", "RepartitionByExpression", "SubqueryAlias", "View"),
}
"""Names of plan nodes that return at most their input rows, and call no Python."""
_NODE: Final = re.compile(r"[\s:+-]*(\w*).*")
_PARTITIONS: Final = 16
"""Share of a job's result limit that a partition may return, if its rows are equally long; if they
aren't, it may return several times as much."""
_FULL_PARTITIONS: Final = 4
"""Number of partitions that may return this share; the limit of later ones falls harmonically."""
TOO_LARGE: Final = "strandline: rows are much larger than their files"
"""Error of a task of a small frame whose rows are too large; the write continues without it."""
_ROW: Final = f"(monotonically_increasing_id() & {(1 << 33) - 1})"
"""Number of a row in its partition, from 0."""
_SHARE: Final = f"(spark_partition_id() div {_FULL_PARTITIONS} + 1)"


def fetched(
    frame: DataFrame, schema: pa.Schema, max_bytes: int, result_bytes: int
) -> pa.Table | None:
    """Return the rows of a small frame in partition order; ``None`` if it isn't small.

    Args:
        frame: The frame, which is evaluated at most once.
        schema: Its Arrow schema.
        max_bytes: Largest estimate of a small frame.
        result_bytes: As in ``EngineContext.result_bytes``.
    """
    if not keeps_rows(frame._jdf.queryExecution().analyzed().treeString()):
        # Optimizing a long plan takes time, and this write would optimize it a second time.
        return None
    bounded = _bounded(frame, schema, min(result_bytes, RESULT_BYTES) // _PARTITIONS)
    if not _is_small(bounded, max_bytes):
        return None
    batches = [with_offsets(batch) for batch in bounded._collect_as_arrow()]
    if not batches:
        return schema.empty_table()
    return pa.Table.from_batches(batches).rename_columns(schema.names)


def _is_small(frame: DataFrame, max_bytes: int) -> bool:
    plan = frame._jdf.queryExecution().optimizedPlan()
    # Only the optimized plan has separate nodes for calls of Python.
    return keeps_rows(plan.treeString()) and int(str(plan.stats().sizeInBytes())) <= max_bytes


def _bounded(frame: DataFrame, schema: pa.Schema, room: int) -> DataFrame:
    """Return a frame whose tasks fail at a row that exceeds its partition's room.

    Args:
        frame: The frame.
        schema: Its Arrow schema.
        room: Maximum size of a partition's rows, if they are equally long.

    Cost: some 10 ms of CPU time.
    """
    names = {name.lower() for name in schema.names if name.isidentifier()}
    if len(names) < len(schema):
        # Rename columns: Spark can't distinguish equal names, nor tell where odd ones end.
        frame = frame.toDF(*(f"c{number}" for number in range(len(schema))))
    kinds = {name: field.type for name, field in zip(frame.columns, schema, strict=True)}
    # Arrays, maps and structs are about as large as their text.
    texts = [f"cast(`{name}` as string)" for name, kind in kinds.items() if not _width(kind)]
    fixed = f"{1 + len(texts) * 8 + sum(map(_width, kinds.values()))}D"
    size = f"({fixed} + octet_length(concat_ws('', {', '.join(texts)})))" if texts else fixed
    is_more = f"({_ROW} + 1) * {_SHARE} * {size} > {room}"
    return frame.where(f"if({is_more}, cast(raise_error('{TOO_LARGE}') as boolean), true)")


def _width(kind: pa.DataType) -> int:
    """Return the bytes of a value of a type; 0 if they depend on the value."""
    if pa.types.is_null(kind):
        return 1
    is_fixed = pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
    return -(-kind.bit_width // 8) if is_fixed else 0


def keeps_rows(plan: str) -> bool:
    """Whether each node of a plan returns at most its input rows, and calls no Python.

    A constant whose text looks like other nodes can only make the answer false.

    Args:
        plan: The tree of a logical plan as text, one node per line.
    """
    nodes = [_NODE.sub(r"\1", line) for line in plan.splitlines()]
    return bool(nodes) and _NODES.issuperset(nodes)
