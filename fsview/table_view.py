"""``TableView``: one table's snapshots, in step with its timeline, partitions loaded on demand.

A table's state is one immutable ``History``, swapped by one reference under a lock that no reader
takes. I/O is done outside the lock: a sync lists and reads, then publishes all its snapshots at
once; a load lists, syncs, then fills in. What fails on the way leaves the state as it was: the
error goes to those who asked, and the next request tries again.

Order of things in a load, which its soundness rests on: the partition is listed *before* the
timeline, so whatever a writer did to the listing is on the timeline by the time it is looked at, as
a completed instant (applied once more: that changes nothing) or as a pending plan (whose files come
in as ghosts).
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from fsview.build import (
    base_extensions,
    discover_partitions,
    list_partition,
    read_plans,
    removals_under_way,
    replaced_groups,
    snapshot_of,
)
from fsview.delta import Delta, delta_of, ghosts_of
from fsview.file_names import data_files
from fsview.history import History, Link
from fsview.local import LocalView
from fsview.metrics import Metrics
from fsview.packed import PartitionVersion
from fsview.single_flight import Shared, SingleFlight
from fsview.snapshot import GroupKey, Snapshot
from fsview.sync import Difference, Step, advanced, compare, reload_cause, settled, stepped, steps
from timeline.clock import Clock, SystemClock
from timeline.errors import InstantNotFoundError, StorageUnavailableError, ViewBehindError
from timeline.instant import (
    CLEAN,
    CLUSTERING,
    COMPACTION,
    REPLACE_COMMIT,
    WRITE_ACTIONS,
    Instant,
    State,
)
from timeline.meta_client import TableMetaClient
from timeline.metadata import CleanerPlan
from timeline.storage.base import Storage
from timeline.table_id import TableId
from timeline.timeline import Timeline

RETAINED_SNAPSHOTS: Final = 64
ATTEMPTS: Final = 4
"""How often a listing is begun anew when the table changes under it in a way that can't be
followed."""


class TableView:
    """One table and its snapshots; safe to use from several threads.

    ``_lock`` guards the swap of ``_history``, the filling of ``Snapshot.files`` and the two sets
    below; it is held for computation only, never for I/O. ``_loaded`` are the partitions that count
    as loaded (some table-wide queries cover only those, as Hudi's do); ``_unfinished`` says for an
    instant in flight which partitions were listed with files of it.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
        retained_snapshots: int = RETAINED_SNAPSHOTS,
    ) -> None:
        """Make a view of the table at the storage's base path; reads nothing yet.

        Args:
            storage: The table's storage.
            metrics: Where to count, labelled ``table``; ``None``: nowhere that anybody sees.
            clock: To time syncs by.
            retained_snapshots: How many snapshots are kept for clients that are behind.
        """
        self.storage = storage
        self.table_id = TableId.of(storage.base_path)
        self._metrics = metrics or Metrics()
        self._clock = clock or SystemClock()
        self._retained = retained_snapshots
        self._lock = threading.Lock()
        self._history: History | None = None
        self._client: TableMetaClient | None = None
        self._syncs: SingleFlight[Snapshot] = SingleFlight()
        self._loads: Shared[None] = Shared()
        self._loaded: set[str] = set()
        self._unfinished: dict[str, set[str]] = defaultdict(set)

    # Views.

    def newest(self) -> LocalView:
        """Return a view of the newest snapshot held; the table is read on first use."""
        return LocalView(self, self._newest())

    def sync(self) -> LocalView:
        """Return a view of the table as it is now.

        Raises:
            StorageError: The timeline could not be read; the snapshots held stay.
            CorruptMetadataError: An instant's file could not be understood; likewise.

        Cost: one listing of the timeline and the files of new instants; callers share one run.
        """
        return LocalView(self, self._syncs.run(self._sync))

    def at(self, last_instant: str, timeline_hash: str) -> LocalView:
        """Return a view of the snapshot that a client means.

        Args:
            last_instant: Requested time of the last instant of the client's timeline, ``"0"`` if
                empty.
            timeline_hash: Hash of its timeline, with or without pending log compactions.

        Raises:
            ViewBehindError: No snapshot kept is that one, not even after a sync.

        Cost: none when the snapshot is held, else one sync.
        """
        history = self._history
        found = None if history is None else history.meant(last_instant, timeline_hash)
        if found is None:
            self._syncs.run(self._sync)
            history = self._required()
            found = history.meant(last_instant, timeline_hash)
            found = found or history.without_last_clean(timeline_hash)
        if found is None:
            assert history is not None
            told = ", ".join(map(str, history.newest.timeline))
            raise ViewBehindError(
                f"Last known instant from client was {last_instant} but server has the following "
                f"timeline [{told}]"
            )
        return LocalView(self, found)

    def held(self, last_instant: str, timeline_hash: str) -> Snapshot | None:
        """Return the snapshot that a client means if it is kept; never waits, reads nothing."""
        history = self._history
        return None if history is None else history.meant(last_instant, timeline_hash)

    # What views ask.

    def version(self, snapshot: Snapshot, partition: str) -> PartitionVersion:
        """Return a partition's files at a snapshot, loading them if need be.

        Raises:
            ViewBehindError: The partition was never loaded and the snapshot isn't kept any more.
        """
        found = snapshot.files.versions.get(partition)
        if found is None and snapshot.is_empty and self._newest().files is not snapshot.files:
            return PartitionVersion(partition)  # a client to whom nothing has happened yet
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
        missing = [p for p in partitions if p not in self._newest().files.versions]
        if missing:
            self._load(missing)
        for partition in partitions:
            self.version(snapshot, partition)

    def load_all(self, snapshot: Snapshot) -> list[str]:
        """Load every partition of the table at a snapshot; return their paths in order."""
        if snapshot.is_empty and self._newest().files is not snapshot.files:
            return []
        if snapshot.files.known is None:
            if self._newest().files.known is None:
                self._loads.run(None, self._discover)
            known = self._required().known_at(
                snapshot, lambda p: bool(self.version(snapshot, p).chunks)
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

    def clustering_now(self) -> Mapping[GroupKey, Instant]:
        """Return the clustering that pends on each group at the newest snapshot held."""
        return self._newest().pending_clustering

    def newest_if_only_cleaned(self, snapshot: Snapshot) -> Snapshot | None:
        """Return the newest snapshot if cleans and nothing else came after this one."""
        history = self._required()
        return history.newest if history.only_cleans_since(snapshot) else None

    def mark_loaded(self, partitions: Collection[str]) -> None:
        """Count partitions as loaded."""
        # Nearly always they do already; a hot request shouldn't wait for a sync that is published.
        if not self._loaded.issuperset(partitions):
            with self._lock:
                self._loaded.update(partitions)

    def loaded_partitions(self) -> list[str]:
        """Return the partitions that count as loaded, in order."""
        with self._lock:
            return sorted(self._loaded)

    def clear_loaded(self) -> None:
        """Count no partition as loaded; what was read of them stays."""
        with self._lock:
            self._loaded.clear()

    def status(self) -> dict[str, Any]:
        """Return figures about this table, fit for JSON."""
        history = self._history
        newest = None if history is None else history.newest
        versions = {} if newest is None else newest.files.versions
        return {
            "storage_calls": [
                {"kind": kind, "cause": cause, "count": count}
                for (kind, cause), count in sorted(self.storage.calls.snapshot().items())
            ],
            "snapshots": 0 if history is None else len(history.links),
            "last_instant": None if newest is None else str(newest.timeline.last),
            "partitions_loaded": len(versions),
            "packed_bytes": sum(version.size_bytes for version in versions.values()),
            "counters": self._metrics.as_json(table=str(self.table_id)),
        }

    # State.

    def _newest(self) -> Snapshot:
        history = self._history
        return self._syncs.run(self._sync) if history is None else history.newest

    def _required(self) -> History:
        assert self._history is not None, "asked before the first sync"
        return self._history

    def _client_for(self, cause: str) -> TableMetaClient:
        assert self._client is not None, "asked before the first sync"
        return self._client.for_cause(cause)

    def _count(self, name: str, amount: int = 1, **labels: str) -> None:
        self._metrics.add(name, amount, table=str(self.table_id), **labels)

    def _derived(self, snapshot: Snapshot, partition: str) -> PartitionVersion | None:
        with self._lock:
            history = self._required()
            found = history.derived(snapshot, partition, base_extensions(snapshot.config))
            if found is not None:
                snapshot.files.versions[partition] = found
        return found

    # Syncs: one at a time, through self._syncs.

    def _sync(self) -> Snapshot:
        started = self._clock.monotonic()
        for attempt in range(ATTEMPTS):
            try:
                if self._history is None:
                    self._start()
                else:
                    self._follow(self._history)
            except InstantNotFoundError:
                # It was rolled back or archived between the listing and the read: look again.
                if attempt == ATTEMPTS - 1:
                    raise
            else:
                break
        self._count("syncs")
        self._count("sync_us", int((self._clock.monotonic() - started) * 1_000_000))
        return self._required().newest

    def _start(self) -> None:
        """Read the table from nothing."""
        client = TableMetaClient.open(self.storage)
        snapshot = snapshot_of(client)
        with self._lock:
            self._client = client
            self._history = History((Link(snapshot),))
            self._unfinished.clear()

    def _follow(self, history: History) -> None:
        """Bring the history up to the timeline as it is now."""
        client = self._client_for("sync")
        old = history.newest
        active = client.active_timeline()
        if active == old.active:
            return
        difference = compare(old.active, active)
        metadata = {instant: client.read(instant) for instant in difference.to_read}
        extensions = base_extensions(client.config)
        deltas = {instant: delta_of(said, extensions) for instant, said in metadata.items()}
        undone = frozenset(time for delta in deltas.values() for time in delta.undone)
        cause = reload_cause(old.active, active, difference, undone)
        if any(said == type(said)() for said in metadata.values()):
            cause = cause or "empty-metadata"
        if cause is not None:
            self._count("reloads", cause=cause)
            self._start()
            return
        plans = read_plans(client, difference.planned, _unplanned(client, old, deltas))
        anew = None
        if any(i.action == REPLACE_COMMIT for i in difference.vanished):
            anew = replaced_groups(client, active)
        if old.files.known is not None:
            deltas |= {i: _with_deleted(client, i, d) for i, d in deltas.items()}
        found = steps(difference, deltas, plans)
        self._count("sync_instants", len(difference.completed))
        self._publish(client, difference, found, active, anew, undone)

    def _publish(
        self,
        client: TableMetaClient,
        difference: Difference,
        found: list[Step],
        active: Timeline,
        replaced: Mapping[str, Mapping[str, str]] | None,
        undone: Collection[str],
    ) -> None:
        """Make the snapshot of every step, and swap them all in."""
        with self._lock:
            history = self._required()
            links = []
            snapshot = history.newest
            for step in found:
                now = stepped(snapshot.active, step)
                leftovers = self._unfinished.get(step.instant.requested_time, ())
                leftovers = leftovers if step.delta.writes else ()
                before = snapshot.files.versions.keys()
                snapshot = advanced(snapshot, step, now, client.completion_times(now), leftovers)
                dropped = len(before) - len(snapshot.files.versions)
                if dropped:
                    self._count("partition_reloads", dropped, cause="files-unclear")
                if step.delta.writes:
                    self._unfinished.pop(step.instant.requested_time, None)
                links.append(Link(snapshot, step))
            history = history.extended(links, self._retained)
            last = settled(snapshot, active, client.completion_times(active), replaced)
            if last.hashes == snapshot.hashes:
                history = history.with_newest(last)
            else:
                history = history.extended((Link(last),), self._retained)
            self._history = history.barring(*_undone(difference, active))

    # Loads.

    def _load(self, partitions: Collection[str]) -> None:
        """List partitions at the newest snapshot and fill them in."""
        storage = self.storage.for_cause("lookup")
        self._fill(
            lambda start: {
                p: PartitionVersion.of(p, list_partition(storage, p, start.config))
                for p in partitions
            }
        )

    def _discover(self) -> None:
        """Find every partition and fill in those not loaded, with the listings that found them."""
        storage = self.storage.for_cause("lookup")
        known: set[str] = set()

        def listed(snapshot: Snapshot) -> dict[str, PartitionVersion]:
            extensions = base_extensions(snapshot.config)
            known.clear()
            found = {}
            for partition, listing in discover_partitions(storage):
                known.add(partition)
                if partition not in snapshot.files.versions:
                    files = data_files(partition, listing, extensions)
                    found[partition] = PartitionVersion.of(partition, files)
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
        for _ in range(ATTEMPTS):
            start = self._newest()
            listed = list_them(start)
            newest = self._syncs.run(self._sync)
            ghosts = removals_under_way(self._client_for("lookup"), newest.active)
            with self._lock:
                history = self._required()
                place = history.place(start)
                if place is None or history.newest is not newest:
                    continue
                found = [history.brought_forward(v, place) for v in listed.values()]
                if any(version.has_ghosts for version in found):
                    continue  # a rollback since the listing leaves a size unsaid
                for version in found:
                    self._fill_one(newest, version, ghosts)
                if known is not None:
                    newest.files.known = history.known_after(place, known)
            self._count("partition_loads", len(listed))
            return
        raise StorageUnavailableError(
            f"{self.table_id} changed {ATTEMPTS} times while its partitions were listed",
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
        for instant in {file.instant for file in version.files()}:
            if not newest.is_committed(instant):
                self._unfinished[instant].add(partition)


def _unplanned(
    client: TableMetaClient, old: Snapshot, deltas: Mapping[Instant, Delta]
) -> list[Instant]:
    """Return the compactions and clusterings that came and completed since ``old``, as pending."""
    pending = {i.requested_time for i in old.active if not i.is_completed}
    clustering = CLUSTERING if client.config.layout_version > 1 else REPLACE_COMMIT
    found = []
    for instant, delta in deltas.items():
        action = COMPACTION if delta.compacts else clustering if delta.clusters else None
        if action is not None and instant.requested_time not in pending:
            found.append(Instant(instant.requested_time, action, State.INFLIGHT))
    return found


def _with_deleted(client: TableMetaClient, instant: Instant, delta: Delta) -> Delta:
    """Return a clean's delta with the empty partitions it deleted, which only its plan names."""
    if instant.action != CLEAN:
        return delta
    try:
        plan = client.read_plan(instant)
    except InstantNotFoundError:  # archived with its clean
        return delta
    planned = plan.partitions_to_be_deleted if isinstance(plan, CleanerPlan) else ()
    return replace(delta, deleted_partitions=delta.deleted_partitions.union(planned))


def _undone(difference: Difference, active: Timeline) -> tuple[frozenset[Instant], frozenset[str]]:
    """Return the writes that were undone, and the times of the compaction plans that are gone."""
    start = active.first_non_savepoint_time or ""
    writes = (i for i in difference.vanished if i.action in WRITE_ACTIONS)
    return (
        frozenset(i for i in writes if i.requested_time >= start),
        frozenset(i.requested_time for i in difference.lost if i.action == COMPACTION),
    )
