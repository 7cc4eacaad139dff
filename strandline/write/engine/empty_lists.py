"""Gives empty lists, maps and text the offsets that Spark leaves out.

An Arrow array of n lists has n + 1 offsets. Where lists are empty or null in all rows of a batch,
Spark sends the arrays of their elements with no offsets at all (SPARK-55056). pyarrow reads the
first one nevertheless, from other memory: ``nbytes`` and others end the worker process.
"""

from __future__ import annotations

import pyarrow as pa


def with_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch that was read from an IPC stream with all offsets; as it is if none lack."""
    before = batch.columns
    columns = [_with_offsets(column) for column in before]
    if all(new is old for new, old in zip(columns, before, strict=True)):
        return batch
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _with_offsets(values: pa.Array) -> pa.Array:
    kind = values.type
    if not len(values):
        return pa.nulls(0, kind)
    if pa.types.is_struct(kind):
        children = [values.field(at) for at in range(kind.num_fields)]
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        children = [values.values]
    else:
        return values
    made = [_with_offsets(child) for child in children]
    if all(new is old for new, old in zip(made, children, strict=True)):
        return values
    own = values.buffers()[: 1 if pa.types.is_struct(kind) else 2]
    return pa.Array.from_buffers(kind, len(values), own, values.null_count, children=made)
