"""Reads the blocks of a slice's logs, skips torn blocks, and refuses unsupported ones.

A writer that dies leaves a torn block: a part of a block, or garbage. If a completed instant
recorded that it wrote some of these bytes, rows are missing, which is an error; otherwise the block
is skipped. A file truncated exactly between two blocks has no torn block; this isn't detected.

Bytes after a torn block that look like a block may be a value in the torn block. They count only if
a completed instant recorded that it wrote them; Hudi's reader returns such rows.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

from fsview.model.file_group import FileSlice, LogFile
from strandline.read.instants import Archive, CommittedInstants, NeededBytes
from strandline.read.logs.block_order import PlacedBlock, blocks_in_order, uncounted
from strandline.read.logs.temp_file import LogBudget, TempFile, drop_pages
from timeline.encoding.log_block import (
    AVRO_DATA,
    CHANGE_DATA,
    DELETE,
    HFILE_DATA,
    INSTANT_TIME,
    PARQUET_DATA,
    VERSION,
    LogBlock,
    TornBlock,
    scan_blocks,
)
from timeline.errors import CorruptMetadataError, UnsupportedTableError
from timeline.meta_client import TableMetaClient
from timeline.storage.base import Storage
from timeline.storage.client_error import mapped_client_errors
from timeline.timeline import Timeline

logger = logging.getLogger(__name__)

CHANGE_DATA_SUFFIX: Final = ".cdc"
_COPIED_BYTES: Final = 8 << 20
"""Size of the pieces in which a log is copied to a file if it isn't read into memory."""
_SUPPORTED: Final = (AVRO_DATA, DELETE, PARQUET_DATA)
_NAMES: Final = {HFILE_DATA: "HFile records", CHANGE_DATA: "change data"}


@dataclass(slots=True)
class LogCounts:
    """Counts of blocks in logs.

    Attributes:
        blocks: Whole blocks, of any kind.
        merged_blocks: Blocks with records that were merged.
        torn_blocks: Torn blocks that were skipped.
    """

    blocks: int = 0
    merged_blocks: int = 0
    torn_blocks: int = 0


class LogReader:
    """Reads the logs of slices at one state of a table.

    Args:
        storage: The table's storage.
        committed: The completed instants.
        needed: Finds the bytes of logs that completed instants wrote.

    Attributes:
        counts: Blocks found so far.
    """

    def __init__(self, storage: Storage, committed: CommittedInstants, needed: NeededBytes) -> None:
        self._storage = storage
        self._committed = committed
        self._needed = needed
        self.counts = LogCounts()
        # Guards all fields; held while commits and the archive are read, each once.
        self._deciding = threading.Lock()

    @classmethod
    def at(cls, storage: Storage, meta: TableMetaClient, timeline: Timeline) -> LogReader:
        """Return a reader of a table's logs at a timeline; reads nothing yet.

        Args:
            storage: The table's storage, from which logs are read.
            meta: The table; the archive is read through its storage.
            timeline: The active timeline.
        """
        archive = Archive(meta)
        needed = NeededBytes(meta, timeline, archive)
        return cls(storage, CommittedInstants(timeline, archive), needed)

    def blocks(
        self, logs: Iterable[LogFile], budget: LogBudget | None = None
    ) -> tuple[PlacedBlock, ...]:
        """Return the blocks to merge, in order.

        Change-data logs are left out, as their records are in the other logs.

        Args:
            logs: The logs of a slice, in any order.
            budget: Memory limit; by default that of ``LogBudget()``.

        Raises:
            PathNotFoundError: A log is gone.
            CorruptMetadataError: A needed block is torn, names no instant, or names another instant
                than the completed one that wrote it.
            UnsupportedTableError: A visible block is of an unsupported kind.
            StorageError: The logs exceed the budget, and can't be copied to a temporary file.

        Cost: reads the logs, into memory within the budget, else into one file.
        """
        found: list[PlacedBlock] = []
        ordered_logs = sorted(filter(has_records, logs), key=lambda log: log.order)
        log_of = {self._path(log): log for log in ordered_logs}
        texts: dict[str, str] = {}
        data_of = read_logs(self._storage, [log.path for log in ordered_logs], budget)
        for log, data in zip(ordered_logs, data_of, strict=True):
            found += self._whole(log, data, texts)
            drop_pages(data)
        with self._deciding:
            ordered = blocks_in_order(found, self._committed.has)
            for placed in uncounted(found, self._committed.has):
                self._refuse_needed(placed, log_of[placed.path])
            self.counts.blocks += len(found)
            self.counts.merged_blocks += len(ordered)
        for placed in ordered:
            _check_supported(placed)
        return ordered

    def _whole(
        self, log: LogFile, data: bytes | memoryview, texts: dict[str, str]
    ) -> Iterator[PlacedBlock]:
        """Yield the whole blocks of a log.

        Blocks share the equal values of their headers, as each has the records' Avro schema.
        """
        path = self._path(log)
        if not data:
            self._skip(TornBlock(0, 0, "the file is empty"), log, path, 0)
        # A block after a torn one counts if a completed instant recorded that it wrote its end.
        for block in scan_blocks(
            data, lambda _, end: self._needed_of(log, end - 1, end) is not None
        ):
            if isinstance(block, TornBlock):
                self._skip(block, log, path, len(data))
                continue
            _check_version(block, path)
            if not block.header.get(INSTANT_TIME):
                end = block.offset + len(block.content)
                self._skip(TornBlock(block.begin, end, "it names no instant"), log, path, len(data))
                continue
            header = {key: texts.setdefault(text, text) for key, text in block.header.items()}
            yield PlacedBlock(replace(block, header=header), path)

    def _path(self, log: LogFile) -> str:
        return f"{self._storage.base_path}/{log.path}"

    def _refuse_needed(self, placed: PlacedBlock, log: LogFile) -> None:
        """Refuse an invisible block if a completed instant wrote it: its time is wrong."""
        if self._needed.names_writers:
            if placed.time == log.instant:
                return
        elif self._committed.may_complete(placed.time):
            return
        begin = placed.block.begin
        needed = self._needed.within(log, begin, begin + 1)
        if needed is not None:
            raise CorruptMetadataError(
                f"{placed.place} has the instant {placed.time!r:.100}, which isn't completed; a"
                f" completed instant wrote bytes {needed[0]} to {needed[1]} of the file"
            )

    def _needed_of(self, log: LogFile, begin: int, end: int | None) -> tuple[int, int] | None:
        with self._deciding:
            return self._needed.within(log, begin, end)

    def _skip(self, torn: TornBlock, log: LogFile, path: str, size: int) -> None:
        # Bytes missing at the end of the file may have been written, too.
        end = None if torn.end == size else torn.end
        needed = self._needed_of(log, torn.begin, end)
        if needed is not None:
            raise CorruptMetadataError(
                f"{path} has no whole log block at offset {torn.begin}: {torn.reason}; a completed"
                f" instant wrote bytes {needed[0]} to {needed[1]} of the file"
            )
        with self._deciding:
            self.counts.torn_blocks += 1
        logger.warning(
            "%s: skipped bytes %d to %d: no whole log block (%s); no completed instant needs them",
            path,
            torn.begin,
            torn.end,
            torn.reason,
        )


