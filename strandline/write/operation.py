"""``Operation``: what distinguishes one kind of write from another, as a value.

The steps of a write are the same for all operations; ``strandline.write.job`` and the index read
their details from the operation. A commit stores the operation's name.

Source: Hudi 1.2.0 ``WriteOperationType``, and the ``BaseSparkCommitActionExecutor`` of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from timeline.instant import COMMIT, REPLACE_COMMIT


class Replaces(Enum):
    """Which stored file groups a write replaces."""

    NOTHING = "nothing"
    PARTITIONS = "partitions"
    """The file groups of its rows' partitions."""
    TABLE = "table"
    NAMED = "named partitions"
    """The file groups of partitions that the caller names; there are no rows."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A kind of write.

    Attributes:
        name: Hudi's name for it.
        action: Action of the instant.
        needs_match: Whether the stored rows with the same keys are looked up; otherwise every row
            of the write is an insert, even a duplicate.
        fills_small_files: Whether inserts go to small stored files before new file groups.
        sorts: Whether the sort mode of bulk inserts applies.
        hard_delete: Whether the matching rows are removed. Keys suffice for that: other columns are
            ignored, and there is nothing to write if there is no table.
        replaces: Which stored file groups the rows replace, whatever their keys.
    """

    name: str
    action: str = COMMIT
    needs_match: bool = False
    fills_small_files: bool = False
    sorts: bool = False
    hard_delete: bool = False
    replaces: Replaces = Replaces.NOTHING


UPSERT: Final = Operation("UPSERT", needs_match=True, fills_small_files=True)
INSERT: Final = Operation("INSERT", fills_small_files=True)
BULK_INSERT: Final = Operation("BULK_INSERT", sorts=True)
DELETE: Final = Operation("DELETE", needs_match=True, hard_delete=True)
INSERT_OVERWRITE: Final = Operation(
    "INSERT_OVERWRITE", action=REPLACE_COMMIT, replaces=Replaces.PARTITIONS
)
INSERT_OVERWRITE_TABLE: Final = Operation(
    "INSERT_OVERWRITE_TABLE", action=REPLACE_COMMIT, replaces=Replaces.TABLE
)

DELETE_PARTITION: Final = Operation(
    "DELETE_PARTITION", action=REPLACE_COMMIT, replaces=Replaces.NAMED
)
OPERATIONS: Final = (
    UPSERT,
    INSERT,
    BULK_INSERT,
    DELETE,
    INSERT_OVERWRITE,
    INSERT_OVERWRITE_TABLE,
)
"""The operations that have rows."""
