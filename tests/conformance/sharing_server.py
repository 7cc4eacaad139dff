"""A server's view of a table over a store that others share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.record.shared import kept_in
from fsview.store.budget import RETAINED_SNAPSHOTS
from fsview.store.sql.database import Database
from fsview.store.sql.shared_table import AT_ONCE
from fsview.store.sql.store import MOVED_AT_ONCE, SharedStore
from fsview.store.stores import KEPT_STEPS
from fsview.table_view import TableView
from tests.conformance.shared_place import Faults, SharedPlace
from tests.fsview.store.stored_views import check
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables.small_table import SmallTable
from timeline.storage.base import Storage


class Server:
    """A server, with storage that counts its calls.

    Attributes:
        table: The table.
        storage: Its storage.
        metrics, database, store, view: The server's own.
    """

    def __init__(
        self,
        table: SmallTable,
        storage: Storage,
        store: SharedStore,
        database: Database,
        retained: int = RETAINED_SNAPSHOTS,
    ) -> None:
        self.table, self.storage = table, storage
        self.metrics = Metrics()
        self.store, self.database = store, database
        self.view = TableView(
            storage, metrics=self.metrics, record=kept_in(store), retained_snapshots=retained
        )
        self._counted: dict[str, int] = {}

    @classmethod
    @contextmanager
    def opened(
        cls,
        table: SmallTable,
        place: SharedPlace,
        storage: Storage | None = None,
        *,
        kept_steps: int = KEPT_STEPS,
        faults: Faults | None = None,
        at_once: int = AT_ONCE,
        moved_at_once: int = MOVED_AT_ONCE,
        retained: int = RETAINED_SNAPSHOTS,
        **options: Any,
    ) -> Iterator[Server]:
        """Open a server; without storage of its own, with one of the files of a table in memory.

        ``options`` are those of the place's kind of database.
        """
        if storage is None:
            storage = MemoryStorage(table.storage.base_path, table.clock.now_ms)
            storage.files = table.storage.files
        database = place.open(faults, **options)
        store = SharedStore(
            database,
            TableView(storage).table_id,
            kept_steps,
            at_once=at_once,
            moved_at_once=moved_at_once,
        )
        server = cls(table, storage, store, database, retained)
        try:
            yield server
        finally:
            server.view.close()
            database.close()

    def calls(self) -> dict[str, int]:
        """Return the storage calls since this was asked last, as kind and cause."""
        before = self._counted
        calls = self.storage.calls.snapshot().items()
        self._counted = {f"{kind} {cause}": count for (kind, cause), count in calls}
        return {
            call: count - before.get(call, 0)
            for call, count in self._counted.items()
            if count != before.get(call, 0)
        }

    def check(self) -> None:
        """Check all answers against a view that is built anew."""
        check(LocalView.synced(self.view), self.table.storage)
