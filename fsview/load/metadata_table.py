"""The files of a whole table, from its own metadata table, if that is in step with the table.

``.hoodie/metadata`` is a merge-on-read table whose partition ``files`` is one file group: a base
file with every file of every partition, and logs with the files added and deleted since. A writer
completes its instant there before it completes the one of the same time in the table. So entries
count only if their instant is completed in the table, and the metadata table is complete if

* for every completed instant of the table that touches files, it has an instant of the same time,
  in the base file or in a block of the logs; where its own timeline begins later, earlier instants
  are in the base file, by a later compaction or by the listing that the table began with;
* the base file has nothing of instants that aren't completed in the table;
* nothing is being rolled back in it, and it has no log compactions.

That the table has no files but those of completed instants, ``fsview.load.source_choice`` checks.
Writers that don't maintain the metadata table must delete it. If one doesn't, its instants show
that, as long as the metadata table's timeline goes back to them.

``newest_slice`` finds the files to read, and ``read`` reads them. The logs are added up first; then
the records of the base file are merged and packed one by one. So memory is bounded by the bytes of
the base file, the changes in the logs, and the names of one partition. Of several sizes of a file
the greatest counts, so the order of blocks matters only for names that are deleted and used again,
as those of partitions are: the later record counts.

Source: Hudi 1.2.0 ``HoodieBackedTableMetadata``, ``HoodieMergedLogRecordScanner``,
``HoodieTableMetadataUtil.getValidInstantTimestamps``,
``HoodieMetadataPayload.combineFileSystemMetadata``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from fsview.files.partition import PartitionVersion
from fsview.load.commit_files import to_read
from fsview.model.file_group import BaseFile, LogFile
from fsview.model.file_name import data_files
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
from timeline.instant import (
    DELTA_COMMIT,
    LOG_COMPACTION,
    RESTORE,
    ROLLBACK,
    SAVEPOINT,
    WRITE_ACTIONS,
    Instant,
)
from timeline.meta_client import TableMetaClient
from timeline.metadata.files_record import (
    ALL_PARTITIONS,
    NOT_PARTITIONED,
    Files,
    base_records,
    block_records,
)
from timeline.storage.base import FileInfo, FileKind
from timeline.table.config import META_FOLDER
from timeline.timeline import Timeline

FOLDER: Final = f"{META_FOLDER}/metadata"
FILES: Final = "files"
LISTS: Final = 2
"""List calls that ``newest_slice`` makes."""

MISSING: Final = "missing"
BEHIND: Final = "behind"
AHEAD: Final = "ahead"
PENDING: Final = "pending"
UNKNOWN: Final = "unknown"
UNSUPPORTED: Final = "unsupported"
"""Why a metadata table isn't used: it doesn't exist; it lacks an instant of the table; its base
file has an instant that isn't completed in the table yet; something is being rolled back in it; it
has instants or files that the table doesn't have; its format isn't supported."""

_BASE_EXTENSIONS: Final = (".hfile",)
_BEGINNING: Final = "00000000000000"
"""Prefix of the instants that created the metadata table's partitions from a listing."""

_TIME_DIGITS: Final = 17


class NotInStepError(Exception):
    """The metadata table doesn't equal a listing.

    Attributes:
        reason: One of the constants above.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class FilesSlice:
    """The newest slice of the partition ``files``.

    Attributes:
        base: The base file.
        logs: The logs to be merged into it, in order.
        unmerged: Times of completed instants that the logs must have.
    """

    base: BaseFile
    logs: tuple[LogFile, ...]
    unmerged: frozenset[str]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The files' sizes in bytes."""
        return (self.base.size, *(log.size for log in self.logs))


def has_metadata_table(snapshot: Snapshot) -> bool:
    """Whether a table's properties name a metadata table with its files."""
    return FILES in snapshot.config.metadata_partitions


def metadata_timeline(client: TableMetaClient) -> Timeline:
    """Return the active timeline of a table's metadata table; empty without one.

    Cost: a list call.
    """
    storage, layout = client.storage.for_cause("bootstrap"), client.layout
    found = storage.list(f"{FOLDER}/{layout.folder}")
    parsed = (layout.parse(e.name, e.mtime_ms) for e in found if not e.is_dir)
    return Timeline.of(instant for instant in parsed if instant is not None)


