"""Plans which files a clean deletes; pure functions of the timeline, its metadata and the view.

Invariant, for the earliest instant to retain ``E``:

    a reader at any timeline that ends at ``E`` or later finds every file that its view names.

Such a reader reads each file group's newest slice at or before its own last instant, which is ``E``
or later. So only the newest of the slices that began before ``E`` can be read; the older ones are
deleted. A group replaced before ``E`` can't be read and is deleted as a whole. Files named by a
savepoint, slices that a pending compaction will read, and uncommitted files are kept.

A group has something to delete only if, since the last plan, a slice began in it before ``E`` on
top of an older one, or it was replaced before ``E``. Both are recorded in the metadata of the write
instants between the last clean's ``E`` and the new one. So only the partitions named there are
examined, but not those that only got new groups.

Source: Hudi 1.2.0 ``CleanPlanner``, with intended differences: partitions that only got new groups
aren't examined; after the deletion of a savepoint all partitions are examined, not only those
written by its commit; files that a clean failed to delete are planned again; an empty partition
keeps its directory, because a writer may be about to write to it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from fsview.model.file_group import CompactionOperation, FileGroup, FileSlice
from fsview.wire.json_form import PathForms
from strandline.table_services.clean.policy import KEEP_LATEST_COMMITS
from timeline.instant import SAVEPOINT, WRITE_ACTIONS, Instant
from timeline.metadata.instant_metadata import (
    NULL_COMMIT,
    ActionInstant,
    CleanerPlan,
    CleanFileInfo,
    CleanMetadata,
    CommitMetadata,
    SavepointMetadata,
)
from timeline.timeline import Timeline

SAVEPOINTED: Final = "savepointed_timestamps"
"""Key in a clean's extra metadata: times of the savepoints at that time, separated by commas."""

_COMPACTIONS: Final = frozenset({"COMPACT", "LOG_COMPACT"})

FROM_THE_START: Final = ""


@dataclass(frozen=True, slots=True)
class Savepoints:
    """The table's savepoints and the files that they protect.

    Attributes:
        times: Requested times, ascending.
        files: (partition, file name) pairs.
    """

    times: tuple[str, ...] = ()
    files: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def of(cls, metadata: Mapping[str, SavepointMetadata]) -> Savepoints:
        """Return the union of savepoints, given as requested time → metadata."""
        files = frozenset(
            (partition, name)
            for savepoint in metadata.values()
            for partition, saved in savepoint.partition_metadata.items()
            for name in saved.savepoint_data_file
        )
        return cls(tuple(sorted(metadata)), files)


@dataclass(frozen=True, slots=True)
class PartitionGroups:
    """File groups of one partition, from the view.

    Attributes:
        groups: Groups that aren't replaced.
        replaced: Groups replaced before the earliest instant to retain.
    """

    groups: tuple[FileGroup, ...]
    replaced: tuple[FileGroup, ...]


@dataclass(frozen=True, slots=True)
class PlannedClean:
    """A plan, and how much it deletes.

    Attributes:
        plan: Content of the requested instant.
        files: Number of files to delete.
        bytes: Their size, as far as the view knows.
    """

    plan: CleanerPlan
    files: int
    bytes: int


def plan_since(timeline: Timeline, last_clean: CleanMetadata | None, saved: Iterable[str]) -> str:
    """Return the requested time of the first write instant to examine.

    Args:
        timeline: The active timeline.
        last_clean: Metadata of the last completed clean.
        saved: Requested times of the current savepoints.

    Returns:
        17 digits, or ``FROM_THE_START`` if all partitions must be examined.
    """
    if last_clean is None or not last_clean.earliest_commit_to_retain:
        return FROM_THE_START
    saved_then = last_clean.extra_metadata.get(SAVEPOINTED, "").split(",")
    if {time for time in saved_then if time} - set(saved):
        return FROM_THE_START  # a deleted savepoint may have protected files in any partition
    start = _writes_and_savepoints(timeline).first_non_savepoint_time
    since = last_clean.earliest_commit_to_retain
    if start is None or since < start:
        return FROM_THE_START  # some of the instants since then are archived
    return since


def _writes_and_savepoints(timeline: Timeline) -> Timeline:
    if SAVEPOINT not in timeline.actions:
        return timeline.write_timeline()
    return timeline.filter(lambda i: i.action in WRITE_ACTIONS or i.action == SAVEPOINT)


def instants_between(timeline: Timeline, since: str, earliest: Instant) -> tuple[Instant, ...]:
    """Return the completed write instants requested in [``since``, ``earliest``)."""
    writes = timeline.completed().write_timeline().instants
    start, end = (
        bisect_left(writes, time, key=attrgetter("requested_time"))
        for time in (since, earliest.requested_time)
    )
    return writes[start:end]


