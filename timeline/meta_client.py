"""``TableMetaClient``: a table's properties, its instants, and the content of their files.

An instant moves requested → inflight → completed. Each state is one file, created once and never
changed; files of earlier states remain.

Source: Hudi 1.2.0 ``HoodieTableMetaClient``, ``ActiveTimelineV1``/``V2``.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from timeline.archive.archived_timeline import ArchivedTimeline, read_archived_timeline
from timeline.completion import CompletionTimes
from timeline.errors import (
    AlreadyExistsError,
    ConcurrentWriteError,
    CorruptMetadataError,
    IllegalTransitionError,
    InstantNotFoundError,
    PathNotFoundError,
    StorageError,
)
from timeline.instant import (
    ACTIONS,
    COMPACTION,
    REPLACE_COMMIT,
    SAVEPOINT,
    Instant,
    State,
    completed_action,
)
from timeline.layout import ListedTimeline, TimelineLayout
from timeline.metadata import codec
from timeline.metadata.instant_metadata import (
    CommitMetadata,
    InstantMetadata,
    check_files,
    check_metadata,
    needs_content,
    needs_plan,
)
from timeline.metadata.written_files import CommitFiles, commit_files
from timeline.storage.base import FileInfo, FileKind, Listed, Listings, Storage
from timeline.table.config import CONFIG_PATH, TableConfig
from timeline.table.config_file import read_table_config
from timeline.table.property_name import SHOWN, TIMELINE_PATH
from timeline.timeline import Timeline

T = TypeVar("T")

MOST_REFUSED: Final = 128
"""The most damaged files of a table that are remembered."""
_METADATA, _FILES, _PLAN = "metadata", "files", "plan"
"""The value that is decoded from a file."""
_REPLAN: Final = (
    "restore the file; if no compaction runs and, in table version 6, no delta commit is later, you"
    " may delete it with its inflight file instead"
)


class RefusedFiles:
    """The most recent instants' files that couldn't be decoded; thread-safe.

    A file of many megabytes may turn out to be damaged at its end, and its readers retry. It is
    decoded again only when its size or modification time has changed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._errors: OrderedDict[tuple[str, str], tuple[FileInfo, CorruptMetadataError]] = (
            OrderedDict()
        )

    def add(self, path: str, what: str, info: FileInfo, error: CorruptMetadataError) -> None:
        """Remember that a file can't be decoded as it is."""
        with self._lock:
            self._errors[path, what] = info, error
            self._errors.move_to_end((path, what))
            if len(self._errors) > MOST_REFUSED:
                self._errors.popitem(last=False)

    def check(self, path: str, what: str, stat: Callable[[str], FileInfo | None]) -> None:
        """Raise the remembered error if the file is still the same.

        Cost: one ``stat`` if there is an error.
        """
        info, error = self._errors.get((path, what), (None, None))
        if error is None or stat(path) != info:
            return
        # A new error for each caller, as raising one adds to its traceback.
        raise CorruptMetadataError(error.message, hint=error.hint, detail=error.detail)


