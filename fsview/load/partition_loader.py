"""``PartitionLoader``: reads partitions when they are first asked for, each once.

A partition is listed, or the whole table read from metadata (``fsview.load.source_choice`` says
when).

Order of things in a load, which its soundness rests on: the files are looked for *before* the
timeline, so whatever a writer did to a listing is on the timeline by the time it is looked at, as a
completed instant (applied once more: that changes nothing) or as a pending plan (whose files come
in as ghosts). What happens after that look is followed (``fsview.load.catch_up``), so that a writer
who doesn't wait makes nobody list twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial

from fsview.files.partition import PartitionVersion
from fsview.load.duplicate_files import RememberedNames
from fsview.load.listing import folders_below, is_partition, list_partition, may_be_path
from fsview.load.source_choice import Bootstrap, Loaded
from fsview.load.timeline_at_load import look
from fsview.single_flight import Shared, SharedLoads
from fsview.snapshot.plans import base_extensions
from fsview.snapshot.snapshot import Snapshot
from fsview.state.missing_partitions import MOST_MISSING
from fsview.sync.follower import ATTEMPTS, TimelineFollower
from timeline.errors import StorageUnavailableError, ViewBehindError
from timeline.table.partition_metadata import read_partition_metadata

GoOn = Callable[[], None]
"""Called between the parts of long work; raises when it isn't to go on."""


def always() -> None:
    """Go on."""


