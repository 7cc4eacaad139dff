"""Decides which completed instants are archived; pure functions of the timeline and its last clean.

Invariant: the archived writes are older than everything that somebody may still need on the active
timeline. Needed are

* the last completed write before the oldest pending instant, and what came later;
* the first savepoint's commit, and what came later (with ``beyond_savepoint``: the commit alone);
* replacecommits whose replaced files may exist, or the groups would come back as duplicates;
* writes from the last clean's earliest instant to retain on;
* writes from the oldest reader's instant on;
* delta commits that are counted until the next compaction.

In layout 2 cleans and rollbacks go with the writes that they precede; in layout 1 each by its own
count.

Source: Hudi 1.2.0 ``TimelineArchiverV1``/``V2``, ``ArchivalUtils``, ``ClusteringUtils``, with
intended differences: any pending instant counts, not only writes; and the last clean's earliest
instant is a bound for all writes, which in Hudi it is only by
``hoodie.archive.block.on.latest.clean.ectr`` in layout 1. Replacecommits also stay if they
completed at that instant or later, or if the last clean failed to delete a file; and for a
savepoint since deleted, or a lease since ended, also if that clean had no earliest instant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from strandline.table_services.archive.policy import ArchiveSettings
from strandline.table_services.clean.parts import part_of
from strandline.table_services.clean.plan import SAVEPOINTED, kept_from, partitions_left_over
from timeline.instant import (
    CLEAN,
    CLUSTERING,
    COMMIT,
    DELTA_COMMIT,
    REPLACE_COMMIT,
    ROLLBACK,
    SAVEPOINT,
    Instant,
)
from timeline.metadata.instant_metadata import CleanMetadata
from timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class LastClean:
    """The last completed clean.

    Attributes:
        time: Its requested time.
        earliest: Its earliest instant to retain; empty if its policy has none.
        savepoints: The savepoints at that time, ascending.
        left_files: Whether it, or an earlier part of it, failed to delete files, which the next
            clean repeats.
        held: If its policy has no earliest instant: the one from which on leases held the table
            then; ``None``: there was none.
        begun: Requested time of its first part, if it was divided into several; else empty.
    """

    time: str
    earliest: str = ""
    savepoints: tuple[str, ...] = ()
    left_files: bool = False
    held: str | None = None
    begun: str = ""

    @classmethod
    def of(cls, instant: Instant, metadata: CleanMetadata, source: str) -> LastClean:
        """Return it from its metadata, to which failures of earlier parts were added.

        Args:
            instant: The clean.
            metadata: Its content.
            source: Path of its file, for errors.

        Raises:
            CorruptMetadataError: Its mark of a part has another form.
        """
        extra = metadata.extra_metadata or {}
        saved = extra.get(SAVEPOINTED, "").split(",")
        earliest = metadata.earliest_commit_to_retain.strip()
        left = bool(partitions_left_over(metadata))
        savepoints = tuple(sorted(filter(None, saved)))
        part = part_of(extra, source)
        begun = "" if part is None else part.series
        return cls(instant.requested_time, earliest, savepoints, left, kept_from(extra), begun)

    @property
    def bound(self) -> str:
        """The time from which on files may not have been cleaned."""
        return self.earliest or self.time


def is_due(timeline: Timeline, settings: ArchiveSettings) -> bool:
    """Whether a timeline may have more completed writes, cleans or rollbacks than may stay."""
    done = timeline.completed()
    counts = [len(done.write_timeline())]
    counts += [sum(i.action == action for i in done) for action in (CLEAN, ROLLBACK)]
    return max(counts) > settings.keep_max


def to_archive(
    timeline: Timeline,
    settings: ArchiveSettings,
    *,
    layout: int,
    merges_on_read: bool = False,
    clean: LastClean | None = None,
    retained_from: str | None = None,
    earliest_held: str | None = None,
) -> tuple[Instant, ...]:
    """Return the completed instants to archive, in timeline order.

    Args:
        timeline: The active timeline, instants of any state.
        settings: The archiver's settings.
        layout: 1 or 2.
        merges_on_read: Whether the table is merge-on-read.
        clean: The last completed clean, if there is one.
        retained_from: The earliest instant that the cleaner's policy retains now, if it has one.
        earliest_held: The instant from which on readers hold the table; nothing requested at that
            time or later is archived.
    """
    writes = timeline.write_timeline().completed().instants
    least, most = limits(writes, settings, retained_from)
    found: list[Instant] = []
    if len(writes) > most:
        saved = [i.requested_time for i in timeline if i.action == SAVEPOINT and i.is_completed]
        ends = list(_bounds(timeline, writes, clean))
        if merges_on_read:
            ends += _uncompacted(writes, settings.delta_commits)
        ends += [] if earliest_held is None else [earliest_held]
        if saved and not settings.beyond_savepoint:
            ends.append(saved[0])
        found = [i for i in writes if all(i.requested_time < end for end in ends)]
        if settings.beyond_savepoint:
            found = [i for i in found if i.requested_time not in saved]
        found = found[: len(writes) - least]
    # Whatever stays from before an archived delta commit hides its completion from Hudi, which
    # then takes its logs for those of the newest slices.
    last = found[-1].requested_time if found else ""
    for action in (CLEAN, ROLLBACK):
        done = [i for i in timeline if i.action == action and i.is_completed]
        if layout > 1:
            gone = [i for i in done if i.requested_time < last]
        else:
            gone = done[: len(done) - least] if len(done) > most else []
        held = earliest_held
        gone = [i for i in gone if held is None or i.requested_time < held]
        if clean is not None and clean.begun and action == CLEAN:
            # The next clean needs to know what all parts of this one failed to delete.
            gone = [i for i in gone if i.requested_time < clean.begun]
        found += gone
    return tuple(sorted(found, key=lambda instant: instant.sort_key))


def limits(
    writes: Sequence[Instant], settings: ArchiveSettings, retained_from: str | None
) -> tuple[int, int]:
    """Return how many writes an archival leaves, and how many may be there without one.

    Args:
        writes: The completed writes.
        settings: The archiver's settings.
        retained_from: As in ``to_archive``; two more writes than those after it stay.
    """
    least, most = settings.keep_min, settings.keep_max
    if retained_from is None:
        return least, most
    raised = max(least, sum(i.requested_time > retained_from for i in writes) + 2)
    return raised, most + raised - least


def _bounds(
    timeline: Timeline,
    writes: Sequence[Instant],
    clean: LastClean | None,
) -> Iterator[str]:
    """Yield times; no write of that time or later may be archived."""
    pending = timeline.pending().first
    if pending is not None:
        before = [i for i in writes if i.requested_time < pending.requested_time]
        yield before[-1].requested_time if before else pending.requested_time
    if clean is not None:
        yield clean.bound
    replaced = _first_replaced(timeline, clean)
    if replaced is not None:
        yield replaced


def _first_replaced(timeline: Timeline, clean: LastClean | None) -> str | None:
    """Return the time of the first replacecommit or clustering whose files may not be cleaned."""
    replaces = [i for i in timeline if i.action in (REPLACE_COMMIT, CLUSTERING)]
    start = ""
    if clean is not None and not clean.left_files:
        # A savepoint of that time, even if it was deleted since, has kept the files of groups
        # replaced after it.
        start = min((clean.bound, *clean.savepoints[:1]))
        # A lease or a plan that has ended since has kept the groups replaced after that time.
        if clean.held is not None:
            start = min(start, clean.held)
    # One that completed later was pending when the clean was planned, which left its files.
    later = (i for i in replaces if max(i.requested_time, i.completion_time or "") >= start)
    return next((i.requested_time for i in later), None)


def _uncompacted(writes: Sequence[Instant], kept: int) -> Iterator[str]:
    """Yield the time of the oldest write that a compaction's schedule counts.

    Args:
        writes: The completed writes.
        kept: Delta commits that stay.
    """
    deltas = [i for i in writes if i.action == DELTA_COMMIT]
    compactions = [i for i in writes if i.action == COMMIT]
    first = compactions[-1:] or deltas[:1]
    if compactions:
        since = compactions[-1].requested_time
        deltas = [i for i in deltas if (i.completion_time or i.requested_time) > since]
    if len(deltas) >= kept:
        yield deltas[len(deltas) - kept].requested_time
    elif first:
        yield first[0].requested_time
