"""``Picture``: what a check needs to know of a table, read once and never changed.

Partitions aren't part of it: they are listed one by one, each is checked, and dropped again, so
that memory is bounded by the metadata of the active timeline and one partition.

The folders of markers and heartbeats are listed before the timeline: an instant is requested after
its first heartbeat and before its markers, so whoever still needs them is pending on the timeline.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeVar

from fsview.load import metadata_table
from fsview.load.metadata_table import (
    AHEAD,
    FILES,
    FOLDER,
    PENDING,
    UNSUPPORTED,
    NotInStepError,
    newest_slice,
)
from fsview.model.file_name import parse_log_file
from fsview.snapshot.snapshot import Snapshot, with_replaced
from fsview.sync.metadata_reader import snapshot_of
from strandline.commit.markers import instants_with_markers, own_files
from strandline.commit.others_heartbeats import instants_with_heartbeat
from strandline.server.marker.file import directory_path, markers_in
from strandline.server.marker.heartbeat import HEARTBEAT_FOLDER
from strandline.table_services.clean.plan import writes_and_savepoints
from timeline.archive.history_folder import manifest_entries, valid_manifest
from timeline.clock import parse_instant_time
from timeline.errors import (
    CorruptMetadataError,
    InstantNotFoundError,
    PathNotFoundError,
    StoreError,
)
from timeline.instant import (
    CLEAN,
    CLUSTERING,
    COMMIT,
    COMPACTION,
    DELTA_COMMIT,
    LOG_COMPACTION,
    REPLACE_COMMIT,
    RESTORE,
    ROLLBACK,
    SAVEPOINT,
    WRITE_ACTIONS,
    Instant,
)
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import (
    CleanMetadata,
    CommitMetadata,
    CompactionPlan,
    CompactionPlanOperation,
    InstantInfo,
    InstantMetadata,
    RequestedReplaceMetadata,
    RestoreMetadata,
    RollbackMetadata,
    SavepointMetadata,
    SliceInfo,
)
from timeline.metadata.written_files import CommitFiles
from timeline.storage.base import FileInfo, Storage
from timeline.table.config import META_FOLDER, TableConfig
from timeline.timeline import Timeline

T = TypeVar("T")

DAY_MS: Final = 24 * 60 * 60 * 1000
"""Age from which on something that is left counts as forgotten, and may be deleted."""
CAUSE: Final = "doctor"
"""What storage calls are counted under."""

_WITH_CONTENT: Final = WRITE_ACTIONS | {CLEAN, ROLLBACK, RESTORE, SAVEPOINT}
"""Actions whose completed files say what happened to data files; they are never empty."""
_ENDED: Final = {"COPY_ON_WRITE": COMMIT, "MERGE_ON_READ": DELTA_COMMIT}
"""The action that a rollback ends; the plan of a service stays, and is executed at its time."""
_PLANNED: Final = (COMPACTION, LOG_COMPACTION, CLUSTERING, CLEAN, ROLLBACK, RESTORE)


@dataclass(frozen=True, slots=True)
class Left:
    """Something of an instant that isn't pending: its markers or its heartbeat.

    Attributes:
        time: Requested time of the instant.
        paths: Its files under the base path.
        bytes: Their size.
        newest_ms: When the last of them was modified, ms since the epoch.
        needed: Why the next write needs them; ``""`` if it doesn't.
    """

    time: str
    paths: tuple[str, ...]
    bytes: int
    newest_ms: int
    needed: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """What completed instants of the active timeline say, and which of them can't be read.

    Attributes:
        named: Partition → name → greatest size of the files that completed writes report.
        saved: Partition → names of the files that savepoints protect.
        planned: Partition → names of the files that pending compactions and clusterings will read.
        told: Requested times of instants that others show to have completed: of those whose files
            they supersede, or append to.
        undone: Requested times of the instants that rollbacks and restores have undone.
        ended: Those of ``undone`` that were writes, at whose times nothing is written again.
        damaged: The instants that can't be read, each with the reason.
        retained_from: Latest of the earliest instants that cleans of the timeline retained; ``""``
            without a clean; ``None`` if one doesn't tell, as by number of versions.
    """

    named: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    saved: Mapping[str, frozenset[str]] = field(default_factory=dict)
    planned: Mapping[str, frozenset[str]] = field(default_factory=dict)
    told: frozenset[str] = frozenset()
    undone: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()
    damaged: Mapping[Instant, str] = field(default_factory=dict)
    retained_from: str | None = ""


@dataclass(frozen=True, slots=True)
class ArchivePicture:
    """The archived timeline.

    Attributes:
        timeline: Its instants; ``None`` if it can't be read.
        problem: Why it can't.
        missing: Paths of the files that its manifest names and that aren't there.
        replaced: Partition → file id → requested time of the archived instant that replaced it.
        undone: As of ``History``, by archived rollbacks and restores.
        ended: As of ``History``.
    """

    timeline: Timeline | None = None
    problem: str = ""
    missing: tuple[str, ...] = ()
    replaced: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    undone: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Picture:
    """A table at one moment, without its partitions.

    Attributes:
        meta: The table's meta client; checks use its layout and properties, and read nothing.
        now_ms: The time, ms since the epoch.
        folders: Path → listing of the metadata folders that are listed.
        files: The instant of each file of the timeline.
        snapshot: The table as a view sees it, without partitions; ``None`` if none can be made.
        history: What its instants say.
        archive: Its archived timeline.
        markers: Marker folders of instants that aren't pending.
        heartbeats: Heartbeats of instants that aren't pending.
        metadata_table: Why the metadata table can't be trusted; ``None`` if it can, or there is
            none. ``""`` if it isn't there.
    """

    meta: TableMetaClient
    now_ms: int
    folders: Mapping[str, tuple[FileInfo, ...]]
    files: tuple[Instant, ...]
    snapshot: Snapshot | None
    history: History
    archive: ArchivePicture
    markers: tuple[Left, ...] = ()
    heartbeats: tuple[Left, ...] = ()
    metadata_table: str | None = None

    @property
    def config(self) -> TableConfig:
        """The table's properties."""
        return self.meta.config

    @cached_property
    def active(self) -> Timeline:
        """The active timeline."""
        return Timeline.of(self.files)

    @cached_property
    def writes(self) -> Mapping[str, Instant]:
        """Requested time → the write of the active timeline; of two the pending one."""
        writes = sorted(self.active.write_timeline(), key=lambda i: not i.is_completed)
        return {instant.requested_time: instant for instant in writes}

    @cached_property
    def completed(self) -> Timeline:
        """The completed instants of the active timeline."""
        return self.active.completed()

    @cached_property
    def written(self) -> Timeline:
        """The writes that readers know, and the savepoints: it begins where these see it begin.

        Cleans and rollbacks are archived by their own count, so one of them may be far older.
        """
        return writes_and_savepoints(self.active.server_timeline())

    def is_or_was_there(self, time: str) -> bool:
        """Return whether an instant is on the timeline, or older than its writes and archived."""
        timelines = self.active, self.written
        return any(each.contains_or_before_start(time) for each in timelines)

    @cached_property
    def lost(self) -> tuple[str, ...]:
        """Requested times of instants that completed and that the timeline must have, and lacks."""
        archived = self.archive.timeline
        if archived is None or self.written.first_non_savepoint_time is None:
            return ()
        known = self.history.undone | self.archive.undone
        return tuple(
            time
            for time in sorted(self.history.told - known)
            if not self.is_or_was_there(time) and not archived.contains_time(time)
        )

    @property
    def is_whole(self) -> bool:
        """Whether nothing shows that instants were lost, or can't be read."""
        return bool(
            self.completed
            and not self.lost
            and not self.history.damaged
            and self.archive.timeline is not None
        )

    def was_undone(self, time: str) -> bool:
        """Return whether files of a time that no instant has may be deleted.

        A failed write is on the timeline until a rollback has undone it, which names it. Without
        that, nobody knows whether the instant was lost: then its files are the only copy.
        """
        first = self.written.first_non_savepoint_time
        return (
            self.is_whole
            and first is not None
            and first <= time < self.completed.last_time
            and time in self.history.ended | self.archive.ended
            and time not in self.history.told
        )

    def is_old(self, *, mtime_ms: int | None = None, time: str = "") -> bool:
        """Return whether a file and an instant are at least a day old.

        Args:
            mtime_ms: When the file was modified, ms since the epoch; 0, which is never old, if the
                storage doesn't tell; ``None`` for no file.
            time: Requested time of the instant, which must be a time; ``""`` for none.
        """
        return is_old(self.now_ms, self.config.timezone, mtime_ms, time)


