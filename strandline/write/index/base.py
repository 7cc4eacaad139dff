"""``Tagging``: finds the stored file of each row's key, and counts the rows by file.

The driver asks its view for the newest base files of the write's partitions; tasks don't use the
view. ``SearchTagging`` searches the keys in these files, ``BucketTagging`` hashes them.

Source: Hudi 1.2.0 ``HoodieIndex``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Generic

import pyarrow as pa

from strandline.write.engine.base import D, EngineContext
from strandline.write.tasks.columns import RowCount
from strandline.write.tasks.placement import StoredFile

TAGGED: Final = "tag"
"""Stage of a write's tally: the rows before they were combined."""


class SearchScope(Enum):
    """The stored files that a write must know."""

    NOTHING = auto()
    PARTITIONS = auto()
    """The files of the rows' partitions."""
    TABLE = auto()


@dataclass(frozen=True, slots=True)
class KeyedRows(Generic[D]):
    """Checked rows with their keys.

    Attributes:
        engine: Runs the tasks that follow.
        data: The rows in the engine's form, persisted.
        columns: Their columns as the table stores them; none for deletes.
        counts: The numbers of rows, by partition path.
        row_bytes: Size of a row in memory, including columns that tasks add.
        in_parts: Part → partition path → number of rows, if rows may be written in place; then the
            engine keeps them by partition path. ``None``: they may not.
    """

    engine: EngineContext[D]
    data: D
    columns: pa.Schema
    counts: Mapping[str, RowCount]
    row_bytes: int
    in_parts: Mapping[int, Mapping[str, int]] | None = None


@dataclass(frozen=True, slots=True)
class TaggedRows(Generic[D]):
    """Rows with the numbers of the stored files that hold their keys.

    Attributes:
        data: The rows in the engine's form.
        counts: The numbers of rows, by partition path; rows with one key may be combined.
        updates: Number of rows by the number of the stored file.
        inserts: Number of rows of keys that aren't stored, by partition path.
        columns: The rows' columns, apart from those that tasks add to all rows.
        files: The stored files; a file without a name is a new file group.
        combine: Whether the write tasks must still combine rows with one key.
        parts: Part of all rows of each partition path; within a part, partitions follow one another
            in the order of their paths. ``None``: a partition's rows may be in any part.
        in_parts: As in the keyed rows, if these are the same rows.
    """

    data: D
    counts: Mapping[str, RowCount]
    updates: Mapping[int, int]
    inserts: Mapping[str, int]
    columns: pa.Schema
    files: tuple[StoredFile, ...]
    combine: bool = False
    parts: Mapping[str, int] | None = None
    in_parts: Mapping[int, Mapping[str, int]] | None = None


class Tagging(ABC, Generic[D]):
    """Tags the rows of one write."""

    __slots__ = ()

    @abstractmethod
    def scope(self, *, fills: bool) -> SearchScope:
        """Return which stored files a write must know.

        Args:
            fills: Whether inserts go to small files.
        """

    @abstractmethod
    def tagged(
        self, rows: KeyedRows[D], files: tuple[StoredFile, ...]
    ) -> AbstractContextManager[TaggedRows[D]]:
        """Tag rows; the result may be used while the block runs.

        Args:
            rows: The rows.
            files: The newest base files of ``scope``.

        Raises:
            RowsChangedError: The rows aren't those that were counted.
            UnsupportedTableError: The files belong to another kind of index.
        """
