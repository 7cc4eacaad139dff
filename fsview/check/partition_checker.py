"""``PartitionChecker``: whether the state of a live table still equals storage.

Soundness rests on the order in ``PartitionChecker._look``, as in a load
(``fsview.load.partition_loader``).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

from fsview.check.rebuild import (
    Discrepancies,
    Pause,
    compared,
    differences_of_files,
    differences_of_known,
    differences_of_table,
    removals_pending,
)
from fsview.load.listing import is_partition, list_partition
from fsview.snapshot.snapshot import Snapshot
from fsview.snapshot.timeline_change import known_after
from fsview.sync.follower import ATTEMPTS, TimelineFollower
from fsview.sync.metadata_reader import snapshot_of
from timeline.errors import InstantNotFoundError
from timeline.meta_client import TableMetaClient

CAUSE: Final = "check"
"""What the storage calls of a check are booked under."""

NONE: Final = Discrepancies()

Outcome = Literal["equal", "different", "skipped"]


@dataclass(frozen=True, slots=True)
class Checked:
    """The outcome of a check.

    Attributes:
        outcome: ``skipped`` if the two could not be compared this time.
        differences: What differs.
        why: Why it was skipped, in words.
    """

    outcome: Outcome
    differences: Discrepancies = NONE
    why: str = ""


def _skipped(why: str) -> Checked:
    return Checked("skipped", why=why)


class PartitionChecker:
    """Checks loaded partitions of one table against storage; it changes nothing, but may sync."""

    def __init__(self, follower: TimelineFollower) -> None:
        self._follower = follower
        self._state = follower.state

    def check(self, partition: str, pause: Pause) -> Checked:
        """Compare one partition and the table's pending and replaced groups with storage.

        Args:
            partition: A loaded partition.
            pause: Called every fraction of a millisecond of comparing; may raise to stop the check.

        Raises:
            StorageError: Something can't be listed or read.
            CorruptMetadataError: Something can't be understood.

        Cost: one list call of the partition, one of the timeline, the table's properties, a read
            of each pending plan and each completed replacecommit, booked under ``check``; a sync
            if the timeline has changed.
        """
        for _ in range(ATTEMPTS):
            history = self._state.held
            if history is None:
                return _skipped("the table isn't held")
            with suppress(InstantNotFoundError):  # gone between a listing and a read
                checked = self._look(history.newest, partition, pause)
                if checked is not None:
                    return checked
        return _skipped(f"the table changed {ATTEMPTS} times while it was being checked")

    def _look(self, start: Snapshot, partition: str, pause: Pause) -> Checked | None:
        """Check once; ``None`` when the table changed so that it must be checked again."""
        follower = self._follower
        client = TableMetaClient.open(follower.storage, cause=CAUSE)
        # The partition *before* the timeline: every change that the listing shows is on it.
        listing = list_partition(follower.storage.for_cause(CAUSE), partition)
        rebuilt = snapshot_of(client)
        # Files are deleted before any instant says so: then nothing can be checked.
        if removals_pending(rebuilt.active):
            return _skipped("a clean, rollback or restore is under way")
        # The steps that the sync reads are applied to the listing: both sides are of one instant.
        if rebuilt.active != start.active:
            follower.sync()
        history = self._state.held
        newest = None if history is None else history.newest
        steps = None if history is None else history.steps_since(start)
        # Another sync may have moved on since, or the table was loaded anew.
        if history is None or newest is None or steps is None or newest.active != rebuilt.active:
            return None
        # A write has vanished without a rollback, so the listing is worth nothing now.
        if partition in history.unclear_since(start):
            return None
        held = newest.files.versions.get(partition)
        if held is None:
            return _skipped("the partition isn't loaded any more")
        unequal = compared(held, listing, newest.config.base_extensions, pause)
        listed = history.brought_forward(unequal.listed, steps)
        if listed is None:
            return None
        found = differences_of_table(newest, rebuilt)
        found += differences_of_files(client, newest, unequal, listed)
        if newest.files.known is not None:
            was_there = frozenset((partition,) if is_partition(listing) else ())
            exists = partition in known_after(was_there, *steps)
            found += differences_of_known(newest, partition, listing, exists=exists)
        if not found:
            return Checked("equal", found)
        # A plan that was deleted since the timeline was listed would look like a difference.
        moved = client.active_timeline() != rebuilt.active
        return None if moved else Checked("different", found)