def is_old(now_ms: int, zone: str, mtime_ms: int | None, time: str) -> bool:
    """Return whether a file and an instant are at least a day old; as ``Picture.is_old``."""
    newest_ms = 0 if mtime_ms is None else mtime_ms
    if time:
        try:
            newest_ms = max(newest_ms, parse_instant_time(time, zone))
        except ValueError:
            return False
    return mtime_ms != 0 and now_ms - newest_ms >= DAY_MS


def read_picture(meta: TableMetaClient, now_ms: int) -> Picture:
    """Read a table, without its partitions.

    Args:
        meta: The table.
        now_ms: The time, ms since the epoch.

    Cost: about ten lists, a read of each instant of the active timeline, the archived timeline
        without its contents, a read of each archived replacecommit, rollback and restore, and of
        the metadata table's partition ``files``; for markers that are left that of ``why_needed``.
    """
    storage = meta.storage
    marked, beaten = instants_with_markers(storage), instants_with_heartbeat(storage)
    folders = _folders(meta)
    parsed = (meta.layout.instant_of(entry) for entry in folders[meta.layout.folder])
    files = tuple(instant for instant in parsed if instant is not None)
    active = Timeline.of(files)
    pending = {instant.requested_time for instant in active.pending()}
    try:
        snapshot = snapshot_of(meta, active)
    except (CorruptMetadataError, InstantNotFoundError):
        snapshot = None  # the history names the instant
    history = _history(meta, active)
    return Picture(
        meta,
        now_ms,
        folders,
        files,
        snapshot,
        history,
        _archive(meta, folders[meta.config.archive_folder]),
        tuple(_markers(storage, time, history.named) for time in marked if time not in pending),
        tuple(_heartbeats(folders[HEARTBEAT_FOLDER], set(beaten) - pending)),
        None if snapshot is None else _metadata_table(meta, snapshot),
    )


