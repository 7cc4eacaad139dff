"""Statistics of a Parquet file's column chunks, which pyarrow doesn't check.

The footer repeats a column's physical type in each of its chunks. If a damaged footer has two types
for a column, pyarrow raises a C++ exception that ends the process as soon as the statistics are
read: by its own ``statistics``, by a fragment's ``subset``, and by a dataset with a filter.
"""

from __future__ import annotations

from collections.abc import Container

import pyarrow.parquet as pq


def check_chunks(footer: pq.FileMetaData, columns: Container[str] | None = None) -> None:
    """Check that statistics can be read without crashing the process.

    Args:
        footer: The file's footer.
        columns: Paths of the columns whose statistics are needed; ``None`` for all.

    Raises:
        ValueError: A chunk is missing or has another physical type than its column.

    Cost: some microseconds for each chunk.
    """
    leaves = [(at, footer.schema.column(at)) for at in range(footer.num_columns)]
    kinds = [
        (at, leaf.path, leaf.physical_type)
        for at, leaf in leaves
        if columns is None or leaf.path in columns
    ]
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for at, path, kind in kinds:
            found = group.column(at).physical_type if at < group.num_columns else "none"
            if found != kind:
                raise ValueError(
                    f"row group {number} of its footer has column {path} of type {kind} as {found}"
                )
