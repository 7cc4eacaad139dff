"""Whether a table's own metadata table is in step with it, and which of its files are to be read.

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
