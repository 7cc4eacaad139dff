"""``TableMetaClient``: a table's properties, its instants, and what their files say.

An instant moves requested → inflight → completed. Each state is one file, created once, atomically,
with its whole content, and never changed; the completed file is the commit point. So who loses the
race for a name has lost the race for the state. Pending files stay after completion.

Source: Hudi 1.2.0 ``HoodieTableMetaClient``, ``ActiveTimelineV1``/``V2``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from timeline.archive.archived_timeline import ArchivedTimeline, read_archived_timeline
from timeline.completion import CompletionTimes
from timeline.errors import (
    AlreadyExistsError,
    ConcurrentWriteError,
    CorruptMetadataError,
    IllegalTransitionError,
    InstantNotFoundError,
    PathNotFoundError,
)
from timeline.instant import (
    ACTIONS,
    CLUSTERING,
    COMPACTION,
    LOG_COMPACTION,
    REPLACE_COMMIT,
    RESTORE,
    ROLLBACK,
    SAVEPOINT,
    Instant,
    State,
    completed_action,
)
from timeline.layout import TimelineLayout
from timeline.metadata import codec
from timeline.metadata.instant_metadata import (
    CleanMetadata,
    CommitMetadata,
    InstantMetadata,
    RestoreMetadata,
    RollbackMetadata,
)
from timeline.metadata.written_files import CommitFiles, commit_files
from timeline.storage.base import Storage
from timeline.storage.read_limits import FileKind
from timeline.table.config import TableConfig
from timeline.table.config_file import read_table_config
from timeline.timeline import Timeline

_BASE_FILE: Final = re.compile(r"(?:.*/)?[^._/][^_/]*_[^_/]+_(\d{14,17})\.\w+", re.ASCII)
"""``<file id>_<write token>_<instant>.<extension>``."""


class TableMetaClient:
    """One table, seen through its ``.hoodie`` folder; holds no state of the timeline.

    Attributes:
        storage: The table's storage.
        config: Its properties, as read when the client was made.
        layout: Where and how its instants' files are named.
    """

    def __init__(self, storage: Storage, config: TableConfig, *, cause: str | None = None) -> None:
        """Make a client; ``cause`` is what all its calls are booked under."""
        self.storage = storage
        self.config = config
        self.layout = TimelineLayout.of(config)
        self._cause = cause
        self._reading = storage.for_cause(cause or "timeline")
        self._writing = storage.for_cause(cause or "commit")

    @classmethod
    def open(cls, storage: Storage, *, cause: str | None = None) -> TableMetaClient:
        """Read the table's properties and return its client.

        Args:
            storage: The table's storage.
            cause: What all its calls are booked under; ``None``: reading the properties under
                ``table``, and the rest as ``for_cause`` says.

        Raises:
            TableNotFoundError: There is no table.
            CorruptMetadataError: Its properties can't be read.
            UnsupportedTableError: It is of a version or type that can't be handled.

        Cost: one read.
        """
        config = read_table_config(storage.for_cause(cause or "table"))
        return cls(storage, config, cause=cause)

    def for_cause(self, cause: str) -> TableMetaClient:
        """Return this client with all its storage calls booked under ``cause``.

        Otherwise reading is booked under ``timeline`` and creating instants' files under
        ``commit``.
        """
        return TableMetaClient(self.storage, self.config, cause=cause)

    # Reading.

    def active_timeline(self) -> Timeline:
        """Return the active timeline as it is now.

        Cost: one list call.
        """
        entries = self._reading.list(self.layout.folder)
        parsed = (self.layout.parse(e.name, e.mtime_ms, e.size) for e in entries if not e.is_dir)
        return Timeline.of(instant for instant in parsed if instant is not None)

    def as_found(self, instant: Instant) -> Instant:
        """Return a pending instant as its file says it: layout 1 knows when that was written.

        Raises:
            InstantNotFoundError: There is no such file (any more).

        Cost: one stat in layout 1, none in layout 2 or if the instant is completed.
        """
        if self.config.layout_version > 1 or instant.is_completed:
            return instant
        info = self._reading.stat(self.path_of(instant))
        found = None if info is None else self.layout.parse(info.name, info.mtime_ms, info.size)
        if found is None:
            raise InstantNotFoundError(f"{instant} has no file {self.path_of(instant)}")
        return found

    def archived_timeline(self) -> ArchivedTimeline:
        """Return the instants that were moved out of the active timeline.

        Cost: layout 2: two reads and one for each file of the history that is asked for; layout 1:
            one list and a read of every archive file.
        """
        return read_archived_timeline(self._reading, self.config)

    def completion_times(
        self, timeline: Timeline, before: CompletionTimes | None = None
    ) -> CompletionTimes:
        """Return the completion times seen from an active timeline of this table.

        Args:
            timeline: The timeline.
            before: Those seen from an earlier one, see ``CompletionTimes.of``.
        """
        return CompletionTimes.of(timeline, self.config.version, before=before)

    def read_archived_times(self, times: CompletionTimes, start: str) -> None:
        """Have the archive's completion times read back to a requested time, unless they were.

        Cost: none if they were; else two reads and one for each file of the history with such
            instants.
        """
        times.read_archive(start, lambda a, b: self.archived_timeline().completion_times(a, b))

    def path_of(self, instant: Instant) -> str:
        """Return the path of the file that puts an instant in its state."""
        return f"{self.layout.folder}/{self.layout.file_name(instant)}"

    def read_bytes(self, instant: Instant) -> bytes:
        """Return the content of the file of an instant in its state.

        Raises:
            InstantNotFoundError: There is no such file (any more).
        """
        path = self.path_of(instant)
        try:
            return self._reading.read(path, FileKind.INSTANT, instant.size_bytes)
        except PathNotFoundError as exc:
            raise InstantNotFoundError(f"{instant} has no file {path}") from exc

    def read(self, instant: Instant) -> InstantMetadata:
        """Return what the file of an instant in its state says; the codec says in which class.

        Raises:
            InstantNotFoundError: There is no such file (any more).
            CorruptMetadataError: It can't be read, tells of another instant, or is of a completed
                replacecommit and empty.
        """
        kind = codec.metadata_type(instant.action, instant.state)
        found = self._decoded(kind, instant, missed=_missed(instant))
        said = _time_said(found) if instant.is_completed else None
        self._check_time(instant, said)
        if isinstance(found, CommitMetadata) and _has_negative_size(found):
            raise CorruptMetadataError(f"{self._source(instant)} has a file of negative size")
        return found

    def read_files(self, instant: Instant) -> InstantMetadata | CommitFiles:
        """Return what a completed instant says; of a commit only what it says of files.

        Raises:
            InstantNotFoundError: As ``read``.
            CorruptMetadataError: As ``read``, but nobody looks at a commit's statistics.
        """
        if codec.metadata_type(instant.action, instant.state) is not CommitMetadata:
            return self.read(instant)
        data = self._bytes(instant, missed=_missed(instant))
        found = commit_files(data, source=self._source(instant))
        self._check_time(instant, _time_in_names(f[0][0] for f in found.files.values() if f))
        return found

    def _check_time(self, instant: Instant, said: str | None) -> None:
        """Refuse what tells of another instant."""
        if said not in (None, instant.requested_time):
            raise CorruptMetadataError(f"{self._source(instant)} tells of an instant {said!r}")

    def read_plan(self, instant: Instant) -> InstantMetadata:
        """Return the plan in the requested file of an instant, whatever state the instant is in.

        Of a completed instant the action that was requested isn't known from its name (a commit may
        have been a compaction): pass it with the action that it was requested with.

        Raises:
            InstantNotFoundError: There is no requested file.
            CorruptMetadataError: It can't be read, or is empty though what it plans may be under
                way.
        """
        requested = Instant(instant.requested_time, instant.action, State.REQUESTED)
        missed = "is planned" if _has_plan(instant) else None
        return self._decoded(codec.plan_type(instant.action), requested, missed=missed)

    def _decoded(
        self, kind: type[InstantMetadata], instant: Instant, *, missed: str | None
    ) -> InstantMetadata:
        data = self._bytes(instant, missed=missed)
        return codec.decode(kind, data, source=self._source(instant))

    def _bytes(self, instant: Instant, *, missed: str | None) -> bytes:
        """Read a file; ``missed`` is what an empty one fails to say, ``None`` if it may be."""
        data = self.read_bytes(instant)
        if missed is not None and not data:
            raise CorruptMetadataError(
                f"{self._source(instant)} (0 bytes) doesn't say what {missed}"
            )
        return data

    def _source(self, instant: Instant) -> str:
        return f"{self.storage.base_path}/{self.path_of(instant)}"

    # State changes.

    def create_requested(
        self, action: str, time: str, metadata: InstantMetadata | None = None
    ) -> Instant:
        """Put a new instant on the timeline.

        Args:
            action: What is going to happen.
            time: Requested time, later than any on the timeline.
            metadata: The plan; ``None`` for an empty file.

        Raises:
            IllegalTransitionError: No action begins so: an unknown one, or a savepoint.
            ConcurrentWriteError: Another writer took this time for this action.
        """
        if action not in ACTIONS or action == SAVEPOINT:
            raise IllegalTransitionError(f"no instant of action {action!r} can be requested")
        return self._create(Instant(time, action, State.REQUESTED), metadata)

    def transition_to_inflight(
        self, instant: Instant, metadata: InstantMetadata | None = None
    ) -> Instant:
        """Move an instant from requested to inflight; a savepoint begins so, of its commit's time.

        Args:
            instant: The instant in state requested.
            metadata: A commit's profile; ``None`` for an empty file.

        Raises:
            IllegalTransitionError: The instant isn't requested, or its requested file is gone:
                somebody rolled it back.
            ConcurrentWriteError: Another writer was first.
        """
        self._expect(instant, State.REQUESTED)
        if instant.action != SAVEPOINT:
            self._expect_file(instant)
        return self._create(
            Instant(instant.requested_time, instant.action, State.INFLIGHT), metadata
        )

    def complete(
        self, instant: Instant, metadata: InstantMetadata, completion_time: str
    ) -> Instant:
        """Move an instant from inflight to completed: what it wrote becomes visible.

        Args:
            instant: The instant in state inflight.
            metadata: What it did.
            completion_time: Later than the requested time; layout 1 has no use for it.

        Raises:
            IllegalTransitionError: The instant isn't inflight, or its inflight file is gone:
                somebody rolled it back; or the completion time isn't after the requested one.
            ConcurrentWriteError: Another writer completed it.
        """
        self._expect(instant, State.INFLIGHT)
        if self.config.layout_version > 1 and completion_time <= instant.requested_time:
            raise IllegalTransitionError(
                f"{instant} can't complete at {completion_time}, which isn't later"
            )
        self._expect_file(instant)
        # In layout 1 only the file system knows: its modification time.
        completed = completion_time if self.config.layout_version > 1 else None
        action = completed_action(instant.action)
        return self._create(
            Instant(instant.requested_time, action, State.COMPLETED, completed), metadata
        )

    def delete_instant_file(self, instant: Instant) -> bool:
        """Delete the file that put an instant in its state; return whether it was there.

        A rollback does so: inflight before requested, after all files of the instant are gone.
        """
        return self._writing.delete(self.path_of(instant))

    def _create(self, instant: Instant, metadata: InstantMetadata | None) -> Instant:
        data = b""
        if metadata is not None:
            replace = completed_action(instant.action) == "replacecommit"
            data = codec.encode(metadata, self.config.version, replace=replace)
        try:
            self._writing.create(self.path_of(instant), data)
        except AlreadyExistsError as exc:
            raise ConcurrentWriteError(
                f"{instant} of {self.storage.base_path} was created by another writer"
            ) from exc
        return instant

    def _expect(self, instant: Instant, state: State) -> None:
        if instant.state is not state:
            raise IllegalTransitionError(
                f"{instant} is {instant.state.value}, it would have to be {state.value}"
            )

    def _expect_file(self, instant: Instant) -> None:
        if self._writing.stat(self.path_of(instant)) is None:
            raise IllegalTransitionError(
                f"{instant} is not on the timeline of {self.storage.base_path} any more",
                hint="another writer may have rolled it back",
            )


def _has_plan(instant: Instant) -> bool:
    """Whether there is more to an instant's plan than an empty file.

    A replacecommit that doesn't cluster may have none, and a clean whose plan was cut short has
    deleted nothing: the next cleaner removes it, as it does with a rollback that is only requested.
    """
    if instant.action in (COMPACTION, LOG_COMPACTION, CLUSTERING):
        return True
    return instant.action in (ROLLBACK, RESTORE) and instant.state is State.INFLIGHT


def _missed(instant: Instant) -> str | None:
    """Return what the file of an instant in its state must say."""
    # Whatever else completed, a listing shows what it did.
    replaced = instant.action == REPLACE_COMMIT and instant.is_completed
    return "it replaced" if replaced else None


def _time_said(found: InstantMetadata) -> str | None:
    """Return the requested time of the instant that this tells of, ``None`` if it doesn't say."""
    if isinstance(found, CleanMetadata):
        return found.start_clean_time or None
    if isinstance(found, RollbackMetadata):
        return found.start_rollback_time or None
    if isinstance(found, RestoreMetadata):
        return found.start_restore_time or None
    if isinstance(found, CommitMetadata):
        stats = found.partition_to_write_stats.values()
        return _time_in_names(each[0].path or "" for each in stats if each)
    return None


def _has_negative_size(commit: CommitMetadata) -> bool:
    return any(
        stat.file_size_in_bytes < 0
        or (stat.log_offset or 0) < 0
        or (stat.cdc_stats and min(stat.cdc_stats.values()) < 0)
        for stats in commit.partition_to_write_stats.values()
        for stat in stats
    )


def _time_in_names(firsts: Iterable[str]) -> str | None:
    """Return the time in the name of a base file that a commit wrote.

    The name of a log doesn't tell: in table version 6 it has its slice's time.

    Args:
        firsts: Path or name of the first file of each partition.
    """
    matches = map(_BASE_FILE.fullmatch, firsts)
    return next((match[1] for match in matches if match is not None), None)
