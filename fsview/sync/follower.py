"""``TimelineFollower``: keeps one table's history in step with its timeline.

The history is one immutable value, swapped by one reference under a lock that no reader takes. I/O
is done outside the lock: a sync lists and reads, then publishes all its snapshots at once. What
fails on the way leaves the state as it was: the error goes to those who asked, and the next request
tries again.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final, TypeVar

from fsview.files.partition import PartitionVersion
from fsview.gathering import Gathering
from fsview.metrics import Metrics
from fsview.single_flight import Shared, SingleFlight
from fsview.snapshot.difference import key_of
from fsview.snapshot.hash_search import Questions
from fsview.snapshot.history import FOLLOWED, History
from fsview.snapshot.in_use import SnapshotsInUse, Use
from fsview.snapshot.link import Branch, Link, walked
from fsview.snapshot.next_snapshot import settled
from fsview.snapshot.retained_bytes import filled_bytes, known_bytes
from fsview.snapshot.snapshot import Snapshot
from fsview.snapshot.step import Step
from fsview.store.base import Store
from fsview.store.budget import Share
from fsview.sync.branch import read_branch, shared_branch
from fsview.sync.plan_reader import snapshot_of
from fsview.sync.saved_state import Resumed, SavedTable
from fsview.sync.timeline_diff import News, Reload, read_news
from timeline.clock import Clock
from timeline.completion import CompletionTimes
from timeline.errors import InstantNotFoundError, StoreError
from timeline.meta_client import TableMetaClient
from timeline.storage.base import FileInfo, Storage
from timeline.storage.table_id import TableId
from timeline.table.config import CONFIG_PATH
from timeline.timeline import Timeline

T = TypeVar("T")

logger = logging.getLogger(__name__)

SPARED: Final = 8
"""So many snapshots of each table stay however short memory is: who is a few commits behind is
answered without a read, and no room can be made with them where packed files take it."""

ATTEMPTS: Final = 4
"""How often something is begun anew when the table changes under it in a way that can't be
followed."""


class TimelineFollower:
    """One table's history; safe to use from several threads.

    ``lock`` guards the swap of the history, the filling of ``Snapshot.files``, ``_suspect`` (why
    the history is not to be trusted) and ``unfinished``, which says for an instant in flight which
    partitions were listed with files of it; it is held for computation and for the store, never
    while the table's storage is called. The lock of ``_in_use`` comes after it.

    Attributes:
        must_list: Whether partitions are to be listed even where reading metadata would pay, since
            storage was found not to be what it says.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        metrics: Metrics,
        clock: Clock,
        retained: int,
        store: Store,
        on_another_table: Callable[[], None],
        share: Share | None = None,
    ) -> None:
        """Follow no table yet.

        Args:
            storage: The table's storage.
            metrics: Where to count.
            clock: To time syncs by.
            retained: How many snapshots are kept.
            store: Where chunks lie, and where a restart finds the newest snapshot.
            on_another_table: Called when another table has come to lie at this path.
            share: Of the account of what is kept for clients that are behind; ``close`` gives it
                back.
        """
        self._share = share or Share.unbounded()
        self.storage = storage
        self.table_id = TableId.of(storage.base_path)
        self.lock = threading.Lock()
        self.unfinished: dict[str, set[str]] = defaultdict(set)
        self._metrics = metrics
        self._clock = clock
        self._retained = retained
        self.saved = SavedTable(store, self.table_id)
        self._on_another_table = on_another_table
        self._history: History | None = None
        self._suspect: str | None = None
        self._in_use = SnapshotsInUse()
        self.must_list = False
        self._client: TableMetaClient | None = None
        self._properties: FileInfo | None = None
        self._syncs: SingleFlight[Snapshot] = SingleFlight()
        self._gathering = Gathering(clock)
        self._reaching: Shared[Use | None] = Shared()
        self._questions = Questions()

    @property
    def held(self) -> History | None:
        """The history; ``None`` before the first sync, and while it is not to be trusted."""
        return None if self._suspect is not None else self._history

    @property
    def history(self) -> History:
        """The history, of a table that was read."""
        assert self._history is not None, "asked before the first sync"
        return self._history

    def newest(self) -> Snapshot:
        """Return the newest snapshot held; the table is read on first use."""
        history = self.held
        return self.sync() if history is None else history.newest

    def loading(self) -> AbstractContextManager[Snapshot]:
        """Give a load the newest snapshot, and keep the way from there for as long as it lasts."""
        return self._in_use.using(self.newest())

    def using(self, snapshot: Snapshot) -> AbstractContextManager[Snapshot]:
        """Keep the way from a snapshot, if there is one, for as long as a block lasts."""
        return self._in_use.using(snapshot)

    def use(self, last_instant: str, timeline_hash: str) -> Use | None:
        """Return a use of the snapshot that a client means, ``None`` when it isn't kept."""
        with self._in_use.lock:
            history = self.held
            found = None if history is None else history.meant(last_instant, timeline_hash)
            return None if found is None else self._in_use.begin(found)

    def use_without_last_clean(self, timeline_hash: str) -> Use | None:
        """Return a use of the newest snapshot if a client lacks only the clean at its end."""
        with self._in_use.lock:
            found = self.history.without_last_clean(timeline_hash)
            return None if found is None else self._in_use.begin(found)

    def client_for(self, cause: str) -> TableMetaClient:
        """Return the table's client with its storage calls booked under ``cause``."""
        assert self._client is not None, "asked before the first sync"
        return self._client.for_cause(cause)

    def count(self, name: str, amount: int = 1, **labels: str) -> None:
        """Add to a counter of this table."""
        self._metrics.add(name, amount, table=str(self.table_id), **labels)

    # Syncs: one at a time.

    def sync(self, *, since: int | None = None) -> Snapshot:
        """Return the snapshot of the timeline as it is now; callers share one run.

        Args:
            since: What ``gathered`` told the caller, for whom a run that began after that will do.
        """
        newest = self._syncs.run(self._sync, since=since)
        self._share.make_room()
        return newest

    def gathered(self, work: Callable[[], T]) -> tuple[T, int]:
        """Return what some work returns, and since when a sync may have begun that comes after it.

        Callers who work at the same time go on together (``fsview.gathering``), and so share one.
        """
        return self._gathering.run(lambda: (work(), self._syncs.begun))

    def reload(self, cause: str) -> Snapshot:
        """Load the table anew, since what is held isn't what lies on storage.

        Nobody is answered from what was held any more: not if storage fails here either, for then
        every request syncs, and so tries again.

        Args:
            cause: What to count the reload under.

        Raises:
            StorageError: The table can't be read for now.
        """
        with self.lock:
            self._suspect, self.must_list = cause, True
        return self.sync()

    def lost(self, version: PartitionVersion, why: StoreError) -> None:
        """Have the table loaded anew with the next request, if the newest snapshot may need it.

        Args:
            version: Which the store can't give back.
            why: What it raised.
        """
        with self.lock:
            held = self.held
            newest = None if held is None else held.newest.files.versions.get(version.partition)
            if newest is not None and newest.shares_with(version):
                self.distrust(why)

    def distrust(self, why: StoreError) -> None:
        """Have the table loaded anew with the next request; with the lock held."""
        logger.warning("%s will be loaded anew: %s", self.table_id, why)
        self._suspect = "store-damaged"

    def _sync(self) -> Snapshot:
        started = self._clock.monotonic()
        for attempt in range(ATTEMPTS):
            try:
                if self._history is None:
                    if not self._resume():
                        self._start()
                elif self._suspect is not None:
                    cause = self._suspect
                    self._start()
                    self.count("reloads", cause=cause)
                else:
                    self._follow(self._history)
            except InstantNotFoundError:
                # It was rolled back or archived between the listing and the read: look again.
                if attempt == ATTEMPTS - 1:
                    raise
            else:
                break
        self.count("syncs")
        self.count("sync_us", int((self._clock.monotonic() - started) * 1_000_000))
        return self.history.newest

    def _start(self, reload: Reload | None = None) -> None:
        """Read the table from nothing; keep what may still answer clients that are behind."""
        properties = self._stat_properties("table")
        client = TableMetaClient.open(self.storage)
        snapshot = snapshot_of(client)
        with self.lock:
            kept: tuple[Link, ...] = ()
            if reload is not None and reload.undone is not None:
                kept = self.history.barring(reload.undone, reload.lost).links
            elif reload is not None:
                self._outdate(self.history.newest)
            self.saved.save_anew(snapshot, must_list=self.must_list)
            self._client, self._properties = client, properties
            self._swap(History(kept).extended((Link(snapshot, anew=True),)))
            self.unfinished.clear()
            if not kept:
                self._suspect = None
        if reload is not None and reload.undone is None:
            self._on_another_table()

    def _resume(self) -> bool:
        """Go on from what an earlier process saved, if that is still of this table.

        The table is then followed from there: nothing is listed but its timeline.
        """
        resumed = self._saved()
        if resumed is None:
            return False
        properties = self._stat_properties("table")
        client = TableMetaClient.open(self.storage)
        then = resumed.snapshot
        if client.config.version != then.config.version:
            self._outdate(then)
            self.count("reloads", cause="table-upgraded")
            return False
        completion = client.completion_times(then.active)
        snapshot = replace(then, config=client.config, completion=completion)
        with self.lock:
            self._client, self._properties = client, properties
            self.unfinished.update(resumed.unfinished)
            self.must_list = resumed.must_list
            self._swap(history := History((Link(snapshot, anew=True),)))
        self.count("partition_loads", len(snapshot.files.versions), source="record")
        self._follow(history)
        return True

    def _saved(self) -> Resumed | None:
        """Return what an earlier process saved, if it can be read."""
        with self.lock:
            try:
                resumed = self.saved.resume()
            except StoreError as exc:
                logger.warning(
                    "%s is loaded anew, as what was saved is lost: %s", self.table_id, exc
                )
                self.count("reloads", cause="store-damaged")
                return None
            try:
                self.saved.sweep()
            except StoreError as exc:  # the next process tries again
                logger.warning("what nobody needs stays in the store: %s", exc)
        return resumed

    def _outdate(self, before: Snapshot) -> None:
        """Note what had completed before the table was upgraded or written anew."""
        self.saved.outdated = frozenset(map(key_of, before.active.completed()))

    def _follow(self, history: History) -> None:
        """Bring the history up to the timeline as it is now."""
        client = self.client_for("sync")
        old = history.newest
        active = client.active_timeline().sharing(old.active)
        if active == old.active:
            return
        properties = self._stat_properties("sync")
        if properties != self._properties:
            client = TableMetaClient.open(self.storage, cause="sync")
        news: News | Reload = Reload("table-upgraded")
        if client.config.version == old.config.version:
            news = read_news(client, old, active)
        if isinstance(news, News):
            with self.lock:  # what it had written may still be there, and no instant names it
                self.must_list = self.must_list or bool(news.unexplained)
            unclear = history.touched_by(news.unexplained)
            if unclear is not None:
                self.count("sync_instants", news.completed)
                self._publish(client, news, {"instant-vanished": unclear})
                self._properties = properties
                return
            news = Reload("instant-vanished", news.undone, news.lost)
        self._start(news)
        self.count("reloads", cause=news.cause)

    def _stat_properties(self, cause: str) -> FileInfo | None:
        """Return what shows whether the properties were written anew: by an upgrade, say."""
        return self.storage.for_cause(cause).stat(CONFIG_PATH)

    def _publish(
        self, client: TableMetaClient, news: News, unclear: Mapping[str, frozenset[str]]
    ) -> None:
        """Make the snapshots of the steps, of as many as are kept, and swap them all in.

        Args:
            client: The table as it is now.
            news: What happened.
            unclear: Partitions that are to be listed again, by cause.

        Raises:
            StoreError: The new chunks could not be kept, and all is as it was; or old ones can't be
                read, and the table is loaded anew the next time.
        """
        with self.lock:
            first = replace(self.history.newest, config=client.config)

            def completion(active: Timeline) -> CompletionTimes:
                return client.completion_times(active, first.completion)

            kept = max(self._retained, FOLLOWED)  # the oldest may be in use by the time they swap
            try:
                links = list(walked(first, news.steps, completion, self._leftovers, kept=kept))
                walked_to = links[-1].snapshot if links else first
                last = settled(walked_to, news.active, completion(news.active), news.replaced)
                walked_to.hash_like(self.history.newest)
                last.hash_like(walked_to)
                left, ended = self._left_behind(news, last)
            except StoreError as exc:
                self.distrust(exc)
                raise
            touched = {p for step in news.steps for p in (*step.touched, *self._leftovers(step))}
            dropped = Counter({"files-unclear": _dropped(touched, first, walked_to)})
            unlisted: set[str] = set()
            for cause, partitions in (*unclear.items(), *left.items()):
                dropped[cause] += sum(p in last.files.versions for p in partitions - unlisted)
                unlisted |= partitions
            if unlisted:
                last = replace(last, files=last.files.without(unlisted))
            self.saved.save(
                last,
                touched | unlisted,
                unfinished={t: p for t, p in self.unfinished.items() if t not in ended},
                must_list=self.must_list,
                also=_versions(links, touched),
            )
            is_whole = len(links) == len(news.steps)
            history = (self.history if is_whole else History(())).extended(links)
            if last.hashes == walked_to.hashes and not unlisted:
                history = history.with_newest(last)
            else:
                history = history.extended((Link(last, unclear=frozenset(unlisted)),))
            self._client = client
            self._swap(history.barring(news.undone, news.lost))
            for time in ended:
                self.unfinished.pop(time, None)
        for cause, count in dropped.items():
            if count:
                self.count("partition_reloads", count, cause=cause)

    def drop_oldest(self) -> int | None:
        """Drop what is kept for the client that is the furthest behind.

        That is the oldest snapshot. The ways from timelines never held come after the snapshots,
        which lead to the newest. The last way stays, and so do ``SPARED`` snapshots and what is in
        use.

        Returns:
            How many bytes nobody needs any more; ``None`` when nothing can be dropped, or the table
            is being changed just now.
        """
        if not self.lock.acquire(blocking=False):
            return None
        try:
            history = self._history
            if history is None:
                return None
            links, branches = len(history.links), len(history.branches)
            held = self._share.held
            freed = 0
            if links > SPARED:
                self._swap(history, links=links - 1)
            if len(self.history.links) < links:
                if not self.saved.store.lasts:  # else they lie on disk
                    freed = _superseded(*history.links[:2])
            elif branches > 1:
                self._swap(history, links=links, branches=branches - 1)
            if (len(self.history.links), len(self.history.branches)) == (links, branches):
                return None
            freed += held - self._share.held
        finally:
            self.lock.release()
        del history
        self.saved.store.collect()
        return freed

    def close(self) -> None:
        """Count nothing more as kept for clients."""
        with self.lock:
            self._share.close()

    def _leftovers(self, step: Step) -> Collection[str]:
        return self.unfinished.get(step.instant.requested_time, ()) if step.delta.writes else ()

    def _left_behind(
        self, news: News, last: Snapshot
    ) -> tuple[dict[str, frozenset[str]], frozenset[str]]:
        """Return where what was given up may have left files, and what isn't in flight any more.

        Returns:
            Partitions by cause; requested times.
        """
        versions, left = last.files.versions, set()
        for instant in news.given_up:
            time = instant.requested_time
            listed = self.unfinished.get(time, ())
            left |= {p for p in listed if p in versions and time in versions[p].instants()}
        written = (s.instant for s in news.steps if s.delta.writes)
        ended = frozenset(i.requested_time for i in (*news.given_up, *written))
        return {"instant-vanished": frozenset(left)}, ended

    def _swap(
        self, history: History, *, links: int | None = None, branches: int | None = None
    ) -> None:
        """Show another history, and count what it keeps; with the lock held.

        Args:
            history: The history, of which the oldest is dropped.
            links: How many links are kept at most, beside those in use; ``None``: the usual number.
            branches: The same for branches.
        """
        links = self._retained if links is None else links
        branches = self._retained if branches is None else branches
        with self._in_use.lock:
            self._history = history.keeping(links, branches, self._in_use.snapshots).indexed()
        self._share.hold(self.history.retained_bytes)

    # The past.

    def fill(self, snapshot: Snapshot, version: PartitionVersion) -> None:
        """Put a version into a kept snapshot, and count it; with the lock held.

        Call ``make_room`` afterwards, without the lock.
        """
        if version.partition not in snapshot.files.versions:
            newest = self.history.newest.files.versions.get(version.partition)
            self._count_filled(snapshot, filled_bytes(version, newest))
        snapshot.files.versions[version.partition] = version

    def fill_known(self, snapshot: Snapshot, known: frozenset[str]) -> None:
        """Put the partitions of the table into a kept snapshot, and count them."""
        with self.lock:
            if snapshot.files.known is None:
                snapshot.files.known = known
                self._count_filled(snapshot, known_bytes(known, self.history.newest.files.known))
        self.make_room()

    def _count_filled(self, snapshot: Snapshot, size: int) -> None:
        if snapshot.files is not self.history.newest.files:
            snapshot.files.filled_bytes += size
            self._share.hold(self._share.held + size)

    @property
    def retained_bytes(self) -> int:
        """What is counted as kept for clients that are behind."""
        return self._share.held

    def make_room(self) -> None:
        """Have the budget kept again after growth; with no lock held."""
        self._share.make_room()

    def reach_back(self, last_instant: str, timeline_hash: str) -> Use | None:
        """Return a use of the snapshot of a timeline that was never held, from what happened since.

        ``None`` where nobody can know it; see ``fsview.snapshot.hash_search``. Callers with the
        same question share one run, and the use.
        """
        key = last_instant, timeline_hash
        return self._reaching.run(key, lambda: self._reach_back(last_instant, timeline_hash))

    def _reach_back(self, last_instant: str, timeline_hash: str) -> Use | None:
        known = self.use(last_instant, timeline_hash)
        if known is not None:
            return known  # since this caller looked, another has found it
        history = self.history
        question = self._questions.of(last_instant, timeline_hash)
        if question.is_refused(history.newest):
            return None
        before = question.hashes
        found = question.find(history.open_snapshots)
        self.count("timelines_tried", question.hashes - before)
        if found is not None and self._is_of_this_version(found[1]):
            with self.using(found[0]):
                branch = self._branch_to(*found)
                if branch is not None:
                    return self._branch_off(branch)
        question.refuse(history.newest)
        return None

    def _is_of_this_version(self, timeline: Timeline) -> bool:
        """Whether a timeline has an instant from after the last upgrade that was seen.

        What happened before an upgrade may mean something else since (pinned.md, rule 2).
        """
        return any(key_of(instant) not in self.saved.outdated for instant in timeline.completed())

    def _branch_to(self, onto: Snapshot, timeline: Timeline) -> Branch | None:
        """Return the way from a timeline to a snapshot; ``None`` where it can't be known."""
        client = self.client_for("past")
        shared = shared_branch(client, self.history.branches, timeline)
        try:
            branch = shared or read_branch(client, onto, timeline)
        except InstantNotFoundError:  # archived or undone since: then nobody can know any more
            branch = None
        read = "refused" if branch is None else "read"
        self.count("branches", outcome=read if shared is None else "shared")
        return branch

    def _branch_off(self, branch: Branch) -> Use | None:
        """Keep a branch, which is in use from now on; ``None`` when it leads nowhere any more."""
        with self.lock:
            if not self.history.leads_from(branch.onto):
                return None
            with self._in_use.lock:
                use = self._in_use.begin(branch.start)
            self._swap(self.history.with_branch(branch))
        self._share.make_room()
        return use


def _dropped(partitions: Iterable[str], before: Snapshot, after: Snapshot) -> int:
    """Return how many partitions were loaded before and aren't after."""
    were, are = before.files.versions, after.files.versions
    return sum(p in were and p not in are for p in partitions)


def _versions(links: Iterable[Link], partitions: Collection[str]) -> Iterable[PartitionVersion]:
    """Yield what the snapshots of some links have of some partitions."""
    for link in links:
        versions = link.snapshot.files.versions
        yield from (versions[p] for p in partitions if p in versions)


def _superseded(link: Link, following: Link) -> int:
    """Return how many bytes a snapshot holds that the following one doesn't."""
    first, second = link.snapshot.files.versions, following.snapshot.files.versions
    touched = () if following.step is None else following.step.touched
    kept = {id(c) for p in touched if p in second for c in second[p].parts}
    gone = {id(c): c.size for p in touched if p in first for c in first[p].parts}
    return sum(size for key, size in gone.items() if key not in kept)
