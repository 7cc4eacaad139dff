"""A server that takes a seat, beside a fleet whose first server holds a whole table."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

from executor_proxy.exchange import Timeouts
from executor_proxy.seat_ring import Layout
from fsview.local_view import LocalView
from fsview.record.stream import record_stream
from fsview.store.stores import Stores
from fsview.table_view import TableView
from fsview.view_manager import StorageOpener, ViewManager
from fsview.wire.routes import BY_NAME
from strandline.fleet.current import CurrentFleet
from strandline.fleet.moving.neighbours import RECORD, TABLES, Neighbours
from strandline.fleet.moving.warming import Warming
from strandline.fleet.seats import Fleet, HeldSeat, Member
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.live_service import TOKEN, known
from tests.kit.tables.rebuilt import differences_from_rebuilt
from tests.kit.tables.small_table import SmallTable
from tests.strandline.fleet.fixed_fleet import FixedFleet, fixed_fleet
from timeline.storage.local import LocalStorage
from timeline.storage.open import open_storage

ME = "http://me:1"
PARTITIONS = tuple(f"p={number}" for number in range(4))
LATEST = BY_NAME["latest_base_files"].path


def small_table(path: Path) -> SmallTable:
    found = SmallTable(LocalStorage(str(path)))
    found.write(*((partition, f"{number}-0") for number, partition in enumerate(PARTITIONS)))
    return found


@contextmanager
def loaded_fleet(table: SmallTable) -> Iterator[FixedFleet]:
    """Servers of which the first holds the whole table."""
    with fixed_fleet(table.storage.base_path) as servers:
        for partition in PARTITIONS:
            answered = servers.client(0).request(
                "GET", LATEST, known(table.storage, partition=partition)
            )
            assert answered.status == HTTPStatus.OK
        yield servers


def joining(*urls: str, standby: bool = False) -> Fleet:
    """Return a fleet of servers with seats, and of one that isn't ready."""
    members = [Member(url, url, False, number) for number, url in enumerate(urls, 1)]
    seats = tuple(HeldSeat(number, (url,), url) for number, url in enumerate(urls))
    me = Member(ME, ME, standby, len(urls) + 1, is_ready=False)
    return Fleet((*members, me), seats)


class Joined:
    """A server that takes a seat: its views, and the thread that fetches."""

    def __init__(self, views: ViewManager, neighbours: Neighbours, layout: Layout) -> None:
        self.views = views
        self.current = CurrentFleet(ME, layout)
        self.is_ready = threading.Event()
        self.warming = Warming(self.current, ME, neighbours, self.is_ready.set, bound_s=PATIENCE_S)

    def fetch(self, *urls: str) -> dict[str, int]:
        """Have it join servers, and return what became of the tables once it is ready."""
        self.current.tell(joining(*urls), 1)
        self.warming.start(self.views)
        assert self.is_ready.wait(PATIENCE_S)
        return self.warming.status()

    def check(self, table: SmallTable, *, is_taken: bool = True) -> None:
        """Compare its view with one built anew, and what it has listed."""
        (view,) = self.views.open_tables()
        if is_taken:
            assert sorted(view.held_partitions()) == sorted(PARTITIONS)
        local = LocalView.synced(view)
        for partition in PARTITIONS:
            local.all_file_slices(partition)
        listed = {cause for _, cause in view.storage.calls.snapshot()}
        assert is_taken == ("lookup" not in listed)
        found = differences_from_rebuilt(view.newest(), table.storage)
        assert not found, str(found)


class Asked(Neighbours):
    """Waits for answers, but for what never comes only a moment.

    Args:
        hanging: Address and path of the only question to which no answer comes.
    """

    def __init__(self, hanging: tuple[str, str] | None) -> None:
        patient = Timeouts(connect_s=PATIENCE_S, read_s=PATIENCE_S, exchange_s=PATIENCE_S)
        super().__init__(TOKEN, timeouts=patient)
        self._hanging = hanging
        self._hasty = Neighbours(TOKEN, timeouts=replace(patient, read_s=0.05))

    def tables(self, url: str, within_s: float) -> tuple[str, ...]:
        asked = self._hasty if self._hanging == (url, TABLES) else super()
        return asked.tables(url, within_s)

    def record(self, url: str, base_path: str, most_bytes: int, within_s: float) -> Iterator[bytes]:
        asked = self._hasty if self._hanging == (url, RECORD) else super()
        return asked.record(url, base_path, most_bytes, within_s)


@contextmanager
def joined(
    *roots: str,
    stores: Stores | None = None,
    hanging: tuple[str, str] | None = None,
    copies: int = 3,
    opener: StorageOpener = open_storage,
) -> Iterator[Joined]:
    views = ViewManager(roots, stores=stores, opener=opener)
    server = Joined(views, Asked(hanging), Layout(copies=copies))
    try:
        yield server
    finally:
        server.warming.stop()
        views.close()


def stream_of(table: SmallTable) -> bytes:
    view = TableView(table.storage)
    LocalView.newest(view).load_all_partitions()
    recorded = view.state.recordable()
    assert recorded is not None
    return b"".join(record_stream(view.table_id, recorded))
