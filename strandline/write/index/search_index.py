"""``SearchIndex``: the indexes that search the record keys in base files.

===============  ==========================  =====================================
Index type       Files                       A file's keys are read unless
===============  ==========================  =====================================
`SIMPLE`         of the row's partition      its key range rules all keys out
`BLOOM`          of the row's partition      its range or Bloom filter does
`GLOBAL_SIMPLE`  of all partitions           its key range does
`GLOBAL_BLOOM`   of all partitions           its range or Bloom filter does
===============  ==========================  =====================================

Source: Hudi 1.2.0 ``HoodieSimpleIndex``, ``HoodieBloomIndex`` and their global subclasses.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from strandline.write.engine.base import D
from strandline.write.index.base import Index, LocationRequest, location_schema
from strandline.write.index.search import FileSearch, search_files


@dataclass(frozen=True, slots=True)
class SearchIndex(Index):
    """Finds keys by reading base files.

    Attributes:
        by_range: Whether key ranges in footers rule files out.
        by_filter: Whether Bloom filters in footers do.
        is_global: Whether a key is stored in one partition only.
        moves_rows: Whether a global index moves records to the partition of the write's row.
    """

    by_range: bool = True
    by_filter: bool = False
    is_global: bool = False
    moves_rows: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        """Columns that identify a record."""
        return (RECORD_KEY,) if self.is_global else (PARTITION_PATH, RECORD_KEY)

    @property
    def file_search(self) -> FileSearch:
        """What searches keys in the files of their own partition."""
        form = location_schema({})
        return FileSearch(by_range=self.by_range, by_filter=self.by_filter, ordering={}, form=form)

    def locations(self, request: LocationRequest[D]) -> D:
        """Search the files that neither key range nor filter rules out."""
        return search_files(
            request, by_range=self.by_range, by_filter=self.by_filter, everywhere=self.is_global
        )