def _folders(meta: TableMetaClient) -> dict[str, tuple[FileInfo, ...]]:
    # The timeline last: what the other folders show is explained by it.
    paths = (
        HEARTBEAT_FOLDER,
        meta.config.archive_folder,
        *(() if meta.layout.folder == META_FOLDER else (META_FOLDER,)),
        meta.layout.folder,
    )
    return {path: meta.storage.list(path) for path in paths}


def _history(meta: TableMetaClient, active: Timeline) -> History:
    damaged: dict[Instant, str] = {}
    planned = _planned(meta, active, damaged)
    done = [instant for instant in active.completed() if instant.action in _WITH_CONTENT]
    damaged |= {instant: "its file is empty" for instant in done if instant.size_bytes == 0}
    full = (instant for instant in done if instant.size_bytes != 0)
    said = _Said()
    for metadata in _each_read(full, meta.read_files, damaged):
        said.add(metadata)
    unknown = "" in said.retained or any(instant.action == CLEAN for instant in damaged)
    in_logs = (_instant_of_log(name) for sizes in said.named.values() for name in sizes)
    return History(
        said.named,
        _frozen(said.saved),
        planned,
        frozenset(said.previous.union(filter(None, in_logs))),
        *_times_of(said.undone, meta.config),
        damaged,
        None if unknown else max(said.retained, default=""),
    )


def _planned(
    meta: TableMetaClient, active: Timeline, damaged: dict[Instant, str]
) -> Mapping[str, frozenset[str]]:
    """Return partition → names of the files that pending plans will read; see ``_each_read``."""
    plans = (i for i in active.pending() if i.action in _PLANNED or i.action == REPLACE_COMMIT)
    found: dict[str, set[str]] = defaultdict(set)
    for plan in _each_read(plans, meta.read_plan, damaged):
        for partition, path in _inputs(plan):
            found[partition].add(path.rpartition("/")[2])
    return _frozen(found)


def _frozen(found: Mapping[str, set[str]]) -> Mapping[str, frozenset[str]]:
    return {partition: frozenset(names) for partition, names in found.items()}


