"""The file slices of a scan as a table, and their division into parts of about the same size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from fsview.model.file_group import FileSlice
from strandline.records.schema.columns import COUNT, TEXT, TEXTS, schema_of

PLAN_SCHEMA: Final = schema_of(
    partition=TEXT, file_id=TEXT, base_instant=TEXT, base_file=TEXT, logs=TEXTS, bytes=COUNT
)


def plan_of(slices: Sequence[FileSlice]) -> pa.Table:
    """Return one row a file slice, in order, with the columns of ``Scan.plan``."""
    return pa.Table.from_pylist(list(map(_plan_row, slices)), PLAN_SCHEMA)


def parts_of(slices: Sequence[FileSlice], size: int) -> list[list[FileSlice]]:
    """Divide file slices into consecutive parts of about ``size`` bytes.

    Args:
        slices: The slices.
        size: The most bytes of the files of a part, unless it is one slice.
    """
    parts: list[list[FileSlice]] = []
    taken = 0
    for found in slices:
        taken += bytes_of(found)
        if not parts or taken > size:
            parts.append([])
            taken = bytes_of(found)
        parts[-1].append(found)
    return parts


def bytes_of(found: FileSlice) -> int:
    """Return the size of a slice's files in bytes."""
    base = 0 if found.base_file is None else found.base_file.size
    return base + sum(log.size for log in found.log_files)


def _plan_row(found: FileSlice) -> dict[str, Any]:
    base = found.base_file
    return {
        "partition": found.partition,
        "file_id": found.file_id,
        "base_instant": found.base_instant,
        "base_file": None if base is None else base.path,
        "logs": [log.path for log in reversed(found.log_files)],
        "bytes": bytes_of(found),
    }