class PartitionLoader:
    """Fills the snapshots of one table; callers that want the same share one listing."""

    def __init__(self, follower: TimelineFollower) -> None:
        self._follower = follower
        self._state = follower.state
        self._loads = SharedLoads()
        self._readings: Shared[None] = Shared()
        self._remembered = RememberedNames()
        self._bootstrap = Bootstrap(
            lambda reason: follower.count("metadata_table_refusals", reason=reason)
        )

    def version(self, snapshot: Snapshot, partition: str) -> PartitionVersion:
        """Return a partition's files at a snapshot, loading them if need be.

        Raises:
            ViewBehindError: The partition was never loaded and the snapshot isn't kept any more.
        """
        found = snapshot.files.versions.get(partition)
        if not may_be_path(partition) or (found is None and self._is_nothing(snapshot)):
            return PartitionVersion(partition)
        tries = ATTEMPTS
        while found is None and tries > 0:
            found = self._state.derive(snapshot, partition)
            if found is None and self._loads.run_one(partition, lambda p: self._load(p, set())):
                found = self._state.derive(snapshot, partition)
                # What is nothing may be forgotten before it is looked at here.
                held = partition in self._follower.newest().files.versions
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
    ) -> list[str]:
        """Load some partitions together: a list call each at most, and one of the timeline.

        Args:
            snapshot: At which.
            partitions: Which.
            go_on: Called before each partition is listed; what it raises ends this load. Callers
                that wait for a partition of it load that themselves then.

        Returns:
            Those that are held now; of very many that are nothing some are forgotten already.
        """
        paths = list(filter(may_be_path, partitions))
        newest = self._follower.newest()
        missing = dict.fromkeys(p for p in paths if p not in newest.files.versions)
        nothing: set[str] = set()
        if missing:
            self._loads.run(missing, lambda mine: self._load(mine, nothing, go_on))
        versions = self._follower.newest().files.versions
        # What was held and isn't any more has just been forgotten: it was nothing, too.
        held = [p for p in paths if p in versions or (p in missing and p not in nothing)]
        for partition in held:
            go_on()
            self.version(snapshot, partition)
        return held

    def load_all(self, snapshot: Snapshot) -> list[str]:
        """Load every partition of the table at a snapshot; return their paths in order."""
        if self._is_nothing(snapshot):
            return []
        if snapshot.files.known is None:
            if self._follower.newest().files.known is None:
                self._loads.run_all(self._discover)
            known = self._state.history.known_at(
                snapshot, lambda partition: self._was_there(snapshot, partition)
            )
            if known is None:
                raise ViewBehindError(
                    f"the partitions at {snapshot.timeline.last} are not known any more",
                    hint="sync and ask again",
                )
            self._state.fill_known(snapshot, known)
        else:
            known = snapshot.files.known
        partitions = sorted(known)
        self.load(snapshot, partitions)
        return partitions

    def _was_there(self, snapshot: Snapshot, partition: str) -> bool:
        """Whether a partition that was written since was there at an older snapshot."""
        files = self.version(snapshot, partition).files()
        if any(snapshot.completion.is_completed(file.instant) for file in files):
            return True
        # Empty then, or not made yet: its own file says which instant made it.
        made = read_partition_metadata(self._follower.storage.for_cause("past"), partition)
        since = self._state.history.steps_since(snapshot)
        last = snapshot.timeline.last
        if made is None or last is None or since is None:
            raise ViewBehindError(
                f"whether {partition!r} was a partition at {last} is not known any more",
                hint="sync and ask again",
            )
        times = {step.instant.requested_time for step in since}
        return made.commit_time <= last.requested_time and made.commit_time not in times

    def _is_nothing(self, snapshot: Snapshot) -> bool:
        """Whether it is what a client sees to whom nothing has happened yet."""
        return snapshot.is_empty and self._follower.newest().files is not snapshot.files

    def _load(
        self,
        partitions: Collection[str],
        nothing: set[str],
        go_on: GoOn = always,
    ) -> None:
        """Fill in some partitions of the newest snapshot, or all if that has come to pay.

        Args:
            partitions: Which.
            nothing: Takes those that turn out to be no partitions.
            go_on: See ``load``.
        """
        self._read_all(len(partitions))
        versions = self._follower.newest().files.versions
        missing = [partition for partition in partitions if partition not in versions]
        if missing:
            find = partial(self._listed, partitions=missing, nothing=nothing, go_on=go_on)
            self._fill(find, nothing, gathers=True)

    def _discover(self) -> None:
        """Find every partition and fill in those not loaded."""
        if self._follower.newest().files.known is None:  # nobody has since this caller looked
            self._fill(self._searched)

    def _read_all(self, ahead: int) -> bool:
        """Fill in the whole table from metadata if that pays; return whether all is known now.

        Args:
            ahead: How many directories are to be listed next.
        """
        follower, bootstrap = self._follower, self._bootstrap
        if self._state.must_list or not bootstrap.may_pay(follower.newest(), ahead):
            return False
        client = follower.client_for("bootstrap")
        self._readings.run(
            None, lambda: self._fill(lambda start: bootstrap.read(client, start, ahead))
        )
        return follower.newest().files.known is not None

    def _listed(
        self,
        start: Snapshot,
        *,
        partitions: Iterable[str],
        nothing: set[str],
        go_on: GoOn = always,
    ) -> Loaded:
        """List some partitions; see ``_load``."""
        storage = self._follower.storage.for_cause("lookup")
        extensions = base_extensions(start.config)
        versions = {}
        for partition in partitions:
            go_on()
            listing = list_partition(storage, partition)
            self._bootstrap.listed(len(listing))
            if is_partition(listing):
                nothing.discard(partition)  # it may have been when it was listed before
            else:
                nothing.add(partition)
                if len(nothing) > MOST_MISSING:
                    continue  # it would be forgotten at once
            versions[partition] = PartitionVersion.of_listing(partition, listing, extensions)
        return Loaded(versions)

    def _searched(self, start: Snapshot) -> Loaded | None:
        """Search all directories, level by level, until reading is known to be cheaper.

        A partition that is loaded isn't listed again, unless it is empty: whether a clean has
        deleted it meanwhile only storage says. ``None``: all was read.
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
                self._bootstrap.listed(len(listing))
                if not is_partition(listing):
                    below += folders_below(path, listing)
                    continue
                known.add(path)
                if path not in loaded:
                    versions[path] = PartitionVersion.of_listing(path, listing, extensions)
            level = [path for path in below if path not in known]
        return Loaded(versions, frozenset(known))

    def _fill(
        self,
        find: Callable[[Snapshot], Loaded | None],
        nothing: set[str] | None = None,
        *,
        gathers: bool = False,
    ) -> None:
        """Find files, sync, and fill the newest snapshot; see the module's docstring for the order.

        Args:
            find: Finds them; ``None`` when there is nothing to fill in.
            nothing: Takes those found that are no partitions.
            gathers: Whether it goes on together with others that look for files at the same time.
                ``find`` fills in nothing itself then, nor waits for one who does: it would be
                waited for.

        Raises:
            StorageUnavailableError: The table was changed beyond following each time it was listed.

        Cost: beside the search one listing of the timeline, and a listing of each partition that
            was changed beyond following.
        """
        nothing = set() if nothing is None else nothing
        follower = self._follower
        wanted = find
        for _ in range(ATTEMPTS):
            with self._state.using(follower.newest()) as start:
                search = partial(wanted, start)
                loaded, since = follower.gathered(search) if gathers else (search(), None)
                if loaded is None:
                    return
                looked = follower.sync(since=since)
                client = follower.client_for("lookup")
                found = look(client, start, loaded, looked, self._remembered)
                if found is None:
                    continue
                there = self._state.fill(found, nothing)
            if there is None:
                wanted = find
                continue
            follower.count("partition_loads", len(there.versions), source=loaded.source)
            for cause in there.again.values():
                follower.count("partition_reloads", cause=cause)
            if not there.again:
                return
            wanted = partial(self._listed, partitions=tuple(there.again), nothing=nothing)
        raise StorageUnavailableError(
            f"{self._state.table_id} changed {ATTEMPTS} times while its partitions were listed",
            hint="ask again",
        )
