"""Plans which files a clean deletes; pure functions of the timeline, its metadata and the view.

Invariant, for the earliest instant to retain ``E``:

    a reader at any timeline that ends at ``E`` or later finds every file that its view names.

Such a reader reads each file group's newest slice at or before its own last instant, which is ``E``
or later. So of the slices that began before ``E`` only the newest can be read; the older ones are
deleted. A group replaced before ``E`` can't be read and is deleted as a whole. Files named by a
savepoint, slices that a pending compaction will read, and uncommitted files are kept. If a group
was replaced that a pending plan reads, ``E`` isn't later than the instant that replaced it.

``KEEP_LATEST_FILE_VERSIONS`` has no ``E``: the newest slices of each group stay, and the invariant
holds for the newest timeline alone. Replaced groups are deleted at once, as in Hudi, but for the
slices that pending plans read.

Readers' leases (``strandline.read.state.reader_lease``) cap ``E``. Without ``E`` the slices that a
lease's reader may read stay: in every group the newest one at the lease's earliest instant, and
those that began after it and not after its reader's instant. Later ones with logs stay, too, as
their logs may be of writes before that instant.

A group has files to delete only if, since the last plan, a slice that supersedes an older one began
in it before ``E``, or it was replaced before ``E``. Both are recorded in the metadata of the write
instants between the last clean's ``E`` and the new one; without ``E``, of those that completed
since the last clean was planned. So only the partitions named there are examined, except those that
only got new groups or logs.

Source: Hudi 1.2.0 ``CleanPlanner``, with intended differences: partitions that only got new groups
aren't examined; after the deletion of a savepoint all partitions are examined, not only those
written by its commit; files that a clean failed to delete are planned again; an empty partition
keeps its directory, because a writer may be about to write to it; what a pending compaction, log
compaction or clustering reads or writes stays also in a replaced group.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from operator import attrgetter
from types import MappingProxyType
from typing import Final

from fsview.model.file_group import CompactionOperation, FileGroup, FileSlice
from fsview.wire.json_form import PathForms
from strandline.read.state.reader_lease import HELD_FROM, Lease, held_from
from strandline.table_services.clean.policy import Retention
from timeline.instant import RESTORE, ROLLBACK, SAVEPOINT, WRITE_ACTIONS, Instant, State
from timeline.metadata.instant_metadata import (
    ActionInstant,
    CleanerPlan,
    CleanFileInfo,
    CleanMetadata,
    SavepointMetadata,
)
from timeline.metadata.written_files import CommitFiles
from timeline.table.partition_metadata import path_in
from timeline.timeline import Timeline

SAVEPOINTED: Final = "savepointed_timestamps"
"""Key in a clean's extra metadata: times of the savepoints at that time, separated by commas."""

_COMPACTIONS: Final = frozenset({"COMPACT", "LOG_COMPACT"})

FROM_THE_START: Final = ""
KEPT_VERSIONS: Final = "strandline.clean.versions"
"""Key in a clean's extra metadata: number of slices per group that it kept. The next clean with the
same number needn't search for slices that were superseded before."""
NEEDED_FROM: Final = "strandline.clean.needed"
"""Key in the extra metadata of a clean with file versions: requested time at which the first group
was replaced of which it kept slices for pending plans. Absent: it kept none."""


@dataclass(frozen=True, slots=True)
class Savepoints:
    """The table's savepoints and the files that they protect.

    Attributes:
        times: Requested times, ascending.
        files: (partition, file name) → requested time of a savepoint that names the file.
    """

    times: tuple[str, ...] = ()
    files: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @classmethod
    def of(cls, metadata: Mapping[str, SavepointMetadata]) -> Savepoints:
        """Return the union of savepoints, given as requested time → metadata."""
        files = {
            (partition, name): time
            for time, savepoint in sorted(metadata.items())
            for partition, saved in savepoint.partition_metadata.items()
            for name in saved.savepoint_data_file
        }
        return cls(tuple(sorted(metadata)), files)

    def spared(self, fate: Fate) -> Fate:
        """Return the fate of a slice after savepoints: one that names a file of it keeps it.

        A slice is read whole, so a savepoint of one of its files keeps all of them.
        """
        if not fate.rule.deletes or not self.files:
            return fate
        at = fate.found.partition
        saved = [name for name in fate.found.sizes if (at, name) in self.files]
        return Fate(fate.found, Rule.SAVEPOINT, self.files[at, saved[0]]) if saved else fate


