"""Checks of one partition's files against what the instants say; all pure.

Which file belongs to which write, its name says: that of a base file, and from table version 8 on
that of a log, has the requested time of its writer; in version 6 that of a log has the base instant
of its slice. A file is *explained* if

* its writer is pending, or completed and names it, or can't be read;
* its writer is in the archive, or is older than all of it: an archive may have been shortened;
* it is a log of version 6, and a write names it, or its slice exists or may.

Any other is an orphan. Readers don't see it if its writer isn't completed (a failed write, whose
rollback missed it, or a write whose instant was lost: ``Picture.was_undone`` tells). They do if its
writer is older than the timeline, as such writers count as completed, or if its commit just doesn't
name it: then a repair would change rows.

What must be there, the view says (``fsview.query.queries``): it is asked for the newest slices with
all files that are listed or that completed writes name. Of these slices every file must be listed.
Of older ones those base files must be that no clean may have deleted: of the earliest instant that
cleans have retained, and later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from fsview.check.partition_checker import removals_pending
from fsview.files.partition import PartitionVersion
from fsview.model.file_group import BaseFile, FileSlice, LogFile
from fsview.model.file_name import data_files, parse_data_file
from fsview.query.queries import (
    latest_file_slices,
    latest_merged_file_slices_before_or_on,
)
from fsview.query.sums import NEWEST
from fsview.snapshot.snapshot import Snapshot
from strandline.table_services.doctor.finding import Finding
from strandline.table_services.doctor.picture import Picture
from timeline.instant import (
    CLEAN,
    DELTA_COMMIT,
    LOG_COMPACTION,
    SAVEPOINT,
    WRITE_ACTIONS,
    Instant,
)
from timeline.storage.base import FileInfo
from timeline.table.partition_metadata import FILE_NAME, folders_below, is_partition, path_in

SMALL_BYTES: Final = 104_857_600
"""Below this size a base file is small: ``hoodie.parquet.small.file.limit``."""
MANY_SMALL: Final = 50
"""The number of small files from which on a partition has many."""
_SHOWN: Final = 5
_NOT_UNDONE: Final = (
    ", and no rollback is known to have undone it: if a commit's instant was lost, the file is the"
    " only copy"
)

DataFile = BaseFile | LogFile


@dataclass(frozen=True)
class Partition:
    """One partition as it was listed, and the table around it.

    Attributes:
        picture: The table, with a snapshot.
        path: Path under the base path.
        listing: The entries of its directory.
    """

    picture: Picture
    path: str
    listing: tuple[FileInfo, ...]

    @property
    def snapshot(self) -> Snapshot:
        """The table as a view sees it."""
        assert self.picture.snapshot is not None
        return self.picture.snapshot

    @cached_property
    def files(self) -> tuple[DataFile, ...]:
        """The data files of the listing."""
        extensions = self.picture.config.base_extensions
        return tuple(data_files(self.path, self.listing, extensions))

    @cached_property
    def there(self) -> frozenset[str]:
        """Names of the files that are listed."""
        return frozenset(info.name for info in self.listing)

    @property
    def named(self) -> Mapping[str, int]:
        """Name → size of the files that completed writes of the active timeline report."""
        return self.picture.history.named.get(self.path, {})

    @cached_property
    def newest(self) -> tuple[FileSlice, ...]:
        """The newest slices, with files that are named and not there.

        Raises:
            UnreadArchiveError: The archive must be read.
        """
        named = self.named.items()
        absent = (self.parsed(name, size) for name, size in named if name not in self.there)
        files = (*self.files, *(file for file in absent if file is not None))
        version = PartitionVersion.of(self.path, files)
        if self.picture.config.table_type == "COPY_ON_WRITE":
            return latest_file_slices(self.snapshot, version)
        return latest_merged_file_slices_before_or_on(self.snapshot, version, NEWEST)

    def parsed(self, name: str, size: int = 0) -> DataFile | None:
        """Return the file of a name here; ``None`` if it isn't that of a data file."""
        return parse_data_file(self.path, name, size, 0, self.picture.config.base_extensions)

    def finding(
        self, code: str, what: str, files: Sequence[DataFile], *, fixable: bool = False
    ) -> Finding:
        """Return a finding about files of this partition."""
        paths, size = tuple(file.path for file in files), sum(file.size for file in files)
        return Finding(code, what, paths, size, self.path, fixable)

    @cached_property
    def missing(self) -> Mapping[str, int]:
        """Name → size of the files of the newest slices that aren't there."""
        return {
            name: size
            for found in self.newest
            for name, size in found.sizes.items()
            if name not in self.there
        }

    def writer(self, file: DataFile) -> Instant | None:
        """Return the write on the active timeline whose time is in a file's name."""
        return self.picture.writes.get(file.instant)

    @cached_property
    def bases(self) -> Mapping[tuple[str, str], tuple[BaseFile, ...]]:
        """(file id, instant) → base files."""
        found: dict[tuple[str, str], list[BaseFile]] = defaultdict(list)
        for file in self.files:
            if isinstance(file, BaseFile):
                found[file.file_id, file.instant].append(file)
        return {key: tuple(files) for key, files in found.items()}

    def tells_writer(self, file: DataFile) -> bool:
        """Return whether a file's name has the time of its writer."""
        if isinstance(file, BaseFile):
            return True
        writer = self.writer(file)
        # An upgrade doesn't rename logs; no write makes a base file and a log of one group.
        is_older = (writer is not None and writer.legacy) or (
            (file.file_id, file.instant) in self.bases
        )
        return self.snapshot.logs_by_completion and not is_older

    def is_old(self, file: DataFile) -> bool:
        """Return whether a file and its instant are at least a day old."""
        return self.picture.is_old(mtime_ms=file.mtime_ms, time=file.instant)

    def is_free(self, file: DataFile) -> bool:
        """Return whether a file that no commit names may be deleted as far as others go.

        A savepoint or a plan may name it, as Hudi takes any of several base files; and while
        something that deletes files is under way, or instants were lost, none is free.
        """
        history, snapshot = self.picture.history, self.snapshot
        used = history.saved.get(self.path, ()), history.planned.get(self.path, ())
        group = self.path, file.file_id
        plans = snapshot.pending_compaction, snapshot.pending_log_compaction
        return (
            self.is_old(file)
            and self.picture.is_whole
            and not self.has_removals
            and not any(file.name in names for names in used)
            and not any(group in each for each in (*plans, snapshot.pending_clustering))
        )

    @property
    def may_be_read(self) -> bool:
        """Whether a write or a savepoint pends: Hudi's may have taken any file that views show."""
        pending = self.picture.active.pending()
        return any(each.action in WRITE_ACTIONS or each.action == SAVEPOINT for each in pending)

    @property
    def has_removals(self) -> bool:
        """Whether something is under way on the table that deletes files."""
        return removals_pending(self.snapshot.active)


