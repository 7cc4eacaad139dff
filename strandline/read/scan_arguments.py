"""Validation of the arguments of scans and tables: columns, numbers, paths of partitions."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from strandline.read.filter.column_value import unknown_column
from strandline.read.filter.row_filter import RowFilter, expression_text
from strandline.records.meta_fields import META_FIELDS
from timeline.errors import InputError
from timeline.storage.base import checked_path
from timeline.table.config import TableConfig
from timeline.table.property_name import POPULATE_META_FIELDS


def checked_limit(limit: Any) -> int | None:
    """Return the number of rows, or ``None``, if it is valid.

    Raises:
        InputError: It is no whole number, or negative.
    """
    if limit is None:
        return None
    found = _whole_number(limit)
    if found is None or found < 0:
        raise InputError(f"limit is {limit!r}; allowed: None, or a number of rows from 0 on")
    return found


def checked_size(size: Any) -> int:
    """Return the number of bytes if it is valid.

    Raises:
        InputError: It is no whole number, or less than 1.
    """
    found = _whole_number(size)
    if found is None or found < 1:
        raise InputError(f"size is {size!r}; allowed: a number of bytes from 1 on")
    return found


def check_threads(threads: Any) -> None:
    """Refuse anything but a number of threads or ``None``.

    Raises:
        InputError: It is no whole number, or less than 1.
    """
    if threads is None:
        return
    if not isinstance(threads, int) or isinstance(threads, bool) or threads < 1:
        raise InputError(f"threads is {threads!r}; allowed: None, or a number from 1 on")


def check_read_optimized(read_optimized: Any) -> None:
    """Refuse anything but true or false, such as a setting's text.

    Raises:
        InputError: It is no ``bool``.
    """
    if not isinstance(read_optimized, bool):
        raise InputError(f"read_optimized is {read_optimized!r}; allowed: True, False")


def check_columns(columns: Any, schema: pa.Schema) -> None:
    """Refuse anything but a list of columns of a schema, in any order.

    Raises:
        InputError: It is no sequence of names, or a name is unknown or repeated.
    """
    if isinstance(columns, str | bytes) or not isinstance(columns, Sequence):
        raise InputError(f"columns is {columns!r}; allowed: None, or a list of names")
    for at, name in enumerate(columns):
        if not isinstance(name, str):
            raise InputError(f"columns is {columns!r}, where {name!r} is no text; allowed: names")
        if name not in schema.names:
            raise unknown_column(name, schema)
        if name in columns[:at]:
            raise InputError(f"column {name!r} is asked for twice")


def check_stored(row_filter: RowFilter, config: TableConfig) -> None:
    """Refuse a filter on meta columns in a table that doesn't store them: it would find nulls.

    Raises:
        InputError: It is on such columns.
    """
    missing = [name for name in row_filter.columns if name in META_FIELDS]
    if missing and not config.populate_meta_fields:
        raise InputError(
            f"filter {expression_text(row_filter.condition)} is on {missing}, but table"
            f" {config.name} stores no meta columns ({POPULATE_META_FIELDS}=false)",
            hint=f"its partition columns are {[*config.partition_fields]}",
        )


def check_partition(partition: Any) -> None:
    """Refuse anything but the path of a partition under the base path.

    Raises:
        InputError: It is no text, begins or ends with a slash, or has invalid segments.
    """
    example = "day=mon"
    if isinstance(partition, str):
        with suppress(ValueError):
            checked_path(partition)
            return
        example = "/".join(name for name in partition.split("/") if name.strip(".")) or example
    raise InputError(
        f"partition is {partition!r:.200}; allowed: None, or the path of one partition under the"
        f" base path, without a slash at its ends, such as {example!r:.200}"
    )


def _whole_number(value: Any) -> int | None:
    """Return a value if it is a whole number, else ``None``; true and false aren't numbers."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None
