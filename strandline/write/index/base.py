"""``Index``: the contract of all indexes. ``LocationRequest``: what a write asks of its index.

An index finds the stored files that hold the keys of a write. ``SearchTagging`` joins the rows to
what it finds, whichever index that is.

Source: Hudi 1.2.0 ``HoodieIndex``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Generic

import pyarrow as pa

from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from strandline.write.engine.base import D, EngineContext, Tally
from strandline.write.tasks.columns import FILE
from strandline.write.tasks.placement import StoredFile
from strandline.write.tasks.row_count import RowCount
from timeline.storage.base import Storage

_STORED_VALUE: Final = "_strandline_stored_value_"


def stored_value(number: int) -> str:
    """Return the name of the column with the stored row's ordering value ``number``."""
    return f"{_STORED_VALUE}{number}"


def location_schema(ordering: Mapping[str, pa.DataType], *, everywhere: bool = False) -> pa.Schema:
    """Return the schema of locations: of stored keys that meet a key of the write.

    A location has the row's partition path, unless keys were searched ``everywhere``; the key; the
    number of the stored file; and the stored row's ordering values if they are asked for.
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
        counts: What they count to, by partition path.
        files: The newest base files of the partitions that may hold the keys; a file's number is
            its position.
        storage: The table's storage.
        tally: Takes the counts of ``search``, which the write compares with ``counts``.
        ordering: Ordering columns whose stored values are wanted, and their types.
    """

    engine: EngineContext[D]
    rows: D
    counts: Mapping[str, RowCount]
    files: tuple[StoredFile, ...]
    storage: Storage
    tally: Tally
    ordering: Mapping[str, pa.DataType] = field(default_factory=dict)


class Index(ABC):
    """Finds the stored file of each row's key, in the files that the write asks for."""

    __slots__ = ()

    @property
    @abstractmethod
    def key(self) -> tuple[str, ...]:
        """Columns that identify a record: partition path and record key, or the key alone."""

    @abstractmethod
    def locations(self, request: LocationRequest[D]) -> D:
        """Return the locations (``location_schema``) of each key of the write, one for each file.

        No location comes twice.
        """
