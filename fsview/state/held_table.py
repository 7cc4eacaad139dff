"""``HeldTable``: what is held of a table and follows its timeline, without a lock.

``TableState`` has the lock, and its verbs say what they do. What is filled in is in
``fsview.state.filled_snapshot``, what others have recorded in ``fsview.state.sharing``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from fsview.files.partition import PartitionVersion
from fsview.snapshot.difference import key_of
from fsview.snapshot.history import History
from fsview.snapshot.history_link import Link
from fsview.snapshot.next_history import publication
from fsview.snapshot.snapshot import Snapshot
from fsview.snapshot.timeline_change import Reload, TimelineChange
from fsview.state.current_history import CurrentHistory
from fsview.state.journal_entry import journal_entry_of
from fsview.state.missing_partitions import MissingPartitions
from fsview.state.record_rows import Recorded
from fsview.state.record_status import RecordStatus
from fsview.state.shared_record import SharedRecord
from fsview.state.table_record import TableRecord
from fsview.store.base import Store
from fsview.store.budget import Share
from fsview.store.sql.store import SharedStore
from timeline.completion import CompletionTimes
from timeline.errors import StoreBehindError, StoreError, StrandlineError
from timeline.storage.table_id import TableId
from timeline.table.config import TableConfig
from timeline.timeline import Timeline

logger = logging.getLogger(__name__)


class HeldTable:
    """What is held of one table; not thread-safe, but for reading ``answered`` and ``current``.

    Attributes:
        table_id: The table.
        store: Where chunks are kept.
        current: The history, and which of its snapshots are in use.
        record: The table's record in the store.
        shared: The same, if other servers share the store.
        missing: The partitions that were asked for and don't exist.
    """

    def __init__(self, store: Store, table_id: TableId, *, retained: int, share: Share) -> None:
        """Hold nothing yet; see ``TableState``."""
        self.table_id = table_id
        self.store = store
        self.current = CurrentHistory(retained, share)
        self.shared = SharedRecord(store, table_id) if isinstance(store, SharedStore) else None
        self.record = self.shared or TableRecord(store, table_id)
        self.missing = MissingPartitions()
        self._is_swept = False

    @property
    def is_closed(self) -> bool:
        """Whether nothing will be loaded again."""
        return self.record.is_closed

    @property
    def status(self) -> RecordStatus:
        """How the history stands to the record and to the timeline, at this moment."""
        return self.record.status

    @property
    def answered(self) -> History | None:
        """The history, if requests may be answered from it."""
        return self.current.value if self.status.answers else None

    @property
    def history(self) -> History:
        """The history of a table that was read, trusted or not."""
        history = self.current.value
        assert history is not None, "asked before the first sync"
        return history

    def recorded(self) -> Recorded | None:
        """Return what an earlier process recorded in the store; ``None`` if nothing.

        What crashes have left in the store is deleted once.

        Raises:
            RecordLostError: The record is damaged.
            StoreError: It can't be read.
        """
        recorded = self.record.read()
        if recorded is not None and not self._is_swept:
            try:
                self.record.sweep()
                self._is_swept = True
            except StoreError as exc:  # the next read, or process, tries again
                logger.warning("blobs that aren't needed stay in the store: %s", exc)
        return recorded

    def now(self) -> Recorded | None:
        """Return what would be recorded now, for another server; ``None`` if nothing is held."""
        held = self.answered
        if held is None:
            return None
        newest, record = held.newest, self.record
        versions = newest.files.versions
        # As in the record: nobody gains from remembering missing partitions.
        files = newest.files.without(self.missing.among(self.missing, versions))
        return Recorded(
            replace(newest, files=files), record.unfinished, record.must_list, record.outdated
        )

    def resume(self, recorded: Recorded, snapshot: Snapshot) -> None:
        """Go on from what was recorded; ``snapshot`` is that one with its completion times."""
        self.record.unfinished = recorded.unfinished
        self.record.must_list = self.record.must_list or recorded.must_list
        self.current.show(History((Link(snapshot, is_reload=True),)))
        self.missing = MissingPartitions()
        self.record.status = self.status.resumed()

    def restart(
        self,
        snapshot: Snapshot,
        reload: Reload | None = None,
        *,
        outdated: Snapshot | None = None,
        alone: bool = False,
    ) -> None:
        """Show a snapshot of the table read anew, from which no other can be derived.

        Args:
            snapshot: The snapshot, with no partition loaded.
            reload: Why the table could not be followed, if the snapshots before are still its own,
                and are kept; ``None``: they are dropped.
            outdated: The newest snapshot before the table was upgraded or replaced, if it was.
            alone: Whether to follow the table in memory for now, if others share the store.

        Raises:
            StoreBehindError: Other servers have recorded something since; nothing has changed.
            StoreError: It can't be recorded, and nothing has changed.
        """
        links: tuple[Link, ...] = ()
        if reload is not None and reload.undone is not None:
            links = self.history.barring(reload.undone, reload.lost).links
        before = self.record.outdated
        if outdated is not None:
            self.record.outdated = frozenset(map(key_of, outdated.active.completed()))
        # Recorded before it is shown: if the store fails, requests still get the old.
        try:
            self._save_anew(snapshot, alone=alone)
        except StoreError:
            self.record.outdated = before
            raise
        self.current.show(History(links).extended((Link(snapshot, is_reload=True),)))
        # Distrust that came while the table was read holds for links that are kept.
        self.record.status = self.status.restarted(keeps_links=bool(links))

    def _save_anew(self, snapshot: Snapshot, *, alone: bool) -> None:
        """Record a snapshot of the table read anew; errors as of ``restart``."""
        outdated = self.record.outdated
        try:
            self.record.save(snapshot, None, {}, alone=alone)
        except StoreBehindError:
            if self.status.distrusted is None:
                raise
            # Others may have recorded what isn't to be trusted either, or can't be read.
            with suppress(StoreError):
                self.record.read()
            self.record.outdated = outdated
            self.record.save(snapshot, None, {}, alone=alone)

    def publish(
        self,
        change: TimelineChange,
        config: TableConfig,
        completion: Callable[[Timeline], CompletionTimes],
        unclear: frozenset[str],
        *,
        old: Snapshot,
        alone: bool = False,
    ) -> Mapping[str, int]:
        """Show the snapshots that follow from what is new on the timeline.

        Args:
            change: What has changed on the timeline.
            config: The table's properties now.
            completion: Completion times seen from an active timeline.
            unclear: Partitions that must be listed again.
            old: The newest snapshot from which the change leads on.
            alone: Whether to follow the table in memory for now, if others share the store.

        Returns:
            Cause → how many partitions were loaded and must be listed again.

        Raises:
            StoreBehindError: Other servers have recorded something since; nothing has changed.
            StoreError: The new chunks could not be kept, and nothing has changed; or old ones can't
                be read, and the table isn't to be trusted.
        """
        if self.status.is_behind or self.history.newest is not old:
            raise StoreBehindError(f"{self.table_id}: another thread has adopted a change")
        news = () if self.shared is None else (journal_entry_of(change, unclear, old.active),)
        try:
            found = publication(
                self.history,
                change,
                config,
                completion,
                unfinished=self.record.unfinished,
                unclear=unclear,
                kept=self.current.most_links,
            )
        except StoreError as exc:
            # Old chunks that are lost stay so: no later sync could follow either.
            self.distrust_store(exc)
            raise
        # Recorded before it is shown: a failure changes nothing, a crash in between loses
        # nothing.
        self.record.save(
            found.history.newest,
            found.changed,
            found.unfinished,
            also=found.versions,
            news=news,
            alone=alone,
        )
        self.current.show(found.history)
        return found.dropped

    def lost(self, version: PartitionVersion, why: StoreError) -> None:
        """Distrust what is held if the newest snapshot may need the lost chunks of a version."""
        held = self.answered
        newest = None if held is None else held.newest.files.versions.get(version.partition)
        if newest is not None and newest.shares_with(version):
            self.distrust_store(why)

    def distrust_store(self, why: StoreError) -> None:
        """Have the table loaded anew, or its record read whole, as a chunk can't be read."""
        if self.is_closed:  # nothing was lost, and nothing will be loaded again
            return
        if self.shared is not None and not self.shared.is_damaged(why):
            # The record is others' too: it isn't given up as long as it may be right.
            self.fall_behind(why)
            return
        logger.warning("%s will be loaded anew: %s", self.table_id, why)
        self.record.status = self.status.distrusting("store-damaged")

    def fall_behind(self, why: Exception) -> None:
        """Answer nothing until the record was read whole and followed: it may be an old one."""
        text = why if isinstance(why, StrandlineError) else repr(why)
        logger.info("the record of %s is read whole: %s", self.table_id, text)
        self.record.status = self.status.fell_behind()
