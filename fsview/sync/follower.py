"""``TimelineFollower``: keeps the state of one table in step with its timeline.

A sync reads the table from nothing, continues from the snapshot that an earlier process recorded,
or lists the timeline and reads its new instants; then it has the state publish all snapshots that
follow at once. A failure on the way leaves the state as it was: the error goes to the callers of
that sync, and the next request tries again.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from fsview.metrics import Metrics
from fsview.single_flight import SingleFlight, TimedBarrier
from fsview.snapshot.history import History
from fsview.snapshot.snapshot import Snapshot
from fsview.snapshot.timeline_change import Reload, TimelineChange
from fsview.state.table_state import TableState
from fsview.sync.metadata_reader import snapshot_of
from fsview.sync.timeline_diff import read_change
from timeline.clock import Clock
from timeline.errors import (
    CorruptMetadataError,
    InstantNotFoundError,
    RecordLostError,
    StoreBehindError,
    StoreError,
    StrandlineError,
)
from timeline.meta_client import RefusedFiles, TableMetaClient
from timeline.storage.base import FileInfo, Storage
from timeline.storage.table_id import TableId
from timeline.table.config import CONFIG_PATH, TableConfig
from timeline.timeline import Timeline
from timeline.tracing import CAUSE, INSTANT, TABLE, child

T = TypeVar("T")

logger = logging.getLogger(__name__)

ATTEMPTS: Final = 4
"""How often to try again if the table changes meanwhile in a way that can't be followed."""


