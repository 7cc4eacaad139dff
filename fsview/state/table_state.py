"""``TableState``: the one owner of what is held of a table, in memory and in its store.

Others read the table's storage and hand in what they read; each verb here then computes, has the
store keep what a restart needs, and shows the outcome, all under one lock. What they do is in
``HeldTable``, ``fsview.state.filled_snapshot`` and ``fsview.state.sharing``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext

from fsview.files.partition import PartitionVersion
from fsview.snapshot.catch_up import Arrived, Found
from fsview.snapshot.history import History
from fsview.snapshot.history_link import Branch
from fsview.snapshot.snapshot import Snapshot
from fsview.snapshot.timeline_change import Reload, TimelineChange
from fsview.state import filled_snapshot, sharing
from fsview.state.adoption import Adopted, Told
from fsview.state.current_history import Use
from fsview.state.held_table import HeldTable
from fsview.state.loaded_marks import LoadedMarks
from fsview.state.record_rows import Recorded
from fsview.state.record_status import RecordStatus
from fsview.state.record_stream import items_of, received
from fsview.store.base import Store
from fsview.store.budget import Share
from timeline.completion import CompletionTimes
from timeline.errors import StoreBehindError, StoreError
from timeline.storage.table_id import TableId
from timeline.table.config import TableConfig
from timeline.timeline import Timeline

logger = logging.getLogger(__name__)


class TableState:
    """The state of one table; safe to use from several threads.

    ``_lock`` guards the change of the history, the filling of ``Snapshot.files``, and all that is
    recorded with them. It is held for computation and for the store, never for a call to the
    table's storage, and no reader of a snapshot takes it. The locks of the store, of
    ``CurrentHistory`` and of ``LoadedMarks`` come after it.

    Attributes:
        table_id: The table.
        loaded: The partitions that count as loaded.
    """

    def __init__(self, store: Store, table_id: TableId, *, retained: int, share: Share) -> None:
        """Hold nothing of a table yet.

        Args:
            store: Where chunks are kept, and where a restart finds the newest snapshot.
            table_id: The table.
            retained: How many snapshots are kept for clients that are behind.
            share: Of the account of what these take; ``close`` gives it back.
        """
        self.table_id = table_id
        self.loaded = LoadedMarks()
        self._lock = threading.Lock()
        self._table = HeldTable(store, table_id, retained=retained, share=share)
        self._store, self._share = store, share

    # What is held.

    @property
    def held(self) -> History | None:
        """The history; ``None`` before the table was read, and while it isn't to be trusted."""
        return self._table.answered

    @property
    def followed(self) -> History | None:
        """The history that a sync goes on from; ``None`` if the table or its record is to be read.

        Nothing may be answered from it before it was followed.
        """
        return self._table.current.value if self.status.goes_on else None

    @property
    def history(self) -> History:
        """The history of a table that was read, trusted or not."""
        return self._table.history

    @property
    def status(self) -> RecordStatus:
        """How the history stands to the record and to the timeline, at this moment."""
        return self._table.record.status

    @property
    def outdated(self) -> frozenset[tuple[str, str]]:
        """(Requested time, action) of what had completed when the table was upgraded last."""
        return self._table.record.outdated

    @property
    def is_closed(self) -> bool:
        """Whether nothing will be loaded again, as its store was closed."""
        return self._table.is_closed

    @property
    def must_list(self) -> bool:
        """Whether partitions must be listed, since storage isn't what metadata says."""
        return self._table.record.must_list

    def use(self, find: Callable[[History], Snapshot | None]) -> Use | None:
        """Return a use of the snapshot that ``find`` finds in what is held, if any."""
        return None if self.held is None else self._table.current.use(find)

    def using(self, snapshot: Snapshot) -> AbstractContextManager[Snapshot]:
        """Keep the links from a snapshot to the newest within a block."""
        return self._table.current.using(snapshot)

    def newest_versions(self) -> tuple[PartitionVersion, ...]:
        """Return the partitions held at the newest snapshot, in the order they were loaded in."""
        with self._lock:
            held = self.held
            return () if held is None else tuple(held.newest.files.versions.values())

    @property
    def missing_held(self) -> int:
        """Number of paths that are held as partitions at the newest snapshot and are none."""
        with self._lock:
            held, missing = self.held, self._table.missing
            files = {} if held is None else held.newest.files.versions
            return len(missing.among(missing, files))

    def missing_among(self, paths: Iterable[str]) -> set[str]:
        """Return those of some paths that are remembered as no partitions."""
        with self._lock:
            versions = self.history.newest.files.versions
            return self._table.missing.among(paths, versions)

    def partitions_at(self, snapshot: Snapshot) -> tuple[set[str], set[str]]:
        """Return the partitions loaded at a snapshot, and those of them that certainly exist.

        Whether an empty one does, only storage says: a clean may have deleted it.
        """
        with self._lock:
            versions = snapshot.files.versions
            filled = (partition for partition, held in versions.items() if not held.is_empty)
            return set(versions), {path for path in filled if path not in self._table.missing}

    # Following the timeline.

    def recorded(self) -> Recorded | None:
        """See ``HeldTable.recorded``."""
        with self._lock:
            return self._table.recorded()

    def record(self) -> Recorded | None:
        """Return what would be recorded now, for another server; ``None`` if nothing is held."""
        with self._lock:
            return self._table.now()

    def take(self, pieces: Iterable[bytes], most_bytes: int) -> None:
        """Record what another server has sent, as ``recorded`` returns it from now on.

        To be called before the table is read first. Chunks go to the store as they come.

        Args:
            pieces: The stream (``fsview.state.record_stream``).
            most_bytes: As of ``items_of``.

        Raises:
            BadAnswerError: It is too long, torn, damaged, or of another table or release. Nothing
                has changed, then as with the other errors.
            StoreError: The store can't keep it.
            ServiceError: As ``pieces``.
        """
        recorded = received(items_of(pieces, most_bytes), self.table_id, self._store)
        with self._lock:
            assert self._table.current.value is None, "taken after the first sync"
            self._table.record.take(recorded)

    def resume(self, recorded: Recorded, snapshot: Snapshot) -> None:
        """Go on from what was recorded; ``snapshot`` is that one with its completion times."""
        with self._lock:
            self._table.resume(recorded, snapshot)

    def caught_up(self) -> None:
        """Answer from what is held again: what was read whole was followed to the timeline."""
        with self._lock:
            self._table.record.status = self.status.caught_up()

    def turn(self) -> AbstractContextManager[object]:
        """Wait until no other server that shares the store reads what is new, but not for long.

        The others wait within the block; what they had recorded before is to be adopted there.

        Raises:
            StoreError: The store can't be asked; not at the end of the block.
        """
        return nullcontext() if self._table.shared is None else self._table.shared.turn()

    def warn(self, why: StoreError) -> None:
        """Log once that the table is followed in memory."""
        with self._lock:
            self._table.record.warn(why)

    @property
    def failure(self) -> str | None:
        """Why the table is followed in memory; ``None``: it isn't."""
        return self._table.record.failure

    @property
    def spare_bytes(self) -> int:
        """Size of the chunks that are kept in memory as the store can't take them."""
        return self._table.record.spare_bytes

    def save_rest(self) -> bool:
        """Have the store keep what was kept in memory; return whether nothing is left."""
        with self._lock:
            if self._table.answered is not None:
                try:
                    self._table.record.save_rest(self._table.history.newest)
                except StoreBehindError as exc:
                    self._table.fall_behind(exc)
                except StoreError as exc:
                    logger.debug("%s is still followed in memory: %s", self.table_id, exc)
            return self.failure is None

    def told(self, *, whole: bool) -> Told | None:
        """See ``fsview.state.sharing.told``."""
        with self._lock:
            return sharing.told(self._table, whole=whole)

    def adopt(
        self, told: Told, completion: Callable[[Timeline], CompletionTimes], *, whole: bool
    ) -> Adopted | None:
        """See ``fsview.state.sharing.adopt``."""
        with self._lock:
            found = sharing.adopt(self._table, told, completion, whole=whole)
        if self._table.shared is not None:
            self._table.shared.collect_many()
        return found

    def restart(
        self,
        snapshot: Snapshot,
        reload: Reload | None = None,
        *,
        outdated: Snapshot | None = None,
        alone: bool = False,
    ) -> None:
        """See ``HeldTable.restart``."""
        with self._lock:
            self._table.restart(snapshot, reload, outdated=outdated, alone=alone)
        if outdated is not None:
            self.loaded.clear()

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
        """See ``HeldTable.publish``."""
        with self._lock:
            return self._table.publish(change, config, completion, unclear, old=old, alone=alone)

    def branch_off(self, branch: Branch) -> Use | None:
        """Keep a branch, whose start is in use; ``None`` when it leads nowhere any more."""
        with self._lock:
            # It may have been barred or reloaded while the steps were read.
            if not self.history.can_derive_from(branch.onto):
                return None
            # Under the lock, so that no other change drops the branch before it is in use.
            use = self._table.current.use_of(branch.start)
            self._table.current.show(self.history.with_branch(branch))
        self.make_room()
        return use

    # Distrust.

    def distrust(self, cause: str) -> None:
        """Answer nothing from what is held until a restart, and list from now on."""
        with self._lock:
            self._table.record.status = self.status.distrusting(cause)
            self._table.record.must_list = True

    def require_listing(self) -> None:
        """Have partitions listed from now on."""
        with self._lock:
            self._table.record.must_list = True

    def lost(self, version: PartitionVersion, why: StoreError) -> None:
        """Distrust what is held if the newest snapshot may need the lost chunks of a version."""
        with self._lock:
            self._table.lost(version, why)

    # Filling in.

    def fill(self, found: Found, absent: Collection[str], *, alone: bool = False) -> Arrived | None:
        """See ``fsview.state.filled_snapshot.fill``."""
        with self._lock:
            filled = filled_snapshot.fill(self._table, found, absent, alone=alone)
        if filled is None:
            return None
        self.loaded.unmark(filled.forgotten)
        return filled.arrived

    def derive(self, snapshot: Snapshot, partition: str) -> PartitionVersion | None:
        """See ``fsview.state.filled_snapshot.derive``."""
        with self._lock:
            found = filled_snapshot.derive(self._table, snapshot, partition)
        self.make_room()
        return found

    def fill_known(self, snapshot: Snapshot, known: frozenset[str]) -> None:
        """Fill in which partitions the table has at a kept snapshot."""
        with self._lock:
            filled_snapshot.fill_known(self._table, snapshot, known)
        self.make_room()

    # What it takes.

    def make_room(self) -> None:
        """Have the budget kept again after growth; call it with no lock held."""
        self._share.make_room()

    def drop_oldest(self) -> int | None:
        """See ``CurrentHistory.drop_oldest``; ``None`` also while the state is being changed."""
        if not self._lock.acquire(blocking=False):  # the budget's lock is held: never wait here
            return None
        try:
            freed = self._table.current.drop_oldest(in_memory=not self._store.lasts)
        finally:
            self._lock.release()
        self._table.record.collect()
        # Of a shared store the next commit does it: waiting for its database here would have all
        # tables wait.
        if self._table.shared is None:
            self._store.collect()
        return freed

    def close(self) -> None:
        """Count nothing more as kept for clients, and close the store."""
        # Before the lock, whose holder may be about to wait for the store.
        self._table.record.is_closed = True
        self._store.interrupt()
        with self._lock:
            # Under the lock, so that no change of the history counts bytes again.
            self._share.close()
            self._table.record.close()
        self._store.close()
