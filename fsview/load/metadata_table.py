"""The files of a whole table, from its own metadata table.

``fsview.load.metadata_table_state`` finds the files to read. The logs are added up first; then the
records of the base file are merged and packed one by one. So memory is bounded by the bytes of the
base file, the changes in the logs, and the names of one partition.

Of several sizes of a file the greatest counts, so the order of blocks matters only for names that
are deleted and used again, as those of partitions are: the later record counts.

Source: Hudi 1.2.0 ``HoodieMergedLogRecordScanner``,
``HoodieMetadataPayload.combineFileSystemMetadata``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from fsview.files.partition import PartitionVersion
from fsview.load.metadata_table_state import (
    BEHIND,
    FILES,
    FOLDER,
    UNKNOWN,
    UNSUPPORTED,
    CompletedTimes,
    FilesSlice,
    NotInStepError,
    is_beginning,
)
from fsview.snapshot.snapshot import Snapshot
from timeline.encoding.log_block import (
    COMMAND,
    COMMAND_TYPE,
    COMPACTED_TIMES,
    INSTANT_TIME,
    TARGET_INSTANT_TIME,
    LogBlock,
    read_blocks,
)
from timeline.errors import CorruptMetadataError
from timeline.meta_client import TableMetaClient
from timeline.metadata.files_record import (
    ALL_PARTITIONS,
    NOT_PARTITIONED,
    Files,
    base_records,
    block_records,
)
from timeline.storage.base import FileInfo, FileKind

_ROLL_BACK: Final = "0"
"""The only command supported in a command block."""


def read(
    client: TableMetaClient, snapshot: Snapshot, found: FilesSlice
) -> tuple[dict[str, PartitionVersion], frozenset[str]]:
    """Return partition → files, and all partitions of the table.

    Args:
        client: The table, its calls booked under ``bootstrap``.
        snapshot: The snapshot asked for.
        found: What ``newest_slice`` returned.

    Raises:
        NotInStepError: The metadata table isn't in step after all.
        CorruptMetadataError: A file of it is damaged.
        PathNotFoundError: A file of it was deleted meanwhile.

    Cost: a read for each file.
    """
    storage = client.storage.for_cause("bootstrap")
    changes = _Changes(CompletedTimes(snapshot), f"{storage.base_path}/{FOLDER}/{FILES}")
    for log in found.logs:
        path = f"{FOLDER}/{FILES}/{log.name}"
        changes.add_file(storage.read(path, FileKind.METADATA_TABLE, log.size), log.name)
    changes.fold(found.unmerged)
    path = f"{FOLDER}/{FILES}/{found.base.name}"
    data = storage.read(path, FileKind.METADATA_TABLE, found.base.size)
    records = base_records(data, f"{storage.base_path}/{path}")
    return _packed(changes.applied_to(records), snapshot.config.base_extensions)


@dataclass
class _Changes:
    """The changes in the logs of a slice: for each record the files added and deleted."""

    committed: CompletedTimes
    folder: str
    blocks: list[tuple[str, LogBlock]] = field(default_factory=list)
    files: dict[str, dict[str, int | None]] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)

    def add_file(self, data: bytes, name: str) -> None:
        """Add a log's blocks; a rollback command removes those of its target."""
        source = f"{self.folder}/{name}"
        for block in read_blocks(data, source):
            if COMPACTED_TIMES in block.header:
                raise NotInStepError(UNSUPPORTED, f"{source} has blocks of a log compaction")
            if block.kind != COMMAND:
                self.blocks.append((source, block))
                continue
            command = block.header.get(COMMAND_TYPE)
            if command != _ROLL_BACK:
                raise NotInStepError(UNSUPPORTED, f"{source} has a command {command!r}")
            target = block.header.get(TARGET_INSTANT_TIME)
            # Hudi rolls back by appending a command, which names the time of blocks before it.
            self.blocks = [(s, b) for s, b in self.blocks if b.header.get(INSTANT_TIME) != target]

    def fold(self, unmerged: frozenset[str]) -> None:
        """Add up the blocks of completed instants.

        Args:
            unmerged: Times of instants that must have a block.

        Raises:
            NotInStepError: One has none, or a block is of an instant that doesn't exist.
        """
        seen = set()
        for source, block in self.blocks:
            time = block.header.get(INSTANT_TIME, "")
            if not is_beginning(time) and not self.committed.has(time):
                # A writer completes here before it does in the table, where this doesn't count yet.
                if self.committed.is_to_come(time):
                    continue
                raise NotInStepError(UNKNOWN, f"{source} has a block of an instant {time!r}")
            seen.add(time)
            for key, files in block_records(block, source):
                self._add(key, files)
        self.blocks.clear()
        # A writer that doesn't maintain the metadata table leaves no block in it.
        if not unmerged <= seen:
            lacking = ", ".join(sorted(unmerged - seen))
            raise NotInStepError(BEHIND, f"no block in {self.folder} is of {lacking}")

    def _add(self, key: str, files: Files | None) -> None:
        if files is None:
            self.files.pop(key, None)
            self.dropped.add(key)
        else:
            _merge(self.files.setdefault(key, {}), files)

    def applied_to(self, records: Iterable[tuple[str, Files]]) -> Iterator[tuple[str, Files]]:
        """Yield the records with the changes, then those only in logs; each is freed."""
        for key, files in records:
            merged = {} if key in self.dropped else dict(files)
            _merge(merged, self.files.pop(key, {}))
            yield key, merged
        while self.files:
            yield self.files.popitem()


def _merge(files: dict[str, int | None], newer: Mapping[str, int | None]) -> None:
    for name, size in newer.items():
        before = files.get(name)
        # A log may be appended to, and its greatest size is the newest then.
        files[name] = size if size is None or before is None else max(size, before)


def _packed(
    records: Iterable[tuple[str, Files]], extensions: tuple[str, ...]
) -> tuple[dict[str, PartitionVersion], frozenset[str]]:
    """Pack the partitions one by one; see ``read``."""
    known: frozenset[str] | None = None
    versions: dict[str, PartitionVersion] = {}
    for key, files in records:
        if key == ALL_PARTITIONS:
            known = frozenset(_path(name) for name, size in files.items() if size is not None)
            continue
        partition = _path(key)
        if partition in versions:
            raise CorruptMetadataError(f"{FOLDER}/{FILES} has two records of {partition!r}")
        listing = (FileInfo(name, size, 0) for name, size in files.items() if size is not None)
        versions[partition] = PartitionVersion.of_listing(partition, listing, extensions)
    if known is None:
        raise CorruptMetadataError(f"{FOLDER}/{FILES} has no record {ALL_PARTITIONS!r}")
    for partition in versions.keys() - known:
        if not versions.pop(partition).is_empty:
            raise NotInStepError(UNKNOWN, f"{partition!r} has files and is no partition")
    for partition in known - versions.keys():
        versions[partition] = PartitionVersion(partition)
    return versions, known


def _path(key: str) -> str:
    return "" if key == NOT_PARTITIONED else key
