"""Rows of a table as a Spark DataFrame, without Hudi's jar.

The driver plans the scan; each task gets some of its file slices and reads their rows from storage.
So all tasks read one instant; none lists anything or asks a timeline service, even if the driver
has asked one. Executors need this package.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

try:
    from pyspark import SparkFiles
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType
except ImportError as error:
    raise ImportError(
        f"{__name__} needs PySpark 3.5 or later: pip install 'strandline[spark]' ({error})"
    ) from error

from fsview.model.file_group import FileSlice
from strandline.read.scan import Scan
from strandline.read.scan_plan import bytes_of
from strandline.table_api.table import Table
from strandline.write.engine.worker_reuse import prepare_reuse
from strandline.write.engine.workers_python import check_python, choose_python, refuse_connect
from timeline.errors import InputError

TASK_BYTES: Final = 128 << 20
"""The most bytes of files that one task reads, unless they are of one slice, as of Spark's
``spark.sql.files.maxPartitionBytes``."""
WORTH_BYTES: Final = 16 << 20
"""Least bytes of a task, as its Python process takes time to start."""
OPEN_BYTES: Final = 512 << 10
"""Bytes that are read in the time of opening a file; ``spark.sql.files.openCostInBytes``."""
_ROWS_ALONE: Final = pa.schema([("row", pa.bool_())])
"""What tasks yield of rows without columns, as Spark takes a batch without columns for empty."""


def read(
    session: SparkSession,
    base_path: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    filter: Any = None,
    as_of: str | datetime | None = None,
    *,
    read_optimized: bool = False,
    since: str | datetime | None = None,
    until: str | datetime | None = None,
    storage_options: Mapping[str, Any] | None = None,
    service: str | None = None,
    token: str | None = None,
) -> DataFrame:
    """Return a table's rows at one instant, which is fixed here; they are read when Spark runs.

    With ``since``, these are the newest rows of the commits after it, as of ``Table.incremental``.

    Spark doesn't know which of the columns and rows a query uses: name them by ``columns`` and
    ``filter``, so that no others are read. With ``columns=[]`` rows can be counted.

    Args:
        session: A session whose executors have this package, and reach the storage.
        base_path: A path or a URL.
        columns: As of ``Table.scan``, as are the following two.
        filter: Which rows.
        as_of: What the table was at an earlier time.
        read_optimized: Whether to read base files alone.
        since: As of ``Table.incremental``, as is the following; not with ``as_of``, nor with
            ``read_optimized``.
        until: The end of the range; only with ``since``.
        storage_options: Options of fsspec.
        service: As of ``Table``; only the driver asks it.
        token: As of ``Table``; it isn't in the frame's plan, nor sent to tasks.

    Raises:
        ConfigError: As of ``Table``; the session is one of Spark Connect; or the executors' Python
            lacks packages that tasks need.
        TableNotFoundError: There is no table.
        InputError: As of ``Table.scan``, or Spark has no type for a column, which is named.
        UnsupportedTableError: As of ``Table``, and of ``Table.scan``.
        CorruptMetadataError: Likewise.

    Errors of reading files are those of ``Scan``; Spark reports them with the task that fails.
    Rows of different tasks have no order. Cost: as of ``Table.scan``; a task reads up to 128 MiB of
    files, or one file slice, and less if there are more cores.
    """
    refuse_connect(session)
    choose_python(session.sparkContext)
    scan = scan_of(
        Table(base_path, storage_options, service=service, token=token),
        columns,
        filter,
        as_of=as_of,
        read_optimized=read_optimized,
        since=since,
        until=until,
    )
    check_python(session.sparkContext)
    schema = spark_schema(scan.schema if scan.schema.names else _ROWS_ALONE)
    parts = task_slices(scan, session.sparkContext.defaultParallelism)
    task = _ReadTask(scan.of_slices(()), tuple(parts))
    frame = session.range(0, len(parts), 1, max(1, len(parts))).mapInArrow(task, schema)
    return frame if scan.schema.names else frame.select()


def scan_of(
    table: Table,
    columns: Sequence[str] | None = None,
    filter: Any = None,
    *,
    as_of: str | datetime | None = None,
    read_optimized: bool = False,
    since: str | datetime | None = None,
    until: str | datetime | None = None,
) -> Scan:
    """Return a table's scan, or with ``since`` that of a range; arguments as of ``read``."""
    if since is None:
        if until is not None:
            raise InputError(f"until is {until!r} without since; allowed: both, or since alone")
        return table.scan(columns, filter, as_of, read_optimized=read_optimized, threads=1)
    if as_of is not None or read_optimized:
        other = "read_optimized" if as_of is None else "as_of"
        raise InputError(f"since is {since!r} with {other}; allowed: one of them")
    return table.incremental(since, until, columns, filter, threads=1)


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the columns as Spark's.

    Raises:
        InputError: Spark has no type for a column.
    """
    for field in schema:
        try:
            from_arrow_schema(pa.schema([field]), prefer_timestamp_ntz=True)
        except PySparkException as error:
            raise InputError(
                f"column {field.name!r} is {field.type}, for which Spark has no type",
                hint="name the other columns by columns=",
            ) from error
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def task_slices(scan: Scan, cores: int = 1) -> list[bytes]:
    """Return the pickled file slices of each task, so that a task unpickles its own only.

    Args:
        scan: The scan.
        cores: How many tasks run at the same time.
    """
    sizes = [bytes_of(found) for found in scan.slices]
    read = sum(read_bytes(found, scan.column_share) for found in scan.slices)
    parts = scan.split(task_bytes(sum(sizes), read, cores))
    return [pickle.dumps(part.slices) for part in parts]


def read_bytes(found: FileSlice, column_share: float) -> int:
    """Return how many bytes reading a slice is worth: some columns of its base file, whole logs.

    Args:
        found: The slice.
        column_share: Which part of the columns is read; 1 for all.
    """
    base = 0 if found.base_file is None else found.base_file.size
    files = len(found.log_files) + (found.base_file is not None)
    return int(base * column_share) + bytes_of(found) - base + files * OPEN_BYTES


def task_bytes(total: int, read: int, cores: int) -> int:
    """Return the size of a task's files: as many cores have a task as are worth one.

    Source: Spark's ``FilePartition.maxSplitBytes``, which counts whole files.

    Args:
        total: Bytes of the files of all tasks.
        read: The ``read_bytes`` of all tasks.
        cores: How many tasks run at the same time.
    """
    tasks = max(1, min(cores, read // WORTH_BYTES))
    return max(1, min(TASK_BYTES, -(-total // tasks)))


def task_rows(scan: Scan, slices: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, with times in the units that Spark takes; for its Python process.

    Without columns they have one that means nothing. Afterwards the process is left so that its
    next task begins without delay.

    Args:
        scan: The scan, with or without its slices.
        slices: One of ``task_slices``.
    """
    part = scan.of_slices(pickle.loads(slices))  # noqa: S301 - pickled by task_slices()
    return prepare_reuse(_spark_rows(part.to_reader()), SparkFiles.getRootDirectory())


def _spark_rows(rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    schema = task_schema(rows.schema)
    for batch in rows:
        yield batch.cast(schema) if schema.names else _without_columns(batch.num_rows)


def task_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns as tasks yield them: with times in the units that Spark takes."""
    return pa.schema([field.with_type(_spark_unit(field.type)) for field in schema])


def _without_columns(count: int) -> pa.RecordBatch:
    """Return a number of rows of ``_ROWS_ALONE``."""
    return pa.record_batch([pa.nulls(count, pa.bool_())], schema=_ROWS_ALONE)


@dataclass(frozen=True, slots=True)
class _ReadTask:
    """Reads the parts of a scan whose numbers come.

    Attributes:
        scan: The scan without its slices.
        parts: The ``task_slices`` of each part.
    """

    scan: Scan
    parts: tuple[bytes, ...]

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from task_rows(self.scan, self.parts[number])


def _spark_unit(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_time(kind):
        return pa.time64("ns")
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_spark_unit(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_spark_unit(kind.value_type)))
    if pa.types.is_map(kind):
        item = kind.item_field.with_type(_spark_unit(kind.item_type))
        return pa.map_(kind.key_field.with_type(_spark_unit(kind.key_type)), item)
    return kind
