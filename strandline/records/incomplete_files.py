"""Tables whose base files lack some columns although their values aren't null.

Readers that treat a missing column as null would show nulls, and a rewrite would store them. Base
files of a bootstrapped table may have only the meta columns; the others are in its source files. A
table may also keep partition columns only in its paths; they are then strings.

Source: Hudi 1.2.0 ``TableSchemaResolver.appendPartitionColumns``, ``HoodieTableConfig``.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from timeline.errors import UnsupportedTableError
from timeline.table.config import TableConfig

BOOTSTRAPPED: Final = "hoodie.bootstrap.base.path"
DROPS_PARTITION_COLUMNS: Final = "hoodie.datasource.write.drop.partition.columns"
TABLE_FORMAT: Final = "hoodie.table.format"
_NATIVE: Final = "native"


def refuse_incomplete_files(config: TableConfig, base_path: str) -> None:
    """Refuse bootstrapped tables, and tables whose timeline or files have another format.

    Raises:
        UnsupportedTableError: The message names the property.
    """
    source = config.properties.get(BOOTSTRAPPED, "")
    if source:
        raise UnsupportedTableError(
            f"{base_path} was bootstrapped from files elsewhere ({BOOTSTRAPPED}={source})"
        )
    table_format = config.properties.get(TABLE_FORMAT, _NATIVE)
    if table_format != _NATIVE:
        raise UnsupportedTableError(
            f"{base_path} has {TABLE_FORMAT}={table_format!r}; allowed: {_NATIVE!r}, Hudi's own",
            hint="its metadata is that format's; open it with a reader of it",
        )
    both = [name for name in config.ordering_fields if name in config.partition_fields]
    if drops_partition_columns(config) and both:
        raise UnsupportedTableError(
            f"{base_path} has {DROPS_PARTITION_COLUMNS}=true, and orders its records by the"
            f" partition columns {both}, which its files lack"
        )


def refuse_dropped_columns(config: TableConfig, base_path: str) -> None:
    """Refuse to write a table that keeps partition columns only in its paths.

    Raises:
        UnsupportedTableError: The message names the property, the hint says what to do.
    """
    if drops_partition_columns(config):
        raise UnsupportedTableError(
            f"{base_path} has {DROPS_PARTITION_COLUMNS}=true; allowed: false",
            hint="write it with Hudi, or write the rows of its scan to a new table without that"
            " property",
        )


def drops_partition_columns(config: TableConfig) -> bool:
    """Return whether base files lack the partition columns."""
    return config.properties.get(DROPS_PARTITION_COLUMNS, "false").strip().lower() == "true"


def with_dropped_columns(schema: pa.Schema, config: TableConfig) -> pa.Schema:
    """Return the columns of a table from those of its files or commits."""
    if not drops_partition_columns(config):
        return schema
    dropped = [name for name in config.partition_fields if name not in schema.names]
    return pa.schema([*schema, *(pa.field(name, pa.string()) for name in dropped)])
