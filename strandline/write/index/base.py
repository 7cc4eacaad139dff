"""``Index``: the contract of all indexes. ``LocationRequest``: what a write asks of its index.

An index finds the stored files that hold the keys of a write. ``strandline.write.tagging`` joins
the rows to what it finds, whichever index that is.

Source: Hudi 1.2.0 ``HoodieIndex``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Generic

import pyarrow as pa

from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from strandline.write.columns import FILE
from strandline.write.engine import D, EngineContext, Tally
from strandline.write.placement import StoredFile
from strandline.write.row_count import RowCount
from timeline.storage.base import Storage

LOCATION_SCHEMA: Final = pa.schema(
    [(PARTITION_PATH, pa.string()), (RECORD_KEY, pa.string()), (FILE, pa.int32())]
)
"""A stored key that meets a key of the write: the row's partition path, the key, and the number of
the stored file."""


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
    """

    engine: EngineContext[D]
    rows: D
    counts: Mapping[str, RowCount]
    files: tuple[StoredFile, ...]
    storage: Storage
    tally: Tally


class Index(ABC):
    """Finds the stored file of each row's key.

    Attributes:
        key: Columns that identify a record: partition path and record key, or with a global index
            the record key alone.
    """

    key: tuple[str, ...] = (PARTITION_PATH, RECORD_KEY)

    @abstractmethod
    def locations(self, request: LocationRequest[D]) -> D:
        """Return rows of ``LOCATION_SCHEMA``: one for each key of the write and file that holds it.

        No row comes twice. The partition path is the row's own, not that of the file.
        """
