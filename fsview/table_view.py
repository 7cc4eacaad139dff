"""``TableView``: one table, answered at the instant that each client knows.

It connects a table's state with what follows the timeline (``fsview.sync.follower``), loads
partitions (``fsview.load.partition_loader``) and checks them, and finds the snapshot for a client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar
from weakref import WeakSet

from fsview.check.partition_checker import Checked, PartitionChecker, Pause
from fsview.files.partition import PartitionVersion
from fsview.load.partition_loader import PartitionLoader
from fsview.metrics import Metrics
from fsview.model.file_group import CompactionOperation
from fsview.record.base import NoRecord, Record
from fsview.single_flight import TimedBarrier
from fsview.snapshot.hash_search import timelines_as_of
from fsview.snapshot.snapshot import GroupKey, Snapshot
from fsview.snapshot.timeline_change import Step, key_of
from fsview.state.current_history import Use
from fsview.state.table_state import TableState
from fsview.store.budget import RETAINED_SNAPSHOTS, Share
from fsview.sync.client_behind import BranchFinder
from fsview.sync.follower import TimelineFollower
from timeline.clock import Clock, SystemClock
from timeline.errors import InstantNotFoundError, ViewBehindError
from timeline.instant import DELTA_COMMIT, LOG_COMPACTION, Instant
from timeline.storage.base import Storage
from timeline.storage.table_id import TableId
from timeline.table.property_name import MERGE_ON_READ
from timeline.timeline import Timeline

T = TypeVar("T")

_HASH_CHARACTERS: Final = 64
_SHOWN_INSTANTS: Final = 100
"""How many of the newest instants the refusal of a client that is behind names."""


class Lease:
    """Keeps a table open for as long as this object is held, as by a request."""

    __slots__ = ("__weakref__", "table")

    def __init__(self, table: TableView) -> None:
        self.table = table


class TableView:
    """One table and its snapshots; safe to use from several threads.

    Attributes:
        storage: The table's storage.
        table_id: The table.
        state: What is held of the table.
        loaded: The partitions that count as loaded.
        loader: Loads partitions.
        is_closed: Whether ``close`` was called: nothing more is answered from it.
        was_used: Whether it was asked again since ``ViewManager`` last looked for tables to close.
        leases: What keeps it open; guarded by ``ViewManager``.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
        retained_snapshots: int = RETAINED_SNAPSHOTS,
        record: Callable[[TableId], Record] | None = None,
        share: Share | None = None,
        trusted_s: float = 0.0,
        gathers: bool = True,
        slow_sync_s: float = 0.0,
        synced: Callable[[TableId, Snapshot], object] = lambda *_: None,
    ) -> None:
        """Make a view of the table at the storage's base path; reads nothing yet.

        Args:
            storage: The table's storage.
            metrics: Counters, labelled ``table``; ``None``: they aren't shown.
            clock: Times syncs.
            retained_snapshots: How many snapshots are kept for clients that are behind.
            record: Makes its record, such as ``kept_in(store)`` (``fsview.record.shared``), which
                ``close`` closes; ``None``: it has none, as no restart continues from this view.
            share: Counts what is kept for clients that are behind; ``None``: without a limit.
            trusted_s: How long after a sync a partition may be loaded without another one, if the
                timeline explains every file of its listing, seconds. 0: each load syncs, as it must
                in a service. Otherwise an answer may lack files that a restore, or a replacement
                and a clean, removed within that time without leaving a trace in the partition.
            gathers: Whether threads that list partitions at the same time wait for each other, to
                share a listing of the timeline (``fsview.single_flight``).
            slow_sync_s: From which on a sync is logged; 0: none is.
            synced: Is called with what each sync brought; never waits, and doesn't hold this view.
        """
        clock = clock or SystemClock()
        self.is_closed = False
        self.was_used = False
        self.leases: WeakSet[Lease] = WeakSet()
        self.storage = storage
        self._metrics = metrics or Metrics()
        self.table_id = TableId.of(storage.base_path)
        self._share = share or Share.unbounded()
        self.state = TableState(
            NoRecord() if record is None else record(self.table_id),
            self.table_id,
            retained=retained_snapshots,
            share=self._share,
        )
        self.loaded = self.state.loaded
        self._follower = TimelineFollower(
            storage,
            self.state,
            metrics=self._metrics,
            clock=clock,
            barrier=TimedBarrier(clock) if gathers else None,
            slow_s=slow_sync_s,
            synced=synced,
        )
        self._branches = BranchFinder(self._follower)
        self.loader = PartitionLoader(self._follower, trusted_s=trusted_s)

    def __repr__(self) -> str:
        is_closed = ", closed" if self.is_closed else ""
        return f"{type(self).__name__}({self.storage.base_path!r}{is_closed})"

    # Snapshots.

    def newest(self) -> Snapshot:
        """Return the newest snapshot held; the table is read on first use."""
        return self._follower.newest()

    def sync(self) -> Snapshot:
        """Return the snapshot of the table as it is now.

        Raises:
            StorageError: The timeline could not be read; the snapshots held stay.
            CorruptMetadataError: An instant's file could not be understood; likewise.

        Cost: one listing of the timeline, the table's properties and the files of new instants;
            callers share one run.
        """
        return self._follower.sync("refresh")

    def recent(self, within_s: float, cause: str) -> Snapshot:
        """Return the newest snapshot, after a sync unless one began less than ``within_s`` ago.

        Args:
            within_s: Seconds.
            cause: Under which the sync is counted.

        Raises:
            StorageError: As ``sync``, as is the next.
            CorruptMetadataError: As ``sync``.
        """
        history = self.state.held
        if history is None or not self._follower.synced_within(within_s):
            return self._follower.sync(cause)
        return history.newest

    def just_after(self, requested_time: str) -> Use:
        """Return the snapshot just after an instant completed, in use as long as it is held.

        Of a compaction or clustering that was planned then and has completed since, it isn't known
        whether it had begun. If the snapshot isn't kept, its timeline is searched for as requested.

        Args:
            requested_time: Of a completed instant on the newest timeline held.

        Raises:
            InstantNotFoundError: The newest timeline has no such instant, or it isn't completed.
            ViewBehindError: The snapshot can't be known any more.

        Cost: none if the snapshot is held, else a read of each instant since.
        """
        newest = self.newest()
        found = (i for i in newest.timeline if i.requested_time == requested_time)
        instant = next((i for i in found if i.is_completed), None)
        if instant is None:
            raise InstantNotFoundError(
                f"no instant {requested_time!r} is completed on the timeline of {self.table_id}"
            )
        use = self.state.use(lambda history: history.just_after(instant))
        if use is None:
            is_merged = newest.config.table_type == MERGE_ON_READ
            for then in timelines_as_of(newest.timeline, instant, merge_on_read=is_merged):
                use = use or self._branches.find(then.last_time, then.client_timeline().hash)
        if use is None:
            raise ViewBehindError(f"the table just after {requested_time} is not known any more")
        return use

    def at(self, last_instant: str, timeline_hash: str) -> Use:
        """Return the snapshot that a client means, in use for as long as the result is held.

        If its timeline was never held, that is searched for among earlier ones.

        Args:
            last_instant: Requested time of the last instant of the client's timeline, ``"0"`` if
                empty.
            timeline_hash: Hash of its timeline, with or without pending log compactions.

        Raises:
            ViewBehindError: The snapshot can't be known, even after a sync.

        Cost: none if the snapshot is held; else a sync, or for a client that is behind a read of
            each instant since.
        """
        state, find = self.state, lambda history: history.snapshot_for(last_instant, timeline_hash)
        # Found and in use in one step: the next sync could drop the snapshot otherwise.
        use = state.use(find)
        # Only what can be a hash is searched for, and remembered as a question.
        is_hash = len(timeline_hash) == _HASH_CHARACTERS and len(last_instant) <= _HASH_CHARACTERS
        # Before the sync, as a client that is behind needs no newer timeline.
        if use is None and is_hash and state.held is not None:
            use = self._branches.find(last_instant, timeline_hash)
        if use is None:
            self._follower.sync("lookup")
            use = state.use(find)
            if use is None and is_hash:
                # Hudi also answers a client that lacks only a clean at the end of the timeline.
                use = self._branches.find(last_instant, timeline_hash) or state.use(
                    lambda history: history.without_last_clean(timeline_hash)
                )
        if use is None:
            raise _behind(last_instant, self._follower.newest().timeline)
        return use

    def held(self, last_instant: str, timeline_hash: str) -> Snapshot | None:
        """Return the snapshot that a client means if it is kept; neither waits nor reads."""
        # Read once, as a sync may replace it at any time.
        history = self.state.held
        return None if history is None else history.snapshot_for(last_instant, timeline_hash)

    # For views.

    def read_archived_times(
        self, snapshot: Snapshot, version: PartitionVersion, requested_time: str
    ) -> None:
        """Read the completion times that a query of a partition needs from the archive.

        Args:
            snapshot: The snapshot of the query.
            version: The partition's files; the archive is read once for all of them.
            requested_time: Requested time of the instant that the query needs.
        """
        times = (t for t in version.instants() if len(t) == len(requested_time))
        client = self._follower.client_for("lookup")
        client.read_archived_times(snapshot.completion, min((requested_time, *times)))

    def holds(self, partition: str) -> bool:
        """Whether a partition's files are held at the newest snapshot."""
        history = self.state.held
        return history is not None and partition in history.newest.files.versions

    def clustering_of(self, snapshot: Snapshot) -> dict[GroupKey, Instant]:
        """Return the clusterings that pend for a client: those not completed at its snapshot.

        A client's hash doesn't say which plans exist, and they come and go without a new hash, so
        the timeline is listed each time, and plans requested since the snapshot pend, too.

        Raises:
            ViewBehindError: What happened since that snapshot isn't known any more.
            StorageError: The timeline could not be read.
            CorruptMetadataError: A plan could not be understood.

        Cost: that of ``sync``.
        """
        return self._pending_for(
            snapshot, lambda at: at.pending_clustering, lambda step: step.clustering, key_of
        )

    def log_compactions_of(self, snapshot: Snapshot) -> dict[GroupKey, CompactionOperation]:
        """Return the log compactions that pend for a client; see ``clustering_of``."""
        return self._pending_for(
            snapshot,
            lambda at: at.pending_log_compaction,
            lambda step: step.compactions if step.instant.action == LOG_COMPACTION else {},
            lambda operation: (operation.compaction_instant, DELTA_COMMIT),
        )

    def _pending_for(
        self,
        snapshot: Snapshot,
        pending_at: Callable[[Snapshot], Mapping[GroupKey, T]],
        planned_by: Callable[[Step], Mapping[GroupKey, T]],
        instant_of: Callable[[T], tuple[str, str]],
    ) -> dict[GroupKey, T]:
        """Return the operations of the plans on storage that aren't completed at a snapshot.

        Args:
            snapshot: The snapshot.
            pending_at: Returns what pends at a snapshot.
            planned_by: Returns what a step requests.
            instant_of: Returns the ``key_of`` the instant that requested an operation.
        """
        with self.state.current.using(snapshot):  # so that the sync doesn't drop it
            self._follower.sync("pending")
            # Read once within the block, so that steps, keys and plans are of one history.
            history = self.state.history
        since = history.steps_since(snapshot)
        if since is None:
            # The sync may have loaded the table anew, as after an upgrade, at the same timeline.
            timeline = snapshot.client_timeline
            again = history.snapshot_for(timeline.last_time, timeline.hash)
            if again is not None:
                snapshot, since = again, history.steps_since(again)
        if since is None:
            if not snapshot.is_empty:  # an empty one is before all that is known
                raise ViewBehindError(
                    f"what pends at {snapshot.timeline.last} is not known any more",
                    hint="sync and ask again",
                )
            since = []
        # An instant that is neither on the timeline nor completed since was undone.
        keys = history.keys_after(since)
        pending = {k: v for k, v in pending_at(snapshot).items() if instant_of(v) in keys}
        pending = {**pending_at(history.newest), **pending}
        # No client's hash covers these plans, so those requested since pend for it, too.
        for step in history.planned_in(since):
            pending.update(planned_by(step))
        return pending

    def newest_if_only_cleaned(self, snapshot: Snapshot) -> Snapshot | None:
        """Return the newest snapshot if cleans and nothing else came after this one."""
        history = self.state.history
        # What was taken away may still be shown there.
        if snapshot.taken_away or not history.only_cleans_since(snapshot):
            return None
        return history.newest

    # Checks, status.

    def held_partitions(self) -> tuple[str, ...]:
        """Return the partitions held at the newest snapshot, in the order they were loaded in."""
        return tuple(version.partition for version in self.state.newest_versions())

    def check(self, partition: str, pause: Pause = lambda: None) -> Checked:
        """Compare a partition with storage; see ``PartitionChecker.check``."""
        return PartitionChecker(self._follower).check(partition, pause)

    def reload(self, cause: str) -> None:
        """Reload the table; see ``TimelineFollower.reload``."""
        self._follower.reload(cause)

    def close(self) -> None:
        """Close its record; views of the table mustn't be asked any more."""
        # Before the store: a caller that finds the store closed then reports the right cause.
        self.is_closed = True
        self.state.close()

    @property
    def partitions_loaded(self) -> int:
        """Number of partitions held at the newest snapshot."""
        held = self.state.held
        return 0 if held is None else len(held.newest.files.versions)

    def packed_bytes(self) -> int:
        """Return the size of the partitions held at the newest snapshot.

        Cost: a step for each partition.
        """
        return sum(version.size_bytes for version in self.state.newest_versions())

    def status(self) -> dict[str, Any]:
        """Return figures about this table, fit for JSON."""
        history, versions = self.state.held, self.state.newest_versions()
        newest = None if history is None else history.newest
        return {
            "storage_calls": [
                {"kind": kind, "cause": cause, "count": count}
                for (kind, cause), count in sorted(self.storage.calls.snapshot().items())
            ],
            "snapshots": 0 if history is None else len(history.links),
            "retained_bytes": self._share.held,
            "last_instant": None if newest is None else str(newest.timeline.last),
            "partitions_loaded": len(versions) - self.state.missing_held,
            "store": self.state.store_status(),
            "packed_bytes": self.packed_bytes(),
            "counters": self._metrics.of_table(str(self.table_id)),
        }


def _behind(last_instant: str, timeline: Timeline) -> ViewBehindError:
    """Return the refusal of a client, in Java's words; a long timeline is cut short."""
    shown = last_instant[:_HASH_CHARACTERS]
    instants = ", ".join(map(str, timeline.instants[-_SHOWN_INSTANTS:]))
    more = len(timeline) > _SHOWN_INSTANTS
    return ViewBehindError(
        f"Last known instant from client was {shown}{'...' if shown != last_instant else ''} but"
        f" server has the following timeline [{instants}]"
        + (f", the newest {_SHOWN_INSTANTS} of {len(timeline)} instants" if more else "")
    )
