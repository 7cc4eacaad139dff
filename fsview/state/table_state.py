"""``TableState``: the one owner of a table's state, in memory and in its store.

Others read the table's storage and pass in what they read. Each method here then computes the new
state, has the store keep what a restart needs, and publishes the result, all under one lock.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fsview.files.partition import PartitionVersion
from fsview.record.base import Record, Recorded, Saving
from fsview.snapshot.found_files import Arrived, Found, arrived, with_unfinished
from fsview.snapshot.history import History
from fsview.snapshot.history_link import Branch, Link, filled_bytes, known_bytes
from fsview.snapshot.next_history import publication
from fsview.snapshot.next_snapshot import still_taken_away
from fsview.snapshot.snapshot import LoadedFiles, Snapshot
from fsview.snapshot.timeline_change import Reload, TimelineChange, key_of
from fsview.state.current_history import CurrentHistory, Use
from fsview.state.missing_partitions import MissingPartitions
from fsview.store.budget import Share
from timeline.completion import CompletionTimes
from timeline.errors import StoreBehindError, StoreError
from timeline.instant import Instant
from timeline.storage.table_id import TableId
from timeline.table.config import TableConfig
from timeline.timeline import Timeline

if TYPE_CHECKING:  # a table without a record loads nothing of this
    from fsview.record.journal import Adopted, Told

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
        may_wait: Whether reading files that are held may wait for another machine or process.
        record: What the store keeps; only this class changes it. Others read its status, and take
            its ``turn``.
        current: The history that requests are answered from; others only take uses of snapshots.
        share: The bytes that are kept for clients. A caller that makes them grow calls
            ``make_room`` with no lock held.
    """

    def __init__(self, record: Record, table_id: TableId, *, retained: int, share: Share) -> None:
        """Hold nothing of a table yet.

        Args:
            record: Where chunks are kept, and where a restart finds the newest snapshot.
            table_id: The table.
            retained: How many snapshots are kept for clients that are behind.
            share: Of the account of what these take; ``close`` gives it back.
        """
        self.table_id = table_id
        self.loaded = LoadedMarks()
        self.may_wait = record.waits
        self._lock = threading.Lock()
        self.record, self.share = record, share
        self.current = CurrentHistory(retained, share)
        self._missing = MissingPartitions()
        share.give = self.drop_oldest

    # What is held.

    @property
    def held(self) -> History | None:
        """The history; ``None`` before the table was read, and while it isn't to be trusted."""
        return self.current.value if self.record.status.answers else None

    @property
    def followed(self) -> History | None:
        """The history that a sync continues from; ``None``: the table or its record must be read.

        Requests must not be answered from it until it has been followed to the timeline.
        """
        return self.current.value if self.record.status.goes_on else None

    @property
    def history(self) -> History:
        """The history of a table that was read, trusted or not."""
        history = self.current.value
        assert history is not None, "asked before the first sync"
        return history

    def use(self, find: Callable[[History], Snapshot | None]) -> Use | None:
        """Return a use of the snapshot that ``find`` finds in what is held, if any."""
        return None if self.held is None else self.current.use(find)

    def newest_versions(self) -> tuple[PartitionVersion, ...]:
        """Return the partitions held at the newest snapshot, in the order they were loaded in."""
        with self._lock:
            held = self.held
            return () if held is None else tuple(held.newest.files.versions.values())

    @property
    def missing_held(self) -> int:
        """Number of paths that are held as partitions at the newest snapshot and are none."""
        with self._lock:
            held, missing = self.held, self._missing
            files = {} if held is None else held.newest.files.versions
            return len(missing.among(missing, files))

    def missing_among(self, paths: Iterable[str]) -> set[str]:
        """Return those of some paths that are remembered as no partitions."""
        with self._lock:
            versions = self.history.newest.files.versions
            return self._missing.among(paths, versions)

    def partitions_at(self, snapshot: Snapshot) -> tuple[set[str], set[str]]:
        """Return the partitions loaded at a snapshot, and those of them that certainly exist.

        Whether an empty one does, only storage says: a clean may have deleted it.
        """
        with self._lock:
            versions = snapshot.files.versions
            filled = (partition for partition, held in versions.items() if not held.is_empty)
            return set(versions), {path for path in filled if path not in self._missing}

    # Following the timeline.

    def recorded(self) -> Recorded | None:
        """Return what an earlier process recorded in the store; ``None`` if nothing.

        What crashes have left in the store is deleted once.

        Raises:
            RecordLostError: The record is damaged.
            StoreError: It can't be read.
        """
        with self._lock:
            recorded = self.record.read()
            self.record.sweep()
            return recorded

    def recordable(self) -> Recorded | None:
        """Return what would be recorded now, for another server; ``None`` if nothing is held."""
        with self._lock:
            held = self.held
            if held is None:
                return None
            newest, record = held.newest, self.record
            versions = newest.files.versions
            # As in the record: remembering missing partitions gains nothing.
            files = newest.files.without(self._missing.among(self._missing, versions))
            return Recorded(
                replace(newest, files=files), record.unfinished, record.must_list, record.outdated
            )

    def take(self, pieces: Iterable[bytes], most_bytes: int) -> None:
        """Record what another server has sent, as ``recorded`` returns it from now on.

        To be called before the table is read first. Chunks go to the store as they come.

        Args:
            pieces: The stream (``fsview.record.stream``).
            most_bytes: As of ``Record.received``, as are the errors.
        """
        recorded = self.record.received(pieces, most_bytes)
        with self._lock:
            assert self.current.value is None, "taken after the first sync"
            self.record.take(recorded)

    def resume(self, recorded: Recorded, snapshot: Snapshot) -> None:
        """Continue from what was recorded; ``snapshot`` is that one with its completion times."""
        with self._lock:
            self.record.unfinished = recorded.unfinished
            self.record.must_list = self.record.must_list or recorded.must_list
            self.current.show(History((Link(snapshot, is_reload=True),)))
            self._missing = MissingPartitions()
            self.record.status = self.record.status.resumed()

    def caught_up(self) -> None:
        """Answer requests again: the state that was read whole was followed to the timeline."""
        with self._lock:
            self.record.status = self.record.status.caught_up()

    def warn(self, why: StoreError) -> None:
        """Log once that the table is followed in memory."""
        with self._lock:
            self.record.warn(why)

    def store_status(self) -> dict[str, Any]:
        """Return figures about the store, fit for JSON."""
        record = self.record
        waiting_bytes = record.spare_bytes
        return {**record.figures(), "failure": record.failure, "waiting_bytes": waiting_bytes}

    def save_rest(self) -> bool:
        """Have the store keep what was kept in memory; return whether nothing is left."""
        with self._lock:
            if self.held is not None:
                try:
                    self.record.save_rest(self.history.newest)
                except StoreBehindError as exc:
                    self._fall_behind(exc)
                except StoreError as exc:
                    logger.debug("%s is still followed in memory: %s", self.table_id, exc)
            return self.record.failure is None

    def told(self, *, whole: bool) -> Told | None:
        """Return what other servers that share the store have recorded since.

        ``None`` if they recorded nothing, or if it doesn't follow from the history.

        Args:
            whole: Whether to give up the history then, and to read the record whole.

        Raises:
            StoreError: It can't be read.
        """
        with self._lock:
            if not self.record.status.goes_on or self.current.value is None:
                return None
            try:
                return self.record.told(self.history.newest)
            except StoreBehindError as exc:
                if whole:
                    self._fall_behind(exc)
                return None

    def adopt(
        self, told: Told, completion: Callable[[Timeline], CompletionTimes], *, whole: bool
    ) -> Adopted | None:
        """Show the snapshots that others have recorded; ``None`` if that isn't possible.

        Args:
            told: What ``told`` returned.
            completion: Completion times seen from an active timeline.
            whole: As for ``told``.
        """
        with self._lock:
            found = None
            if self.record.status.goes_on:
                found = self._adopted(told, completion, whole=whole)
        self.record.collect_many()
        return found

    def restart(
        self,
        snapshot: Snapshot,
        reload: Reload | None = None,
        *,
        outdated: Snapshot | None = None,
        alone: bool = False,
    ) -> None:
        """Publish a snapshot of a table that was read from scratch; no other follows from it.

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
        with self._lock:
            links: tuple[Link, ...] = ()
            undone: Collection[Instant] = ()
            if reload is not None and reload.undone is not None:
                undone = reload.undone
                links = self.history.barring(undone, reload.lost).links
            held = self.current.value
            if held is not None and outdated is None:
                # Its files may be listed as those of a write in flight.
                times = still_taken_away(held.newest, undone, snapshot.active)
                snapshot = replace(snapshot, taken_away=times)
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
            self.record.status = self.record.status.restarted(keeps_links=bool(links))
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
        with self._lock:
            if self.record.status.is_behind or self.history.newest is not old:
                raise StoreBehindError(f"{self.table_id}: another thread has adopted a change")
            news = self.record.news_of(change, unclear, old.active)
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
                self._distrust_store(exc)
                raise
            # Recorded before it is shown: a failure changes nothing, a crash in between loses
            # nothing.
            newest = found.history.newest
            saving = Saving(newest, found.changed, found.unfinished, found.versions, news)
            self.record.save(saving, alone=alone)
            self.current.show(found.history)
            return found.dropped

    def branch_off(self, branch: Branch) -> Use | None:
        """Keep a branch, whose start is in use; ``None`` when it leads nowhere any more."""
        with self._lock:
            # It may have been barred or reloaded while the steps were read.
            if not self.history.can_derive_from(branch.onto):
                return None
            # Under the lock, so that no other change drops the branch before it is in use.
            use = self.current.use_of(branch.start)
            self.current.show(self.history.with_branch(branch))
        self.share.make_room()
        return use

    # Distrust.

    def distrust(self, cause: str) -> None:
        """Answer no request until a restart, and list partitions from now on."""
        with self._lock:
            self.record.status = self.record.status.distrusting(cause)
            self.record.must_list = True

    def require_listing(self) -> None:
        """Have partitions listed from now on."""
        with self._lock:
            self.record.must_list = True

    def lost(self, version: PartitionVersion, why: StoreError) -> None:
        """Distrust the state if the newest snapshot may need the lost chunks of a version."""
        with self._lock:
            held = self.held
            newest = None if held is None else held.newest.files.versions.get(version.partition)
            if newest is not None and newest.shares_with(version):
                self._distrust_store(why)

    # Filling in.

    def fill(self, found: Found, absent: Collection[str], *, alone: bool = False) -> Arrived | None:
        """Fill the newest snapshot with what a load found; see ``fsview.snapshot.found_files``.

        ``None`` if that can't be brought forward to it.

        Args:
            found: What was found.
            absent: The paths among it that are no partitions.
            alone: Whether to keep it in memory for now, if others share the store.

        Raises:
            StoreBehindError: Other servers have recorded something since; nothing has changed.
            StoreError: It can't be recorded or brought forward, and nothing has changed.
        """
        with self._lock:
            filling = arrived(self.history, found) if self.record.status.is_followed else None
            if filling is None:
                return None
            newest = self.history.newest
            # A copy: readers take no lock, and must not see what isn't recorded yet.
            files = newest.files.versions.fork()
            files.update({version.partition: version for version in filling.versions})
            missing, forgotten = self._missing.updated(filling.versions, absent, files)
            for partition in forgotten:
                del files[partition]
            known = newest.files.known if filling.known is None else filling.known
            # A restart gains nothing from remembering missing partitions.
            kept = (v for v in filling.versions if not (v.is_empty and v.partition in absent))
            touched = {*(v.partition for v in kept), *forgotten}
            unfinished = with_unfinished(self.record.unfinished, filling.versions, newest)
            filled = replace(newest, files=LoadedFiles(files, known))
            self.record.save(Saving(filled, touched, unfinished, filling.at_start), alone=alone)
            newest.files.versions, newest.files.known = files, known
            for version in filling.at_start:
                self._fill_older(found.start, version)
            # Set only now, as the record could fail.
            self._missing = missing
            self.loaded.unmark(forgotten)
            return filling

    def derive(self, snapshot: Snapshot, partition: str) -> PartitionVersion | None:
        """Fill in a partition from what a later snapshot has of it; ``None`` if none has.

        Raises:
            StoreError: That can't be read, and the table isn't to be trusted; or what is found
                can't be kept.
        """
        with self._lock:
            history = self.history
            try:
                found = history.derived(snapshot, partition, snapshot.config.base_extensions)
            except StoreError as exc:
                self._distrust_store(exc)
                raise
            # Only the newest snapshot has missing partitions, as they are forgotten there alone.
            if found is not None and not (found.is_empty and partition in self._missing):
                self._fill_older(snapshot, found)
        self.share.make_room()
        return found

    def fill_known(self, snapshot: Snapshot, known: frozenset[str]) -> None:
        """Fill in which partitions the table has at a kept snapshot."""
        with self._lock:
            if snapshot.files.known is None:
                snapshot.files.known = known
                self.current.count_filled(
                    snapshot, known_bytes(known, self.history.newest.files.known)
                )
        self.share.make_room()

    # What it takes.

    def drop_oldest(self) -> int | None:
        """See ``CurrentHistory.drop_oldest``; ``None`` also while the state is being changed."""
        if not self._lock.acquire(blocking=False):  # the budget's lock is held: never wait here
            return None
        try:
            freed = self.current.drop_oldest(in_memory=not self.record.lasts)
        finally:
            self._lock.release()
        self.record.collect()
        return freed

    def close(self) -> None:
        """Count nothing more as kept for clients, and close the store."""
        # Before the lock, whose holder may be about to wait for the store.
        self.record.end()
        with self._lock:
            # Under the lock, so that no change of the history counts bytes again.
            self.share.close()
            self.record.release()
        self.record.close()

    # Under the lock.

    def _adopted(
        self, told: Told, completion: Callable[[Timeline], CompletionTimes], *, whole: bool
    ) -> Adopted | None:
        """Show the snapshots that others have recorded; as ``adopt``."""
        record, kept = self.record, self.current.most_links
        try:
            found = record.adopted(self.history, told, completion, kept=kept)
        except StoreBehindError as exc:
            if whole:
                self._fall_behind(exc)
            return None
        if found is None:  # another thread has adopted it
            return None
        newest = found.history.newest
        newest.files.versions, newest.files.known = found.files.versions, found.files.known
        record.adopt(told, newest, found.unshown)
        self.current.show(found.history)
        record.keep(*found.versions)
        return found

    def _save_anew(self, snapshot: Snapshot, *, alone: bool) -> None:
        """Record a snapshot of a table that was read from scratch; errors as ``restart``."""
        outdated = self.record.outdated
        try:
            self.record.save(Saving(snapshot, None, {}), alone=alone)
        except StoreBehindError:
            if self.record.status.distrusted is None:
                raise
            # Others may have recorded what isn't to be trusted either, or can't be read.
            with suppress(StoreError):
                self.record.read()
            self.record.outdated = outdated
            self.record.save(Saving(snapshot, None, {}), alone=alone)

    def _distrust_store(self, why: StoreError) -> None:
        """Have the table reloaded, or its record read whole, as a chunk can't be read."""
        if self.record.is_closed:  # nothing was lost, and nothing will be loaded again
            return
        if not self.record.is_damaged(why):
            # Other servers use the record, too: it is kept as long as it may be right.
            self._fall_behind(why)
            return
        logger.warning("%s will be loaded anew: %s", self.table_id, why)
        self.record.status = self.record.status.distrusting("store-damaged")

    def _fall_behind(self, why: StoreError) -> None:
        """Answer no request until the record was read whole and followed: it may be old."""
        logger.info("the record of %s is read whole: %s", self.table_id, why)
        self.record.status = self.record.status.fell_behind()

    def _fill_older(self, snapshot: Snapshot, found: PartitionVersion) -> None:
        """Fill in a partition at a kept snapshot.

        Raises:
            StoreError: It can't be kept, and nothing has changed.
        """
        self.record.keep(found)
        # Another thread may have filled it in since, and counted it.
        if found.partition not in snapshot.files.versions:
            newest = self.history.newest.files.versions.get(found.partition)
            self.current.count_filled(snapshot, filled_bytes(found, newest))
        snapshot.files.versions[found.partition] = found


class LoadedMarks:
    """The partitions of a table that count as loaded: some queries cover only those, as Hudi's do.

    ``_lock`` guards them, and no other lock is taken within it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._partitions: set[str] = set()

    def mark(self, partitions: Collection[str]) -> None:
        """Count partitions as loaded."""
        # Nearly always they do already, and a hot request takes no lock then.
        if not self._partitions.issuperset(partitions):
            with self._lock:
                self._partitions.update(partitions)

    def unmark(self, partitions: Collection[str]) -> None:
        """Count partitions as not loaded."""
        with self._lock:
            self._partitions.difference_update(partitions)

    def clear(self) -> None:
        """Count no partition as loaded; the files that are held stay."""
        with self._lock:
            self._partitions.clear()

    def in_order(self) -> list[str]:
        """Return the partitions, sorted."""
        with self._lock:
            return sorted(self._partitions)
