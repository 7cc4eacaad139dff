"""Which files a clean deletes: pure functions of the timeline, its metadata and the view's groups.

The invariant, for an earliest instant to retain ``E``:

    a reader at any timeline that ends at ``E`` or later finds every file that its view names.

Such a reader asks each group for its newest slice at or before its own last instant, which is
``E`` or later; so of the slices that began before ``E`` only the newest can be asked for, and the
older ones go. ("Before" is by requested time, as Hudi has it: of two writes at once a reader may
have seen the later one completed and the earlier one not.) A group that was replaced before ``E``
isn't asked for at all, and goes whole. Files that a savepoint names, slices that a pending
compaction is going to read, and whatever isn't committed stay.

A group has something to delete only if, since the last clean looked, a slice began in it before
``E`` on top of an older one, or it was replaced before ``E``. Both stand in the metadata of the
write instants between the last clean's ``E`` and the new one, so only the partitions that these
name are looked at, and of those not the ones that merely got new groups.

Source: Hudi 1.2.0 ``CleanPlanner``. It differs on purpose: partitions with new groups only are not
looked at; after a savepoint is deleted all partitions are, not only those written by its commit;
files that a clean failed to delete are planned again; and a partition left empty keeps its
directory, because a writer may be about to write there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from fsview.model.file_group import CompactionOperation, FileGroup, FileSlice
from fsview.wire.json_form import PathForms
from strandline.clean.policy import KEEP_LATEST_COMMITS
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
"""Key of a clean's extra metadata: the savepoints that it spared, separated by commas."""

_COMPACTIONS: Final = frozenset({"COMPACT", "LOG_COMPACT"})

FROM_THE_START: Final = ""


@dataclass(frozen=True, slots=True)
class Savepoints:
    """What the table's savepoints protect.

    Attributes:
        times: Requested times, in order.
        files: (partition, file name).
    """

    times: tuple[str, ...] = ()
    files: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def of(cls, metadata: Mapping[str, SavepointMetadata]) -> Savepoints:
        """Return the sum of savepoints: requested time → metadata."""
        files = frozenset(
            (partition, name)
            for savepoint in metadata.values()
            for partition, saved in savepoint.partition_metadata.items()
            for name in saved.savepoint_data_file
        )
        return cls(tuple(sorted(metadata)), files)


@dataclass(frozen=True, slots=True)
class PartitionGroups:
    """The groups of one partition, as the view answers.

    Attributes:
        groups: Those not replaced.
        replaced: Those replaced before the earliest instant to retain.
    """

    groups: tuple[FileGroup, ...]
    replaced: tuple[FileGroup, ...]


@dataclass(frozen=True, slots=True)
class PlannedClean:
    """A plan and what it is going to free.

    Attributes:
        plan: As it goes into the requested instant.
        files: How many it deletes.
        bytes: Their size, as far as the view knows.
    """

    plan: CleanerPlan
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Doomed:
    """Files to be deleted in one partition: name → size."""

    sizes: dict[str, int] = field(default_factory=dict)

    def add(self, found: FileSlice) -> None:
        if found.base_file is not None:
            self.sizes[found.base_file.name] = found.base_file.size
        self.sizes.update((log.name, log.size) for log in found.log_files)


def look_since(timeline: Timeline, last_clean: CleanMetadata | None, saved: Iterable[str]) -> str:
    """Return the requested time from which on write instants may have made something deletable.

    Args:
        timeline: The active timeline.
        last_clean: What the last completed clean says.
        saved: Requested times of the savepoints there are now.

    Returns:
        17 digits, or ``FROM_THE_START`` when everything has to be looked at.
    """
    if last_clean is None or not last_clean.earliest_commit_to_retain:
        return FROM_THE_START
    spared = last_clean.extra_metadata.get(SAVEPOINTED, "").split(",")
    if {time for time in spared if time} - set(saved):
        return FROM_THE_START  # what a savepoint protected may have become deletable anywhere
    start = _kept(timeline).first_non_savepoint_time
    since = last_clean.earliest_commit_to_retain
    if start is None or since < start:
        return FROM_THE_START  # some of the instants since then are archived
    return since


