"""Batches as Spark sends them where all lists are empty: without the offsets of their elements."""

from __future__ import annotations

import pyarrow as pa

from strandline.write.engine.arrow_rows import with_offsets

NO_OFFSETS = pa.py_buffer(b"\xff\x7f" * 64).slice(32, 0)
"""Nothing, before what an offset must not be."""
LISTS = pa.list_(pa.list_(pa.string()))
MAPS = pa.map_(pa.string(), pa.map_(pa.string(), pa.int64()))
STRUCTS = pa.struct([("maps", MAPS), ("number", pa.int64())])


def as_spark_sends(values: pa.Array) -> pa.Array:
    """Return the same values, the empty arrays below them without offsets."""
    kind = values.type
    if pa.types.is_struct(kind):
        children = [as_spark_sends(values.field(at)) for at in range(kind.num_fields)]
    else:
        children = [as_spark_sends(values.values)] if pa.types.is_nested(kind) else []
    buffers = values.buffers()[: kind.num_buffers]
    if not len(values):
        buffers = [NO_OFFSETS if each is not None else None for each in buffers]
    return pa.Array.from_buffers(kind, len(values), buffers, values.null_count, children=children)


def test_missing_offsets_are_added(subtests):
    for kind, values in [
        (LISTS, [None, []]),
        (LISTS, [[[], None], []]),
        (MAPS, [None, []]),
        (MAPS, [[("a", [])]]),
        (pa.list_(STRUCTS), [[], None]),
        (STRUCTS, [{"maps": [], "number": 1}, None]),
        (pa.string(), []),
        (pa.list_(pa.int64()), []),
    ]:
        with subtests.test(kind=kind, values=values):
            sound = pa.record_batch(
                {"a": pa.array(values, kind), "b": pa.nulls(len(values), pa.int8())}
            )
            sent = pa.RecordBatch.from_arrays(
                [as_spark_sends(c) for c in sound.columns], sound.schema.names
            )

            made = with_offsets(sent)

            assert made.equals(sound)
            made.validate(full=True)
            # It would end the process, or be an arbitrary number, if it read a missing offset.
            assert made.nbytes == sound.nbytes


def test_a_sound_batch_is_passed_as_it_is():
    values = pa.array([[["a"]], [[]]], LISTS)
    batch = pa.record_batch(
        {"a": values, "s": pa.array([{"x": 1}, None]), "t": pa.array(["u", "v"])}
    )

    assert with_offsets(batch) is batch
