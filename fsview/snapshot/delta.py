"""What one completed instant did to the files of each partition, read from its metadata alone.

A delta can be applied to a partition's files (they were listed before the instant) and taken back
(they were listed after it, and somebody asks for the state before). Taking back needs nothing for a
file that was *added*; a file that was *removed* comes back as a ghost, since metadata has no sizes
of what it deletes, and so does a log that was only *extended*, since its earlier size is lost.

Source: Hudi 1.2.0 ``IncrementalTimelineSyncFileSystemView``. Beyond it: change-data files, the logs
that a rollback writes or leaves, names matched by partition and file name instead of full paths,
files that a task left behind and its commit doesn't name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from fsview.files.change import NO_FILES, PackedFiles
from fsview.files.partition import PartitionVersion
from fsview.files.row import UNKNOWN_SIZE, DataFile
from fsview.model.file_group import BaseFile
from fsview.model.file_name import parse_data_file
from timeline.instant import CLUSTERING, COMPACTION, LOG_COMPACTION
from timeline.metadata.instant_metadata import (
    CleanerPlan,
    CleanMetadata,
    CommitMetadata,
    InstantMetadata,
    RestoreMetadata,
    RollbackMetadata,
    RollbackPlan,
)
from timeline.metadata.written_files import CommitFiles, WrittenFile

Said = InstantMetadata | CommitFiles
"""What an instant says, or what a commit says of files."""


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """What happened to the files of one partition.

    Attributes:
        added: New files, and logs that grew.
        extended: Names among ``added`` that earlier instants had begun, or may have.
        removed: Names of files that are gone.
    """

    added: PackedFiles = NO_FILES
    extended: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()


NO_CHANGE: Final = PartitionChange()

_PLANNED_AS: Final = {
    "CLUSTER": CLUSTERING,
    "COMPACT": COMPACTION,
    "LOG_COMPACT": LOG_COMPACTION,
}
"""Operation type → the action that an instant of it is requested with."""


@dataclass(frozen=True, slots=True)
class Delta:
    """What one instant did.

    Attributes:
        partitions: Partition → what happened there.
        replaced: Partition → file ids that it replaced.
        deleted_partitions: Partitions that a clean found empty and deleted.
        undone: Requested times of the instants that it rolled back.
        writes: Whether it wrote data files: its leftovers must go when it completes.
        planned_as: The action that it was requested with, where completing changed that:
            ``compaction``, ``logcompaction`` or ``clustering`` (layout 1 requests a clustering as a
            replacecommit).
        unsaid: Partitions of whose files it doesn't say everything: it can be neither applied there
            nor taken back.
    """

    partitions: Mapping[str, PartitionChange] = field(default_factory=dict)
    replaced: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    deleted_partitions: frozenset[str] = frozenset()
    undone: frozenset[str] = frozenset()
    writes: bool = False
    planned_as: str | None = None
    unsaid: frozenset[str] = frozenset()

    @property
    def touched(self) -> frozenset[str]:
        """The partitions that it names."""
        return frozenset(self.partitions) | frozenset(self.replaced) | self.deleted_partitions


NOTHING: Final = Delta()


def delta_of(metadata: Said, extensions: Collection[str]) -> Delta:
    """Return what a completed instant with this metadata did.

    Args:
        metadata: Of any action; those that touch no file (savepoint, indexing) give an empty delta.
        extensions: Of the table's base files.
    """
    if isinstance(metadata, CommitMetadata):
        metadata = CommitFiles.of(metadata)
    if isinstance(metadata, CommitFiles):
        return _of_commit(metadata, extensions)
    if isinstance(metadata, CleanMetadata):
        return _of_clean(metadata)
    if isinstance(metadata, RollbackMetadata):
        return _of_rollbacks((metadata,), extensions)
    if isinstance(metadata, RestoreMetadata):
        rollbacks = [one for done in metadata.restore_metadata.values() for one in done]
        delta = _of_rollbacks(rollbacks, extensions)
        undone = delta.undone.union(
            metadata.instants_to_rollback,
            metadata.restore_metadata,
            (info.commit_time for info in metadata.restore_instant_info),
        )
        return Delta(delta.partitions, undone=undone)
    return NOTHING


def planned_removals(plan: InstantMetadata) -> dict[str, frozenset[str]]:
    """Return partition → names that a pending clean or rollback may have removed already."""
    names: dict[str, set[str]] = defaultdict(set)
    if isinstance(plan, CleanerPlan):
        for partition, infos in plan.file_paths_to_be_deleted_per_partition.items():
            names[partition].update(_name(info.file_path) for info in infos)
        for partition, files in plan.files_to_be_deleted_per_partition.items():
            names[partition].update(map(_name, files))
    elif isinstance(plan, RollbackPlan):
        for request in plan.rollback_requests:
            names[request.partition_path].update(map(_name, request.files_to_be_deleted))
    return {partition: frozenset(found) for partition, found in names.items()}


def applied(version: PartitionVersion, change: PartitionChange) -> PartitionVersion:
    """Return the files after a change; applying it twice is the same as once."""
    return version.changed(change.added, change.removed)


def taken_back(
    version: PartitionVersion, change: PartitionChange, extensions: Collection[str]
) -> PartitionVersion:
    """Return the files before a change, with ghosts for what isn't known any more."""
    before = version.with_changes((), [file.name for file in change.added])
    return with_ghosts(before, change.removed | change.extended, extensions)


