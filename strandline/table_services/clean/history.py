"""``CleanHistory``: what a table's earlier cleans, writes and savepoints say to the next clean.

Each is read once, and found in the archive if it isn't on the timeline any more.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from strandline.read.instants import Archive
from strandline.read.state.reader_lease import Lease
from strandline.table_services.clean.execution import Executed
from strandline.table_services.clean.parts import earlier_parts, part_of
from strandline.table_services.clean.plan import (
    FROM_THE_START,
    Savepoints,
    instants_between,
    instants_since,
    partitions_left_over,
    plan_since,
    with_failures,
    without_deleted,
)
from strandline.table_services.clean.policy import (
    NO_LIMIT,
    CleanSettings,
    Retention,
    is_due,
    last_clean,
    retention,
)
from timeline.clock import TimeGenerator
from timeline.errors import CorruptMetadataError, InstantNotFoundError
from timeline.instant import CLEAN, SAVEPOINT, Instant
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import (
    CleanerPlan,
    CleanMetadata,
    CommitMetadata,
    SavepointMetadata,
)
from timeline.metadata.written_files import CommitFiles
from timeline.timeline import Timeline

logger = logging.getLogger(__name__)

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class _EmptyPlan:
    """Bounds of planning that found nothing to delete and so left no instant on the timeline."""

    earliest: str
    savepoints: tuple[str, ...]


@dataclass(slots=True)
class CleanMemory:
    """Facts of one table that a driver keeps between cleans to save reads.

    Attributes:
        empty_plan: Bounds of the last planning that found nothing.
        saved: Metadata of the savepoints by requested time, as last listed.
        last_clean: The last completed clean that was read or written, and its metadata, without the
            files that it deleted, but with those that parts of its series failed to delete.
        leases: Readers' leases by id, as last listed.
    """

    empty_plan: _EmptyPlan | None = None
    saved: dict[str, SavepointMetadata] = field(default_factory=dict)
    last_clean: tuple[Instant, CleanMetadata] | None = None
    leases: dict[str, Lease] = field(default_factory=dict)


class CleanHistory:
    """Reads what the next clean of a table must know; used by one thread.

    Args:
        meta_client: The table's meta client, whose storage calls are counted under ``clean``.
        memory: Memory shared by the driver's cleaners of this table.
    """

    def __init__(self, meta_client: TableMetaClient, memory: CleanMemory) -> None:
        self._meta = meta_client
        self._storage = meta_client.storage.for_cause("clean")
        self._memory = memory
        self._archive = Archive(meta_client)

    def metadata_of(self, last: Instant | None) -> CleanMetadata | None:
        """Return the content of the last completed clean, if there is one."""
        if last is None:
            return None
        kept = self._memory.last_clean
        if kept is not None and kept[0] == last:
            return kept[1]
        try:
            metadata = self.read(last, CleanMetadata)
        except CorruptMetadataError as exc:
            raise CorruptMetadataError(
                f"can't read the last clean, from which the next one must continue: {exc.message}",
                hint=f"without {self._meta.path_of(last)} a clean examines all partitions",
            ) from exc
        metadata = with_failures(without_deleted(metadata), self._earlier_parts(last, metadata))
        self._memory.last_clean = last, metadata
        return metadata

    def remember(self, executed: Executed) -> None:
        """Remember a clean for the next plan, without the files that it deleted."""
        source = self._meta.path_of(executed.completed)
        part = part_of(executed.metadata.extra_metadata, source)
        metadata, earlier = without_deleted(executed.metadata), self._memory.last_clean
        if part is not None and part.number > 1:
            known = None if earlier is None else part_of(earlier[1].extra_metadata, source)
            if earlier is None or known is None or known.series != part.series:
                self._memory.last_clean = None
                return
            metadata = with_failures(metadata, [earlier[1]])
        self._memory.last_clean = executed.completed, metadata

    def found_nothing(self, earliest: Instant, savepoints: tuple[str, ...]) -> None:
        """Remember that planning up to an instant found nothing to delete."""
        self._memory.empty_plan = _EmptyPlan(earliest.requested_time, savepoints)

    def plan_of(self, clean: Instant) -> CleanerPlan:
        """Return the plan of a clean."""
        plan = self._meta.read_plan(clean)
        assert isinstance(plan, CleanerPlan)
        return plan

    def read(self, instant: Instant, kind: type[M]) -> M:
        """Return the content of an instant's file."""
        metadata = self._meta.read(instant)
        assert isinstance(metadata, kind)
        return metadata

    def changed(
        self,
        timeline: Timeline,
        kept: Retention,
        last: Instant | None,
        known: CleanMetadata | None,
        savepoints: tuple[str, ...],
    ) -> tuple[Instant, ...] | None:
        """Return the writes since the last plan that may have left files to delete.

        Args:
            timeline: The active timeline.
            kept: What the next clean keeps.
            last: The last completed clean.
            known: Its content.
            savepoints: Times of the savepoints.

        Returns:
            ``None`` if all partitions must be examined.
        """
        if kept.earliest is None:
            return instants_since(timeline, last, known, kept.versions, savepoints)
        since = plan_since(timeline, known, savepoints)
        empty_plan = self._memory.empty_plan
        if empty_plan is not None and empty_plan.savepoints == savepoints:
            # A plan without files leaves no instant, so only this memory records its bounds.
            since = max(since, empty_plan.earliest)
        if since != FROM_THE_START or not self._storage.list(self._meta.config.archive_folder):
            # Without an archive the active timeline has every commit that names a partition.
            return instants_between(timeline, since, kept.earliest)
        try:
            whole = Timeline.of({*self._archive.timeline, *timeline.completed()})
            if known is None:
                known = self._archived_clean(self._archive.timeline)
        except CorruptMetadataError as exc:
            logger.warning("a clean examines all partitions, as the archive can't be read: %s", exc)
            return None
        since = plan_since(whole, known, savepoints)
        return None if since == FROM_THE_START else instants_between(whole, since, kept.earliest)

    def _archived_clean(self, archived: Timeline) -> CleanMetadata | None:
        last = last_clean(archived)
        if last is None:
            return None
        metadata = self._archive.read(last)
        assert isinstance(metadata, CleanMetadata)
        return metadata

    def commit(self, instant: Instant) -> CommitFiles:
        """Return the files of a write, which may be archived."""
        try:
            files = self._meta.read_files(instant)
        except InstantNotFoundError:
            metadata = self._archive.read(instant)
            assert isinstance(metadata, CommitMetadata)
            return CommitFiles.of(metadata)
        assert isinstance(files, CommitFiles)
        return files

    def _earlier_parts(self, last: Instant, metadata: CleanMetadata) -> Iterator[CleanMetadata]:
        """Yield the content of the parts before the last one of a series."""
        part = part_of(metadata.extra_metadata, self._meta.path_of(last))
        if part is None or part.number == 1:
            return  # without a list of the timeline
        for instant in earlier_parts(self._meta.active_timeline(), last, part):
            yield self.read(instant, CleanMetadata)

    def savepoints(self, timeline: Timeline) -> Savepoints:
        """Return the savepoints; each is read once, because it never changes."""
        has_any = SAVEPOINT in timeline.actions
        found = [i for i in timeline.completed() if has_any and i.action == SAVEPOINT]
        known, saved = self._memory.saved, dict[str, SavepointMetadata]()
        for instant in found:
            time = instant.requested_time
            saved[time] = known.get(time) or self.read(instant, SavepointMetadata)
        self._memory.saved = saved
        return Savepoints.of(saved)


def is_idle(
    timeline: Timeline, settings: CleanSettings, memory: CleanMemory, times: TimeGenerator
) -> bool:
    """Return whether it is known without storage calls that a clean would find nothing to do.

    Args:
        timeline: The active timeline, instants of any state.
        settings: Settings of the cleaner.
        memory: The memory of the driver's cleaners of this table.
        times: Generator of instants' times.
    """
    if cleans(timeline.pending()):
        return False
    since = times.hours_ago(settings.hours)
    if retention(timeline, replace(settings, max_to_clean=NO_LIMIT), since) is None:
        return True
    last, kept = last_clean(timeline), memory.last_clean
    if last is None:
        return not is_due(timeline, settings.max_commits, None)
    if kept is None or kept[0] != last:
        return False
    return not is_due(timeline, settings.max_commits, kept[1]) and not partitions_left_over(kept[1])


def cleans(timeline: Timeline) -> tuple[Instant, ...]:
    """Return the cleans of a timeline, in any state."""
    return timeline.filter(lambda instant: instant.action == CLEAN).instants
