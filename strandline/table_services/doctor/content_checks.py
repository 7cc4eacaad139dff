"""Checks that open data files: the ends of logs, and on request the footers of base files.

The last eight bytes of a log are the size of its last block, at whose begin the block says the
same. So two small reads show whether the last block is whole; blocks before it aren't looked at, as
readers skip torn ones that a failed write has left. Of a Parquet file only the footer is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from fsview.model.file_group import BaseFile, LogFile
from strandline.records.file.base_file import MAX_KEY, MIN_KEY
from strandline.records.meta_fields import RECORD_KEY
from strandline.table_services.doctor.file_checks import Partition
from strandline.table_services.doctor.finding import Finding
from timeline.encoding.log_block import MAGIC
from timeline.errors import PathNotFoundError
from timeline.storage.base import Storage
from timeline.storage.client_error import mapped_client_errors

_LENGTH: Final = 8
_MIN_KEY: Final = MIN_KEY.encode()
_MAX_KEY: Final = MAX_KEY.encode()


def check_ends_of_logs(storage: Storage, partition: Partition) -> Iterator[Finding]:
    """Yield the logs of the newest slices whose last block isn't whole.

    A log that is too short is left out: ``check_sizes`` tells of it.

    Cost: two reads of less than 20 bytes for each log.
    """
    for log in _logs(partition):
        try:
            with (
                storage.open_input(log.path) as source,
                mapped_client_errors(f"{storage.base_path}/{log.path}"),
            ):
                why = _torn(source)
        except PathNotFoundError:
            continue  # cleaned since it was listed
        if why is not None:
            what = f"its last block isn't whole: {why}"
            yield Finding("torn-log", what, (log.path,), log.size, partition.path)


def _logs(partition: Partition) -> Iterator[LogFile]:
    """Yield the logs of the newest slices that nobody writes to."""
    pending = any(not instant.is_completed for instant in partition.snapshot.active)
    for found in partition.newest:
        for log in found.log_files:
            if log.name not in partition.there or log.size < partition.named.get(log.name, 0):
                continue
            writer = partition.writer(log) if partition.snapshot.logs_by_completion else None
            if writer is not None and not writer.is_completed:
                continue
            # Before version 8 writes append to logs of earlier ones.
            if pending and not partition.snapshot.logs_by_completion and not partition.is_old(log):
                continue
            yield log


def _torn(source: pa.NativeFile) -> str | None:
    size = source.size()
    if size == 0:
        return None  # of an attempt that was repeated; it has no rows
    if size < len(MAGIC) + 3 * _LENGTH:
        return f"{size} bytes are less than a block"
    source.seek(size - _LENGTH)
    whole = int.from_bytes(source.read(_LENGTH), "big")
    begin = size - _LENGTH - whole
    if not 0 <= begin <= size - len(MAGIC) - 2 * _LENGTH:
        return "its last bytes are no size of a block"
    source.seek(begin)
    head = source.read(len(MAGIC) + _LENGTH)
    rest = int.from_bytes(head[len(MAGIC) :], "big")
    if head[: len(MAGIC)] != MAGIC or len(MAGIC) + rest != whole:
        return "no block begins where it should"
    return None


def check_base_files(
    storage: Storage, partition: Partition, rows: Mapping[str, int]
) -> Iterator[Finding]:
    """Yield the newest base files whose footer can't be read, or says other than their commit.

    Files that are missing or have another size than their commit says are left out.

    Args:
        storage: The table's storage.
        partition: The partition.
        rows: Name → number of rows that the commit wrote, of those that are known.

    Cost: a read of each footer.
    """
    for found in partition.newest:
        base = found.base_file
        if base is None or base.name not in partition.there or not base.name.endswith(".parquet"):
            continue
        if partition.named.get(base.name, base.size) != base.size:
            continue
        yield from _base_file(storage, partition, base, rows.get(base.name))


def _base_file(
    storage: Storage, partition: Partition, base: BaseFile, told: int | None
) -> Iterator[Finding]:
    try:
        with (
            storage.open_input(base.path) as source,
            mapped_client_errors(f"{storage.base_path}/{base.path}"),
        ):
            footer, error = _footer(source)
    except PathNotFoundError:
        return  # cleaned since it was listed
    if footer is None:
        what = f"its Parquet footer can't be read: {error:.200}"
        yield Finding("unreadable-base-file", what, (base.path,), base.size, partition.path)
        return
    if told is not None and footer.num_rows != told:
        what = f"it has {footer.num_rows} rows, its commit wrote {told}"
        yield Finding("row-count", what, (base.path,), base.size, partition.path)
    why = _key_range(footer)
    if why is not None:
        yield Finding("key-range", why, (base.path,), base.size, partition.path)


def _footer(source: pa.NativeFile) -> tuple[pq.FileMetaData | None, str]:
    """Return a Parquet file's footer, or why it has none."""
    try:
        return pq.read_metadata(source), ""
    except (pa.ArrowException, OSError, MemoryError, TypeError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the storage
        return None, str(error)


def _key_range(footer: pq.FileMetaData) -> str | None:
    """Return how the keys in a file leave the range that its footer says; ``None``: they don't.

    The range of the keys is that of the column's statistics, if all row groups have them. They may
    be shortened, and then are no keys.
    """
    metadata = footer.metadata or {}
    low, high = metadata.get(_MIN_KEY), metadata.get(_MAX_KEY)
    if low is None or high is None or footer.num_rows == 0:
        return None
    names = [footer.schema.column(at).path for at in range(footer.num_columns)]
    if RECORD_KEY not in names:
        return None
    column = names.index(RECORD_KEY)
    for group in range(footer.num_row_groups):
        statistics = footer.row_group(group).column(column).statistics
        if statistics is None or not statistics.has_min_max:
            continue
        least, most = map(_as_bytes, (statistics.min, statistics.max))
        if least < low or most[: len(high)] > high:
            return (
                f"its footer says keys {low.decode(errors='replace')!r:.60} to"
                f" {high.decode(errors='replace')!r:.60}, and it has {statistics.min!r:.60} to"
                f" {statistics.max!r:.60}"
            )
    return None


def _as_bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()
