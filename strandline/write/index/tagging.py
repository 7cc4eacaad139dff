"""``Tagging``: finds the stored file of each row's key, and counts the rows by file.

The driver asks its view for the newest base files of the write's partitions; tasks ask no view.
Implemented by ``SearchTagging``, which searches the keys in these files, and ``BucketTagging``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic

import pyarrow as pa

from strandline.write.engine.base import D, EngineContext
from strandline.write.tasks.placement import StoredFile
from strandline.write.tasks.row_count import RowCount


class SearchScope(Enum):
    """The stored files that a write must know."""

    NOTHING = auto()
    PARTITIONS = auto()
    """Those of the rows' partitions."""
    TABLE = auto()


@dataclass(frozen=True, slots=True)
class KeyedRows(Generic[D]):
    """Checked rows with their keys.

    Attributes:
        engine: Runs the tasks that follow.
        data: The rows in the engine's form, persisted.
        columns: Their columns as the table stores them; none for deletes.
        counts: What they count to, by partition path.
        row_bytes: Size of a row in memory, with what tasks add to it.
        in_parts: Part → partition path → its number of rows, if rows may be written where they are;
            the engine keeps them by partition path then. ``None``: they may not.
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
        counts: What they count to, by partition path; rows with one key may be combined.
        updates: Number of rows by the number of the stored file.
        inserts: Number of rows of keys that aren't stored, by partition path.
        columns: The rows' columns, apart from those that tasks add to all rows.
        files: The stored files; a file without a name is a group that is to be opened.
        combine: Whether rows with one key are still to be combined where they are written.
        parts: Part of all rows of each partition path; those of a part come one partition after the
            other, ascending by its path. ``None``: rows of a partition are anywhere.
        in_parts: As of the keyed rows, if these are the same.
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
        """Tag rows; what comes of them may be used while the block runs.

        Args:
            rows: The rows.
            files: The newest base files of ``scope``.

        Raises:
            RowsChangedError: The rows aren't those that were counted.
            UnsupportedTableError: The files are those of another kind of index.
        """