class TimelineFollower:
    """Follows one table's timeline; safe to use from several threads.

    Attributes:
        storage: The table's storage.
        state: What is held of the table.
    """

    def __init__(
        self,
        storage: Storage,
        state: TableState,
        *,
        metrics: Metrics,
        clock: Clock,
        barrier: TimedBarrier | None = None,
        slow_s: float = 0.0,
        synced: Callable[[TableId, Snapshot], object] = lambda *_: None,
    ) -> None:
        """Read nothing yet.

        Args:
            storage: The table's storage.
            state: What is held of the table.
            metrics: Counters, labelled ``table``.
            clock: Times syncs.
            barrier: Where loads wait for each other; ``None``: they don't.
            slow_s: From which on a sync is logged; 0: none is.
            synced: Is called with what each sync brought; never waits.
        """
        self.storage = storage
        self.state = state
        self._synced = synced
        self._metrics = metrics
        self._clock = clock
        self._client: TableMetaClient | None = None
        self._properties: FileInfo | None = None
        self._refused = RefusedFiles()
        self._syncs: SingleFlight[Snapshot] = SingleFlight()
        self._barrier = barrier
        self._slow_s = slow_s
        self._synced_s = -math.inf
        self._label = str(state.table_id)

    def newest(self) -> Snapshot:
        """Return the newest snapshot held; the table is read on first use."""
        history = self.state.held
        return self.sync("start") if history is None else history.newest

    def client_for(self, cause: str) -> TableMetaClient:
        """Return the table's client with its storage calls booked under ``cause``."""
        assert self._client is not None, "asked before the first sync"
        return self._client.for_cause(cause)

    def count(self, name: str, amount: int = 1, **labels: str) -> None:
        """Add to a counter of this table."""
        self._metrics.add(name, amount, table=self._label, **labels)

    def sync(self, cause: str, *, since: int | None = None) -> Snapshot:
        """Return the snapshot of the timeline as it is now; callers share one run.

        Args:
            cause: Under which the run is counted, if this caller starts it.
            since: What ``gathered`` returned; a run that began after that is shared, too.
        """
        # A caller that joins another's run has a span, too: it waits as long.
        with child("sync", {TABLE: self.storage.base_path, CAUSE: cause}) as span:
            newest = self._syncs.run(partial(self._counted_sync, cause), since=since)
            span.set(INSTANT, newest.timeline.last_time)
        # After the run, with no lock held: evicting takes locks of other tables.
        self.state.share.make_room()
        return newest

    def synced_within(self, seconds: float) -> bool:
        """Whether the last sync that succeeded began less than ``seconds`` ago."""
        return self._clock.monotonic() - self._synced_s < seconds

    def gathered(self, work: Callable[[], T]) -> tuple[T, int]:
        """Return what ``work`` returns, and ``since`` for a sync after it.

        Callers that work at the same time wait for each other if there is a barrier, and share
        one.
        """
        # ``begun`` is read after the work: a run that begins later lists all that the work saw.
        if self._barrier is None:
            return work(), self._syncs.begun
        return self._barrier.run(lambda: (work(), self._syncs.begun))

    def reload(self, cause: str) -> Snapshot:
        """Reload the table, since its state differs from storage.

        Args:
            cause: The label of the counter ``reloads``.

        Raises:
            StorageError: The table can't be read for now.
        """
        # Before the sync: if storage fails there, nothing is answered from what is held, and every
        # request syncs, and so tries again.
        self.state.distrust(cause)
        return self.sync("reload")

    def _counted_sync(self, cause: str) -> Snapshot:
        began_s = self._clock.monotonic()
        newest: Snapshot | None = None
        failed = 0
        try:
            while newest is None:
                try:
                    # However many servers write, the last attempts stay in memory. They are needed
                    # as a load that adopts meanwhile makes an attempt fail, too.
                    newest = self._sync_once(alone=failed >= ATTEMPTS - 1)
                except (InstantNotFoundError, StoreBehindError):
                    # Rolled back or archived between the listing and the read, or overtaken by
                    # another server: try again.
                    failed += 1
                    if failed == 2 * ATTEMPTS - 1:
                        raise
        except StrandlineError as error:
            self._count_failure(error)
            raise
        finally:
            took_s = self._clock.monotonic() - began_s
            if 0 < self._slow_s <= took_s:
                logger.warning("%s: a sync for %s took %.1f s", self.state.table_id, cause, took_s)
        self.state.caught_up()
        # The time before the listing, which may lack what happened since.
        self._synced_s = began_s
        self.count("syncs")
        self.count("sync_us", int(took_s * 1_000_000))
        self.count("sync_causes", cause=cause)
        self._synced(self.state.table_id, newest)
        return newest

    def _count_failure(self, error: StrandlineError) -> None:
        if self.state.held is not None or isinstance(error, CorruptMetadataError):
            self.count("sync_failures", code=error.code)
        else:
            # There may be no table: a client may name any path, and each has its counters.
            key = "sync_failures", (("code", error.code),)
            self._metrics.exported.add_of_anybody(self._label, key, 1)

    def _sync_once(self, *, alone: bool) -> Snapshot:
        """Return the snapshot of a timeline that was listed after this began."""
        # Read again for each attempt, as other threads may come to distrust the state.
        history, cause = self.state.followed, self.state.record.status.distrusted
        if history is not None:
            return self._follow(history, alone=alone)
        if cause is None:
            newest = self._resume(alone=alone)
            if newest is not None:
                return newest
            # If this fails, the next attempt continues from the record that is shown now.
            return self._follow(self.state.history, alone=alone)
        newest = self._start(alone=alone)
        self.count("reloads", cause=cause)
        return newest

    def adopt(self, *, whole: bool = False) -> bool:
        """Adopt what other servers have recorded in a store that they share.

        Args:
            whole: Whether their record is to be read whole at the next attempt to sync, if it
                doesn't follow from this state. Clients of snapshots held then may be refused.

        Returns:
            Whether something was adopted, or is to be read.

        Raises:
            StoreError: The store can't be read.
            StorageError: The table's properties have changed, and can't be read.

        Cost: none of the table's storage, unless its properties have changed.
        """
        told = self.state.told(whole=whole)
        if told is not None:
            client = self._client_of(told.head.recorded.snapshot.config)
            before = self.state.history.newest.completion
            completion = partial(client.completion_times, before=before)
            found = self.state.adopt(told, completion, whole=whole)
            if found is not None:
                self.count("adoptions")
                self.count("adopted_instants", found.completed)
                self._count_dropped(found.dropped)
        return told is not None or self.state.record.status.is_behind

    def adopt_if_read(self) -> None:
        """Adopt what other servers have recorded, if the store can be read."""
        with suppress(StoreError):
            self.adopt()

    def _follow(self, history: History, *, alone: bool) -> Snapshot:
        """Bring the history up to the timeline as it is now; ``alone``: in memory.

        Raises:
            StoreBehindError: Another server has recorded something else than the timeline listed
                here: it must be listed after that is adopted, or a listing could be followed that
                is older than the record.
        """
        old = history.newest
        active = self.client_for("sync").active_timeline().sharing(old.active)
        if active == old.active:
            return old
        if alone:
            return self._read_on(history, active, alone=True)
        with ExitStack() as until_read:
            is_adopted = False
            try:
                # Others may have read the new instants already,
                is_adopted = self.adopt(whole=True)
                if not is_adopted:
                    # or one may just have read them when the turn comes.
                    until_read.enter_context(self.state.record.turn())
                    is_adopted = self.adopt(whole=True)
            except StoreError as exc:
                self.state.warn(exc)
                alone = True
            if is_adopted:
                return self._adopted(active)
            return self._read_on(history, active, alone=alone)

    def _adopted(self, active: Timeline) -> Snapshot:
        """Return the newest snapshot after an adoption; refuse another timeline than was listed."""
        newest = self.state.history.newest
        if self.state.record.status.is_behind or newest.active != active:
            raise StoreBehindError(f"{self.state.table_id}: others have recorded another timeline")
        return newest

    # Reading: one sync at a time does.

    def _start(
        self,
        reload: Reload | None = None,
        *,
        outdated: Snapshot | None = None,
        alone: bool,
    ) -> Snapshot:
        """Read the table from nothing; see ``TableState.restart``."""
        # Before the properties are read: a rewrite in between shows as a change at the next sync.
        properties = self._stat_properties("table")
        client = TableMetaClient.open(self.storage, refused=self._refused)
        snapshot = snapshot_of(client)
        self._client, self._properties = client, properties  # before a load can need them
        self.state.restart(snapshot, reload, outdated=outdated, alone=alone)
        return self.state.history.newest

    def _resume(self, *, alone: bool) -> Snapshot | None:
        """Continue from the snapshot that an earlier process recorded, or else start over.

        ``None``: the newest snapshot is the recorded one, which is to be followed.
        """
        cause = "behind" if self.state.record.status.is_behind else "start"
        try:
            recorded = self.state.recorded()
        except StoreError as exc:
            if self.state.record.is_closed:
                raise
            if not isinstance(exc, RecordLostError):
                self.state.warn(exc)
                return self._start(alone=alone)
            logger.warning("%s is loaded anew: %s", self.state.table_id, exc)
            newest = self._start(alone=alone)
            self.count("reloads", cause="store-damaged")
            return newest
        if recorded is None:
            return self._start(alone=alone)
        self.count("record_reads", cause=cause)
        properties, then = self._stat_properties("table"), recorded.snapshot
        client = TableMetaClient.open(self.storage, refused=self._refused)
        # An upgrade may change what earlier instants mean, so nothing recorded is followed.
        if client.config.version != then.config.version:
            newest = self._start(outdated=then, alone=alone)
            self.count("reloads", cause="table-upgraded")
            return newest
        self._client, self._properties = client, properties
        completion = client.completion_times(then.active)
        self.state.resume(recorded, replace(then, config=client.config, completion=completion))
        self.count("partition_loads", len(then.files.versions), source="record")
        return None

    def _read_on(self, history: History, active: Timeline, *, alone: bool) -> Snapshot:
        """Bring the history up to the timeline that was listed by reading its new instants.

        Raises:
            StoreBehindError: Another server has recorded another timeline meanwhile.
        """
        client = self.client_for("sync")
        old = history.newest
        properties = self._stat_properties("sync")
        if properties != self._properties:
            client = self._open_anew()
        # An upgrade may change what earlier instants mean, so nothing held is followed.
        if client.config.version != old.config.version:
            newest = self._start(outdated=old, alone=alone)
            self.count("reloads", cause="table-upgraded")
            return newest
        change = read_change(client, old, active)
        if isinstance(change, TimelineChange):
            if change.unexplained:  # their files may still exist, and no instant names them
                self.state.require_listing()
            unclear = history.touched_by(change.unexplained)
            if unclear is not None:
                # Before the snapshots are shown, as a load at one of them needs it.
                self._client = client
                try:
                    dropped = self.state.publish(
                        change,
                        client.config,
                        partial(client.completion_times, before=old.completion),
                        unclear,
                        old=old,
                        alone=alone,
                    )
                except StoreBehindError:
                    with suppress(StoreError):
                        self.adopt(whole=True)
                    return self._adopted(active)
                # Only now: if the publication fails, the next sync reads the properties again.
                self._properties = properties
                self.count("sync_instants", change.completed)
                self._count_dropped(dropped)
                return self.state.history.newest
            change = Reload("instant-vanished", change.undone, change.lost)
        # Without ``undone`` this isn't the same table any more, and its snapshots are dropped.
        newest = self._start(change, outdated=old if change.undone is None else None, alone=alone)
        self.count("reloads", cause=change.cause)
        return newest

    def _client_of(self, config: TableConfig) -> TableMetaClient:
        """Return the client, reopened if another server has seen other properties."""
        client = self.client_for("sync")
        if client.config != config:
            client = self._open_anew()
            if client.config.version == config.version:
                self._client = client
        return client

    def _count_dropped(self, dropped: Mapping[str, int]) -> None:
        """Count the partitions that must be listed again, by cause."""
        for cause, count in dropped.items():
            if count:
                self.count("partition_reloads", count, cause=cause)

    def _open_anew(self) -> TableMetaClient:
        return TableMetaClient.open(self.storage, cause="sync", refused=self._refused)

    def _stat_properties(self, cause: str) -> FileInfo | None:
        """Return what shows whether the properties were rewritten, as by an upgrade."""
        return self.storage.for_cause(cause).stat(CONFIG_PATH)
