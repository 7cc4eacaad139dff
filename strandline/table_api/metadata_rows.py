"""The rows of a table's metadata as Arrow: history, file slices, partitions, leases.

Instants are text of 14 or 17 digits in the table's time zone, and so are completion times; beside
each is the time as a timestamp (``TIME``, milliseconds, UTC). It is null where the text is no time,
as for the first instant of a metadata table. Text of 14 digits means the last millisecond of its
second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta, timezone
from statistics import median_low
from typing import Any, Final

import pyarrow as pa

from fsview.model.file_group import FileSlice
from strandline.read.state.reader_lease import Lease
from strandline.records.schema.columns import COUNT, FLAG, TEXT, TEXTS, schema_of
from strandline.table_api.history import CommitSummary, Entry
from timeline.clock import parse_instant_time
from timeline.instant import Instant
from timeline.metadata.instant_metadata import CleanMetadata, RollbackMetadata

TIME: Final = pa.timestamp("ms", "UTC")
INSTANT_FIELDS: Final = {
    "requested_time": TEXT,
    "requested_at": TIME,
    "completion_time": TEXT,
    "completed_at": TIME,
    "action": TEXT,
    "state": TEXT,
}
HISTORY_SCHEMA: Final = schema_of(
    **INSTANT_FIELDS,
    operation=TEXT,
    archived=FLAG,
    partitions=COUNT,
    files_written=COUNT,
    bytes_written=COUNT,
    rows_inserted=COUNT,
    rows_updated=COUNT,
    rows_deleted=COUNT,
    files_deleted=COUNT,
)
FILES_SCHEMA: Final = schema_of(
    partition=TEXT,
    file_id=TEXT,
    base_instant=TEXT,
    base_at=TIME,
    path=TEXT,
    size=COUNT,
    log_paths=TEXTS,
)
PARTITIONS_SCHEMA: Final = schema_of(
    partition=TEXT, file_groups=COUNT, base_files=COUNT, log_files=COUNT, bytes=COUNT
)
STATS_SCHEMA: Final = schema_of(
    partition=TEXT,
    file_groups=COUNT,
    base_files=COUNT,
    log_files=COUNT,
    base_bytes=COUNT,
    log_bytes=COUNT,
    smallest=COUNT,
    median=COUNT,
    largest=COUNT,
)
COMMIT_SCHEMA: Final = schema_of(
    partition=TEXT,
    files_written=COUNT,
    bytes_written=COUNT,
    rows_inserted=COUNT,
    rows_updated=COUNT,
    rows_deleted=COUNT,
    replaced_file_ids=TEXTS,
)
PINS_SCHEMA: Final = schema_of(
    id=TEXT,
    instant=TEXT,
    earliest=TEXT,
    holder=TEXT,
    renewed_at=TIME,
    expires_at=TIME,
    problem=TEXT,
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def utc_time(text: str | None, zone: str) -> datetime | None:
    """Return the time of an instant's text; ``None`` if the text is no time.

    Args:
        text: 14 or 17 digits.
        zone: The table's time zone, ``"UTC"`` or ``"LOCAL"``.
    """
    if text is None:
        return None
    try:
        return utc_time_of(parse_instant_time(text, zone))
    except (ValueError, OverflowError):
        return None


def utc_time_of(ms: int) -> datetime:
    """Return the time ``ms`` milliseconds after the epoch."""
    return _EPOCH + timedelta(milliseconds=ms)


def instant_row(instant: Instant, zone: str) -> dict[str, Any]:
    """Return an instant's values by column name, for ``INSTANT_FIELDS``."""
    completion_time = instant.completion_time if instant.is_completed else None
    return {
        "requested_time": instant.requested_time,
        "requested_at": utc_time(instant.requested_time, zone),
        "completion_time": completion_time,
        "completed_at": utc_time(completion_time, zone),
        "action": instant.action,
        "state": instant.state.value,
    }


def history_rows(entries: Iterable[Entry], zone: str) -> pa.Table:
    """Return one row an instant, in the given order, with the columns of ``HISTORY_SCHEMA``.

    ``Table.history`` lists them.

    Args:
        entries: The instants with their metadata.
        zone: See ``utc_time``.
    """
    return pa.Table.from_pylist([history_row(entry, zone) for entry in entries], HISTORY_SCHEMA)


def file_rows(slices: Iterable[FileSlice], zone: str) -> pa.Table:
    """Return one row a file slice, in the given order, with the columns of ``FILES_SCHEMA``.

    ``Table.files`` lists them.

    Args:
        slices: The slices.
        zone: See ``utc_time``.
    """
    return pa.Table.from_pylist([file_row(found, zone) for found in slices], FILES_SCHEMA)


def file_row(found: FileSlice, zone: str) -> dict[str, Any]:
    """Return a slice's values by column name, for ``FILES_SCHEMA``."""
    return {
        "partition": found.partition,
        "file_id": found.file_id,
        "base_instant": found.base_instant,
        "base_at": utc_time(found.base_instant, zone),
        "path": found.base_file.path if found.base_file else None,
        "size": found.base_file.size if found.base_file else None,
        "log_paths": [log.path for log in reversed(found.log_files)],
    }


