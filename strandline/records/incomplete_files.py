"""Refuses tables whose base files lack columns of the table that aren't null.

Readers that take a missing column for nulls would show nulls, and a rewrite would store them.
"""

from __future__ import annotations

from typing import Final

from timeline.errors import UnsupportedTableError
from timeline.table.config import TableConfig

BOOTSTRAPPED: Final = "hoodie.bootstrap.base.path"
DROPS_PARTITION_COLUMNS: Final = "hoodie.datasource.write.drop.partition.columns"


def refuse_incomplete_files(config: TableConfig, base_path: str) -> None:
    """Refuse bootstrapped tables, and those that keep partition columns in their paths alone.

    Base files of a bootstrapped table may have the meta columns alone; the others are in the files
    that it was made from.

    Raises:
        UnsupportedTableError: The message names the property.
    """
    source = config.properties.get(BOOTSTRAPPED, "")
    if source:
        raise UnsupportedTableError(
            f"{base_path} was bootstrapped from files elsewhere ({BOOTSTRAPPED}={source})"
        )
    dropped = config.properties.get(DROPS_PARTITION_COLUMNS, "false").lower()
    if dropped == "true":
        raise UnsupportedTableError(
            f"{base_path} has {DROPS_PARTITION_COLUMNS}={dropped}; allowed: false"
        )