def check_orphans(partition: Partition) -> Iterator[Finding]:
    """Yield the files that no instant explains, one finding for each."""
    if not partition.picture.completed:
        return  # ``check_timeline`` tells of it
    for file in partition.files:
        standing = _standing(partition, file)
        if standing is None:
            continue
        code, why = standing
        # In version 6 queries show logs by their slice, whoever wrote them.
        safe = code == "orphan-file" and partition.tells_writer(file)
        undone = partition.picture.was_undone(file.instant)
        fixable = safe and undone and partition.is_free(file)
        if code == "orphan-file" and not undone:
            why += _NOT_UNDONE
        yield partition.finding(code, why, [file], fixable=fixable)


def check_timeline(partition: Partition) -> Iterator[Finding]:
    """Yield a finding if a partition has data files, and the table no completed instant."""
    if partition.picture.completed:
        return
    orphans = [file for file in partition.files if _standing(partition, file) is not None]
    if orphans:
        what = f"no completed instant is on it, and a partition has {len(orphans)} data files"
        size = sum(file.size for file in orphans)
        folder = partition.picture.meta.layout.folder
        yield Finding("timeline-incomplete", what, (folder,), size, partition.path)


def _standing(partition: Partition, file: DataFile) -> tuple[str, str] | None:
    """Return code and reason if a file is an orphan."""
    if file.name in partition.named or not file.instant.isdigit():
        return None
    if not partition.tells_writer(file):
        return _standing_of_slice_log(partition, file)
    writer = partition.writer(file)
    if writer is None:
        return _standing_off_timeline(partition, file)
    is_read = writer not in partition.picture.history.damaged
    if not writer.is_completed or not is_read or _is_duplicate(partition, file):
        return None
    return (
        "visible-orphan",
        f"{writer.action} {file.instant} has completed and doesn't name the file; readers show it",
    )