def _kept(timeline: Timeline) -> Timeline:
    """Return the instants that say where the timeline begins: writes, and their savepoints."""
    return timeline.filter(lambda i: i.action in WRITE_ACTIONS or i.action == SAVEPOINT)


def instants_between(timeline: Timeline, since: str, earliest: Instant) -> tuple[Instant, ...]:
    """Return the completed write instants requested from ``since`` on and before ``earliest``."""
    return tuple(
        instant
        for instant in timeline.write_timeline().completed()
        if since <= instant.requested_time < earliest.requested_time
    )


def partitions_named(commits: Iterable[CommitMetadata]) -> set[str]:
    """Return where these instants put a slice on top of an older one, or replaced a group."""
    named: set[str] = set()
    for commit in commits:
        named.update(commit.partition_to_replace_file_ids)
        # A compaction calls the base file that it makes of logs alone a new one.
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
    """Return the slices of a group that isn't replaced which no reader at ``earliest`` can ask for.

    Args:
        group: All its slices, newest first.
        earliest: Requested time of the earliest instant to retain.
        is_committed: Whether the instant of a requested time is.
        needed_from: Base instant of the slice that a pending compaction is going to read.
    """
    committed = [found for found in group.slices if is_committed(found.base_instant)]
    asked_for = next((found for found in committed if found.base_instant < earliest), None)
    if asked_for is None:
        return ()
    return tuple(
        found
        for found in committed
        if found.base_instant < asked_for.base_instant
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
    """Return what to delete in these partitions.

    Args:
        timeline: The active timeline, instants of any state.
        earliest: The earliest instant to retain.
        partitions: Where to look.
        groups_of: Asks the view for the groups of a partition. What the view doesn't know stays, so
            it should know the completed instants before ``earliest``.
        base_path: The table's; paths in the plan begin with it.
        savepoints: Whose files stay.
        compactions: The pending ones and the pending log compactions.

    Returns:
        The plan; ``None`` if there is nothing to delete.
    """
    # With the savepoints in it, a commit that one of them keeps doesn't pass for the timeline's
    # start.
    is_committed = _kept(timeline).completed().contains_or_before_start
    needed = {(op.partition, op.file_id): op.base_instant for op in compactions}
    doomed: dict[str, _Doomed] = {}
    for partition in sorted(set(partitions)):
        found = groups_of(partition)
        old = [
            old
            for group in found.groups
            for old in deletable_slices(
                group,
                earliest.requested_time,
                is_committed,
                needed.get((group.partition, group.file_id)),
            )
        ]
        old += _slices_of_replaced(found.replaced, is_committed)
        here = _Doomed()
        for each in old:
            if not _is_saved(each, partition, savepoints):
                here.add(each)
        if here.sizes:
            doomed[partition] = here
    if not doomed:
        return None
    return PlannedClean(
        _cleaner_plan(timeline, earliest, doomed, base_path, savepoints),
        sum(len(here.sizes) for here in doomed.values()),
        sum(sum(here.sizes.values()) for here in doomed.values()),
    )


def _slices_of_replaced(
    groups: Iterable[FileGroup], is_committed: Callable[[str], bool]
) -> list[FileSlice]:
    return [found for group in groups for found in group.slices if is_committed(found.base_instant)]


def _is_saved(found: FileSlice, partition: str, savepoints: Savepoints) -> bool:
    """Whether a savepoint names a file of the slice; then all of it stays, as it is read whole."""
    names = [log.name for log in found.log_files]
    if found.base_file is not None:
        names.append(found.base_file.name)
    return any((partition, name) in savepoints.files for name in names)


def _cleaner_plan(
    timeline: Timeline,
    earliest: Instant,
    doomed: Mapping[str, _Doomed],
    base_path: str,
    savepoints: Savepoints,
) -> CleanerPlan:
    """Put the files into the form that goes on the timeline."""
    # Hudi finishes a plan with the paths as they stand, so a local one must say that it is.
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
                for name in sorted(here.sizes)
            )
            for partition, here in doomed.items()
        },
        extra_metadata={SAVEPOINTED: ",".join(savepoints.times)} if savepoints.times else {},
    )
