"""``LogTable``: a merge-on-read table with one file group, whose logs a test makes byte by byte."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
import pytest

from fsview.local_view import open_view
from fsview.model.file_group import FileSlice
from strandline.read.instants import Archive, CommittedInstants, NeededBytes
from strandline.read.logs.log_blocks import LogReader
from strandline.read.logs.temp_file import LogBudget
from strandline.read.pinned_rows import SliceReader, SliceRules
from strandline.records.meta_fields import IS_DELETED, with_meta_fields
from strandline.records.schema.avro_schema import arrow_to_avro, avro_with_meta_fields
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.formats.base_files import write_base_file
from tests.kit.formats.log_files import avro_block
from tests.kit.storage.memory_storage import MemoryStorage
from timeline.clock import TimeGenerator
from timeline.instant import COMPACTION, DELTA_COMMIT, Instant
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import (
    CommitMetadata,
    CompactionPlan,
    CompactionPlanOperation,
    WriteStat,
)
from timeline.storage.base import Storage
from timeline.table.config import TableConfig
from timeline.table.config_file import write_table_config
from timeline.table.partition_metadata import write_partition_metadata
from timeline.table.property_name import MERGE_ON_READ

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("v", pa.string()),
        ("p", pa.string()),
        (IS_DELETED, pa.bool_()),
    ]
)
AVRO = avro_with_meta_fields(arrow_to_avro(SCHEMA, "t"))
FILE_ID = "f-0"
LATEST = "9" * 17
IN_MEMORY = LogBudget()


def row(key: str, ts: int | None, v: str = "", *, deleted: bool | None = None) -> dict[str, Any]:
    """Return a row with its meta columns."""
    return {
        "_hoodie_commit_time": "0",
        "_hoodie_commit_seqno": "0_0_0",
        "_hoodie_record_key": key,
        "_hoodie_partition_path": "p",
        "_hoodie_file_name": FILE_ID,
        "id": key,
        "ts": ts,
        "v": v,
        "p": "p",
        IS_DELETED: deleted,
    }


VERSIONS = pytest.mark.parametrize("version", [6, 8, 9])
BASE = [row("a", 1, "base"), row("b", 1, "base"), row("c", 1, "base")]


def block_of(time: str, *rows: dict[str, Any]) -> bytes:
    """Return a block of rows."""
    return avro_block(time, AVRO, rows)


@dataclass(frozen=True)
class Log:
    """A log that was written: its path, its instant, and its bytes."""

    path: str
    instant: Instant
    data: bytes


class LogTable:
    """The table on one storage; every instant takes a second."""

    def __init__(
        self,
        storage: Storage | None = None,
        *,
        version: int = 9,
        ordering: Sequence[str] = ("ts",),
        properties: dict[str, str] | None = None,
        schema: pa.Schema | None = SCHEMA,
    ) -> None:
        self.clock = ManualClock(1_700_000_000_000)
        self.storage = MemoryStorage(now_ms=self.clock.now_ms) if storage is None else storage
        config = TableConfig.create(
            name="t",
            version=version,
            table_type=MERGE_ON_READ,
            record_key_fields=("id",),
            partition_fields=("p",),
            ordering_fields=tuple(ordering),
        ).with_properties(properties or {})
        write_table_config(self.storage, config, create=True)
        self.schema = schema
        self._times = TimeGenerator(self.clock, wait=lambda seconds: None)
        self._base = ""
        self._logs = 0

    @property
    def meta(self) -> TableMetaClient:
        return TableMetaClient.open(self.storage)

    def begin(self) -> Instant:
        """Start a delta commit."""
        self.clock.advance(1000)
        instant = self.meta.create_requested(DELTA_COMMIT, self._times.next())
        write_partition_metadata(self.storage, "p", instant.requested_time)
        return self.meta.transition_to_inflight(instant)

    def complete(
        self,
        instant: Instant,
        path: str,
        size: int,
        offset: int | None = None,
        operation: str = "UPSERT",
    ) -> None:
        """Complete a delta commit that wrote a file, or so many bytes of a log from an offset."""
        stats = (WriteStat(FILE_ID, path, file_size_in_bytes=size, log_offset=offset),)
        metadata = CommitMetadata(
            {"p": stats},
            operation_type=operation,
            extra_metadata={"schema": arrow_to_avro(self.schema, "t")} if self.schema else {},
        )
        self.clock.advance(1000)
        self.meta.complete(instant, metadata, self._times.next())

    def base(self, rows: Iterable[dict[str, Any]], schema: pa.Schema = SCHEMA) -> str:
        """Commit a base file, which begins a slice; return its path."""
        instant = self.begin()
        self._base, self._logs = instant.requested_time, 0
        path = f"p/{FILE_ID}_0-0-0_{self._base}.parquet"
        table = pa.Table.from_pylist(list(rows), with_meta_fields(schema))
        written = write_base_file(self.storage, path, table, arrow_to_avro(schema, "t"))
        self.complete(instant, path, written.size)
        return path

    def plan_compaction(self) -> str:
        """Plan a compaction, which leaves half a base file; return its time."""
        self.clock.advance(1000)
        time = self._times.next()
        planned = CompactionPlanOperation(self._base, FILE_ID, "p")
        plan = CompactionPlan((planned,))
        self.meta.transition_to_inflight(self.meta.create_requested(COMPACTION, time, plan))
        self.storage.create(f"p/{FILE_ID}_1-0-0_{time}.parquet", b"PAR1 half a file")
        if self.meta.config.version == 6:  # whose logs then go to the new slice
            self._base, self._logs = time, 0
        return time

    def log(
        self,
        content: Callable[[str], bytes],
        *,
        complete: bool = True,
        recorded: int | None = None,
        offset: int | None = None,
        suffix: str = "",
    ) -> Log:
        """Write a log.

        Args:
            content: Returns the log's bytes, from its instant's time.
            complete: Whether the instant completes.
            recorded: The size that the commit records, if not the log's.
            offset: The offset that the commit records.
            suffix: Of the log's name.
        """
        instant = self.begin()
        time = instant.requested_time
        self._base = self._base or time
        self._logs += 1
        name = (
            f"{self._base}.log.{self._logs}" if self.meta.config.version == 6 else f"{time}.log.1"
        )
        path, data = f"p/.{FILE_ID}_{name}_0-0-0{suffix}", content(time)
        self.storage.create(path, data)
        if complete:
            self.complete(instant, path, len(data) if recorded is None else recorded, offset)
        return Log(path, instant, data)

    def rows_log(self, *rows: dict[str, Any], complete: bool = True) -> Log:
        """Write a log with a block of rows."""
        return self.log(lambda time: block_of(time, *rows), complete=complete)


def based(version: int = 9, **settings: Any) -> LogTable:
    """Return a table in memory whose base file has the rows of ``BASE``."""
    table = LogTable(version=version, **settings)
    table.base(BASE)
    return table


def read(
    storage: Storage,
    schema: pa.Schema = SCHEMA,
    columns: Sequence[str] | None = None,
    as_of: str = LATEST,
    budget: LogBudget = IN_MEMORY,
) -> tuple[pa.Table, LogReader]:
    """Read a table's slices as of an instant; return the rows, and the reader for its counts."""
    batches, logs = stream(storage, schema, columns, as_of, budget)
    full = with_meta_fields(schema)
    shown = full if columns is None else [full.field(name) for name in columns]
    return pa.Table.from_batches(batches, pa.schema(shown)), logs