def without_leftovers(
    version: PartitionVersion, instant: str, change: PartitionChange, *, logs: bool
) -> PartitionVersion:
    """Return the files without those of a now completed instant that its metadata doesn't name.

    A listing made while the instant was in flight may hold files of tasks that were tried twice;
    the writer deletes those before it completes. ``logs`` says whether a log's name has the instant
    that wrote it (from table version 8 on); before that a log can't be told by its name.
    """
    named = {file.name for file in change.added}
    left = [
        file.name
        for file in version.files()
        if file.instant == instant
        and file.name not in named
        and (logs or isinstance(file, BaseFile))
    ]
    return version.with_changes((), left)


def with_ghosts(
    version: PartitionVersion, names: Iterable[str], extensions: Collection[str]
) -> PartitionVersion:
    """Return the files with those of some names of which nothing else is known, if they aren't."""
    found = (
        parse_data_file(version.partition, name, UNKNOWN_SIZE, 0, extensions) for name in names
    )
    return version.with_changes(file for file in found if file is not None)


def dated(delta: Delta, mtime_ms: int) -> Delta:
    """Return what an instant did, with the time at which it had done it in each of its files.

    Without it nobody could tell the logs of a rollback of table version 6, which their names don't
    say, once a restore has deleted the rollback (see ``without_late_logs``).
    """
    partitions = {
        partition: replace(change, added=_dated(change.added, mtime_ms))
        for partition, change in delta.partitions.items()
    }
    return replace(delta, partitions=partitions)


def _dated(files: PackedFiles, mtime_ms: int) -> PackedFiles:
    return PackedFiles.of(files.partition, (replace(file, mtime_ms=mtime_ms) for file in files))


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _of_commit(metadata: CommitFiles, extensions: Collection[str]) -> Delta:
    said = metadata.rest
    return Delta(
        {
            partition: _written(partition, files, extensions)
            for partition, files in metadata.files.items()
        },
        dict(said.partition_to_replace_file_ids),
        writes=True,
        planned_as=_PLANNED_AS.get(said.operation_type) or (COMPACTION if said.compacted else None),
    )


def _written(
    partition: str, files: Iterable[WrittenFile], extensions: Collection[str]
) -> PartitionChange:
    added = PackedFiles.named(partition, ((name, size, 0) for name, size, _ in files), extensions)
    grown = {name for name, _, has_grown in files if has_grown}
    extended = (file.name for file in added if file.name in grown) if grown else ()
    return PartitionChange(added, frozenset(extended))


def _of_clean(metadata: CleanMetadata) -> Delta:
    entries = metadata.partition_metadata.items()
    return Delta(
        {
            partition: PartitionChange(removed=frozenset(map(_name, done.success_delete_files)))
            for partition, done in entries
        },
        deleted_partitions=frozenset(
            partition for partition, done in entries if done.is_partition_deleted
        ),
    )


def _of_rollbacks(rollbacks: Iterable[RollbackMetadata], extensions: Collection[str]) -> Delta:
    added: dict[str, dict[str, DataFile]] = defaultdict(dict)
    extended: dict[str, set[str]] = defaultdict(set)
    removed: dict[str, set[str]] = defaultdict(set)
    undone: set[str] = set()
    for rollback in rollbacks:
        undone.update(rollback.commits_rollback)
        undone.update(info.commit_time for info in rollback.instants_rollback)
        for partition, done in rollback.partition_metadata.items():
            removed[partition].update(map(_name, done.success_delete_files))
            logs = {**done.log_files_from_failed_commit, **done.rollback_log_files}
            # Before table version 8 they may have been there before, and only grown.
            extended[partition].update(map(_name, logs))
            for path, said in logs.items():
                # Release 0.15 writes 1 for a size that it doesn't know.
                size = said if said > 1 else UNKNOWN_SIZE
                file = parse_data_file(partition, _name(path), size, 0, extensions)
                if file is not None:
                    added[partition][file.name] = file
    return Delta(
        {
            partition: PartitionChange(
                PackedFiles.of(partition, added[partition].values()),
                frozenset(extended[partition]),
                frozenset(removed[partition]),
            )
            for partition in {*added, *removed}
        },
        undone=frozenset(undone),
    )