@dataclass(frozen=True, slots=True)
class PartitionGroups:
    """File groups of one partition, from the view.

    Attributes:
        groups: Groups that aren't replaced.
        replaced: Groups replaced before the earliest instant to retain.
        read: Groups replaced since the earliest instant of a lease, if there is none to retain.
    """

    groups: tuple[FileGroup, ...]
    replaced: tuple[FileGroup, ...]
    read: tuple[FileGroup, ...] = ()


class Rule(Enum):
    """Why a clean keeps or deletes a slice; the value is a text with the rule's instant."""

    SUPERSEDED = "superseded by the slice of {0}, which retained readers use in its place"
    REPLACED = "its file group was replaced, and no retained reader uses it"
    SURPLUS = "{0} newer slices of its file group stay"
    RETAINED = "it began at or after {0}, the earliest instant to retain"
    REPLACED_SINCE = "its file group was replaced at or after {0}, the earliest instant to retain"
    READ = "the newest slice of its file group before {0}, the earliest instant to retain"
    VERSION = "one of the newest {0} slices of its file group"
    COMPACTION = "a pending compaction or log compaction reads the slice of {0} or later ones"
    CLUSTERING = "a pending clustering reads it"
    SAVEPOINT = "the savepoint {0} names a file of its slice"
    LEASE = "held by the lease {0}"
    UNCOMMITTED = "its instant {0} isn't committed"
    YOUNG = "nothing in the table is old enough for {0}"

    @property
    def deletes(self) -> bool:
        """Whether the rule deletes slices."""
        return self in (Rule.SUPERSEDED, Rule.REPLACED, Rule.SURPLUS)


@dataclass(frozen=True, slots=True)
class Fate:
    """Whether a clean keeps or deletes a slice, and why.

    Attributes:
        found: The slice.
        rule: The reason.
        by: The instant, number or lease in the rule's text.
    """

    found: FileSlice
    rule: Rule
    by: str = ""

    @property
    def reason(self) -> str:
        """The rule as text."""
        return self.rule.value.format(self.by)


@dataclass(frozen=True, slots=True)
class PlannedClean:
    """A plan, and the files that it deletes.

    Attributes:
        plan: Content of the requested instant.
        files: Number of files to delete.
        bytes: Their size according to the view.
    """

    plan: CleanerPlan
    files: int
    bytes: int


def plan_since(timeline: Timeline, last_clean: CleanMetadata | None, saved: Iterable[str]) -> str:
    """Return the requested time of the first write instant to examine, for policies with ``E``.

    Args:
        timeline: The active timeline, or the archived instants before it, too.
        last_clean: Metadata of the last completed clean.
        saved: Requested times of the current savepoints.

    Returns:
        17 digits, or ``FROM_THE_START`` if all partitions must be examined.
    """
    if last_clean is None or not last_clean.earliest_commit_to_retain:
        return FROM_THE_START
    if _lost_savepoints(last_clean, saved):
        return FROM_THE_START
    start = writes_and_savepoints(timeline).first_non_savepoint_time
    since = last_clean.earliest_commit_to_retain
    if start is None or since < start:
        return FROM_THE_START  # some of the instants since then are archived
    return since


def _lost_savepoints(last_clean: CleanMetadata, saved: Iterable[str]) -> bool:
    """Whether a savepoint was deleted, which may have protected files in any partition."""
    saved_then = last_clean.extra_metadata.get(SAVEPOINTED, "").split(",")
    return bool({time for time in saved_then if time} - set(saved))