class TableMetaClient:
    """Access to one table's ``.hoodie`` folder.

    It keeps no state of the timeline, unless its storage keeps listings: then entries that were
    read before aren't read again.

    Attributes:
        storage: The table's storage.
        config: Its properties, as read when the client was made.
        layout: Where its instants' files are and how they are named.
    """

    def __init__(
        self,
        storage: Storage,
        config: TableConfig,
        *,
        cause: str | None = None,
        refused: RefusedFiles | None = None,
    ) -> None:
        """Make a client; by default reads count as ``timeline`` and writes as ``commit``.

        Args:
            storage: The table's storage.
            config: Its properties.
            cause: The cause under which all calls are counted.
            refused: Remembers damaged files; ``None``: they are decoded each time.
        """
        self.storage = storage
        self._refused = refused
        self.config = config
        self.layout = TimelineLayout.of(config)
        self._cause = cause
        self._reading = storage.for_cause(cause or "timeline")
        self._writing = storage.for_cause(cause or "commit")

    @classmethod
    def open(
        cls, storage: Storage, *, cause: str | None = None, refused: RefusedFiles | None = None
    ) -> TableMetaClient:
        """Read the table's properties and return its client.

        Args:
            storage: The table's storage.
            cause: The cause under which all calls are counted; ``None`` counts the read of the
                properties under ``table``.
            refused: As in the constructor.

        Raises:
            TableNotFoundError: There is no table.
            CorruptMetadataError: Its properties can't be read.
            UnsupportedTableError: Its version, layout or type isn't supported.

        Cost: one read.
        """
        config = read_table_config(storage.for_cause(cause or "table"))
        return cls(storage, config, cause=cause, refused=refused)

    def for_cause(self, cause: str) -> TableMetaClient:
        """Return this client with all its storage calls counted under ``cause``."""
        return TableMetaClient(self.storage, self.config, cause=cause, refused=self._refused)

    # Reading.

    def active_timeline(self) -> Timeline:
        """Return the current active timeline.

        Raises:
            CorruptMetadataError: The timeline has no folder, on a storage that keeps empty folders.
            TableNotFoundError: The table was deleted during this check.

        Cost: one list call, and on such a storage a stat if the folder is empty. No call in a block
            of ``Storage.reusing_listing``.
        """
        listings = self._reading.listings
        if listings is not None and listings.may_reuse() and self.layout in listings.made:
            return self._before(listings).timeline
        return self.timeline_in(self._entries())

    def timeline_of(self, counts: Callable[[Instant], bool]) -> Timeline:
        """Return the active timeline, from some of its files.

        Args:
            counts: Whether the file that puts an instant in its state counts. If it doesn't, the
                files of the instant's earlier states may.

        Cost: one list call.
        """
        return Timeline.of(filter(counts, self._listed()))

    def instant_files(self) -> tuple[Instant, ...]:
        """Return the instant and state of each file on the active timeline, by file name.

        Cost: one list call.
        """
        return tuple(self._listed())

    def completions(self, instant: Instant) -> tuple[Instant, ...]:
        """Return an instant's completed files, by completion time.

        There should be one at most. In layout 2, whose file names contain the completion time, two
        writers that work on one instant can both complete it.

        Cost: one list call.
        """
        key = instant.requested_time, completed_action(instant.action)
        found = [
            i for i in self._listed() if i.is_completed and (i.requested_time, i.action) == key
        ]
        return tuple(sorted(found, key=lambda each: each.completion_time or ""))

    def timeline_in(self, entries: Iterable[FileInfo]) -> Timeline:
        """Return the timeline that a list of its folder shows."""
        listings = self._reading.listings
        if listings is None:
            return Timeline.of(self._parsed(entries))
        read = self._before(listings).followed_by(tuple(entries), self.layout)
        listings.made[self.layout] = read
        return read.timeline

    def _before(self, listings: Listings) -> ListedTimeline:
        """Return the timeline as it was read last."""
        before = listings.made.get(self.layout)
        return before if isinstance(before, ListedTimeline) else ListedTimeline()

    def _listed(self) -> Iterator[Instant]:
        """Return the instants of the timeline's files, in any order."""
        return self._parsed(self._entries())

    def _entries(self) -> tuple[FileInfo, ...]:
        """List the timeline's folder."""
        if self._reading.listings is not None:
            self._reading.listings.folders.setdefault(self.layout.folder, Listed())
        entries = self._reading.list(self.layout.folder)
        if not entries and self.storage.keeps_empty_directories:
            self._check_folder()
        return entries

    def _check_folder(self) -> None:
        """Refuse a table without a timeline folder, which would look empty.

        Between two calls the table may be deleted or replaced by another: both look empty here. The
        caller detects them by the properties.
        """
        # Hudi makes the folder before the properties. A table that was deleted has neither.
        folder = self.layout.folder
        if self._reading.stat(folder) is not None:
            return
        before = self._reading.stat(CONFIG_PATH)
        if before is None or TimelineLayout.of(read_table_config(self._reading)) != self.layout:
            return
        if self._reading.stat(folder) is None and self._reading.stat(CONFIG_PATH) == before:
            value = self.config.properties.get(TIMELINE_PATH, "timeline")
            raise CorruptMetadataError(
                f"table {self.storage.base_path} has no folder {folder:.200} with its timeline,"
                f" which {TIMELINE_PATH}={value[:SHOWN]!r} names",
                hint=f"if it has no commits, make the folder; else correct {CONFIG_PATH}",
            )

    def _parsed(self, entries: Iterable[FileInfo]) -> Iterator[Instant]:
        found = map(self.layout.instant_of, entries)
        return (instant for instant in found if instant is not None)

    def as_found(self, instant: Instant) -> Instant:
        """Return a pending instant with its file's modification time, which only layout 1 keeps.

        Raises:
            InstantNotFoundError: There is no such file (any more).

        Cost: one stat in layout 1, none in layout 2 or if the instant is completed.
        """
        if self.config.layout_version > 1 or instant.is_completed:
            return instant
        info = self._reading.stat(self.path_of(instant))
        found = None if info is None else self.layout.instant_of(info)
        if found is None:
            raise InstantNotFoundError(f"{instant} has no file {self.path_of(instant)}")
        return found

    def archived_timeline(self, *, modified_ms: int = 0) -> ArchivedTimeline:
        """Return the instants that were moved out of the active timeline.

        Args:
            modified_ms: In layout 1, only files modified at this time or later are read
                (milliseconds since the epoch): instants that were active until then.

        Cost: layout 2: two reads, and one for each history file that is needed; layout 1: one list
            and a read of every archive file that was modified since.
        """
        return read_archived_timeline(self._reading, self.config, modified_ms=modified_ms)

    def completion_times(
        self, timeline: Timeline, before: CompletionTimes | None = None
    ) -> CompletionTimes:
        """Return the completion times seen from an active timeline of this table.

        Args:
            timeline: The timeline.
            before: The completion times of an earlier timeline, as in ``CompletionTimes.of``.
        """
        return CompletionTimes.of(timeline, self.config.version, before=before)

    def read_archived_times(self, times: CompletionTimes, start: str) -> None:
        """Read the archive's completion times back to a requested time.

        Cost: none if they were read before; else two reads, and one for each history file with such
            instants.
        """
        # A new archive for each read, as an archive keeps its manifest and serves a single thread.
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
            # Archived or rolled back since the timeline was listed.
            raise InstantNotFoundError(f"{instant} has no file {path}") from exc

    def read(self, instant: Instant) -> InstantMetadata:
        """Return the decoded content of the file of an instant in its state.

        Raises:
            InstantNotFoundError: There is no such file (any more).
            CorruptMetadataError: It can't be decoded, describes another instant, or is the empty
                file of a completed replacecommit.
        """
        decode = partial(codec.decode, codec.metadata_type(instant.action, instant.state))
        needed = needs_content(instant)
        return self._decoded(instant, _METADATA, decode, check_metadata, needed=needed)

    def read_files(self, instant: Instant) -> InstantMetadata | CommitFiles:
        """Return the content of a completed instant's file; for a commit only its files.

        Raises:
            InstantNotFoundError: As ``read``.
            CorruptMetadataError: As ``read``, but a commit's statistics aren't checked.
        """
        if codec.metadata_type(instant.action, instant.state) is not CommitMetadata:
            return self.read(instant)
        needed = needs_content(instant)
        return self._decoded(instant, _FILES, commit_files, check_files, needed=needed)

    def read_plan(self, instant: Instant) -> InstantMetadata:
        """Return the plan in the requested file of an instant, whatever the instant's state.

        The name of a completed instant doesn't tell which action was requested (a commit may have
        been a compaction): pass the requested action.

        Raises:
            InstantNotFoundError: There is no requested file.
            CorruptMetadataError: It can't be decoded, or is empty though its plan may be under way.
        """
        # The requested file stays when the instant moves on; the inflight file of 1.x has no plan.
        requested = Instant(instant.requested_time, instant.action, State.REQUESTED)
        decode = partial(codec.decode, codec.plan_type(instant.action))
        try:
            return self._decoded(requested, _PLAN, decode, needed=needs_plan(instant))
        except CorruptMetadataError as exc:
            if instant.action != COMPACTION:
                raise
            # Nothing reads or writes the table until this is mended.
            raise CorruptMetadataError(exc.message, hint=_REPLAN, detail=exc.detail) from None

    def check_refused(self, completed: Iterable[Instant]) -> None:
        """Raise the error of the first of these instants whose file is known to be damaged.

        Call it before reading many files, which would be wasted work.

        Cost: one stat for each file known to be damaged.
        """
        if self._refused is not None:
            for instant in completed:
                for what in (_METADATA, _FILES):
                    self._refused.check(self.path_of(instant), what, self._reading.stat)

    def _decoded(
        self,
        instant: Instant,
        what: str,
        decode: Callable[..., T],
        check: Callable[[T, Instant, str], None] = lambda _, __, ___: None,
        *,
        needed: bool,
    ) -> T:
        """Decode a file's content, unless it was refused before and hasn't changed since.

        ``check`` is called with what ``decode`` returned, the instant and the file's path;
        ``needed``: an empty file is damaged.
        """
        refused, path = self._refused, self.path_of(instant)
        if refused is not None:
            refused.check(path, what, self._reading.stat)
        data, source = self._content(instant, needed=needed)
        try:
            found = decode(data, source=source)
            check(found, instant, source)
        except CorruptMetadataError as exc:
            if refused is None:
                raise
            # A copy without traceback, which would keep all decoded values in memory.
            error = CorruptMetadataError(exc.message, hint=exc.hint, detail=exc.detail)
        else:
            return found
        size, digest = len(data), hashlib.sha256(data).digest()
        del data
        with suppress(StorageError, InstantNotFoundError):
            info = self._reading.stat(path)
            # Read the file again, as it may have been replaced before the stat; and bytes that are
            # fewer than the file's size were cut off in transit.
            if info is not None and info.size == size:
                again = hashlib.sha256(self.read_bytes(instant)).digest()
                if again == digest:
                    refused.add(path, what, info, error)
        raise error

    def _content(self, instant: Instant, *, needed: bool) -> tuple[bytes, str]:
        """Return a file's content and its full path, for errors."""
        data = self.read_bytes(instant)
        source = f"{self.storage.base_path}/{self.path_of(instant)}"
        # An empty file decodes to an empty value, as if the instant had replaced or planned
        # nothing.
        if needed and not data:
            raise CorruptMetadataError(f"{source} (0 bytes) doesn't say what happened")
        return data, source

    # State changes.

    def create_requested(
        self, action: str, time: str, metadata: InstantMetadata | None = None
    ) -> Instant:
        """Put a new instant on the timeline.

        Args:
            action: The action of the instant.
            time: Requested time, later than any on the timeline.
            metadata: The plan; ``None`` for an empty file.

        Raises:
            IllegalTransitionError: The action is unknown, or doesn't begin with a request (a
                savepoint).
            ConcurrentWriteError: Another writer took this time for this action.
        """
        if action not in ACTIONS or action == SAVEPOINT:
            raise IllegalTransitionError(f"no instant of action {action!r} can be requested")
        return self._create(Instant(time, action, State.REQUESTED), metadata)

    def transition_to_inflight(
        self,
        instant: Instant,
        metadata: InstantMetadata | None = None,
        *,
        just_created: bool = False,
    ) -> Instant:
        """Move an instant from requested to inflight.

        A savepoint begins inflight, at the time of its commit.

        Args:
            instant: The instant in state requested.
            metadata: A commit's profile; ``None`` for an empty file.
            just_created: Whether the caller's last call created the requested file; then its
                existence isn't checked.

        Raises:
            IllegalTransitionError: The instant isn't requested, or its requested file is gone:
                another writer rolled it back.
            ConcurrentWriteError: Another writer was first.
        """
        # An inflight file alone would bring back an instant that another writer has rolled back.
        has_file = instant.action != SAVEPOINT and not just_created
        self._expect(instant, State.REQUESTED, has_file=has_file)
        return self._create(
            Instant(instant.requested_time, instant.action, State.INFLIGHT), metadata
        )

    def complete(
        self,
        instant: Instant,
        metadata: InstantMetadata,
        completion_time: str,
        *,
        just_seen: bool = False,
    ) -> Instant:
        """Move an instant from inflight to completed, which makes its writes visible.

        Args:
            instant: The instant in state inflight.
            metadata: The result of its action.
            completion_time: Later than the requested time; unused in layout 1.
            just_seen: Whether the caller's last call listed the inflight file; then its existence
                isn't checked.

        Raises:
            IllegalTransitionError: The instant isn't inflight, its inflight file is gone (another
                writer rolled it back), or the completion time isn't after the requested one.
            ConcurrentWriteError: Another writer completed it.
        """
        # In layout 1 the completion time is the modification time of the completed file.
        completed = completion_time if self.config.layout_version > 1 else None
        if completed is not None and completed <= instant.requested_time:
            raise IllegalTransitionError(
                f"{instant} can't complete at {completion_time}, which isn't later"
            )
        # Checked just before the create: another writer may have rolled the instant back.
        self._expect(instant, State.INFLIGHT, has_file=not just_seen)
        # Hudi names a completed compaction a commit, and a clustering a replacecommit.
        action = completed_action(instant.action)
        # This create is the commit point: a crash before it leaves the instant pending.
        return self._create(
            Instant(instant.requested_time, action, State.COMPLETED, completed), metadata
        )

    def delete_instant_file(self, instant: Instant) -> bool:
        """Delete the file that put an instant in its state; return whether it existed.

        A rollback deletes all of the instant's data files, then the inflight file, then the
        requested one: whenever it dies, the instant is still pending and is rolled back again.
        """
        return self._writing.delete(self.path_of(instant))

    def delete_instant_files(self, instants: Iterable[Instant]) -> None:
        """Delete the files that put instants in their states, as ``Storage.delete_all``."""
        self._writing.delete_all(map(self.path_of, instants))

    def _create(self, instant: Instant, metadata: InstantMetadata | None) -> Instant:
        data = b""
        if metadata is not None:
            # Hudi's record of a completed replacecommit differs even if nothing is replaced.
            replace = instant.is_completed and instant.action == REPLACE_COMMIT
            data = codec.encode(metadata, self.config.version, replace=replace)
        try:
            # Exclusive, with the whole content: a writer that loses the race for the name has lost
            # the transition.
            self._writing.create(self.path_of(instant), data)
        except AlreadyExistsError as exc:
            raise ConcurrentWriteError(
                f"{instant} of {self.storage.base_path} was created by another writer"
            ) from exc
        return instant

    def _expect(self, instant: Instant, state: State, *, has_file: bool = True) -> None:
        if instant.state is not state:
            raise IllegalTransitionError(
                f"{instant} is {instant.state.value}, it would have to be {state.value}"
            )
        if has_file and self._writing.stat(self.path_of(instant)) is None:
            raise IllegalTransitionError(
                f"{instant} is not on the timeline of {self.storage.base_path} any more",
                hint="another writer may have rolled it back",
            )
