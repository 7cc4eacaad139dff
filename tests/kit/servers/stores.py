"""Stores of every kind for views under test, and a view that can be restarted."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fsview.metrics import Metrics
from fsview.record.shared import kept_in
from fsview.store.base import Blob
from fsview.store.budget import BUDGET_BYTES, RETAINED_SNAPSHOTS
from fsview.store.stores import KINDS, StoreOptions, Stores
from fsview.table_view import TableView
from timeline.storage.base import Storage

ALL_KINDS = tuple(KINDS)
OTHER_KINDS = tuple(kind for kind in KINDS if kind != "memory")
LITTLE = 16 << 10
"""A budget that makes nearly everything spill."""


def blobs_of(contents: Iterable[bytes], near: str = "") -> list[Blob]:
    """Return blobs with these contents that belong to one row."""
    return [Blob(content, near) for content in contents]


def stores_of(kind: str, directory: Path, url: str | None = None) -> Stores:
    """Return stores of a kind with little memory."""
    budget_bytes = LITTLE if kind == "spillable" else 64 << 20
    return Stores(options_of(kind, directory, budget_bytes, url))


def options_of(
    kind: str, directory: Path, budget_bytes: int = BUDGET_BYTES, url: str | None = None
) -> StoreOptions:
    """Return options of a kind; what it needs on the disk is in a directory, unless a URL says."""
    folder = None if kind in ("memory", "sql") else str(directory)
    if kind == "sql" and url is None:
        url = f"sqlite://{directory}/views.db"
    return StoreOptions(kind, folder, budget_bytes, () if url is None else (url,))


class Restarted:
    """A service's view of one table that can be restarted.

    Attributes:
        view: The current view.
        metrics: Counters shared by all views.
    """

    def __init__(
        self,
        kind: str,
        directory: Path,
        storage: Storage,
        *,
        metrics: Metrics | None = None,
        retained: int = RETAINED_SNAPSHOTS,
        url: str | None = None,
    ) -> None:
        self._kind = kind
        self._directory = directory
        self._url = url
        self._storage = storage
        self._retained = retained
        self.metrics = metrics or Metrics()
        self._begin()

    def restart(self) -> None:
        """End the service and start the next one."""
        self.close()
        self._begin()

    def close(self) -> None:
        self.view.close()
        self._stores.close()

    def _begin(self) -> None:
        self._stores = stores_of(self._kind, self._directory, self._url)
        store = self._stores.open(TableView(self._storage).table_id)
        self.view = TableView(
            self._storage,
            metrics=self.metrics,
            retained_snapshots=self._retained,
            record=kept_in(store),
        )
