"""``PartitionLoader``: reads each partition once, when it is first asked for.

A partition is listed, or the whole table is read from metadata (``fsview.load.source_choice``).
That fills the newest snapshot (``fsview.load.snapshot_filler``); older ones are derived from it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

from fsview.files.partition import PartitionVersion
from fsview.load.snapshot_filler import GoOn, Leading, SnapshotFiller, always
from fsview.single_flight import SharedLoads
from fsview.snapshot.snapshot import Snapshot
from fsview.sync.follower import ATTEMPTS, TimelineFollower
from timeline.errors import ViewBehindError
from timeline.table.partition_metadata import may_be_path, read_partition_metadata
from timeline.tracing import TABLE, Span, child


@dataclass(frozen=True, slots=True)
class Loading:
    """What came of loading partitions.

    Attributes:
        held: Those that are held now: all but some missing ones, if these are very many.
        nothing: Paths that have no files at the snapshot, whether they are held or not.
    """

    held: Collection[str]
    nothing: frozenset[str]


class PartitionLoader:
    """Fills the snapshots of one table; callers that want the same share one listing."""

    def __init__(self, follower: TimelineFollower, *, trusted_s: float = 0.0) -> None:
        self._follower = follower
        self._state = follower.state
        self._loads = SharedLoads()
        self._filler = SnapshotFiller(follower, trusted_s=trusted_s)

    def version(self, snapshot: Snapshot, partition: str) -> PartitionVersion:
        """Return a partition's files at a snapshot; they are loaded if necessary.

        Raises:
            ViewBehindError: The partition was never loaded, and the snapshot isn't kept any more.
        """
        # No lock: an entry is added once, and never changes.
        found = snapshot.files.versions.get(partition)
        if not may_be_path(partition) or (found is None and self._precedes_table(snapshot)):
            return PartitionVersion(partition)
        tries = ATTEMPTS
        load = partial(self._filler.fill_partitions, absent=set(), trusting=snapshot.files)
        while found is None and tries > 0:
            found = self._state.derive(snapshot, partition)
            if found is None and self._is_loaded_here(partition, load):
                found = self._state.derive(snapshot, partition)
                # A missing partition may have been forgotten again before this line.
                held = partition in self._follower.newest().files.versions
                # If it is held and nothing leads back from there, another try can't help.
                tries = 0 if held else tries - 1
        if found is None:
            raise ViewBehindError(
                f"partition {partition!r} can't be answered at {snapshot.timeline.last}: it wasn't "
                f"loaded while that was the newest instant",
                hint="sync and ask again",
            )
        return found

    def load(
        self,
        snapshot: Snapshot,
        partitions: Collection[str],
        go_on: GoOn = always,
        *,
        by_listing: bool = False,
    ) -> Loading:
        """Load partitions together.

        Args:
            snapshot: The snapshot at which they are asked for.
            partitions: Their paths.
            go_on: Called before each partition is listed; what it raises ends this load. Callers
                that wait for a partition of it then load that themselves.
            by_listing: Whether each is listed, even if reading the whole table costs less.

        Cost: at most one list call for each, and one of the timeline.
        """
        paths = list(filter(may_be_path, partitions))
        # Missing ones that are remembered may be forgotten while others are listed.
        remembered = self._state.missing_among(paths)
        absent: set[str] = set()
        load = partial(
            self._filler.fill_partitions,
            absent=absent,
            trusting=snapshot.files,
            go_on=go_on,
            by_listing=by_listing,
        )
        versions = self._follower.newest().files.versions
        asked = dict.fromkeys(p for p in paths if p not in versions)
        left = list(asked)
        for _ in range(ATTEMPTS):
            if not left:
                break
            with self._span(len(left)):
                self._loads.run(left, load)
            versions = self._follower.newest().files.versions
            # Another caller may have listed them for itself, and they may be forgotten already.
            found = absent | remembered
            left = [p for p in left if p not in versions and p not in found]
        # A path that was held before this load and isn't now was no partition and is forgotten.
        held = [p for p in paths if p in versions or (p in asked and p not in absent)]
        nothing = self._nothing_at(snapshot, absent | remembered)
        for partition in held:
            go_on()
            if partition not in nothing:
                self.version(snapshot, partition)
        return Loading(held, nothing)

    def _nothing_at(self, snapshot: Snapshot, absent: Collection[str]) -> frozenset[str]:
        """Return the paths, of some without files, that have none at a snapshot, either."""
        history = self._state.history
        since = history.steps_since(snapshot) if absent else None
        if since is None or history.is_barred(snapshot):
            return frozenset()
        touched = history.unclear_since(snapshot).union(*(step.touched for step in since))
        return frozenset(absent) - touched

    def load_all(self, snapshot: Snapshot) -> list[str]:
        """Load every partition of the table at a snapshot; return their paths in order."""
        if self._precedes_table(snapshot):
            return []
        if snapshot.files.known is None:
            if self._follower.newest().files.known is None:
                with self._span():
                    self._loads.run_all(self._filler.fill_all)
            known = self._state.history.known_at(
                snapshot, lambda partition: self._was_there(snapshot, partition)
            )
            if known is None:
                raise _unknown_partitions(snapshot)
            self._state.fill_known(snapshot, known)
        else:
            known = snapshot.files.known
        partitions = sorted(known)
        self.load(snapshot, partitions)
        return partitions

    def load_leading(self, snapshot: Snapshot, leading: Leading) -> list[str]:
        """Load the partitions of a snapshot that some directories lead to.

        Args:
            snapshot: The snapshot.
            leading: Chooses among the directories of a level; those below others aren't listed.

        Returns:
            The partitions' paths in order, with all that ``leading`` chooses of them.

        Raises:
            ViewBehindError: They aren't known any more.

        Cost: as of ``load_all``, for the directories chosen and those above them.
        """
        if self._precedes_table(snapshot):
            return []
        found: set[str] = set()
        if snapshot.files.known is None and self._follower.newest().files.known is None:
            with self._span():
                found = self._filler.fill_leading(leading)
        if snapshot.files.known is not None or self._follower.newest().files.known is not None:
            return sorted(leading(self.load_all(snapshot)))
        since = self._state.history.steps_since(snapshot)
        if since is None:
            raise _unknown_partitions(snapshot)
        for step in since:  # a clean has deleted these, maybe before they were found
            found |= step.delta.deleted_partitions
        partitions = sorted(leading(sorted(found)))
        self.load(snapshot, partitions)
        return partitions

    def _is_loaded_here(self, partition: str, load: Callable[[Collection[str]], None]) -> bool:
        with self._span(1):
            return self._loads.run_one(partition, load)

    def _span(self, partitions: int | None = None) -> Span:
        """Return the span of a load, or of the wait for another caller's; ``None``: of them all."""
        attributes: dict[str, str | int] = {TABLE: self._follower.storage.base_path}
        if partitions is not None:
            attributes["strandline.partitions"] = partitions
        return child("load", attributes)

    def _was_there(self, snapshot: Snapshot, partition: str) -> bool:
        """Whether a partition that was written since existed at an older snapshot."""
        files = self.version(snapshot, partition).files()
        if any(snapshot.completion.is_completed(file.instant) for file in files):
            return True
        # It was empty or didn't exist yet; its metadata file has the instant that created it.
        created = read_partition_metadata(self._follower.storage.for_cause("past"), partition)
        since = self._state.history.steps_since(snapshot)
        last = snapshot.timeline.last
        if created is None or last is None or since is None:
            raise ViewBehindError(
                f"whether {partition!r} was a partition at {last} is not known any more",
                hint="sync and ask again",
            )
        times = {step.instant.requested_time for step in since}
        return created.commit_time <= last.requested_time and created.commit_time not in times

    def _precedes_table(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot is the empty one of a client that knows no instant yet."""
        return snapshot.is_empty and self._follower.newest().files is not snapshot.files


def _unknown_partitions(snapshot: Snapshot) -> ViewBehindError:
    return ViewBehindError(
        f"the partitions at {snapshot.timeline.last} are not known any more",
        hint="sync and ask again",
    )
