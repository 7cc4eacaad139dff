"""``PartitionLoader``: reads each partition once, when it is first asked for.

A partition is listed, or the whole table is read from metadata (``fsview.load.source_choice``).

Soundness rests on the order in ``_fill``: files first, then the timeline. What happens after that
is followed (``fsview.snapshot.catch_up``), so that even under constant writes nothing is listed
twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial

from fsview.files.partition import PartitionVersion
from fsview.load.duplicate_files import RememberedNames
from fsview.load.listing import folders_below, is_partition, list_partition, may_be_path
from fsview.load.source_choice import Loaded, SourceChoice
from fsview.load.timeline_at_load import found_with_timeline, timeline_explains
from fsview.single_flight import Shared, SharedLoads
from fsview.snapshot.plans import base_extensions
from fsview.snapshot.snapshot import LoadedFiles, Snapshot
from fsview.state.missing_partitions import MOST_MISSING
from fsview.sync.follower import ATTEMPTS, TimelineFollower
from timeline.errors import StorageUnavailableError, ViewBehindError
from timeline.table.partition_metadata import read_partition_metadata

GoOn = Callable[[], None]
"""Called between the parts of long work; raises to stop it."""


Leading = Callable[[Sequence[str]], Collection[str]]
"""Returns those of some directories that are partitions wanted, or may lead to some."""


def always() -> None:
    """Never stop the work."""


class PartitionLoader:
    """Fills the snapshots of one table; callers that want the same share one listing."""

    def __init__(self, follower: TimelineFollower, *, trusted_s: float = 0.0) -> None:
        self._follower = follower
        self._trusted_s = trusted_s
        self._state = follower.state
        self._loads = SharedLoads()
        self._table_reads: Shared[None] = Shared()
        self._remembered = RememberedNames()
        self._choice = SourceChoice(
            lambda reason: follower.count("metadata_table_refusals", reason=reason)
        )

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
        load = partial(self._load, absent=set(), trusting=snapshot.files)
        while found is None and tries > 0:
            found = self._state.derive(snapshot, partition)
            if found is None and self._loads.run_one(partition, load):
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
        self, snapshot: Snapshot, partitions: Collection[str], go_on: GoOn = always
    ) -> list[str]:
        """Load partitions together.

        Args:
            snapshot: The snapshot at which they are asked for.
            partitions: Their paths.
            go_on: Called before each partition is listed; what it raises ends this load. Callers
                that wait for a partition of it then load that themselves.

        Returns:
            Those that are held now: all but some missing ones, if these are very many.

        Cost: at most one list call for each, and one of the timeline.
        """
        paths = list(filter(may_be_path, partitions))
        newest = self._follower.newest()
        missing = dict.fromkeys(p for p in paths if p not in newest.files.versions)
        absent: set[str] = set()
        if missing:
            load = partial(self._load, absent=absent, trusting=snapshot.files, go_on=go_on)
            self._loads.run(missing, load)
        versions = self._follower.newest().files.versions
        # A path that was held before this load and isn't now was no partition and is forgotten.
        held = [p for p in paths if p in versions or (p in missing and p not in absent)]
        for partition in held:
            go_on()
            self.version(snapshot, partition)
        return held

    def load_all(self, snapshot: Snapshot) -> list[str]:
        """Load every partition of the table at a snapshot; return their paths in order."""
        if self._precedes_table(snapshot):
            return []
        if snapshot.files.known is None:
            if self._follower.newest().files.known is None:
                self._loads.run_all(self._discover)
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

        def search(start: Snapshot) -> Loaded | None:
            loaded = self._searched(start, leading)
            if loaded is None:
                return None
            found.update(loaded.known or ())
            return replace(loaded, known=None)

        if snapshot.files.known is None and self._follower.newest().files.known is None:
            self._fill(search)
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

    def _load(
        self,
        partitions: Collection[str],
        absent: set[str],
        trusting: LoadedFiles,
        go_on: GoOn = always,
    ) -> None:
        """Fill in some partitions of the newest snapshot, or all if that costs less by now.

        Args:
            partitions: The partitions.
            absent: Collects the paths that turn out to be no partitions.
            trusting: See ``_fill``.
            go_on: See ``load``.
        """
        self._read_all(len(partitions))
        versions = self._follower.newest().files.versions
        # Looked up again: another thread may have read the whole table meanwhile.
        missing = [partition for partition in partitions if partition not in versions]
        if missing:
            find = partial(self._listed, partitions=missing, absent=absent, go_on=go_on)
            self._fill(find, absent, gathers=True, trusting=trusting)

    def _discover(self) -> None:
        """Find every partition and fill in those not loaded."""
        if self._follower.newest().files.known is None:  # else another caller has
            self._fill(self._searched)

    def _read_all(self, ahead: int) -> bool:
        """Fill in the whole table from metadata if that pays; return whether all is known now.

        Args:
            ahead: How many directories would have to be listed next.
        """
        follower, choice = self._follower, self._choice
        if self._state.must_list or not choice.may_read(follower.newest(), ahead):
            return False
        client = follower.client_for("bootstrap")
        # One read for all callers, whatever they ask for, as it fills in the whole table.
        self._table_reads.run(
            None, lambda: self._fill(lambda start: choice.read(client, start, ahead))
        )
        return follower.newest().files.known is not None

    def _listed(
        self,
        start: Snapshot,
        *,
        partitions: Iterable[str],
        absent: set[str],
        go_on: GoOn = always,
    ) -> Loaded:
        """List some partitions; see ``_load``."""
        storage = self._follower.storage.for_cause("lookup")
        extensions = base_extensions(start.config)
        versions = {}
        for partition in partitions:
            go_on()
            listing = list_partition(storage, partition)
            self._choice.listed(len(listing))
            if is_partition(listing):
                absent.discard(partition)  # an earlier attempt may have added it
            else:
                absent.add(partition)
                if len(absent) > MOST_MISSING:
                    continue  # the state would forget it at once
            versions[partition] = PartitionVersion.of_listing(partition, listing, extensions)
        return Loaded(versions)

    def _searched(self, start: Snapshot, leading: Leading = tuple) -> Loaded | None:
        """Search directories, breadth first, until reading metadata is known to be cheaper.

        Partitions that are loaded and have files aren't listed again. ``None`` if all was read.
        """
        storage = self._follower.storage.for_cause("lookup")
        extensions = base_extensions(start.config)
        loaded, known = self._state.partitions_at(start)
        versions: dict[str, PartitionVersion] = {}
        level = [""] if "" not in known else []
        while level:
            if self._read_all(len(level)):
                return None
            below: list[str] = []
            for path in level:
                listing = storage.list(path)
                self._choice.listed(len(listing))
                if not is_partition(listing):
                    below += folders_below(path, listing)
                    continue
                known.add(path)
                if path not in loaded:
                    versions[path] = PartitionVersion.of_listing(path, listing, extensions)
            level = list(leading([path for path in below if path not in known]))
        return Loaded(versions, frozenset(known))

    def _fill(
        self,
        find: Callable[[Snapshot], Loaded | None],
        absent: set[str] | None = None,
        *,
        gathers: bool = False,
        trusting: LoadedFiles | None = None,
    ) -> None:
        """Find files, sync, and fill the newest snapshot, in this order.

        Args:
            find: Finds files at a snapshot; returns ``None`` if there is nothing to fill in.
            absent: Collects the paths that are no partitions.
            gathers: Whether to wait for others that find files at the same time, and share a sync.
                ``find`` must then neither fill in anything itself nor wait for others that do, as
                they may be waiting for it.
            trusting: The files of the caller's snapshot. If that is the newest one, a recent sync
                may be trusted. An older one may need files that a clean has deleted without a
                trace, and is answered wrongly then.

        Raises:
            StorageUnavailableError: What happened could not be followed, at any attempt.

        Cost: in addition to ``find``, one listing of the timeline, and a listing of each partition
            in which what happened could not be followed.
        """
        absent = set() if absent is None else absent
        follower = self._follower
        wanted = find
        for _ in range(ATTEMPTS):
            # In use, so that the steps from here to the timeline listed below aren't dropped.
            with self._state.using(follower.newest()) as start:
                search = partial(wanted, start)
                # Files *before* the timeline: every change that a listing shows is on it then, as a
                # completed instant (applied again without effect) or as a pending plan (ghosts).
                loaded, since = follower.gathered(search) if gathers else (search(), None)
                if loaded is None:
                    return
                # Another thread's sync may have found that the timeline has moved on.
                is_recent = follower.newest() is start and follower.synced_within(self._trusted_s)
                if trusting is start.files and is_recent and timeline_explains(start, loaded):
                    synced = start
                else:
                    synced = follower.sync(since=since)
                client = follower.client_for("lookup")
                found = found_with_timeline(client, start, loaded, synced, self._remembered)
                trusting = None  # another attempt needs another look at the timeline
                # A removal ended and left the timeline: nothing explains the listing.
                if found is None:
                    continue
                arrived = self._state.fill(found, absent)
            if arrived is None:
                # The table was loaded anew, so what earlier attempts filled in is gone.
                wanted = find
                continue
            follower.count("partition_loads", len(arrived.versions), source=loaded.source)
            for cause in arrived.again.values():
                follower.count("partition_reloads", cause=cause)
            if not arrived.again:
                return
            wanted = partial(self._listed, partitions=tuple(arrived.again), absent=absent)
        raise StorageUnavailableError(
            f"{self._state.table_id} changed {ATTEMPTS} times while its partitions were listed",
            hint="ask again",
        )


def _unknown_partitions(snapshot: Snapshot) -> ViewBehindError:
    return ViewBehindError(
        f"the partitions at {snapshot.timeline.last} are not known any more",
        hint="sync and ask again",
    )