def instants_since(
    timeline: Timeline,
    last_clean: Instant | None,
    known: CleanMetadata | None,
    versions: int,
    saved: Iterable[str] = (),
) -> tuple[Instant, ...] | None:
    """Return the writes that completed since the last clean was planned, for file versions.

    Args:
        timeline: The active timeline.
        last_clean: The last completed clean.
        known: Its metadata.
        versions: Number of slices that stay in each file group.
        saved: Requested times of the current savepoints.

    Returns:
        ``None`` if all partitions must be examined: the last clean had another policy, kept more
        slices, or doesn't record their number, like Hudi's; a savepoint was deleted since; or later
        writes may be archived.
    """
    if last_clean is None or known is None or known.earliest_commit_to_retain:
        return None
    if known.extra_metadata.get(KEPT_VERSIONS, "") != str(versions):
        return None
    if _lost_savepoints(known, saved):
        return None
    writes = timeline.completed().write_timeline()
    start = writes.first_non_savepoint_time
    if start is None or last_clean.requested_time < start:
        return None
    # A slice that only a lease held was superseded, or its group replaced, since the lease's
    # earliest instant; one that only a plan needed, since the first of these groups was replaced.
    held = kept_from(known.extra_metadata)
    if held is not None and held < start:
        return None
    # In layout 1 completion times come from the storage's clock, the clean's time doesn't.
    return tuple(
        i
        for i in writes
        if (i.completion_time or i.requested_time) > last_clean.requested_time
        or (held is not None and i.requested_time >= held)
    )


def kept_from(extra_metadata: Mapping[str, str]) -> str | None:
    """Return since when replaced groups stayed for leases or plans in a clean with file versions.

    Args:
        extra_metadata: The clean's extra metadata.

    Returns:
        A requested time; ``None``: all went.
    """
    found = (extra_metadata.get(key) for key in (HELD_FROM, NEEDED_FROM))
    return min((time for time in found if time is not None), default=None)


def writes_and_savepoints(timeline: Timeline) -> Timeline:
    """Return the writes, and the savepoints so that a saved commit isn't the start."""
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


def partitions_named(commits: Iterable[CommitFiles]) -> set[str]:
    """Return the partitions where commits added a slice to an existing group, or replaced one."""
    named: set[str] = set()
    for commit in commits:
        rest = commit.rest
        named.update(rest.partition_to_replace_file_ids)
        # A compaction of logs without a base file reports its file as belonging to a new group.
        compacted = rest.compacted or rest.operation_type in _COMPACTIONS
        named.update(commit.files if compacted else commit.superseding)
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


def without_deleted(metadata: CleanMetadata) -> CleanMetadata:
    """Return a completed clean with only the partitions where it failed to delete a file."""
    left_over = partitions_left_over(metadata)
    return replace(
        metadata, partition_metadata={p: metadata.partition_metadata[p] for p in left_over}
    )


def with_failures(metadata: CleanMetadata, others: Iterable[CleanMetadata]) -> CleanMetadata:
    """Return a completed clean to which the failures of other cleans were added."""
    failures = dict(metadata.partition_metadata)
    for other in others:
        failures = {**without_deleted(other).partition_metadata, **failures}
    return replace(metadata, partition_metadata=failures)


def is_changed_since(timeline: Timeline, clean: Instant, saved: str) -> bool:
    """Whether files that a pending clean planned may be live again, or savepointed.

    Args:
        timeline: The active timeline.
        clean: The clean.
        saved: ``SAVEPOINTED`` in its plan; Hudi's plans have none.
    """
    # A savepoint may have come after the timeline was read for the plan, but before the request.
    known = saved.split(",")
    if any(i.action == SAVEPOINT and i.requested_time not in known for i in timeline):
        return True
    changes = (i for i in timeline if i.action in (ROLLBACK, RESTORE))
    return any(
        not i.is_completed or (i.completion_time or i.requested_time) > clean.requested_time
        for i in changes
    )


def reach(timeline: Timeline, earliest: str | None, planned: str | None = None) -> str:
    """Return the time from which on a clean keeps all that readers need.

    Args:
        timeline: The active timeline.
        earliest: Its earliest instant to retain; ``None`` or empty: it retains file versions, and
            so keeps what readers of the newest state need.
        planned: Its requested time; ``None``: it is planned now.
    """
    if earliest:
        return earliest
    times = (i.requested_time for i in timeline.write_timeline().completed())
    return max((time for time in times if planned is None or time < planned), default="")