def partition_rows(newest: Mapping[str, Sequence[FileSlice]]) -> pa.Table:
    """Return one row a partition, by path, with the columns of ``PARTITIONS_SCHEMA``.

    ``Table.partitions`` lists them.

    Args:
        newest: Partition → the newest slices of its file groups.
    """
    rows = []
    for path in sorted(newest):
        counts: Counter[str] = Counter()
        for found in newest[path]:
            bases = () if found.base_file is None else (found.base_file,)
            counts["file_groups"] += 1
            counts["base_files"] += len(bases)
            counts["log_files"] += len(found.log_files)
            counts["bytes"] += sum(file.size for file in (*bases, *found.log_files))
        names = PARTITIONS_SCHEMA.names[1:]
        rows.append({"partition": path, **{name: counts[name] for name in names}})
    return pa.Table.from_pylist(rows, PARTITIONS_SCHEMA)


def stats_rows(newest: Mapping[str, Sequence[FileSlice]]) -> pa.Table:
    """Return one row for the table, then one a partition, with the columns of ``STATS_SCHEMA``.

    ``Table.stats`` lists them.

    Args:
        newest: Partition → the newest slices of its file groups.
    """
    every = [found for slices in newest.values() for found in slices]
    rows = [_stats(None, every), *(_stats(path, newest[path]) for path in sorted(newest))]
    return pa.Table.from_pylist(rows, STATS_SCHEMA)


def _stats(partition: str | None, slices: Sequence[FileSlice]) -> dict[str, Any]:
    bases = sorted(found.base_file.size for found in slices if found.base_file is not None)
    logs = [log.size for found in slices for log in found.log_files]
    sizes = (bases[0], median_low(bases), bases[-1]) if bases else (None, None, None)
    return {
        "partition": partition,
        "file_groups": len(slices),
        "base_files": len(bases),
        "log_files": len(logs),
        "base_bytes": sum(bases),
        "log_bytes": sum(logs),
        **dict(zip(("smallest", "median", "largest"), sizes, strict=True)),
    }


def commit_rows(found: CommitSummary) -> pa.Table:
    """Return one row a partition that a commit wrote to or replaced, by path."""
    rows = []
    for path in sorted({*found.partitions, *found.replaced_file_ids}):
        counts = found.partitions.get(path)
        row = {name: getattr(counts, name, 0) for name in COMMIT_SCHEMA.names[1:-1]}
        replaced = list(found.replaced_file_ids.get(path, ()))
        rows.append({"partition": path, **row, "replaced_file_ids": replaced})
    return pa.Table.from_pylist(rows, COMMIT_SCHEMA)


def column_rows(schema: pa.Schema) -> pa.Table:
    """Return one row a column of a table: its name, its Arrow type, whether it may be null."""
    names = pa.array(schema.names, pa.string())
    kinds = pa.array([str(field.type) for field in schema], pa.string())
    nullable = pa.array([field.nullable for field in schema], pa.bool_())
    return pa.table({"column": names, "type": kinds, "nullable": nullable})


def property_rows(properties: Mapping[str, str], names: Sequence[str]) -> pa.Table:
    """Return one row a property, in the order of ``names``."""
    values = [properties[name] for name in names]
    return pa.table([list(names), values], schema_of(name=TEXT, value=TEXT))


def pin_rows(leases: Iterable[Lease]) -> pa.Table:
    """Return leases as a table with the columns of ``PINS_SCHEMA``."""
    return pa.Table.from_pylist([*map(pin_row, leases)], PINS_SCHEMA)


def pin_row(lease: Lease) -> dict[str, Any]:
    """Return a lease's values by column name, for ``PINS_SCHEMA``."""
    expires_ms = lease.expires_ms
    return {
        "id": lease.id,
        "instant": lease.instant or None,
        "earliest": lease.earliest or None,
        "holder": lease.holder or None,
        "renewed_at": utc_time_of(lease.renewed_ms) if lease.renewed_ms else None,
        "expires_at": None if expires_ms is None else utc_time_of(expires_ms),
        "problem": lease.problem or None,
    }


def history_row(entry: Entry, zone: str) -> dict[str, Any]:
    """Return an instant's values by column name, for ``HISTORY_SCHEMA``; nulls are left out."""
    metadata = entry.metadata
    row = {**instant_row(entry.instant, zone), "archived": entry.archived}
    commit = entry.commit
    if commit is not None:
        row |= {"operation": commit.operation, "partitions": len(commit.partitions)}
        row |= asdict(commit.total)
    elif isinstance(metadata, (CleanMetadata, RollbackMetadata)):
        row |= {
            "partitions": len(metadata.partition_metadata),
            "files_deleted": metadata.total_files_deleted,
        }
    return row