def stream(
    storage: Storage,
    schema: pa.Schema = SCHEMA,
    columns: Sequence[str] | None = None,
    as_of: str = LATEST,
    budget: LogBudget = IN_MEMORY,
) -> tuple[Iterator[pa.RecordBatch], LogReader]:
    """Begin to read as ``read`` does."""
    meta = TableMetaClient.open(storage)
    with closing(open_view(storage)) as view:
        seen = view.snapshot.active.filter(lambda instant: instant.requested_time <= as_of)
        archive = Archive(meta)
        committed = CommittedInstants(seen, archive)
        logs = LogReader(storage, committed, NeededBytes(meta, seen, archive))
        rules = SliceRules(with_meta_fields(schema), meta.config, budget)
        slices = [
            found
            for partition in sorted(view.all_latest_file_slices_before_or_on(LATEST))
            for found in view.latest_merged_file_slices_before_or_on(partition, as_of)
        ]
    reader = SliceReader(storage, rules, logs, columns)
    return chain.from_iterable(map(reader.rows, slices)), logs


def sliced(storage: Storage) -> tuple[FileSlice, LogReader]:
    """Return the newest slice of a table that has one, and a reader of its logs."""
    meta = TableMetaClient.open(storage)
    with closing(open_view(storage)) as view:
        (found,) = view.latest_merged_file_slices_before_or_on("p", LATEST)
        return found, LogReader.at(storage, meta, view.snapshot.active)


def values(storage: Storage) -> dict[str, str]:
    """Return the keys of a table's rows, with the column ``v``."""
    rows, _ = read(storage, columns=["id", "v"])
    found = dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))
    assert len(found) == rows.num_rows
    return found