def retention_of(plan: CleanerPlan) -> Retention:
    """Return what a plan of this cleaner or of Hudi keeps.

    Plans of Hudi don't record how many file versions they keep; it is at least one.
    """
    earliest, versions = plan.earliest_instant_to_retain, plan.extra_metadata.get(KEPT_VERSIONS, "")
    if earliest is None:
        number = int(versions) if versions.isdecimal() else 1
        needed_from = plan.extra_metadata.get(NEEDED_FROM)
        return Retention(plan.policy, None, number, needed_from=needed_from)
    instant = Instant(earliest.timestamp, earliest.action, State.COMPLETED)
    return Retention(plan.policy, instant)


def fates(
    group: FileGroup,
    kept: Retention,
    is_committed: Callable[[str], bool],
    needed_from: str | None = None,
) -> Iterator[Fate]:
    """Yield the fate of each slice of a group that isn't replaced, ignoring savepoints.

    Args:
        group: The group with all its slices, newest first.
        kept: What the clean keeps.
        is_committed: Whether the instant of a requested time is committed.
        needed_from: Base instant of the slice that a pending compaction will read.
    """
    # Slices of pending writes are kept: the writes may still complete.
    committed = []
    for found in group.slices:
        if is_committed(found.base_instant):
            committed.append(found)
        else:
            yield Fate(found, Rule.UNCOMMITTED, found.base_instant)
    if kept.earliest is None:
        held = _held(committed, kept.leases)
        yield from _by_version(committed, kept.versions, needed_from, held)
    else:
        yield from _by_instant(committed, kept.earliest.requested_time, needed_from)


def _by_instant(
    committed: Iterable[FileSlice], earliest: str, needed_from: str | None
) -> Iterator[Fate]:
    # By requested time, as in Hudi: a reader may have seen the later of two concurrent writes
    # completed before the earlier one.
    read = ""
    for found in committed:
        began = found.base_instant
        if began >= earliest:
            yield Fate(found, Rule.RETAINED, earliest)
        elif not read or began == read:
            read = began
            yield Fate(found, Rule.READ, earliest)
        elif needed_from is not None and began >= needed_from:
            yield Fate(found, Rule.COMPACTION, needed_from)
        else:
            yield Fate(found, Rule.SUPERSEDED, read)


def _by_version(
    committed: Iterable[FileSlice],
    versions: int,
    needed_from: str | None,
    held: Mapping[str, Lease],
) -> Iterator[Fate]:
    # The slices that a compaction will read count as one version, as in Hudi.
    left = versions if needed_from is None else versions - 1
    for found in committed:
        if needed_from is not None and found.base_instant >= needed_from:
            yield Fate(found, Rule.COMPACTION, needed_from)
        elif left > 0:
            left -= 1
            yield Fate(found, Rule.VERSION, str(versions))
        elif found.base_instant in held:
            yield Fate(found, Rule.LEASE, str(held[found.base_instant]))
        else:
            yield Fate(found, Rule.SURPLUS, str(versions))


def _held(committed: Sequence[FileSlice], leases: Iterable[Lease]) -> dict[str, Lease]:
    """Return base instants of the slices of a group, newest first, that readers' leases hold."""
    held: dict[str, Lease] = {}
    for lease in leases:
        for found in committed:
            began = found.base_instant
            if began <= lease.earliest:
                held.setdefault(began, lease)
                break
            if began <= lease.instant or found.log_files:
                held.setdefault(began, lease)
    return held


def deleted_slices(
    timeline: Timeline,
    kept: Retention,
    partitions: Iterable[str],
    groups_of: Callable[[str], PartitionGroups],
    *,
    savepoints: Savepoints,
    compactions: Iterable[CompactionOperation] = (),
    clustered: Collection[tuple[str, str]] = (),
) -> Iterator[Fate]:
    """Yield the slices that a clean of these partitions deletes, by partition.

    Args:
        timeline: The active timeline, instants of any state.
        kept: What the clean keeps.
        partitions: Partitions to examine, each once.
        groups_of: Returns the view's groups of a partition. The view must have the completed
            instants before the earliest one to retain, or all if there is none; files that it
            doesn't have are kept.
        savepoints: Savepoints whose files are kept.
        compactions: Pending compactions and log compactions.
        clustered: (partition, file id) of the groups that pending clusterings read.

    Cost: the memory of one partition's groups.
    """
    decide = fates_in(timeline, kept, savepoints, compactions, clustered)
    for partition in partitions:
        for fate in decide(groups_of(partition)):
            if fate.rule.deletes:
                yield fate


