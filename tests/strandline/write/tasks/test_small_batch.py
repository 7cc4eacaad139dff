"""Rows that tasks return with their counts: whole or not at all, and within the limits."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa
import pytest

from strandline.write.engine.base import TaskAttempt
from strandline.write.engine.driver_limits import DriverLimits
from strandline.write.engine.local import LocalEngine
from strandline.write.tasks.columns import KEY_HASH, RowCount, keyed_schema
from strandline.write.tasks.key_task import (
    PROFILE_SCHEMA,
    TASK_BYTES,
    BatchEncoder,
    KeyProfileTask,
    decoded_batch,
    row_bytes,
    rows_by_part,
    rows_by_partition,
    stream_bytes,
)

MB = 1 << 20
LIMITS = DriverLimits(rows=1000, bytes=64 * MB, rewrite_bytes=MB)
PATH, KEY = "_hoodie_partition_path", "_hoodie_record_key"
COLUMNS = pa.schema([("n", pa.int64())])
FORM = keyed_schema(COLUMNS)


def keyed(count: int, start: int = 0) -> pa.RecordBatch:
    """Rows of one partition."""
    rows = [{"n": n, KEY: f"k{n}", KEY_HASH: n, PATH: "p"} for n in range(start, start + count)]
    return pa.RecordBatch.from_pylist(rows, schema=FORM)


def profiled(*tasks: list[pa.RecordBatch], limits: DriverLimits = LIMITS) -> pa.Table:
    """Return what tasks with these rows return."""
    engine = LocalEngine(cores=1)
    given = engine.from_driver([pa.Table.from_batches(each, FORM) for each in tasks])
    task = KeyProfileTask(limits, LocalEngine.attempt)
    return engine.collect(engine.transform(given, task, PROFILE_SCHEMA))


def received(profile: pa.Table, limits: DriverLimits = LIMITS) -> pa.Table | None:
    return decoded_batch(profile, rows_by_partition(profile)[0], FORM, limits)


def test_all_rows_come_with_their_counts() -> None:
    profile = profiled([keyed(3), keyed(2, 3)], [], [keyed(4, 5)])
    assert rows_by_partition(profile) == ({"p": RowCount(9, 36)}, 0)
    batch = received(profile)
    assert batch.schema == FORM
    assert batch["n"].to_pylist() == list(range(9))


def test_a_task_that_counts_rows_keeps_none_of_them() -> None:
    """The columns of a batch from Spark share one buffer; all are kept if one is."""
    form = keyed_schema(pa.schema([("payload", pa.string())]))
    allocated = []

    def batches() -> Iterator[pa.RecordBatch]:
        for n in range(10):
            row = {"payload": "x" * MB, KEY: f"k{n}", KEY_HASH: n, PATH: "p"}
            serialized = pa.RecordBatch.from_pylist([row], schema=form).serialize()
            del row
            yield pa.ipc.read_record_batch(serialized, form)
            del serialized
            allocated.append(pa.total_allocated_bytes())

    found = list(KeyProfileTask(DriverLimits(), lambda: TaskAttempt(3, 0, 0))(batches()))
    counts = pa.Table.from_batches(found)
    assert rows_by_partition(counts) == ({"p": RowCount(10, 45)}, 0)
    assert rows_by_part(counts) == {3: {"p": 10}}
    assert MB < row_bytes(counts) < MB + 1000
    assert max(allocated) - allocated[0] < MB


def test_no_rows_are_a_batch_too() -> None:
    batch = received(profiled([], []))
    assert batch.num_rows == 0
    assert batch.schema == FORM


def test_limits_hold_for_the_whole_batch(subtests: pytest.Subtests) -> None:
    """Also where each task is within them."""
    for limits, fits in [
        (DriverLimits(9, 64 * MB), True),
        (DriverLimits(8, 64 * MB), False),
        (DriverLimits(0, 64 * MB), False),
        (DriverLimits(9, keyed(5).nbytes + keyed(4).nbytes), True),
        (DriverLimits(9, keyed(5).nbytes + keyed(4).nbytes - 1), False),
        (DriverLimits(9, 0), False),
    ]:
        with subtests.test(limits=limits):
            profile = profiled([keyed(5)], [keyed(4, 5)], limits=limits)
            assert rows_by_partition(profile) == ({"p": RowCount(9, 36)}, 0)
            assert (received(profile, limits) is not None) == fits


def test_a_batch_lacks_all_rows_if_it_lacks_those_of_one_task() -> None:
    profile = profiled([keyed(5)], [keyed(1001)], limits=LIMITS)
    assert sum(each is not None for each in profile["stream"].to_pylist()) == 1
    assert received(profile, DriverLimits(2000, 64 * MB)) is None


def test_rows_without_a_key_are_counted_apart() -> None:
    bad = pa.RecordBatch.from_pylist([{}, {}], schema=FORM)
    assert rows_by_partition(profiled([keyed(3), bad], [bad])) == ({"p": RowCount(3, 3)}, 4)


def random_rows(length: int) -> pa.RecordBatch:
    """A batch of one row that can't be compressed."""
    return pa.record_batch({"raw": [random.Random(7).randbytes(length)]})


