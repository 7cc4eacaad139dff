"""``ViewManager``: the tables that a process serves, below the roots that it may serve.

A table is opened when it is first asked for, under any spelling of its base path, and closed when
it is at or below no root any more (``fsview.served_roots``). The resolved path is opened, and links
in its storage don't lead outside the roots either (``timeline.storage.local_path``).
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

from fsview.metrics import Metrics
from fsview.record.shared import kept_in
from fsview.served_roots import ServedRoots, resolved
from fsview.single_flight import Shared
from fsview.snapshot.snapshot import Snapshot
from fsview.store.budget import MOST_OPEN, RETAINED_SNAPSHOTS
from fsview.store.stores import Stores
from fsview.table_view import Lease, TableView
from timeline.clock import Clock, SystemClock
from timeline.errors import (
    PathNotFoundError,
    RootNotAllowedError,
    StoreError,
    StrandlineError,
    TableNotFoundError,
)
from timeline.storage.base import Storage
from timeline.storage.open import open_storage
from timeline.storage.table_id import TableId
from timeline.table.config_file import read_table_config

logger = logging.getLogger(__name__)

_REMEMBERED: Final = 1 << 16
"""Most closed tables that are remembered, so that their reload is counted as such."""
_NEVER: Final = object()


class TablesStatus(NamedTuple):
    """Figures about tables.

    Attributes:
        open: How many tables are open.
        further: The id of the next table, which isn't among those shown; ``None``: there is none.
        figures: Id and figures of each table shown, fit for JSON, computed as they are taken.
    """

    open: int
    further: str | None
    figures: Iterator[tuple[str, dict[str, Any]]]


StorageOpener = Callable[[str, Mapping[str, Any] | None], Storage]


class ViewManager:
    """The tables of a process.

    ``_lock`` guards the tables with their leases, the roots and whether all is closed. Tables are
    in the order in which they were opened; a search for tables to close puts those that it finds in
    use behind the others (the CLOCK algorithm, an approximation of LRU).

    ``_changing`` is held while the roots are changed and the tables that are served no more are
    closed, before ``_lock``: a table that a root allows again finds its store closed. So does one
    that is opened again, which waits for its event in ``_closing``.

    Attributes:
        stores: Keep the tables' packed files.
        most_open: How many tables may be open.
        busy_tables: Returns tables that aren't to be closed although no request uses them.
        on_close: Is called with each table that was closed although it is served.
        on_sync: Is called with a table and its newest snapshot after each sync; never waits.
    """

    def __init__(
        self,
        roots: Collection[str] = (),
        *,
        storage_options: Mapping[str, Any] | None = None,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
        opener: StorageOpener = open_storage,
        retained_snapshots: int = RETAINED_SNAPSHOTS,
        stores: Stores | None = None,
        awaits: bool = False,
        most_open: int = MOST_OPEN,
        slow_sync_s: float = 0.0,
    ) -> None:
        """Make a manager with no table open.

        Args:
            roots: Base paths, or directories above base paths, that may be served.
            awaits: Whether local roots are served only once ``find_root`` has found them; then
                nothing is read here, and no hanging root delays the others.
            storage_options: For fsspec, for tables that aren't local.
            metrics: Counters of all tables.
            clock: Times syncs.
            opener: Opens a table's storage from its resolved base path and the storage options.
            retained_snapshots: How many snapshots of each table are kept for clients behind.
            stores: Keep the tables' packed files; ``None``: in memory.
            most_open: How many tables may be open; beyond it, and beyond what the budget allows,
                those used least recently are closed.
            slow_sync_s: From which on a table's sync is logged; 0: none is.
        """
        self._lock, self._changing = threading.Lock(), threading.Lock()
        # Replaced as a whole: requests read it without the lock.
        self._roots = ServedRoots()
        self._tables: OrderedDict[TableId, TableView] = OrderedDict()
        self._opening: Shared[TableView] = Shared()
        self._is_closed = False
        self._first_saved = 0
        self._storage_options = storage_options
        self._metrics = metrics or Metrics()
        self._clock = clock
        self._time = clock or SystemClock()
        self._open = opener
        self._retained = retained_snapshots
        self._slow_sync_s = slow_sync_s
        self.stores = stores or Stores()
        self.stores.retained.evict = self._drop_snapshots
        self.most_open = self.stores.most_open(most_open)
        self.busy_tables: Callable[[], Collection[TableId]] = frozenset
        self.on_close: Callable[[TableView], object] = lambda _: None
        self.on_sync: Callable[[TableId, Snapshot], object] = lambda *_: None
        self._closing: dict[TableId, threading.Event] = {}
        self._being_opened: dict[TableId, Storage] = {}
        self._closed: OrderedDict[int, None] = OrderedDict()
        self._foreign: dict[TableId, float] = {}
        for root in roots:
            if awaits and TableId.of(root).family == "file":
                self.await_root(root)
            else:
                self.add_root(root)

    def add_root(self, root: str) -> bool:
        """Allow the tables at and below a path, spelled like this or as it resolves.

        Returns:
            Whether it was a root that resolved elsewhere before.
        """
        spelled, real = TableId.of(root).normal(), resolved(root)
        with self._changing:
            before = self._roots.found.get(spelled, real)
            self._change_roots(self._roots.with_root(root, real))
        return before != real

    def awaited_roots(self) -> tuple[str, ...]:
        """Return the roots that haven't been found yet, in order."""
        return tuple(sorted(root.base_path for root in self._roots.awaited))

    def await_root(self, root: str) -> None:
        """Have a local root served once ``find_root`` has found it; reads nothing."""
        with self._changing:
            self._roots = self._roots.awaiting(root)

    def find_root(self, root: str) -> None:
        """Serve a root that is awaited if it is there now; may wait for its storage.

        Raises:
            PathNotFoundError: It is not there, or no directory.
        """
        spelled = TableId.of(root).normal()
        if not os.path.isdir(spelled.path):  # false for a name that is too long, too
            raise PathNotFoundError("it is not there, or no directory")
        given = self._roots.awaited.get(spelled)  # another look may have found it meanwhile
        if given is not None:
            self.add_root(given)

    def remove_root(self, root: str) -> None:
        """Refuse the tables at and below a path, except those at or below another root.

        Their views are closed: requests under way fail with ``RootNotAllowedError`` or another
        ``StrandlineError``. No effect if the path, in any spelling, isn't a root.
        """
        with self._changing:
            self._change_roots(self._roots.without(root))

    def _change_roots(self, roots: ServedRoots) -> None:
        """Replace the roots and close the tables that are served no more."""
        with self._lock:
            self._roots = roots
            gone = [table_id for table_id in self._tables if not roots.serve(table_id)]
            closed = [self._tables.pop(table_id) for table_id in gone]
        # Outside the lock: a store may be busy, for which requests for other tables must not wait.
        with ExitStack() as closing:  # closes the others, too, if one fails
            for table in closed:
                closing.callback(table.close)

    def serves(self, table_id: TableId) -> bool:
        """Whether a table, by its resolved id, is at or below a root."""
        return self._roots.serve(table_id)

    def is_below_root(self, base_path: str) -> bool:
        """Whether a base path is at or below a root by its text; follows no link, reads nothing."""
        return self._roots.allow(base_path)

    def roots(self) -> tuple[str, ...]:
        """Return the roots as they were resolved, in order."""
        return tuple(sorted(root.base_path for root in self._roots.resolved))

    def root_named(self, text: str) -> str | None:
        """Return the base path of a root; see ``ServedRoots.named``."""
        return self._roots.named(text)

    def view(
        self, base_path: str, prepare: Callable[[TableView], object] | None = None
    ) -> TableView:
        """Return the table at a base path.

        Args:
            base_path: In any spelling.
            prepare: Is called with the table if this call opens it, before it is read.

        Raises:
            InputError: The base path is empty, too long, relative, or holds a NUL.
            RootNotAllowedError: It is outside the roots.
            TableNotFoundError: There is no table.

        Cost: for a table that isn't open yet, a listing of its timeline.
        """
        table_id = self._roots.admitted(base_path)
        with self._lock:
            table = self._tables.get(table_id)
        if table is not None:
            table.was_used = True
            return table
        # Without ``_lock``: opening reads storage, for which other tables must not wait. An opening
        # that began before this call may have found the root, or the table, not there yet.
        return self._opening.run(
            table_id,
            lambda: self._opened(table_id, prepare),
            stale=(RootNotAllowedError, TableNotFoundError),
        )

    def open_table(self, base_path: str) -> TableView | None:
        """Return the table at a base path if it is open.

        Raises:
            InputError: The base path is empty, too long, relative, or holds a NUL.
            RootNotAllowedError: It is outside the roots.
        """
        table_id = self._roots.admitted(base_path)
        with self._lock:
            return self._tables.get(table_id)

    def lease(self, base_path: str) -> Lease:
        """Return a lease of the table at a base path, which keeps it open; see ``view``."""
        while True:
            lease = self.lease_of(self.view(base_path))
            # Otherwise it was closed since: it is opened again, or refused.
            if lease is not None:
                return lease

    def lease_of(self, table: TableView) -> Lease | None:
        """Return a lease of an open table; ``None`` if it is closed."""
        with self._lock:
            if self._tables.get(table.table_id) is not table:
                return None
            lease = Lease(table)
            table.leases.add(lease)
            return lease

    def close_table(self, table: TableView, cause: str) -> bool:
        """Close a table that is served, unless it is in use; it is opened again when asked for.

        A store that lasts continues from its record then; otherwise the table is reloaded, which
        is counted as a reload with the cause ``closed``.

        Args:
            table: The table.
            cause: Of the counter ``closed_tables``.

        Returns:
            Whether it was closed: it has no lease, and is none of ``busy_tables``.

        Cost: as closing its store; no call to the table's storage.
        """
        table_id = table.table_id
        if table_id in self.busy_tables():
            return False
        with self._lock:
            if table.leases or self._tables.get(table_id) is not table:
                return False
            # From here on callers don't find it; opening it again waits until its store is closed.
            del self._tables[table_id]
            ended = self._closing[table_id] = threading.Event()
        try:
            table.close()
        finally:
            with self._lock:
                del self._closing[table_id]
                if not self.stores.lasts:
                    self._closed[hash(table_id)] = None
                    if len(self._closed) > _REMEMBERED:
                        self._closed.popitem(last=False)
            ended.set()
        self.on_close(table)
        self._metrics.add("closed_tables", cause=cause)
        return True

    def close_excess(self, spared: TableView | None = None) -> None:
        """Close the tables used least recently beyond ``most_open`` and the memory budget.

        Called after growth, with no lock held. Fewer are closed if the others are in use.

        Args:
            spared: One that isn't closed.

        Cost: none within the limits; else one step for each table closed, or found in use.
        """
        for _ in range(2 * len(self._tables)):
            is_many = len(self._tables) > self.most_open
            if not is_many and not self.stores.is_overfull:
                return
            with self._lock:
                table_id = next(iter(self._tables), None)
                if table_id is None:
                    return
                # Behind the others: one that was used is looked at again after all of them.
                self._tables.move_to_end(table_id)
                table = self._tables[table_id]
                was_used, table.was_used = table.was_used, False
            if not was_used and table is not spared:
                try:
                    self.close_table(table, "open-tables" if is_many else "memory")
                except StrandlineError as error:
                    # Whatever asked for room isn't about this table.
                    logger.warning("%s was closed with an error: %s", table_id, error)

    def as_given(self, table_id: TableId) -> str:
        """Return the text of a table's id below its root as that was given (``ServedRoots``)."""
        return str(self._roots.as_given(table_id))

    def close_foreign(self, is_ours: Callable[[str], bool], after_s: float) -> None:
        """Close the tables that have been other servers' for some time.

        Args:
            is_ours: Whether a table, by the text of its id ``as_given``, is this server's to answer
                or to copy.
            after_s: For how long it must not have been at each call, seconds.
        """
        now = self._time.monotonic()
        foreign = [t for t in self.open_tables() if not is_ours(self.as_given(t.table_id))]
        self._foreign = {t.table_id: self._foreign.get(t.table_id, now) for t in foreign}
        for table in foreign:
            if now - self._foreign[table.table_id] >= after_s:
                self.close_table(table, "given-away")

    def storage_of(self, base_path: str) -> tuple[TableId, Storage]:
        """Return the id and the storage of a base path, with a table or not; reads nothing.

        Raises:
            InputError: The base path is empty, too long, relative, or holds a NUL.
            RootNotAllowedError: It is outside the roots.
        """
        table_id = self._roots.admitted(base_path)
        with self._lock:
            table = self._tables.get(table_id)
        return table_id, self._storage(table_id) if table is None else table.storage

    def _storage(self, table_id: TableId) -> Storage:
        """Return the storage of a table, in which links don't lead outside the roots."""
        return self._open(table_id.base_path, self._storage_options).confined(
            # The roots as they are when a link is met.
            lambda path: self._roots.place_of(path)
        )

    def open_tables(self) -> tuple[TableView, ...]:
        """Return the tables opened so far, in the order of their ids as text."""
        with self._lock:
            tables = dict(self._tables)
        return tuple(tables[table_id] for table_id in sorted(tables, key=str))

    def being_opened(self) -> dict[TableId, Storage]:
        """Return the storages of tables that are being opened: theirs may hang for long."""
        with self._lock:
            return self._being_opened.copy()

    def status(self, start: str = "", at_most: int | None = None) -> TablesStatus:
        """Return figures about open tables, in the order of their ids as text.

        Args:
            start: Of the first table: its id as text, or text before it.
            at_most: How many tables; ``None``: all.
        """
        with self._lock:
            # A copy, as the status of a table takes locks that must not be nested in this one.
            tables = {str(table_id): table for table_id, table in self._tables.items()}
        names = sorted(name for name in tables if name >= start)
        shown = names[:at_most]
        further = names[len(shown)] if len(shown) < len(names) else None
        return TablesStatus(len(tables), further, ((name, tables[name].status()) for name in shown))

    def in_memory(self) -> list[TableView]:
        """Return the tables that are followed in memory, as their stores fail."""
        with self._lock:
            tables = list(self._tables.values())
        return [table for table in tables if table.state.record.failure is not None]

    def save_rest(self) -> None:
        """Have stores keep what was kept in memory, until one doesn't take it.

        Each call begins with another table, as the store of one may fail for good.
        """
        tables = self.in_memory()
        self._first_saved += 1
        first = self._first_saved % max(len(tables), 1)
        for table in (*tables[first:], *tables[:first]):
            if not table.state.save_rest():
                return

    def store_status(self) -> dict[str, Any]:
        """Return figures about the stores, fit for JSON."""
        failing = self.in_memory()
        why = failing[0].state.record.failure if failing else None
        return {**self.stores.status(), "in_memory": {"tables": len(failing), "why": why}}

    def store_reasons(self) -> list[str]:
        """Return a sentence for each thing that is wrong with the stores.

        Raises:
            StoreError: They are closed.
        """
        reasons = self.stores.reasons()
        if failing := self.in_memory():
            table = failing[0]
            reasons.append(
                f"tables followed in memory: {len(failing)}, as {table.table_id}:"
                f" {table.state.record.failure}"
            )
        return reasons

    def close(self) -> None:
        """Close the tables and their stores; nothing can be asked any more.

        A table that is being opened is closed once that is done, in place of being open.
        """
        with self._lock:
            self._is_closed = True
        # Tables first, as their stores use what ``Stores.close`` frees.
        for table in self.open_tables():
            table.close()
        self.stores.close()

    def _drop_snapshots(self, wanted: int) -> int:
        """Drop the oldest snapshots, one of each table in turn; return the bytes that frees.

        Cost: one step for each table that gives, or has nothing to give since it grew.
        """
        freed = 0
        # A table that is being changed gives nothing either, as this never waits for it.
        while freed < wanted and (share := self.stores.retained.next_holder()) is not None:
            freed += share.give() or 0
        return freed

    def _opened(
        self, table_id: TableId, prepare: Callable[[TableView], object] | None
    ) -> TableView:
        """Open a table; run by one caller at a time for each table."""
        with self._lock:
            table = self._tables.get(table_id)
            closing = self._closing.get(table_id)
        if table is not None:  # another caller has opened it meanwhile
            return table
        if closing is not None:
            closing.wait()
        storage = self._storage(table_id)
        with self._lock:
            self._being_opened[table_id] = storage
        try:
            return self._opened_at(table_id, storage, prepare)
        finally:
            with self._lock:
                del self._being_opened[table_id]

    def _opened_at(
        self, table_id: TableId, storage: Storage, prepare: Callable[[TableView], object] | None
    ) -> TableView:
        """As ``_opened``, which registers the storage."""
        if self.stores.lasts:  # a path without a table leaves nothing in the store directory
            read_table_config(storage)
        store = self.stores.open(table_id)
        table: TableView | None = None
        try:
            table = TableView(
                storage,
                metrics=self._metrics,
                clock=self._clock,
                retained_snapshots=self._retained,
                record=kept_in(store),
                share=self.stores.budget.share(self.stores.retained),
                slow_sync_s=self._slow_sync_s,
                synced=self.on_sync,
            )
            if prepare is not None:
                prepare(table)
            # Before others can find it: a table that can't be read doesn't count as open.
            table.newest()
        except BaseException:
            # Also on an interrupt, so that the next attempt finds no open store.
            (store if table is None else table).close()
            raise
        with self._lock:
            # In one step with the look at the roots: a table that was removed while it was being
            # opened would stay open forever.
            is_closed = self._is_closed
            is_served = self.serves(table_id) and not is_closed
            was_closed = is_served and self._closed.pop(hash(table_id), _NEVER) is None
            if is_served:
                self._tables[table_id] = table
        if is_served:
            if was_closed:
                self._metrics.add("reloads", table=str(table_id), cause="closed")
            # Its caller has no lease of it yet.
            self.close_excess(spared=table)
            return table
        table.close()
        if is_closed:
            raise StoreError(f"{table_id} isn't opened: the views are closed")
        raise not_served(table_id)


def not_served(table_id: TableId) -> RootNotAllowedError:
    """Return the refusal of a table whose root was removed after its request was admitted."""
    return RootNotAllowedError(f"base path {table_id.base_path!r} isn't below a root any more")