def fates_in(
    timeline: Timeline,
    kept: Retention,
    savepoints: Savepoints,
    compactions: Iterable[CompactionOperation] = (),
    clustered: Collection[tuple[str, str]] = (),
) -> Callable[[PartitionGroups], Iterator[Fate]]:
    """Return the function from a partition's groups to fates.

    The arguments are those of ``deleted_slices``.
    """
    # Savepoints are included: otherwise a saved older commit would become the timeline's start.
    is_committed = writes_and_savepoints(timeline).completed().contains_or_before_start
    needed: dict[tuple[str, str], str] = {}
    for op in compactions:
        at = op.partition, op.file_id
        needed[at] = min(op.base_instant, needed.get(at, op.base_instant))

    def replaced(group: FileGroup, leases: Sequence[Lease] = ()) -> Iterator[Fate]:
        at = group.partition, group.file_id
        return _of_replaced(group, is_committed, leases, needed.get(at), reads=at in clustered)

    def decide(groups: PartitionGroups) -> Iterator[Fate]:
        for group in groups.groups:
            found = fates(group, kept, is_committed, needed.get((group.partition, group.file_id)))
            yield from map(savepoints.spared, found)
        for group in groups.replaced:
            yield from map(savepoints.spared, replaced(group))
        for group in groups.read:
            yield from map(savepoints.spared, replaced(group, kept.leases))

    return decide


def _of_replaced(
    group: FileGroup,
    is_committed: Callable[[str], bool],
    leases: Sequence[Lease],
    needed_from: str | None,
    *,
    reads: bool,
) -> Iterator[Fate]:
    """Yield the fate of each slice of a replaced group that leases may hold.

    Args:
        group: The group with all its slices, newest first.
        is_committed: Whether the instant of a requested time is committed.
        leases: The leases.
        needed_from: As in ``fates``.
        reads: Whether a pending clustering reads the group.
    """
    committed = [each for each in group.slices if is_committed(each.base_instant)]
    held = _held(committed, leases)
    for found in group.slices:
        began = found.base_instant
        if not is_committed(began):
            yield Fate(found, Rule.UNCOMMITTED, began)
        elif needed_from is not None and began >= needed_from:
            yield Fate(found, Rule.COMPACTION, needed_from)
        elif reads and found is committed[0]:
            yield Fate(found, Rule.CLUSTERING)
        elif began in held:
            yield Fate(found, Rule.LEASE, str(held[began]))
        else:
            yield Fate(found, Rule.REPLACED)


def cleaner_plan(
    timeline: Timeline,
    kept: Retention,
    base_path: str,
    savepoints: Savepoints,
    names: Mapping[str, Iterable[str]] = MappingProxyType({}),
) -> CleanerPlan:
    """Return the requested instant's content.

    Args:
        timeline: The active timeline, instants of any state.
        kept: What the clean keeps.
        base_path: The table's base path, the prefix of paths.
        savepoints: The savepoints at this time.
        names: Partition → the files to delete; empty for the plan of an empty clean.
    """
    # Hudi uses the paths unchanged when it finishes a plan, so local paths need their scheme.
    below = PathForms.of(base_path).text
    last = timeline.write_timeline().completed().last
    earliest = kept.earliest
    extra = {SAVEPOINTED: ",".join(savepoints.times)} if savepoints.times else {}
    if earliest is None:
        extra[KEPT_VERSIONS] = str(kept.versions)
        since = held_from(kept.leases)
        if since is not None:
            extra[HELD_FROM] = since
        if kept.needed_from is not None:
            extra[NEEDED_FROM] = kept.needed_from
    return CleanerPlan(
        earliest_instant_to_retain=None
        if earliest is None
        else ActionInstant(earliest.requested_time, earliest.action, earliest.state.value),
        last_completed_commit_timestamp="" if last is None else last.requested_time,
        policy=kept.policy,
        file_paths_to_be_deleted_per_partition={
            partition: tuple(
                CleanFileInfo(f"{below}/{path_in(partition, name)}") for name in sorted(files)
            )
            for partition, files in names.items()
        },
        extra_metadata=extra,
    )