def encoded(batch: pa.RecordBatch, partition: int = 0) -> bytes | None:
    encoder = BatchEncoder(LIMITS, partition)
    encoder.add(batch)
    return encoder.finish()


@pytest.mark.property
def test_a_task_returns_two_mebibytes_and_no_byte_more() -> None:
    frame = len(encoded(random_rows(TASK_BYTES // 2))) - TASK_BYTES // 2
    # Arrow pads to 8 bytes.
    largest = TASK_BYTES - frame
    sizes = [
        len(found) for n in range(largest - 64, largest + 1) if (found := encoded(random_rows(n)))
    ]
    assert TASK_BYTES - 64 <= max(sizes) <= TASK_BYTES
    assert encoded(random_rows(largest + 64)) is None


def test_the_later_tasks_of_many_return_less() -> None:
    """100,000 tasks together return less than the driver takes, by default 1 GiB."""
    assert stream_bytes(0, 1 << 30) == stream_bytes(31, 8 << 30) == TASK_BYTES
    assert stream_bytes(63, 1 << 30) == TASK_BYTES // 2
    for most in (1 << 30, 8 << 20):
        assert sum(stream_bytes(n, most) for n in range(100_000)) < 0.6 * most
    row = random_rows(10_000)
    assert encoded(row, 100) is not None
    assert encoded(row, 10_000) is None


NESTED = {
    "dictionary": pa.array(["a", None, "a"]).dictionary_encode(),
    "large_string": pa.array(["x", None, "y"], pa.large_string()),
    "large_list": pa.array([[1], None, []], pa.large_list(pa.int8())),
    "map": pa.array([[("k", [1.5])], None, []], pa.map_(pa.string(), pa.list_(pa.float64()))),
    "struct": pa.array([{"a": {"b": 1}}, None, {"a": None}]),
    "decimal": pa.array([Decimal("1.250"), None, Decimal("-9.999")], pa.decimal128(38, 3)),
    "micros": pa.array([1, None, 2], pa.timestamp("us", tz="UTC")),
    "ntz": pa.array([datetime.datetime(2024, 2, 29), None, None], pa.timestamp("us")),
    "date": pa.array([datetime.date(2024, 2, 29), None, None]),
    "binary": pa.array([b"\0", None, b""]),
    "null": pa.nulls(3),
    "bool": pa.array([True, None, False]),
}


def test_types_survive_the_way_to_the_driver() -> None:
    batch = pa.RecordBatch.from_pydict(NESTED)
    encoder = BatchEncoder(LIMITS, 0)
    encoder.add(batch)
    encoder.add(batch.slice(1))
    stream, size = encoder.finish(), encoder.decoded_bytes
    profile = pa.table({"stream": [None, stream], "decoded_bytes": [None, size]})
    found = decoded_batch(profile, {"p": RowCount(5)}, batch.schema, LIMITS)
    assert found.schema == batch.schema
    assert found.to_pylist() == [*batch.to_pylist(), *batch.slice(1).to_pylist()]


@pytest.mark.property
def test_a_batch_beyond_the_limit_is_not_encoded():
    encoder = BatchEncoder(DriverLimits(rows=1000, bytes=MB, rewrite_bytes=MB), 0)
    encoder.add(keyed(1))
    long = keyed(100).set_column(1, KEY, pa.array([random.randbytes(MB // 2).hex()] * 100))
    before = pa.total_allocated_bytes()
    encoder.add(long)
    assert pa.total_allocated_bytes() - before < MB
    assert encoder.finish() is None