def _standing_off_timeline(partition: Partition, file: DataFile) -> tuple[str, str] | None:
    archived = partition.picture.archive.timeline
    if archived is None or archived.contains_time(file.instant):
        return None  # an archive that can't be read may have it
    told = "orphan-file", f"no instant {file.instant} is on the timeline or in the archive"
    if not partition.picture.is_or_was_there(file.instant):
        return told
    if archived.first is None or file.instant < archived.first.requested_time:
        return None  # an archive that was shortened, or is gone, tells nothing
    if not partition.snapshot.write_timeline.contains_or_before_start(file.instant):
        return told  # a savepoint has kept an older commit on the timeline
    return (
        "visible-orphan",
        f"no instant {file.instant} is in the archive; readers show the file, as it is older than"
        " the timeline",
    )


def _standing_of_slice_log(partition: Partition, file: DataFile) -> tuple[str, str] | None:
    """Return code and reason if a log of version 6 is an orphan."""
    if (file.file_id, file.instant) in partition.bases:
        return None
    if partition.picture.is_or_was_there(file.instant):
        return None
    archived = partition.picture.archive.timeline
    if archived is None or archived.contains_time(file.instant):
        return None
    return (
        "orphan-file",
        f"no instant {file.instant}, at which its slice would begin, exists; in version 6 views"
        " show such logs, so no repair deletes it",
    )


def _is_duplicate(partition: Partition, file: DataFile) -> bool:
    """Return whether a file that its commit doesn't name stands beside one that it names."""
    if not isinstance(file, BaseFile):
        return False
    beside = partition.bases[file.file_id, file.instant]
    return any(other.name in partition.named for other in beside)


def check_duplicates(partition: Partition) -> Iterator[Finding]:
    """Yield base files of one group and instant of which the commit wrote only one."""
    for (file_id, time), files in partition.bases.items():
        writer = partition.writer(files[0])
        if len(files) == 1 or (writer is not None and not writer.is_completed):
            continue
        if any(_standing(partition, file) is not None for file in files):
            continue  # orphans all of them
        extra = [file for file in files if file.name not in partition.named]
        is_told = len(extra) == len(files) - 1
        kept = next((file for file in files if file.name in partition.named), None)
        is_sound = kept is not None and partition.named[kept.name] == kept.size
        yield Finding(
            "duplicate-base-file",
            f"file group {file_id} has {len(files)} base files of instant {time}; its commit"
            f" {'names the other' if is_told else 'does not tell which it wrote'}",
            tuple(file.path for file in (extra if is_told else files)),
            sum(file.size for file in extra),
            partition.path,
            fixable=is_told
            and is_sound
            and not partition.may_be_read
            and all(map(partition.is_free, extra)),
        )


def check_missing(partition: Partition) -> Iterator[Finding]:
    """Yield files of the newest and of retained slices, and of savepoints, that aren't there."""
    missing = partition.missing
    reasons = dict.fromkeys(_earlier(partition), "earlier states of the table need it")
    reasons |= dict.fromkeys(_planned(partition), "a pending compaction or clustering reads it")
    reasons |= dict.fromkeys(_saved(partition), "a savepoint protects it")
    reasons |= dict.fromkeys(missing, "the newest state of the table needs it")
    for name, why in sorted(reasons.items()):
        path, size = path_in(partition.path, name), partition.named.get(name, 0)
        what = f"the file isn't there, and {why}"
        yield Finding("missing-file", what, (path,), size, partition.path)


