"""``MergedSlices``: what slices hold of some keys once their logs are merged; ``LateLogs``.

A global index finds keys in base files. If a slice has logs, they may have deleted a key since, as
when its record has moved to another partition, or changed its ordering values. So the slices of
its hits are read, like by a scan, and only what they hold counts.

Late logs may have keys that the base file of their slice lacks (``StoredFile.late_logs``).

Source: Hudi 1.2.0 ``HoodieIndexUtils.getExistingRecords``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from fsview.model.file_group import FileSlice
from strandline.read.filter.row_filter import RowFilter
from strandline.read.logs.block_order import PlacedBlock
from strandline.read.logs.log_blocks import LogReader
from strandline.read.pinned_rows import SliceReader, SliceRules
from strandline.records.meta_fields import RECORD_KEY, with_meta_fields
from timeline.encoding.log_block import AVRO_DATA, PARQUET_DATA
from timeline.meta_client import TableMetaClient
from timeline.storage.base import Storage
from timeline.timeline import Timeline

_ROWS: Final = (AVRO_DATA, PARQUET_DATA)


@dataclass(frozen=True, slots=True)
class MergedSlices:
    """Reads slices at the timeline of a write; pickles.

    Attributes:
        slices: Number of a stored file → its slice; only slices with logs.
        meta: The table.
        timeline: The active timeline that the write is pinned to.
        schema: The table's own columns.
        avro_schema: The same as Avro.
        once_micros: As in ``cast.once_in_micros``.
    """

    slices: Mapping[int, FileSlice]
    meta: TableMetaClient
    timeline: Timeline
    schema: pa.Schema
    avro_schema: str | None
    once_micros: frozenset[str] = frozenset()

    def holding(
        self, storage: Storage, number: int, keys: pa.Array, columns: Sequence[str]
    ) -> pa.Table:
        """Return the rows of a slice with some keys.

        Args:
            storage: The table's storage.
            number: Number of the stored file.
            keys: Record keys (string, not null).
            columns: Columns to return after the record key.

        Raises:
            TableError: As of ``SliceReader.rows``.

        Cost: a read of the slice's logs, and of the base file's columns.
        """
        form = with_meta_fields(self.schema)
        rules = SliceRules(
            form,
            self.meta.config,
            avro_schema=self.avro_schema,
            once_micros=partial(frozenset, self.once_micros),
        )
        logs = LogReader.at(storage, self.meta, self.timeline)
        wanted = RowFilter(pc.field(RECORD_KEY).isin(keys), (RECORD_KEY,))
        shown = list(dict.fromkeys((RECORD_KEY, *columns)))
        reader = SliceReader(storage, rules, logs, shown, wanted)
        read = pa.schema([form.field(name) for name in shown])
        return pa.Table.from_batches(reader.rows(self.slices[number]), read)


@dataclass(frozen=True, slots=True)
class LateLogs:
    """Reads the late logs of slices at the timeline of a write; pickles.

    Attributes:
        slices: Number of a stored file → its slice; only slices with late logs.
        meta: The table.
        timeline: The active timeline that the write is pinned to.
    """

    slices: Mapping[int, FileSlice]
    meta: TableMetaClient
    timeline: Timeline

    def blocks(
        self, storage: Storage, number: int, paths: Collection[str]
    ) -> tuple[PlacedBlock, ...]:
        """Return the blocks with rows in some logs of a slice, without those that readers void.

        Args:
            storage: The table's storage.
            number: Number of the stored file.
            paths: Paths of the logs under the base path.

        Raises:
            TableError: As of ``LogReader.blocks``.

        Cost: a read of all logs of the slice, as another one may void blocks of these.
        """
        wanted = {f"{storage.base_path}/{path}" for path in paths}
        reader = LogReader.at(storage, self.meta, self.timeline)
        found = reader.blocks(self.slices[number].log_files)
        return tuple(each for each in found if each.path in wanted and each.block.kind in _ROWS)
