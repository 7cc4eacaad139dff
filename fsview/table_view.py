"""``TableView``: one table, answered at the instant that each client knows.

It puts together what keeps the table's history in step (``fsview.sync.follower``) and what loads
its partitions (``fsview.load.partition_loader``), and says which snapshot a client means.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from fsview.check.partition_checker import Checked, PartitionChecker
from fsview.check.rebuild import Pause
from fsview.files.partition import PartitionVersion
from fsview.load.partition_loader import GoOn, PartitionLoader
from fsview.metrics import Metrics
from fsview.model.file_group import CompactionOperation
from fsview.snapshot.difference import key_of
from fsview.snapshot.history import History
from fsview.snapshot.snapshot import GroupKey, Snapshot
from fsview.snapshot.step import Step
from fsview.state.current_history import Use
from fsview.state.table_state import TableState
from fsview.store.base import Store
from fsview.store.budget import Share
from fsview.store.memory import MemoryStore
from fsview.sync.branch_finder import BranchFinder
from fsview.sync.follower import TimelineFollower
from timeline.clock import Clock, SystemClock
from timeline.errors import StoreError, ViewBehindError
from timeline.instant import DELTA_COMMIT, LOG_COMPACTION, Instant
from timeline.storage.base import Storage
from timeline.storage.table_id import TableId
from timeline.timeline import Timeline

RETAINED_SNAPSHOTS: Final = 256
"""For clients that are behind: a job that is so many commits long is answered without a read."""
_HASH_CHARACTERS: Final = 64
_TOLD_INSTANTS: Final = 100
"""The newest of a timeline, which a client that isn't known is told."""