def check_archived(partition: Partition, written: Mapping[str, BaseFile]) -> Iterator[Finding]:
    """Yield the newest base files of groups that aren't there, and that nothing accounts for.

    Args:
        partition: The partition.
        written: File id → newest base file that archived writes report and no clean has deleted.
    """
    picture = partition.picture
    if partition.has_removals or not picture.is_whole:
        return
    newest: dict[str, str] = {}
    for each in (*partition.files, *map(partition.parsed, partition.named)):
        if isinstance(each, BaseFile):
            newest[each.file_id] = max(each.instant, newest.get(each.file_id, ""))
    replaced = {
        *partition.snapshot.replaced.get(partition.path, ()),
        *picture.archive.replaced.get(partition.path, ()),
    }
    for file_id, file in written.items():
        undone = file.instant in picture.history.undone or file.instant in picture.archive.undone
        if undone or file_id in replaced or file.instant <= newest.get(file_id, ""):
            continue
        what = (
            f"the file isn't there; the archived write {file.instant} made it, and no clean,"
            " rollback or replacement of its group is known"
        )
        yield partition.finding("missing-file", what, [file])


def _planned(partition: Partition) -> Iterator[str]:
    """Yield base files that plans name and that aren't there; a log may be of an undone write."""
    if partition.has_removals:
        return
    for name in partition.picture.history.planned.get(partition.path, frozenset()):
        if name not in partition.there and isinstance(partition.parsed(name), BaseFile):
            yield name


def _saved(partition: Partition) -> Iterator[str]:
    """Yield files that savepoints protect and that aren't there.

    A savepoint names all logs of a slice, also of later writes, which may have been undone since.
    """
    if partition.has_removals:
        return  # a clean that was planned before the savepoint
    for name in partition.picture.history.saved.get(partition.path, frozenset()) - partition.there:
        file = partition.parsed(name)
        if file is None:
            continue
        completed = partition.snapshot.completion.is_completed(file.instant)
        if name in partition.named or (partition.tells_writer(file) and completed):
            yield name


def _earlier(partition: Partition) -> Iterator[str]:
    """Yield the base files that aren't there, and that no clean can have deleted."""
    picture, archived = partition.picture, partition.picture.archive.timeline
    retained_from = picture.history.retained_from
    if retained_from is None or archived is None or partition.has_removals:
        return
    if not retained_from and CLEAN in archived.actions:
        return
    replaced = partition.snapshot.replaced.get(partition.path, {})
    for name in partition.named.keys() - partition.there:
        file = partition.parsed(name)
        if not isinstance(file, BaseFile) or file.instant < retained_from:
            continue
        if file.file_id not in replaced:
            yield name


def check_sizes(partition: Partition) -> Iterator[Finding]:
    """Yield files whose size isn't what their commit says; logs may have grown since."""
    for file in partition.files:
        told = partition.named.get(file.name, 0)
        if not told or file.size == told:
            continue
        if isinstance(file, BaseFile):
            what = f"it has {file.size} bytes, its commit wrote {told}"
            yield partition.finding("wrong-size", what, [file])
        elif file.size < told:
            what = f"it has {file.size} bytes, of {told} that commits wrote"
            yield partition.finding("torn-log", what, [file])


