"""``Index``: the contract of all indexes. ``LocationRequest``: a write's request to its index.

An index finds the stored files that hold the keys of a write. ``SearchTagging`` joins the rows to
the locations that any index finds.

``Tagging`` finds the stored file of each row's key, and counts the rows by file. The driver asks
its view for the newest base files of the write's partitions; tasks don't use the view. ``Tagging``
is implemented by ``SearchTagging``, which searches the keys in these files, and ``BucketTagging``.

Source: Hudi 1.2.0 ``HoodieIndex``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, Generic

import pyarrow as pa

from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from strandline.write.engine.base import D, EngineContext, Tally
from strandline.write.index.merged_slices import LateLogs, MergedSlices
from strandline.write.tasks.columns import FILE, RowCount
from strandline.write.tasks.placement import StoredFile
from timeline.storage.base import Storage

TAGGED: Final = "tag"
"""Stage of a write's tally: the rows before they were combined."""

_STORED_VALUE: Final = "_strandline_stored_value_"


def stored_value(number: int) -> str:
    """Return the name of the column with the stored row's ordering value ``number``."""
    return f"{_STORED_VALUE}{number}"


def location_schema(ordering: Mapping[str, pa.DataType], *, everywhere: bool = False) -> pa.Schema:
    """Return the schema of locations: stored keys that match a key of the write.

    A location has the row's partition path, unless keys were searched ``everywhere``; the key; the
    number of the stored file; and the stored row's ordering values if requested.
    """
    path = [] if everywhere else [(PARTITION_PATH, pa.string())]
    values = [(stored_value(at), kind) for at, kind in enumerate(ordering.values())]
    return pa.schema([*path, (RECORD_KEY, pa.string()), (FILE, pa.int32()), *values])


@dataclass(frozen=True, slots=True)
class LocationRequest(Generic[D]):
    """The keys to find, and the files to search.

    Attributes:
        engine: Runs the search.
        rows: Keyed rows, persisted.
        counts: The numbers of rows, by partition path.
        files: The newest base files of the partitions that may hold the keys; a file's number is
            its position.
        storage: The table's storage.
        tally: Takes the counts of ``search``, which the write compares with ``counts``.
        ordering: Ordering columns whose stored values are wanted, and their types.
        merged: Reads the slices of files with logs, in which keys that were found may not be any
            more; ``None``: what a base file holds counts.
        late: Reads the late logs of files; ``None``: they have none.
    """

    engine: EngineContext[D]
    rows: D
    counts: Mapping[str, RowCount]
    files: tuple[StoredFile, ...]
    storage: Storage
    tally: Tally
    ordering: Mapping[str, pa.DataType] = field(default_factory=dict)
    merged: MergedSlices | None = None
    late: LateLogs | None = None


class Index(ABC):
    """Finds the stored file of each row's key, in the files of the write's request."""

    __slots__ = ()

    @property
    @abstractmethod
    def key(self) -> tuple[str, ...]:
        """Columns that identify a record: partition path and record key, or the key alone."""

    @abstractmethod
    def locations(self, request: LocationRequest[D]) -> D:
        """Return the locations (``location_schema``) of each key of the write, one for each file.

        No location occurs twice.
        """


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
