"""Whether a table's own metadata table is in step with it, and which of its files then say all.

``.hoodie/metadata`` is a merge-on-read table whose partition ``files`` is one file group: a base
file that has every file of every partition, and logs with what was added and deleted since. A
writer completes its instant there before its own, under the same time. So what is there counts only
if it is completed here too; and it says all if

* every completed instant that touches files has one of its time there, in the base file or in a
  block of the logs; where the metadata table's own timeline begins later, what came before is in
  the base file: of a compaction later than it, or of the listing that the table began with;
* the base file has nothing that isn't completed here;
* nothing is being undone there, and no log compaction took part.

Whether nothing else lies in the table than completed instants wrote, ``fsview.load.source_choice``
decides. Writers that don't keep a metadata table up to date are bound to delete it. One that
doesn't is found out by its instants, as long as the metadata table's timeline goes back to them.

Source: Hudi 1.2.0 ``HoodieBackedTableMetadata``,
``HoodieTableMetadataUtil.getValidInstantTimestamps``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from fsview.load.commit_files import to_read
from fsview.model.file_group import BaseFile, LogFile
from fsview.model.file_name import data_files
from fsview.snapshot.snapshot import Snapshot
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
from timeline.table.config import META_FOLDER
from timeline.timeline import Timeline

FOLDER: Final = f"{META_FOLDER}/metadata"
FILES: Final = "files"
LISTS: Final = 2
"""List calls that ``look`` makes."""

MISSING: Final = "missing"
BEHIND: Final = "behind"
AHEAD: Final = "ahead"
PENDING: Final = "pending"
UNKNOWN: Final = "unknown"
UNSUPPORTED: Final = "unsupported"
"""Why a metadata table isn't used: it isn't there; an instant of the table isn't in it; its base
file has one that isn't completed yet; something is being undone in it; it has instants or files
that the table doesn't know; it has a form that isn't read."""

_BASE_EXTENSIONS: Final = (".hfile",)
_BEGINNING: Final = "00000000000000"
"""Instants of this time and more digits made the metadata table's partitions, from a listing."""

_TIME_DIGITS: Final = 17


class NotInStepError(Exception):
    """The metadata table doesn't say what a listing says.

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
        logs: What is to be merged into it, in this order.
        unmerged: Times of completed instants that the logs must have.
    """

    base: BaseFile
    logs: tuple[LogFile, ...]
    unmerged: frozenset[str]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The files' sizes in bytes."""
        return (self.base.size, *(log.size for log in self.logs))


def is_there(snapshot: Snapshot) -> bool:
    """Whether a table's properties say that it has a metadata table with its files."""
    return FILES in snapshot.config.metadata_partitions


def look(client: TableMetaClient, snapshot: Snapshot) -> FilesSlice:
    """Return what is to be read, if the metadata table is in step so far as its timeline shows.

    Args:
        client: The table, its calls booked under ``bootstrap``.
        snapshot: The table at the instant that is asked for.

    Raises:
        NotInStepError: It isn't.

    Cost: two list calls.
    """
    storage, layout = client.storage.for_cause("bootstrap"), client.layout
    found = storage.list(f"{FOLDER}/{layout.folder}")
    parsed = (layout.parse(e.name, e.mtime_ms) for e in found if not e.is_dir)
    active = Timeline.of(instant for instant in parsed if instant is not None)
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
    """The timelines of a table and of its metadata table, side by side."""

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
        """Whether a base file is whole: its instant completed, if only in the archive."""
        found = self.active.find(time)
        first = self.active.first
        return (
            found.is_completed
            if found is not None
            else first is not None and (time < first.requested_time)
        )

    def _check_merged(self, base: str) -> None:
        committed = Committed(self.snapshot)
        for instant in self.active:
            time = instant.requested_time
            if instant.action != DELTA_COMMIT or not instant.is_completed or _is_own(time):
                continue
            if self._is_merged(instant, base) and not committed.has(time):
                reason = AHEAD if committed.is_to_come(time) else UNKNOWN
                raise NotInStepError(reason, f"{FOLDER} has merged {instant}")

    def _is_due(self, instant: Instant, base: str) -> bool:
        """Whether the logs must have what an instant did; else the base file has it.

        Raises:
            NotInStepError: Neither can be.
        """
        there = self.active.find(instant.requested_time, DELTA_COMMIT)
        if there is not None and there.is_completed:
            return not self._is_merged(there, base)
        if there is None and self._is_before(instant, base):
            return False
        raise NotInStepError(BEHIND, f"{instant} isn't in {FOLDER}")

    def _is_merged(self, there: Instant, base: str) -> bool:
        """Whether the base file has what one of the metadata table's instants did."""
        if self.snapshot.logs_by_completion:
            return (there.completion_time or there.requested_time) < base
        return there.requested_time < base

    def _is_before(self, instant: Instant, base: str) -> bool:
        """Whether an instant is from before the metadata table's timeline."""
        told = (i.requested_time for i in self.active if i.action == DELTA_COMMIT)
        oldest = min((time for time in told if not is_beginning(time)), default=None)
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
            return log.instant >= base  # of this slice, or of one whose compaction pends
        writer = self.active.find(log.instant, DELTA_COMMIT)
        return writer is not None and writer.is_completed and not self._is_merged(writer, base)


class Committed:
    """Which times are those of completed instants of a snapshot, archived ones included."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._active = snapshot.active
        self._times = frozenset(i.requested_time for i in self._active if i.is_completed)
        # Writes, cleans and savepointed commits are archived apart: where all writes are still
        # there, nothing that was written is older.
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
    """Whether an instant of the metadata table made its partitions."""
    return time.startswith(_BEGINNING)


def _is_own(time: str) -> bool:
    """Whether an instant of the metadata table is none of the table's: it has more digits."""
    return is_beginning(time) or len(time) > _TIME_DIGITS
