"""Checks that the parts of a base file agree about the number of its rows; pyarrow doesn't.

The footer has it for the file, for each row group, and for each column of these. pyarrow reads a
column whose number is negative as one without rows.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow.parquet as pq

from timeline.errors import TableError


def check_footer(footer: pq.FileMetaData, place: str) -> None:
    """Check that a file has as many rows as its row groups.

    Args:
        footer: Its footer.
        place: The file, for the error.

    Raises:
        TableError: It hasn't.
    """
    in_groups = rows_of(footer, range(footer.num_row_groups))
    if footer.num_rows != in_groups:
        raise TableError(
            f"{place} has {footer.num_rows} rows by its footer, and {in_groups} in its row groups"
        )


def check_read(rows: int, footer: pq.FileMetaData, groups: Iterable[int], place: str) -> None:
    """Check that row groups had as many rows as their footer says.

    Args:
        rows: The number of rows that were read.
        footer: The file's footer.
        groups: The row groups that were read.
        place: The file, for the error.

    Raises:
        TableError: They hadn't.
    """
    expected = rows_of(footer, groups)
    if rows != expected:
        raise TableError(f"{place} has {rows} rows, and {expected} by its footer")


def rows_of(footer: pq.FileMetaData, groups: Iterable[int]) -> int:
    """Return the number of rows of some row groups, by their footer."""
    return sum(footer.row_group(number).num_rows for number in groups)