def partitions_named(commits: Iterable[CommitMetadata]) -> set[str]:
    """Return the partitions where commits added a slice to an existing group, or replaced one."""
    named: set[str] = set()
    for commit in commits:
        named.update(commit.partition_to_replace_file_ids)
        # A compaction of logs without a base file reports its file as belonging to a new group.
        compacted = commit.compacted or commit.operation_type in _COMPACTIONS
        for partition, stats in commit.partition_to_write_stats.items():
            if compacted or any(stat.prev_commit != NULL_COMMIT for stat in stats):
                named.add(partition)
    return named


def partitions_left_over(last_clean: CleanMetadata | None) -> set[str]:
    """Return the partitions where the last clean failed to delete a file."""
    if last_clean is None:
        return set()
    return {
        partition
        for partition, cleaned in last_clean.partition_metadata.items()
        if cleaned.failed_delete_files
    }


def deletable_slices(
    group: FileGroup,
    earliest: str,
    is_committed: Callable[[str], bool],
    needed_from: str | None = None,
) -> tuple[FileSlice, ...]:
    """Return the slices of a group, not replaced, that no reader at ``earliest`` or later can read.

    Args:
        group: The group with all its slices, newest first.
        earliest: Requested time of the earliest instant to retain.
        is_committed: Whether the instant of a requested time is committed.
        needed_from: Base instant of the slice that a pending compaction will read.
    """
    # Slices of pending writes are kept: the writes may still complete.
    committed = [found for found in group.slices if is_committed(found.base_instant)]
    # By requested time, as in Hudi: a reader may have seen the later of two concurrent writes
    # completed before the earlier one.
    kept = next((found for found in committed if found.base_instant < earliest), None)
    if kept is None:
        return ()
    return tuple(
        found
        for found in committed
        if found.base_instant < kept.base_instant
        and (needed_from is None or found.base_instant < needed_from)
    )


def plan_clean(
    timeline: Timeline,
    earliest: Instant,
    partitions: Iterable[str],
    groups_of: Callable[[str], PartitionGroups],
    *,
    base_path: str,
    savepoints: Savepoints,
    compactions: Iterable[CompactionOperation] = (),
) -> PlannedClean | None:
    """Return the plan of a clean of these partitions.

    Args:
        timeline: The active timeline, instants of any state.
        earliest: The earliest instant to retain.
        partitions: Partitions to examine.
        groups_of: Returns the view's groups of a partition. The view must have the completed
            instants before ``earliest``; files that it doesn't have are kept.
        base_path: The table's base path, the prefix of paths in the plan.
        savepoints: Savepoints whose files are kept.
        compactions: Pending compactions and log compactions.

    Returns:
        The plan; ``None`` if there is nothing to delete.
    """
    # Savepoints are included: otherwise a saved older commit would become the timeline's start.
    is_committed = _writes_and_savepoints(timeline).completed().contains_or_before_start
    needed = {(op.partition, op.file_id): op.base_instant for op in compactions}
    sizes: dict[str, dict[str, int]] = {}
    for partition in sorted(set(partitions)):
        found = groups_of(partition)
        deletable = [
            old
            for group in found.groups
            for old in deletable_slices(
                group,
                earliest.requested_time,
                is_committed,
                needed.get((group.partition, group.file_id)),
            )
        ]
        deletable += [
            old
            for group in found.replaced
            for old in group.slices
            if is_committed(old.base_instant)
        ]
        files: dict[str, int] = {}
        for slice_files in map(_file_sizes, deletable):
            # A slice is read whole, so a savepoint of one of its files keeps all of them.
            if not any((partition, name) in savepoints.files for name in slice_files):
                files |= slice_files
        if files:
            sizes[partition] = files
    if not sizes:
        return None
    return PlannedClean(
        _cleaner_plan(timeline, earliest, sizes, base_path, savepoints),
        sum(map(len, sizes.values())),
        sum(sum(files.values()) for files in sizes.values()),
    )


def _file_sizes(found: FileSlice) -> dict[str, int]:
    """Return name → size of a slice's files."""
    sizes = {log.name: log.size for log in found.log_files}
    if found.base_file is not None:
        sizes[found.base_file.name] = found.base_file.size
    return sizes


def _cleaner_plan(
    timeline: Timeline,
    earliest: Instant,
    names: Mapping[str, Iterable[str]],
    base_path: str,
    savepoints: Savepoints,
) -> CleanerPlan:
    """Return the requested instant's content; ``names`` are the files to delete by partition."""
    # Hudi uses the paths unchanged when it finishes a plan, so local paths need their scheme.
    below = PathForms.of(base_path).text
    last = timeline.write_timeline().completed().last
    return CleanerPlan(
        earliest_instant_to_retain=ActionInstant(
            earliest.requested_time, earliest.action, earliest.state.value
        ),
        last_completed_commit_timestamp="" if last is None else last.requested_time,
        policy=KEEP_LATEST_COMMITS,
        file_paths_to_be_deleted_per_partition={
            partition: tuple(
                CleanFileInfo(f"{below}/{partition}/{name}" if partition else f"{below}/{name}")
                for name in sorted(files)
            )
            for partition, files in names.items()
        },
        extra_metadata={SAVEPOINTED: ",".join(savepoints.times)} if savepoints.times else {},
    )