def read_log(storage: Storage, path: str) -> bytes | memoryview:
    """Read one log; arguments and result as for ``read_logs``."""
    (data,) = read_logs(storage, [path])
    return data


def read_logs(
    storage: Storage, paths: Sequence[str], budget: LogBudget | None = None
) -> list[bytes | memoryview]:
    """Read logs into memory as long as they fit into a budget, the others into one mapped file.

    Args:
        storage: The table's storage.
        paths: Paths under the base path.
        budget: The memory limit; by default that of ``LogBudget()``.

    Returns:
        The bytes of each. Those in the file are views into its one mapping: a mapping keeps a file
        open, and processes may open few files.

    Raises:
        PathNotFoundError: A log is gone.
        StorageError: The logs can't be read, or exceed the budget and can't be copied.
    """
    budget = budget or LogBudget()
    left, found = budget.size, list[bytes | tuple[int, int]]()
    with ExitStack() as stack:
        copy: TempFile | None = None
        for path in paths:
            file = storage.open_input(path)
            with file, mapped_client_errors(f"{storage.base_path}/{path}"):
                if file.size() <= left:
                    data: bytes = file.read()
                    left = max(0, left - len(data))
                    found.append(data)
                    continue
                copy = stack.enter_context(TempFile(budget)) if copy is None else copy
                begin = copy.end
                while some := file.read(_COPIED_BYTES):
                    copy.write(some)
                found.append((begin, copy.end))
        mapped = memoryview(copy.mapped() if copy is not None and copy.end else b"")
    return [each if isinstance(each, bytes) else mapped[slice(*each)] for each in found]


def has_records(log: LogFile) -> bool:
    """Return whether a log has records to merge; a change-data log repeats those of other logs."""
    return log.suffix != CHANGE_DATA_SUFFIX


def needs_merge(found: FileSlice) -> bool:
    """Return whether a slice's rows aren't just the rows of its base file."""
    return any(map(has_records, found.log_files))


def _check_version(block: LogBlock, path: str) -> None:
    if block.version != VERSION:
        raise UnsupportedTableError(
            f"{path} has a log block of version {block.version} at offset {block.begin};"
            f" supported: {VERSION}"
        )


def _check_supported(placed: PlacedBlock) -> None:
    kind = placed.block.kind
    if kind not in _SUPPORTED:
        name = _NAMES.get(kind, f"records of type {kind}")
        raise UnsupportedTableError(f"{placed.place} has {name}; supported: Avro, Parquet, deletes")
