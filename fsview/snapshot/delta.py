"""``Delta``: what one completed instant did to the files of each partition, from its metadata.

A delta can be applied to the files of a partition that was listed before the instant, and taken
back from files listed after it, to get the state before. Taking back an *added* file loses nothing;
a *removed* file returns with an unknown size, as metadata has no sizes of deleted files, and so
does a log that was only *extended*, as its earlier size is lost.

Source: Hudi 1.2.0 ``IncrementalTimelineSyncFileSystemView``. Beyond it: change-data files, the logs
that a rollback writes or leaves, names matched by partition and file name instead of full paths,
files that a task left behind and its commit doesn't name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from fsview.files.group import NO_FILES, PackedFiles
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

ReadMetadata = InstantMetadata | CommitFiles
"""An instant's metadata, of a commit perhaps only the files."""


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """What happened to the files of one partition.

    Attributes:
        added: New files, and logs that grew.
        extended: Names among ``added`` of logs that (may) have existed before.
        removed: Names of deleted files.
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
        partitions: Partition → change of its files.
        replaced: Partition → file ids that it replaced.
        deleted_partitions: Partitions that a clean found empty and deleted.
        undone: Requested times of the instants that it rolled back.
        writes: Whether it wrote data files, so that leftovers of its tasks may have been listed.
        planned_as: The action with which it was requested, if completion changed that:
            ``compaction``, ``logcompaction`` or ``clustering`` (layout 1 requests a clustering as a
            replacecommit).
        incomplete: Partitions for which its metadata doesn't name every change, so that it can
            neither be applied there nor taken back.
    """

    partitions: Mapping[str, PartitionChange] = field(default_factory=dict)
    replaced: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    deleted_partitions: frozenset[str] = frozenset()
    undone: frozenset[str] = frozenset()
    writes: bool = False
    planned_as: str | None = None
    incomplete: frozenset[str] = frozenset()

    @property
    def touched(self) -> frozenset[str]:
        """Partitions that it names."""
        return frozenset(self.partitions) | frozenset(self.replaced) | self.deleted_partitions


NOTHING: Final = Delta()


def delta_of(metadata: ReadMetadata, extensions: Collection[str]) -> Delta:
    """Return the delta of a completed instant.

    Args:
        metadata: Of any action; those without files (savepoint, indexing) give an empty delta.
        extensions: Extensions of the table's base files.
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
        # Plans of version 2 name full paths here, and leave the other field empty.
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
    """Return the files before a change, those whose size is lost with an unknown one."""
    before = version.with_changes((), [file.name for file in change.added])
    return with_ghosts(before, change.removed | change.extended, extensions)


def without_leftovers(
    version: PartitionVersion, instant: str, change: PartitionChange, *, logs: bool
) -> PartitionVersion:
    """Return the files without those of a completed instant that its metadata doesn't name.

    A listing made while the instant was in flight may have files of task attempts that failed; the
    writer deletes these before it completes.

    Args:
        version: The files.
        instant: The instant's requested time.
        change: What the instant did.
        logs: Whether the name of a log has the instant that wrote it, as from table version 8 on.
    """
    named = {file.name for file in change.added}
    # In version 6 a log is named by its slice, so another instant may have written it.
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
    """Return the files, and one of unknown size for each of these names that has no file."""
    found = (
        parse_data_file(version.partition, name, UNKNOWN_SIZE, 0, extensions) for name in names
    )
    return version.with_changes(file for file in found if file is not None)


def dated(delta: Delta, mtime_ms: int) -> Delta:
    """Return a delta with a modification time in each of its files.

    The names of the logs of a version 6 rollback don't contain its instant. Once a restore has
    deleted the rollback, only their time identifies them (``fsview.snapshot.history``).
    """
    partitions = {
        partition: replace(change, added=_dated(change.added, mtime_ms))
        for partition, change in delta.partitions.items()
    }
    return replace(delta, partitions=partitions)


def _dated(files: PackedFiles, mtime_ms: int) -> PackedFiles:
    return PackedFiles.of(files.partition, (replace(file, mtime_ms=mtime_ms) for file in files))


def _name(path: str) -> str:
    # Names only: a path may spell the base path in another way than this view.
    return path.rpartition("/")[2]


def _of_commit(metadata: CommitFiles, extensions: Collection[str]) -> Delta:
    rest = metadata.rest
    return Delta(
        {
            partition: _written(partition, files, extensions)
            for partition, files in metadata.files.items()
        },
        dict(rest.partition_to_replace_file_ids),
        writes=True,
        planned_as=_PLANNED_AS.get(rest.operation_type) or (COMPACTION if rest.compacted else None),
    )


def _written(
    partition: str, files: Iterable[WrittenFile], extensions: Collection[str]
) -> PartitionChange:
    # Hudi's metadata has no modification times.
    added = PackedFiles.named(partition, ((name, size, 0) for name, size, _ in files), extensions)
    grown = {name for name, _, has_grown in files if has_grown}
    extended = (file.name for file in added if file.name in grown) if grown else ()
    return PartitionChange(added, frozenset(extended))


def _of_clean(metadata: CleanMetadata) -> Delta:
    entries = metadata.partition_metadata.items()
    return Delta(
        {
            # Files that the clean failed to delete are still there.
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
            # Before table version 8 a rollback may append to an existing log.
            extended[partition].update(map(_name, logs))
            for path, size in logs.items():
                # Hudi 0.15 writes 1 for a size that it doesn't know.
                known = size if size > 1 else UNKNOWN_SIZE
                file = parse_data_file(partition, _name(path), known, 0, extensions)
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
