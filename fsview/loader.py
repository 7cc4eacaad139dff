"""``PartitionLoader``: reads partitions when they are first asked for, each once.

Order of things in a load, which its soundness rests on: the partition is listed *before* the
timeline, so whatever a writer did to the listing is on the timeline by the time it is looked at, as
a completed instant (applied once more: that changes nothing) or as a pending plan (whose files come
in as ghosts).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from fsview.build import base_extensions, discover_partitions, list_partition, removals_under_way
from fsview.delta import ghosts_of
from fsview.follower import ATTEMPTS, TimelineFollower
from fsview.history import known_after
from fsview.packed import PartitionVersion
from fsview.single_flight import Shared
from fsview.snapshot import Snapshot
from timeline.errors import StorageUnavailableError, ViewBehindError
from timeline.partition_metadata import read_partition_metadata


class PartitionLoader:
    """Fills the snapshots of one table; callers that want the same share one listing."""

    def __init__(self, follower: TimelineFollower) -> None:
        self._follower = follower
        self._loads: Shared[None] = Shared()

    def version(self, snapshot: Snapshot, partition: str) -> PartitionVersion:
        """Return a partition's files at a snapshot, loading them if need be.

        Raises:
            ViewBehindError: The partition was never loaded and the snapshot isn't kept any more.
        """
        found = snapshot.files.versions.get(partition)
        if found is None and self._is_nothing(snapshot):
            return PartitionVersion(partition)
        if found is None:
            found = self._derived(snapshot, partition)
        if found is None:
            self._loads.run(partition, lambda: self._load((partition,)))
            found = self._derived(snapshot, partition)
        if found is None:
            raise ViewBehindError(
                f"partition {partition!r} can't be answered at {snapshot.timeline.last}: it wasn't "
                f"loaded while that was the newest instant",
                hint="sync and ask again",
            )
        return found

    def load(self, snapshot: Snapshot, partitions: Collection[str]) -> None:
        """Load some partitions together: one list call each and one of the timeline."""
        newest = self._follower.newest()
        missing = [p for p in partitions if p not in newest.files.versions]
        if missing:
            self._load(missing)
        for partition in partitions:
            self.version(snapshot, partition)

    def load_all(self, snapshot: Snapshot) -> list[str]:
        """Load every partition of the table at a snapshot; return their paths in order."""
        if self._is_nothing(snapshot):
            return []
        if snapshot.files.known is None:
            if self._follower.newest().files.known is None:
                self._loads.run(None, self._discover)
            known = self._follower.history.known_at(
                snapshot, lambda partition: self._was_there(snapshot, partition)
            )
            if known is None:
                raise ViewBehindError(
                    f"the partitions at {snapshot.timeline.last} are not known any more",
                    hint="sync and ask again",
                )
            snapshot.files.known = known
        partitions = sorted(snapshot.files.known)
        self.load(snapshot, partitions)
        return partitions

    def _was_there(self, snapshot: Snapshot, partition: str) -> bool:
        """Whether a partition that was written since was there at an older snapshot."""
        files = self.version(snapshot, partition).files()
        if any(snapshot.is_committed(file.instant) for file in files):
            return True
        # Empty then, or not made yet: its own file says which instant made it.
        made = read_partition_metadata(self._follower.storage.for_cause("past"), partition)
        since = self._follower.history.steps_since(snapshot) or ()
        times = {step.instant.requested_time for step in since}
        last = snapshot.timeline.last
        if made is None or last is None:
            raise ViewBehindError(
                f"whether {partition!r} was a partition at {last} is not known any more",
                hint="sync and ask again",
            )
        return made.commit_time <= last.requested_time and made.commit_time not in times

    def _is_nothing(self, snapshot: Snapshot) -> bool:
        """Whether it is what a client sees to whom nothing has happened yet."""
        return snapshot.is_empty and self._follower.newest().files is not snapshot.files

    def _derived(self, snapshot: Snapshot, partition: str) -> PartitionVersion | None:
        with self._follower.lock:
            history = self._follower.history
            found = history.derived(snapshot, partition, base_extensions(snapshot.config))
            if found is not None:
                snapshot.files.versions[partition] = found
        return found

    def _load(self, partitions: Collection[str]) -> None:
        """List partitions at the newest snapshot and fill them in."""
        storage = self._follower.storage.for_cause("lookup")
        self._fill(lambda start: {p: list_partition(storage, p, start.config) for p in partitions})

    def _discover(self) -> None:
        """Find every partition and fill in those not loaded, with the listings that found them."""
        storage = self._follower.storage.for_cause("lookup")
        known: set[str] = set()

        def listed(snapshot: Snapshot) -> dict[str, PartitionVersion]:
            extensions = base_extensions(snapshot.config)
            known.clear()
            found = {}
            for partition, listing in discover_partitions(storage):
                known.add(partition)
                if partition not in snapshot.files.versions:
                    found[partition] = PartitionVersion.of_listing(partition, listing, extensions)
            return found

        self._fill(listed, known)

    def _fill(
        self,
        list_them: Callable[[Snapshot], Mapping[str, PartitionVersion]],
        known: Collection[str] | None = None,
    ) -> None:
        """List, sync, and fill the newest snapshot; see the module's docstring for the order.

        Raises:
            StorageUnavailableError: The table was changed beyond following each time it was listed.
        """
        follower = self._follower
        for _ in range(ATTEMPTS):
            start = follower.newest()
            listed = list_them(start)
            newest = follower.sync()
            ghosts = removals_under_way(follower.client_for("lookup"), newest.active)
            with follower.lock:
                history = follower.history
                steps = history.steps_since(start)
                if steps is None or history.newest is not newest:
                    continue
                if history.unclear_since(start).intersection(listed):
                    continue
                found = [history.brought_forward(v, steps) for v in listed.values()]
                if any(version.has_ghosts for version in found):
                    continue  # a rollback since the listing leaves a size unsaid
                for version in found:
                    self._fill_one(newest, version, ghosts)
                if known is not None:
                    newest.files.known = known_after(known, steps)
            follower.count("partition_loads", len(listed))
            return
        raise StorageUnavailableError(
            f"{follower.table_id} changed {ATTEMPTS} times while its partitions were listed",
            hint="ask again",
        )

    def _fill_one(
        self, newest: Snapshot, version: PartitionVersion, ghosts: Mapping[str, frozenset[str]]
    ) -> None:
        partition = version.partition
        names = ghosts.get(partition, frozenset())
        if names:
            extensions = base_extensions(newest.config)
            version = version.with_changes(ghosts_of(partition, names, extensions))
        newest.files.versions.setdefault(partition, version)
        for instant in version.instants():
            if not newest.is_committed(instant):
                self._follower.unfinished[instant].add(partition)