def newest_slice(client: TableMetaClient, snapshot: Snapshot) -> FilesSlice:
    """Return the files to be read, if the timeline of the metadata table shows that it is in step.

    Args:
        client: The table, its calls booked under ``bootstrap``.
        snapshot: The snapshot asked for.

    Raises:
        NotInStepError: It isn't in step.

    Cost: two list calls.
    """
    storage = client.storage.for_cause("bootstrap")
    # The timeline before the files: a base file written since has no completed instant on it, and
    # isn't used.
    active = metadata_timeline(client)
    for instant in active:
        if instant.action in (ROLLBACK, RESTORE) and not instant.is_completed:
            raise NotInStepError(PENDING, f"{instant} is under way in {FOLDER}")
        if instant.action == LOG_COMPACTION:
            raise NotInStepError(UNSUPPORTED, f"{instant} in {FOLDER}")
    files = data_files(FILES, storage.list(f"{FOLDER}/{FILES}"), _BASE_EXTENSIONS)
    if len({file.file_id for file in files}) > 1:
        raise NotInStepError(UNSUPPORTED, f"several file groups in {FOLDER}/{FILES}")
    return _Comparison(snapshot, active).slice_of(files)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Compares a table with the active timeline of its metadata table."""

    snapshot: Snapshot
    active: Timeline

    def slice_of(self, files: Iterable[BaseFile | LogFile]) -> FilesSlice:
        files = tuple(files)
        bases = [f for f in files if isinstance(f, BaseFile) and self._is_written(f.instant)]
        if not bases:
            raise NotInStepError(MISSING, f"no base file in {FOLDER}/{FILES}")
        base = max(bases, key=lambda file: file.instant)
        self._check_merged(base.instant)
        done = to_read(self.snapshot.active)
        unmerged = frozenset(
            instant.requested_time for instant in done if self._is_due(instant, base.instant)
        )
        logs = [f for f in files if isinstance(f, LogFile) and self._is_after(f, base.instant)]
        logs.sort(key=lambda log: (log.instant, log.version, log.write_token or ""))
        return FilesSlice(base, tuple(logs), unmerged)

    def _is_written(self, time: str) -> bool:
        """Whether a base file is complete: its instant is completed, or archived."""
        found = self.active.find(time)
        first = self.active.first
        return (
            found.is_completed
            if found is not None
            else first is not None and (time < first.requested_time)
        )

    def _check_merged(self, base: str) -> None:
        committed = CompletedTimes(self.snapshot)
        for instant in self.active:
            time = instant.requested_time
            if instant.action != DELTA_COMMIT or not instant.is_completed or _is_own(time):
                continue
            if self._is_merged(instant, base) and not committed.has(time):
                # A writer completes here first; once compacted, its files can't be left out.
                reason = AHEAD if committed.is_to_come(time) else UNKNOWN
                raise NotInStepError(reason, f"{FOLDER} has merged {instant}")

    def _is_due(self, instant: Instant, base: str) -> bool:
        """Whether the logs must have an instant's changes; otherwise the base file has them.

        Raises:
            NotInStepError: Neither has them.
        """
        counterpart = self.active.find(instant.requested_time, DELTA_COMMIT)
        if counterpart is not None and counterpart.is_completed:
            return not self._is_merged(counterpart, base)
        if counterpart is None and self._is_before(instant, base):
            return False
        raise NotInStepError(BEHIND, f"{instant} isn't in {FOLDER}")

    def _is_merged(self, instant: Instant, base: str) -> bool:
        """Whether the base file has the changes of an instant of the metadata table."""
        if self.snapshot.logs_by_completion:
            # From version 8 on completion decides what a compaction merges.
            return (instant.completion_time or instant.requested_time) < base
        return instant.requested_time < base

    def _is_before(self, instant: Instant, base: str) -> bool:
        """Whether an instant is from before the metadata table's timeline."""
        times = (i.requested_time for i in self.active if i.action == DELTA_COMMIT)
        oldest = min((time for time in times if not is_beginning(time)), default=None)
        if oldest is not None and instant.requested_time >= oldest:
            return False
        if not is_beginning(base):
            return instant.requested_time < base
        began, ended = self.active.find(base), instant.completion_time
        return (
            began is not None
            and None not in (began.completion_time, ended)
            and str(ended) <= str(began.completion_time)
        )

    def _is_after(self, log: LogFile, base: str) -> bool:
        """Whether a log is to be merged into a base file."""
        if not self.snapshot.logs_by_completion:
            return log.instant >= base  # this slice, or one whose compaction pends
        writer = self.active.find(log.instant, DELTA_COMMIT)
        return writer is not None and writer.is_completed and not self._is_merged(writer, base)


class CompletedTimes:
    """The times of a snapshot's completed instants, including archived ones."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._active = snapshot.active
        self._times = frozenset(i.requested_time for i in self._active if i.is_completed)
        # Writes, cleans and savepointed commits are archived separately: what is older than the
        # first write that isn't savepointed counts as archived.
        saved = {i.requested_time for i in self._active if i.action == SAVEPOINT}
        writes = (i.requested_time for i in self._active if i.action in WRITE_ACTIONS)
        self._first = next((time for time in writes if time not in saved), "")

    def has(self, time: str) -> bool:
        """Whether an instant of this time is completed."""
        if time in self._times:
            return True
        return time < self._first and not self._active.contains_time(time)

    def is_to_come(self, time: str) -> bool:
        """Whether an instant is pending, or newer than all."""
        last = self._active.last
        return self._active.contains_time(time) or last is None or time > last.requested_time


def is_beginning(time: str) -> bool:
    """Whether an instant of the metadata table created its partitions."""
    return time.startswith(_BEGINNING)


def _is_own(time: str) -> bool:
    """Whether an instant of the metadata table is its own, which shows in more digits."""
    return is_beginning(time) or len(time) > _TIME_DIGITS


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