class TableView:
    """One table and its snapshots; safe to use from several threads.

    Attributes:
        storage: The table's storage.
        table_id: The table.
        loaded: The partitions that count as loaded.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
        retained_snapshots: int = RETAINED_SNAPSHOTS,
        store: Store | None = None,
        share: Share | None = None,
    ) -> None:
        """Make a view of the table at the storage's base path; reads nothing yet.

        Args:
            storage: The table's storage.
            metrics: Where to count, labelled ``table``; ``None``: nowhere that anybody sees.
            clock: To time syncs by.
            retained_snapshots: How many snapshots are kept for clients that are behind.
            store: Where its packed files lie; ``None``: in memory. ``close`` closes it.
            share: Of the account of what is kept for clients that are behind; ``close`` gives it
                back, ``None``: nobody counts.
        """
        self._store = store or MemoryStore()
        self.storage = storage
        self._metrics = metrics or Metrics()
        self.table_id = TableId.of(storage.base_path)
        self._state = TableState(
            self._store,
            self.table_id,
            retained=retained_snapshots,
            share=share or Share.unbounded(),
        )
        self.loaded = self._state.loaded
        self._follower = TimelineFollower(
            storage, self._state, metrics=self._metrics, clock=clock or SystemClock()
        )
        self._branches = BranchFinder(self._follower)
        self._loader = PartitionLoader(self._follower)
        self._checker = PartitionChecker(self._follower)

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
        return self._follower.sync()

    def at(self, last_instant: str, timeline_hash: str) -> Use:
        """Return the snapshot that a client means, in use for as long as the result is held.

        A client's timeline that was never held is looked for among what may have been before.

        Args:
            last_instant: Requested time of the last instant of the client's timeline, ``"0"`` if
                empty.
            timeline_hash: Hash of its timeline, with or without pending log compactions.

        Raises:
            ViewBehindError: Nobody can know what that snapshot was, not even after a sync.

        Cost: none when the snapshot is held; else a sync, or for a client that is behind what
            happened since.
        """
        state, find = self._state, lambda history: history.snapshot_for(last_instant, timeline_hash)
        use = state.use(find)
        # What is no hash isn't looked for, nor remembered as a question.
        may_be = len(timeline_hash) == _HASH_CHARACTERS and len(last_instant) <= _HASH_CHARACTERS
        if use is None and may_be and state.held is not None:
            use = self._branches.find(last_instant, timeline_hash)
        if use is None:
            self._follower.sync()
            use = state.use(find)
            if use is None and may_be:
                use = self._branches.find(last_instant, timeline_hash) or state.use(
                    lambda history: history.without_last_clean(timeline_hash)
                )
        if use is None:
            raise _behind(last_instant, self._follower.newest().timeline)
        return use

    def held(self, last_instant: str, timeline_hash: str) -> Snapshot | None:
        """Return the snapshot that a client means if it is kept; never waits, reads nothing."""
        history = self._state.held
        return None if history is None else history.snapshot_for(last_instant, timeline_hash)

    # What views ask.

    def read_archived_times(
        self, snapshot: Snapshot, version: PartitionVersion, requested_time: str
    ) -> None:
        """Have completion times read from the archive that a query of a partition needs.

        Args:
            snapshot: The query's.
            version: The partition's files: for all of them the archive is read at once.
            requested_time: Of the instant that the query asked for.
        """
        times = (t for t in version.instants() if len(t) == len(requested_time))
        client = self._follower.client_for("lookup")
        client.read_archived_times(snapshot.completion, min((requested_time, *times)))

    def version(self, snapshot: Snapshot, partition: str) -> PartitionVersion:
        """Return a partition's files at a snapshot, loading them if need be.

        Raises:
            ViewBehindError: The partition was never loaded and the snapshot isn't kept any more.
        """
        return self._loader.version(snapshot, partition)

    def load(self, snapshot: Snapshot, partitions: Collection[str], go_on: GoOn) -> list[str]:
        """Load some partitions together: one list call each and one of the timeline.

        Returns:
            Those that are held now: all but some of very many that have no files.

        Raises:
            Exception: Whatever ``go_on`` raises; see ``PartitionLoader.load``.
        """
        return self._loader.load(snapshot, partitions, go_on)

    def holds(self, partition: str) -> bool:
        """Whether a partition's files are held at the newest snapshot."""
        history = self._state.held
        return history is not None and partition in history.newest.files.versions

    def load_all(self, snapshot: Snapshot) -> list[str]:
        """Load every partition of the table at a snapshot; return their paths in order."""
        return self._loader.load_all(snapshot)

    def clustering_of(self, snapshot: Snapshot) -> dict[GroupKey, Instant]:
        """Return what pends for a client: every plan on storage not completed at its snapshot.

        Raises:
            ViewBehindError: What happened since that snapshot isn't known any more.
            StorageError: The timeline could not be read; nothing older is answered.
            CorruptMetadataError: A plan could not be understood; likewise.

        Cost: as of ``sync``, each time.
        """
        history, since = self._looked_at(snapshot)
        there, held = history.keys_after(since), snapshot.pending_clustering.items()
        pending = {
            **history.newest.pending_clustering,
            **{key: instant for key, instant in held if key_of(instant) in there},
        }
        for step in history.planned_in(since):
            pending.update(step.clustering)
        return pending

    def log_compactions_of(self, snapshot: Snapshot) -> dict[GroupKey, CompactionOperation]:
        """Return what pends for a client: every plan on storage not completed at its snapshot.

        Raises and costs what ``clustering_of`` does.
        """
        history, since = self._looked_at(snapshot)
        there, held = history.keys_after(since), snapshot.pending_log_compaction.items()
        pending = {
            **history.newest.pending_log_compaction,
            **{key: op for key, op in held if (op.compaction_instant, DELTA_COMMIT) in there},
        }
        for step in history.planned_in(since):
            if step.instant.action == LOG_COMPACTION:
                pending.update(step.compactions)
        return pending

    def _looked_at(self, snapshot: Snapshot) -> tuple[History, Sequence[Step]]:
        """Return the history in step with the timeline as it was after the caller came.

        A client's hash doesn't say which plans there are: they may have come, or gone, since the
        last look.

        Args:
            snapshot: The caller's, which that look doesn't drop.

        Returns:
            The history, and the steps since the snapshot.
        """
        with self._state.using(snapshot):
            self._follower.sync()
            history = self._state.history
        since = history.steps_since(snapshot)
        if since is None and not snapshot.is_empty:  # for whom nothing has happened yet
            raise ViewBehindError(
                f"what pends at {snapshot.timeline.last} is not known any more",
                hint="sync and ask again",
            )
        return history, since or ()

    def newest_if_only_cleaned(self, snapshot: Snapshot) -> Snapshot | None:
        """Return the newest snapshot if cleans and nothing else came after this one."""
        history = self._state.history
        return history.newest if history.only_cleans_since(snapshot) else None

    # Whether it is right.

    def held_partitions(self) -> tuple[str, ...]:
        """Return the partitions whose files are held at the newest snapshot, as they were read."""
        return tuple(version.partition for version in self._state.newest_versions())

    def check(self, partition: str, pause: Pause = lambda: None) -> Checked:
        """Compare a partition with storage, see ``PartitionChecker.check``."""
        return self._checker.check(partition, pause)

    def reload(self, cause: str) -> None:
        """Load the table anew, and answer nobody from what was held; ``cause`` is counted."""
        self._follower.reload(cause)

    def lost(self, version: PartitionVersion, why: StoreError) -> None:
        """Take it that the store can't give back a version; see ``TableState.lost``."""
        self._state.lost(version, why)

    def drop_oldest_snapshot(self) -> int | None:
        """Keep one snapshot fewer for clients that are behind; see ``TableState``."""
        return self._state.drop_oldest()

    def close(self) -> None:
        """Give back what the store holds; views can't be asked any more."""
        self._state.close()

    def status(self) -> dict[str, Any]:
        """Return figures about this table, fit for JSON."""
        history, versions = self._state.held, self._state.newest_versions()
        newest = None if history is None else history.newest
        return {
            "storage_calls": [
                {"kind": kind, "cause": cause, "count": count}
                for (kind, cause), count in sorted(self.storage.calls.snapshot().items())
            ],
            "snapshots": 0 if history is None else len(history.links),
            "retained_bytes": self._state.retained_bytes,
            "last_instant": None if newest is None else str(newest.timeline.last),
            "partitions_loaded": len(versions),
            "store": self._store.status(),
            "packed_bytes": sum(version.size_bytes for version in versions),
            "counters": self._metrics.as_json(table=str(self.table_id)),
        }


def _behind(last_instant: str, timeline: Timeline) -> ViewBehindError:
    """Return the refusal of a client in Java's words, in which a long timeline is cut short."""
    said = last_instant[:_HASH_CHARACTERS]
    told = ", ".join(map(str, timeline.instants[-_TOLD_INSTANTS:]))
    more = len(timeline) > _TOLD_INSTANTS
    return ViewBehindError(
        f"Last known instant from client was {said}{'...' if said != last_instant else ''} but"
        f" server has the following timeline [{told}]"
        + (f", the newest {_TOLD_INSTANTS} of {len(timeline)} instants" if more else "")
    )
