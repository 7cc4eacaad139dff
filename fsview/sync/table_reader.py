"""``TableReader``: reads one table's timeline, and has its state show what that says.

It reads the table from nothing, from the snapshot that an earlier process recorded, or what is new
since the newest snapshot held. ``TimelineFollower`` decides which.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Protocol

from fsview.snapshot.history import History
from fsview.snapshot.snapshot import Snapshot
from fsview.snapshot.timeline_change import Reload, TimelineChange
from fsview.state.table_state import TableState
from fsview.sync.plan_reader import snapshot_of
from fsview.sync.timeline_diff import read_change
from timeline.errors import RecordLostError, StoreBehindError, StoreError
from timeline.meta_client import RefusedFiles, TableMetaClient
from timeline.storage.base import FileInfo, Storage
from timeline.table.config import CONFIG_PATH, TableConfig
from timeline.timeline import Timeline

logger = logging.getLogger(__name__)


class AddToCounter(Protocol):
    """Adds to a counter of the table."""

    def __call__(self, name: str, amount: int = 1, **labels: str) -> None:
        """See ``Metrics.add``."""


class TableReader:
    """Reads one table; one sync at a time calls it, loads only ``client_for``, ``client_of``."""

    def __init__(self, storage: Storage, state: TableState, count: AddToCounter) -> None:
        """Read nothing yet; ``count`` adds to the table's counters."""
        self._storage = storage
        self._state = state
        self._count = count
        self._client: TableMetaClient | None = None
        self._properties: FileInfo | None = None
        self._refused = RefusedFiles()

    def client_for(self, cause: str) -> TableMetaClient:
        """Return the table's client with its storage calls booked under ``cause``."""
        assert self._client is not None, "asked before the first sync"
        return self._client.for_cause(cause)

    def start(
        self,
        reload: Reload | None = None,
        *,
        outdated: Snapshot | None = None,
        alone: bool,
    ) -> Snapshot:
        """Read the table from nothing; see ``TableState.restart``."""
        # Before the properties are read: a rewrite in between shows as a change at the next sync.
        properties = self._stat_properties("table")
        client = TableMetaClient.open(self._storage, refused=self._refused)
        snapshot = snapshot_of(client)
        self._client, self._properties = client, properties  # before a load can need them
        self._state.restart(snapshot, reload, outdated=outdated, alone=alone)
        return self._state.history.newest

    def resume(self, *, alone: bool) -> Snapshot | None:
        """Go on from the snapshot that an earlier process recorded, or else start anew.

        Returns:
            The newest snapshot; ``None`` if that is the recorded one, which is to be followed.

        Raises:
            StoreError: The store was closed; or as ``start``.
        """
        cause = "behind" if self._state.status.is_behind else "start"
        try:
            recorded = self._state.recorded()
        except StoreError as exc:
            if self._state.is_closed:
                raise
            if not isinstance(exc, RecordLostError):
                self._state.warn(exc)
                return self.start(alone=alone)
            logger.warning("%s is loaded anew: %s", self._state.table_id, exc)
            newest = self.start(alone=alone)
            self._count("reloads", cause="store-damaged")
            return newest
        if recorded is None:
            return self.start(alone=alone)
        self._count("record_reads", cause=cause)
        properties, then = self._stat_properties("table"), recorded.snapshot
        client = TableMetaClient.open(self._storage, refused=self._refused)
        # An upgrade may change what earlier instants mean, so nothing recorded is followed.
        if client.config.version != then.config.version:
            newest = self.start(outdated=then, alone=alone)
            self._count("reloads", cause="table-upgraded")
            return newest
        self._client, self._properties = client, properties
        completion = client.completion_times(then.active)
        self._state.resume(recorded, replace(then, config=client.config, completion=completion))
        self._count("partition_loads", len(then.files.versions), source="record")
        return None

    def read_on(
        self,
        history: History,
        active: Timeline,
        *,
        alone: bool,
        forestalled: Callable[[], Snapshot],
    ) -> Snapshot:
        """Bring the history up to a timeline by reading what is new on it.

        Args:
            history: The history.
            active: The active timeline as it was listed.
            alone: As of ``TableState.publish``.
            forestalled: Returns the newest snapshot if another server has recorded something since.

        Raises:
            StoreBehindError: As ``forestalled``.
        """
        client = self.client_for("sync")
        old = history.newest
        properties = self._stat_properties("sync")
        if properties != self._properties:
            client = self._open_anew()
        # An upgrade may change what earlier instants mean, so nothing held is followed.
        if client.config.version != old.config.version:
            newest = self.start(outdated=old, alone=alone)
            self._count("reloads", cause="table-upgraded")
            return newest
        change = read_change(client, old, active)
        if isinstance(change, TimelineChange):
            if change.unexplained:  # their files may still exist, and no instant names them
                self._state.require_listing()
            unclear = history.touched_by(change.unexplained)
            if unclear is not None:
                # Before the snapshots are shown, as a load at one of them needs it.
                self._client = client
                try:
                    dropped = self._state.publish(
                        change,
                        client.config,
                        partial(client.completion_times, before=old.completion),
                        unclear,
                        old=old,
                        alone=alone,
                    )
                except StoreBehindError:
                    return forestalled()
                # Only now: if the publication fails, the next sync reads the properties again.
                self._properties = properties
                self._count("sync_instants", change.completed)
                self.count_dropped(dropped)
                return self._state.history.newest
            change = Reload("instant-vanished", change.undone, change.lost)
        # Without ``undone`` this isn't the same table any more, and its snapshots are dropped.
        newest = self.start(change, outdated=old if change.undone is None else None, alone=alone)
        self._count("reloads", cause=change.cause)
        return newest

    def client_of(self, config: TableConfig) -> TableMetaClient:
        """Return the client, opened anew if another server has seen other properties."""
        client = self.client_for("sync")
        if client.config != config:
            client = self._open_anew()
            if client.config.version == config.version:
                self._client = client
        return client

    def count_dropped(self, dropped: Mapping[str, int]) -> None:
        """Count the partitions that must be listed again, by cause."""
        for cause, count in dropped.items():
            if count:
                self._count("partition_reloads", count, cause=cause)

    def _open_anew(self) -> TableMetaClient:
        return TableMetaClient.open(self._storage, cause="sync", refused=self._refused)

    def _stat_properties(self, cause: str) -> FileInfo | None:
        """Return what shows whether the properties were rewritten, as by an upgrade."""
        return self._storage.for_cause(cause).stat(CONFIG_PATH)
