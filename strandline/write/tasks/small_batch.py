"""Small batches: the driver gets the rows with their counts, and then needs no executor.

The first action of a write keys its rows, counts them and caches both. In the same pass each task
encodes its rows as an Arrow IPC stream, up to ``TASK_BYTES``, and returns it beside its counts. If
the streams have all rows that were counted, and these are within the limits, the driver writes
them itself; otherwise the executors do, from their cache. So the caller's plan is evaluated once.

Source: none; Hudi always writes on its executors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from strandline.write.engine.driver_limits import DriverLimits
from strandline.write.tasks.row_count import RowCount

TASK_BYTES: Final = 2 << 20
"""Maximum length of a task's stream."""
_FULL_TASKS: Final = 32
"""Tasks that may return so much; those with higher numbers return less."""
STREAM: Final = "stream"
"""Column with a task's rows, in what tasks count; null in the other rows."""
DECODED_BYTES: Final = "decoded_bytes"
"""Column with the size of those rows in memory."""
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")


class BatchEncoder:
    """Encodes a task's rows as they pass, until they exceed a limit.

    Args:
        limits: The batch's limits.
        partition: Number of the task.

    Attributes:
        decoded_bytes: Size in memory of all rows so far.
    """

    def __init__(self, limits: DriverLimits, partition: int) -> None:
        self._limits = limits
        self._max_bytes = stream_bytes(partition)
        self._rows = self.decoded_bytes = 0
        self._sink = pa.BufferOutputStream()
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None
        self._fits = True

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self._rows += batch.num_rows
        self._fits = self._fits and self._rows <= self._limits.rows
        self.decoded_bytes += batch.nbytes
        # One batch of long rows may exceed the limit by far: it isn't encoded.
        self._fits = self._fits and self.decoded_bytes <= self._limits.bytes
        if not self._fits:
            return
        if self._writer is None:
            self._writer = pa.ipc.new_stream(self._sink, batch.schema, options=_OPTIONS)
        self._writer.write_batch(batch)
        self._fits = self._sink.tell() <= self._max_bytes

    def finish(self) -> bytes | None:
        """Return the stream; ``None`` without rows, or with too many.

        May be called once.
        """
        if not self._fits or self._writer is None:
            return None
        self._writer.close()
        data = self._sink.getvalue()
        return data.to_pybytes() if len(data) <= self._max_bytes else None


def stream_bytes(partition: int) -> int:
    """Return the maximum length of the stream of a task by its number, from 0.

    A task doesn't know how many there are. With this harmonic bound 100,000 tasks together return
    at most 0.6 GiB, less than Spark's default limit of 1 GiB (``spark.driver.maxResultSize``).
    """
    return min(TASK_BYTES, TASK_BYTES * _FULL_TASKS // (partition + 1))


def decoded_batch(
    profile: pa.Table, counts: Mapping[str, RowCount], schema: pa.Schema, limits: DriverLimits
) -> pa.Table | None:
    """Return all rows of a batch; ``None`` if a task didn't return its rows, or a limit is passed.

    Args:
        profile: What the tasks returned: the columns ``STREAM`` and ``DECODED_BYTES``.
        counts: The rows that they counted.
        schema: Schema of a batch without rows.
        limits: The batch's limits.
    """
    rows = sum(count.rows for count in counts.values())
    size = pc.sum(profile.column(DECODED_BYTES), min_count=0).as_py()
    if not limits.rows or rows > limits.rows or size > limits.bytes:
        return None
    tables = [_decoded(stream) for stream in profile.column(STREAM).drop_null()]
    # A task without a stream had too many rows, or none.
    if sum(table.num_rows for table in tables) != rows:
        return None
    return pa.concat_tables(tables) if tables else schema.empty_table()


def _decoded(stream: pa.BinaryScalar) -> pa.Table:
    with pa.ipc.open_stream(stream.as_buffer()) as reader:
        return reader.read_all()