def check_bases(partition: Partition) -> Iterator[Finding]:
    """Yield logs of version 6 whose slice must begin with a base file that isn't there.

    A slice may be of logs alone, if the whole group is, or if a compaction or a log compaction of
    its time pends or is done.
    """
    if partition.snapshot.logs_by_completion:
        return
    with_base = {file_id for file_id, _ in partition.bases}
    lost: dict[tuple[str, str], list[LogFile]] = defaultdict(list)
    for file in partition.files:
        if isinstance(file, BaseFile) or file.suffix or file.file_id not in with_base:
            continue
        key = file.file_id, file.instant
        operation = partition.snapshot.pending_compaction.get((partition.path, file.file_id))
        pends = operation is not None and operation.compaction_instant == file.instant
        if key not in partition.bases and not pends and not _may_begin(partition, file):
            lost[key].append(file)
    for (file_id, time), logs in lost.items():
        what = f"file group {file_id} has {len(logs)} logs, and no base file, of instant {time}"
        yield partition.finding("log-without-base", what, logs)


def _may_begin(partition: Partition, log: LogFile) -> bool:
    """Return whether a slice may begin with a log, or the log is reported as another fault."""
    writer = partition.writer(log)
    if writer is None:
        return True  # an orphan, or one of an archived write, of which nothing is known
    if writer.action in (DELTA_COMMIT, LOG_COMPACTION):
        return True
    # A base file that the newest slice needs is a missing file.
    return any(
        name.startswith(f"{log.file_id}_") and f"_{log.instant}." in name
        for name in partition.missing
    )


def check_replaced(partition: Partition) -> Iterator[Finding]:
    """Yield replaced groups that a clean should have deleted, or that readers show again."""
    groups: dict[str, list[DataFile]] = defaultdict(list)
    for file in partition.files:
        groups[file.file_id].append(file)
    history = partition.picture.history
    replaced = partition.snapshot.replaced.get(partition.path, {})
    archived = partition.picture.archive.replaced.get(partition.path, {})
    saved = history.saved.get(partition.path, frozenset())
    for file_id, files in groups.items():
        if any(file.name in saved for file in files):
            continue
        time = replaced.get(file_id)
        if time is not None:
            code, told = "replaced-group", "and the last clean left it"
            if history.retained_from is None or time >= history.retained_from:
                continue
        elif file_id in archived:
            time, code = archived[file_id], "replaced-group-visible"
            told = "which was archived before the group was cleaned"
        else:
            continue
        yield partition.finding(code, f"file group {file_id} was replaced at {time}, {told}", files)


def check_small_files(partition: Partition) -> Iterator[Finding]:
    """Yield a finding if a partition has many small base files."""
    bases = [found.base_file for found in partition.newest if found.base_file is not None]
    small = [base for base in bases if base.size < SMALL_BYTES]
    if len(small) < MANY_SMALL:
        return
    paths = tuple(base.path for base in small[:_SHOWN])
    yield Finding(
        "small-files",
        f"{len(small)} of {len(bases)} base files are smaller than {SMALL_BYTES >> 20} MiB",
        paths,
        sum(base.size for base in small),
        partition.path,
    )


def check_partition_metadata(partition: Partition) -> Iterator[Finding]:
    """Yield a directory of data files without the file that makes it a partition."""
    if is_partition(partition.listing) or not partition.files:
        return
    named = [file for file in partition.files if file.name in partition.named]
    old = all(map(partition.is_old, named))
    # Below a partition readers look for no other.
    below = folders_below(partition.path, partition.listing)
    yield Finding(
        "partition-metadata-missing",
        f"a directory with {len(partition.files)} data files has no {FILE_NAME}: readers that list"
        " don't see its rows",
        (path_in(partition.path, FILE_NAME),),
        sum(file.size for file in partition.files),
        partition.path,
        fixable=bool(named) and old and not below and not partition.has_removals,
    )


def first_instant(files: Iterable[DataFile], named: Mapping[str, int]) -> str | None:
    """Return the earliest instant of files that completed writes name, if there is one."""
    return min((file.instant for file in files if file.name in named), default=None)


PARTITION_CHECKS: Final = (
    check_timeline,
    check_orphans,
    check_duplicates,
    check_missing,
    check_sizes,
    check_bases,
    check_replaced,
    check_small_files,
    check_partition_metadata,
)
"""The checks of a partition."""