class _Said:
    """What completed instants say, added one by one, so that only one is held as a whole."""

    def __init__(self) -> None:
        self.named: dict[str, dict[str, int]] = defaultdict(dict)
        self.saved: dict[str, set[str]] = defaultdict(set)
        self.previous: set[str] = set()
        self.undone: list[InstantInfo] = []
        self.retained: list[str] = []

    def add(self, metadata: InstantMetadata | CommitFiles) -> None:
        if isinstance(metadata, CommitFiles):
            self._add_commit(metadata)
        elif isinstance(metadata, SavepointMetadata):
            for partition, each in metadata.partition_metadata.items():
                names = (path.rpartition("/")[2] for path in each.savepoint_data_file)
                self.saved[partition].update(names)
        elif isinstance(metadata, CleanMetadata):
            self.retained.append(metadata.earliest_commit_to_retain)
        else:
            self.undone += _undone_by(metadata)

    def _add_commit(self, commit: CommitFiles) -> None:
        self.previous |= commit.previous
        for partition, written in commit.files.items():
            sizes = self.named[partition]
            for name, size, _ in written:
                sizes[name] = max(size, sizes.get(name, 0))


def _each_read(
    instants: Iterable[Instant], read: Callable[[Instant], T], damaged: dict[Instant, str]
) -> Iterator[T]:
    """Yield the contents of the instants that can be read; add the others to ``damaged``."""
    for instant in instants:
        try:
            found = read(instant)
        except InstantNotFoundError:
            continue  # archived or rolled back since the timeline was listed
        except CorruptMetadataError as error:
            damaged[instant] = str(error)
            continue
        yield found


def _inputs(plan: InstantMetadata) -> Iterator[tuple[str, str]]:
    """Yield (partition, path or name) of the files that a compaction or a clustering will read."""
    slices: list[CompactionPlanOperation | SliceInfo] = []
    if isinstance(plan, CompactionPlan):
        slices += plan.operations
    elif isinstance(plan, RequestedReplaceMetadata) and plan.clustering_plan is not None:
        slices += (each for group in plan.clustering_plan.input_groups for each in group.slices)
    for each in slices:
        for path in (each.data_file_path, *each.delta_file_paths):
            if path:
                yield each.partition_path, path


def _undone_by(metadata: InstantMetadata | CommitFiles) -> list[InstantInfo]:
    """Return what a completed rollback or restore has undone."""
    if isinstance(metadata, RollbackMetadata):
        without = (InstantInfo(time, "") for time in metadata.commits_rollback)
        return [*metadata.instants_rollback, *without]
    if isinstance(metadata, RestoreMetadata):
        without = (InstantInfo(time, "") for time in metadata.instants_to_rollback)
        return [*metadata.restore_instant_info, *without]
    return []


def _times_of(
    undone: Sequence[InstantInfo], config: TableConfig
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the times of all that was undone, and of those that were only writes."""
    ended = _ENDED.get(config.table_type)
    again = {each.commit_time for each in undone if each.action not in (ended, "")}
    writes = {each.commit_time for each in undone if each.action == ended}
    return frozenset(each.commit_time for each in undone), frozenset(writes - again)


def _instant_of_log(name: str) -> str:
    """Return the instant in a log's name: in version 6 of its slice; ``""`` if it is none."""
    file = parse_log_file("", name, 0, 0)
    return file.instant if file is not None and file.instant.isdigit() else ""


def _archive(meta: TableMetaClient, listing: Iterable[FileInfo]) -> ArchivePicture:
    folder = meta.config.archive_folder
    try:
        missing = () if meta.config.layout_version == 1 else _not_there(meta, listing)
        if missing:
            return ArchivePicture(missing=tuple(f"{folder}/{name}" for name in missing))
        archive = meta.archived_timeline()
        replacing = [i for i in archive.timeline if i.action == REPLACE_COMMIT and i.is_completed]
        read = ((instant, archive.read(instant)) for instant in replacing)
        groups = (
            (instant, metadata.partition_to_replace_file_ids)
            for instant, metadata in read
            if isinstance(metadata, CommitMetadata)
        )
        undoing = [i for i in archive.timeline if i.action in (ROLLBACK, RESTORE)]
        undone = [each for i in undoing if i.is_completed for each in _undone_by(archive.read(i))]
        replaced = with_replaced({}, groups)
        return ArchivePicture(archive.timeline, "", (), replaced, *_times_of(undone, meta.config))
    except (CorruptMetadataError, PathNotFoundError, InstantNotFoundError) as error:
        return ArchivePicture(problem=str(error))


def _not_there(meta: TableMetaClient, listing: Iterable[FileInfo]) -> list[str]:
    """Return the names of the archive's files that its manifest names and that don't exist."""
    folder = meta.config.archive_folder
    version = valid_manifest(meta.storage, folder)
    if version is None:
        return []
    there = {info.name for info in listing}
    named = manifest_entries(meta.storage, folder, version, lambda each: str(each["fileName"]))
    return [
        name
        for name in named
        if name not in there and meta.storage.stat(f"{folder}/{name}") is None
    ]


def why_needed(
    storage: Storage, time: str, listed: Sequence[FileInfo], named: Mapping[str, Mapping[str, int]]
) -> str:
    """Return why the next write needs the markers of an instant that isn't pending.

    By them ``Sweep`` deletes the files that the instant doesn't report; without them nothing tells
    any more that these may be deleted.

    Args:
        storage: The table's storage.
        time: Requested time of the instant.
        listed: The files of its marker folder.
        named: As of ``History``. An archived instant's files aren't in it, so any of them counts.

    Returns:
        The reason; ``""`` if no unreported file of theirs is there.

    Cost: a read for each ``MARKERS`` file, a stat for each unreported file until one is found.
    """
    try:
        paths = own_files(markers_in(storage, time, listed), time)
    except CorruptMetadataError as error:
        return f"they can't be read: {error!s:.300}"
    split = ((path, path.rpartition("/")) for path in paths)
    unreported = (path for path, (folder, _, name) in split if name not in named.get(folder, ()))
    there = next((path for path in unreported if storage.stat(path) is not None), None)
    return "" if there is None else f"by them the next write decides about {there}"


def _markers(storage: Storage, time: str, named: Mapping[str, Mapping[str, int]]) -> Left:
    folder = directory_path(time)
    listed = storage.list_tree(folder)
    newest_ms = max((info.mtime_ms for info in listed), default=None)
    if newest_ms is None:
        found = storage.stat(folder)
        newest_ms = 0 if found is None else found.mtime_ms
    size, needed = sum(info.size for info in listed), why_needed(storage, time, listed, named)
    return Left(time, (folder,), size, newest_ms, needed)


def _heartbeats(listing: Iterable[FileInfo], times: set[str]) -> list[Left]:
    found: dict[str, list[FileInfo]] = defaultdict(list)
    for info in listing:
        time = info.name.partition(".")[0]
        if time in times and not info.is_dir:
            found[time].append(info)
    return [
        Left(
            time,
            tuple(f"{HEARTBEAT_FOLDER}/{info.name}" for info in infos),
            sum(info.size for info in infos),
            max(info.mtime_ms for info in infos),
        )
        for time, infos in sorted(found.items())
    ]


def _metadata_table(meta: TableMetaClient, snapshot: Snapshot) -> str | None:
    if not meta.config.named_metadata_partitions:
        return None
    if meta.storage.stat(FOLDER) is None:
        return ""
    if FILES not in meta.config.metadata_partitions:
        return None  # an indexer is still building it
    with suppress(PathNotFoundError, StoreError):  # deleted meanwhile: a writer dropped it
        try:
            metadata_table.read(meta, snapshot, newest_slice(meta, snapshot))
        except NotInStepError as error:
            # A writer completes there first, and a rollback there is finished by the next write.
            return None if error.reason in (AHEAD, PENDING, UNSUPPORTED) else str(error)
        except CorruptMetadataError as error:
            return str(error)
    return None


def is_write(instant: Instant) -> bool:
    """Return whether an instant is a write that a dead writer may have left.

    A clustering of layout 1 and an overwrite are both a replacecommit.
    """
    return instant.action in WRITE_ACTIONS and instant.action not in _PLANNED


def is_savepoint(instant: Instant) -> bool:
    """Return whether an instant is a savepoint, which has no requested file."""
    return instant.action == SAVEPOINT
