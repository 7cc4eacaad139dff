"""A server that takes a seat fetches its tables' records from its neighbours."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

import pytest

from executor_proxy.seat_ring import Layout
from fsview.record.shared import kept_in
from fsview.record.stream import PIECE_BYTES
from fsview.store.base import MemoryStore
from fsview.store.stores import Stores
from fsview.table_view import TableView
from fsview.view_manager import ViewManager
from strandline.fleet.current import CurrentFleet, KnownFleet
from strandline.fleet.mounts import Mount, MountTable, Move, MoveState
from strandline.fleet.moving.moves import FAILED
from strandline.fleet.moving.neighbours import RECORD, TABLES, Neighbours
from strandline.fleet.moving.warming import AT_ONCE, Wanted, Warming, fetches, wanted
from strandline.fleet.seats import Fleet, HeldSeat, Member
from tests.fsview.shared_work import wait_until
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.live_service import TOKEN, serving
from tests.kit.servers.stores import ALL_KINDS, options_of
from tests.kit.tables.small_table import SmallTable
from tests.strandline.fleet.fixed_fleet import FixedFleet
from tests.strandline.fleet.joining import (
    ME,
    PARTITIONS,
    Joined,
    joined,
    joining,
    loaded_fleet,
    small_table,
    stream_of,
)
from timeline.errors import RemoteFailureError, ServiceError, ServiceTimeoutError
from timeline.storage.base import Storage
from timeline.storage.open import open_storage


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    return small_table(tmp_path / "t")


@pytest.fixture
def fleet(table: SmallTable) -> Iterator[FixedFleet]:
    with loaded_fleet(table) as servers:
        yield servers


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_server_goes_on_from_the_record_of_a_neighbour(fleet, table, tmp_path, kind):
    table.write(("p=1", "1-0"))  # no request has told the neighbour of it
    with joined(table.storage.base_path, stores=Stores(options_of(kind, tmp_path))) as server:
        assert server.fetch(fleet.urls[0]) == {"taken": 1}
        server.check(table)
        table.write(("p=2", "2-0"))
        server.check(table)


@pytest.mark.parametrize("kind", ["rocksdb", "sql"])
def test_what_the_own_store_has_comes_before_a_neighbour_s(fleet, table, tmp_path, kind):
    for expected in ({"taken": 1}, {"own": 1}):
        with joined(table.storage.base_path, stores=Stores(options_of(kind, tmp_path))) as server:
            assert server.fetch(fleet.urls[0]) == expected
            server.check(table)


def test_tables_that_neighbours_do_not_have_are_left(fleet, table):
    with joined(table.storage.base_path) as server:
        assert server.fetch(fleet.urls[1], fleet.urls[2]) == {}
        assert server.views.open_tables() == ()


def test_a_drained_server_gives_its_records_away(fleet, table):
    """With one copy nobody else has them."""
    drained = Member("d", fleet.urls[0], is_standby=False, joined=9)
    with joined(table.storage.base_path, copies=1) as server:
        # Its seat is the server's own now.
        members = (*joining().members, drained)
        seats = (HeldSeat(0, ("d", ME), ME),)
        server.current.tell(Fleet(members, seats, drained=frozenset("d")), 1)
        server.warming.start(server.views)
        assert server.is_ready.wait(PATIENCE_S)
        assert server.warming.status() == {"taken": 1}
        server.check(table)


def test_a_table_that_is_open_is_not_fetched(fleet, table):
    with joined(table.storage.base_path) as server:
        server.views.view(table.storage.base_path)
        assert server.fetch(fleet.urls[0]) == {}


def test_a_table_outside_the_roots_is_refused(fleet, tmp_path):
    (tmp_path / "other").mkdir()
    with joined(str(tmp_path / "other")) as server:
        assert server.fetch(fleet.urls[0]) == {"root_not_allowed": 1}


class Slow(Neighbours):
    """Servers of which the first take all the time that they have, and the last has a table."""

    def __init__(self, last: str, clock: ManualClock) -> None:
        super().__init__(None)
        self.last, self.clock = last, clock
        self.asked: list[str] = []

    def tables(self, url: str, within_s: float) -> tuple[str, ...]:
        self.asked.append(url)
        if url == self.last:
            return ("/lake/t",)
        self.clock.advance(int(within_s * 1_000))
        raise ServiceTimeoutError(f"{url} trickles")


def test_servers_that_trickle_leave_time_for_the_next(tmp_path: Path) -> None:
    urls = ["http://a:1", "http://b:1", "http://c:1"]
    slow = Slow(urls[-1], clock := ManualClock(0))
    current, is_ready = CurrentFleet(ME), threading.Event()
    warming = Warming(current, ME, slow, is_ready.set, bound_s=30.0, clock=clock)
    current.tell(joining(*urls), 1)
    with closing(ViewManager([str(tmp_path)])) as views:
        warming.start(views)
        assert is_ready.wait(PATIENCE_S)
        warming.stop()
    assert slow.asked == urls
    assert warming.status() == {"root_not_allowed": 1, "service_timeout": 2}
    assert clock.monotonic() < 30.0


class Late(Neighbours):
    """A server that doesn't list its tables the first times, as one that restarts or hangs."""

    def __init__(self, *tables: str, failures: int) -> None:
        super().__init__(None)
        self.listed, self.failures = tables, failures
        self.asked = 0

    def tables(self, url: str, within_s: float) -> tuple[str, ...]:
        self.asked += 1
        if self.asked <= self.failures:
            raise ServiceTimeoutError(f"{url} hangs")
        return self.listed


@pytest.mark.parametrize(
    ("source", "said"),
    [
        # One time is the seat's.
        (Late(failures=3), "WARMING"),
        # No text of a table id, which nobody foresees.
        (Late("x", failures=0), "FAILED ValueError: substring not found"),
    ],
)
def test_a_move_goes_on_once_its_source_has_listed_its_tables(tmp_path, source, said):
    members = (
        Member(ME, ME, is_standby=False, joined=1, group="hot"),
        Member("a", "http://a:1", is_standby=False, joined=2),
    )
    seats = (HeldSeat(0, (ME,), ME, "hot"), HeldSeat(1, ("a",), "http://a:1"))
    move = Move(7, Mount.of("/lake", "hot"), "default", MoveState.WARMING)
    current, acks = CurrentFleet(ME), queue.Queue()

    def acknowledge(number: int, what: str) -> None:
        acks.put((number, what, source.asked > source.failures))

    current.tell(Fleet(members, seats, moves=(move,)), 1)
    warming = Warming(current, ME, source, lambda: None, acknowledge, again_s=0.001)
    with closing(ViewManager([str(tmp_path)])) as views:
        warming.start(views)
        assert acks.get(timeout=PATIENCE_S) == (7, said, True)
        warming.stop()


def test_who_gets_no_turn_to_receive_a_record_loads_the_table(table):
    """The turns are those of other moves, whose servers trickle."""
    neighbours = Listing(f"file://{table.storage.base_path}")
    current, is_ready = CurrentFleet(ME), threading.Event()
    current.tell(joining("http://a:1"), 1)
    warming = Warming(current, ME, neighbours, is_ready.set, bound_s=0.02, clock=ManualClock(0))
    for _ in range(AT_ONCE):
        assert warming._receiving.acquire(blocking=False)
    with closing(ViewManager([table.storage.base_path])) as views:
        warming.start(views)
        assert is_ready.wait(PATIENCE_S)
        warming.stop()
        assert warming.status() == {"loaded": 1, "service_timeout": 1}


class Undoing(Neighbours):
    """A server with a table, whose move is undone as soon as it has listed it."""

    def __init__(self, undo: Callable[[], object]) -> None:
        super().__init__(None)
        self.undo = undo

    def tables(self, url: str, within_s: float) -> tuple[str, ...]:
        self.undo()
        return ("file:///lake/t",)


@pytest.mark.parametrize(("undone", "opened"), [(True, {}), (False, {"root_not_allowed": 1})])
def test_tables_of_a_move_that_was_undone_meanwhile_are_not_opened(tmp_path, undone, opened):
    members = (
        Member(ME, ME, is_standby=False, joined=1, group="hot"),
        Member("a", "http://a:1", is_standby=False, joined=2),
    )
    seats = (HeldSeat(0, (ME,), ME, "hot"), HeldSeat(1, ("a",), "http://a:1"))
    move = Move(7, Mount.of("/lake", "hot"), "default", MoveState.WARMING)
    current, told, acks = CurrentFleet(ME), threading.Event(), []

    def undo() -> None:
        if undone:
            current.tell(Fleet(members, seats), 2)

    def acknowledge(number: int, what: str) -> None:
        acks.append((number, what.split()[0]))
        told.set()

    current.tell(Fleet(members, seats, moves=(move,)), 1)
    warming = Warming(current, ME, Undoing(undo), lambda: None, acknowledge)
    with closing(ViewManager([str(tmp_path)])) as views:
        warming.start(views)
        assert told.wait(PATIENCE_S)
        warming.stop()
    assert acks == [(7, "WARMING" if undone else FAILED)]
    assert warming.status() == opened


class Listing(Neighbours):
    """A server with tables, and without records."""

    def __init__(self, *paths: str) -> None:
        super().__init__(None)
        self.paths = paths

    def tables(self, url: str, within_s: float) -> tuple[str, ...]:
        return self.paths

    def record(self, url: str, base_path: str, most_bytes: int, within_s: float) -> Iterator[bytes]:
        raise RemoteFailureError(f"{url} has no record")


def test_a_table_whose_storage_hangs_holds_up_neither_another_move_nor_the_seat(tmp_path):
    names, may_go_on = ("hanging", "moving", "mine"), threading.Event()
    tables = {name: small_table(tmp_path / name) for name in names}
    paths = {name: f"file://{table.storage.base_path}" for name, table in tables.items()}

    def opened(base_path: str, options: Mapping[str, str]) -> Storage:
        assert "hanging" not in base_path or may_go_on.wait(PATIENCE_S)
        return open_storage(base_path, options)

    members = (
        Member(ME, ME, is_standby=False, joined=1, group="hot", is_ready=False),
        Member("a", "http://a:1", is_standby=False, joined=2),
    )
    seats = (HeldSeat(0, (ME,), ME, "hot"), HeldSeat(1, ("a",), "http://a:1"))
    mounts = MountTable((Mount.of(paths["mine"], "hot"),))
    moves = tuple(
        Move(number, Mount.of(paths[name], "hot"), "default", MoveState.WARMING)
        for number, name in enumerate(("hanging", "moving"), 1)
    )
    current, is_ready, acks = CurrentFleet(ME), threading.Event(), queue.Queue()
    current.tell(Fleet(members, seats, mounts=mounts, moves=moves), 1)
    neighbours = Listing(*paths.values())
    warming = Warming(
        current, ME, neighbours, is_ready.set, lambda *told: acks.put(told), bound_s=PATIENCE_S
    )
    with closing(ViewManager([str(tmp_path)], opener=opened)) as views:
        warming.start(views)
        assert acks.get(timeout=PATIENCE_S) == (2, "WARMING")
        assert is_ready.wait(PATIENCE_S)
        assert {str(view.table_id) for view in views.open_tables()} == {
            paths["moving"],
            paths["mine"],
        }
        may_go_on.set()
        assert acks.get(timeout=PATIENCE_S) == (1, "WARMING")
        warming.stop()


def test_what_is_fetched_is_the_seat_s_or_one_move_s() -> None:
    members = tuple(
        Member(name, f"http://{name}:1", False, at, group=group)
        for at, (name, group) in enumerate((("a", "default"), ("b", "hot")), 1)
    )
    seats = tuple(HeldSeat(at, (m.name,), m.url, m.group) for at, m in enumerate(members))
    states = (MoveState.WARMING, MoveState.WARMING, MoveState.PLANNED)
    moves = tuple(
        Move(number, Mount.of(f"/lake/{number}", "hot"), "default", state)
        for number, state in enumerate(states, 1)
    )
    known = KnownFleet(Fleet(members, seats, moves=moves))
    assert [each.number for each in fetches(known, "a")] == [0]
    assert fetches(known, "c") == ()
    found = fetches(known, "b")
    assert [each.number for each in found] == [0, 1, 2]
    for number in range(1, 4):
        having = [each.number for each in found if each.takes(f"file:///lake/{number}/t")]
        assert having == [number if number < 3 else 0]
    # A further move has nothing of the others fetched again.
    before = {each.number: each.where for each in found}
    further = replace(known.fleet, moves=(*moves[:1], replace(moves[2], state=states[0])))
    after = {each.number: each.where for each in fetches(KnownFleet(further), "b")}
    assert after.keys() == {0, 1, 3}
    assert (after[1] == before[1], after[0] == before[0]) == (True, False)


def test_a_standby_without_a_seat_fetches_nothing_until_it_has_one(fleet, table):
    with joined(table.storage.base_path) as server:
        told = threading.Event()
        server.current.tell(joining(fleet.urls[0], standby=True), 1)
        server.warming.start(server.views)
        server.current.listen(lambda _: told.set())
        gone = joining(fleet.urls[0], "http://gone:1", standby=True)
        vacant = Fleet(tuple(each for each in gone.members if "gone" not in each.url), gone.seats)
        assert not server.is_ready.is_set()
        server.current.tell(vacant, 2)
        assert told.wait(PATIENCE_S)
        assert server.is_ready.wait(PATIENCE_S)
        assert server.warming.status() == {"taken": 1}
        server.check(table)


def test_tables_that_come_later_are_fetched_too(fleet, table):
    path = table.storage.base_path
    with joined(path, copies=1) as server:
        other, mine = Member("o", fleet.urls[0], False, 1), Member(ME, ME, False, 2)

        def seats(*numbers: int) -> tuple[HeldSeat, ...]:
            return (
                *(HeldSeat(number, ("o",), fleet.urls[0]) for number in numbers),
                HeldSeat(9, (ME,), ME),
            )

        text = f"file://{path}"
        # A seat of the other server that owns the table beside this one's; then one that doesn't.
        owning, not_owning = None, None
        # The path is another in each run, and may lie right before one of this server's tokens.
        for number in range(10, 100_000):
            owner = KnownFleet(
                Fleet((other, mine), seats(number)), 1, server.current.known.layout
            ).owners(text)[0]
            if owner.number == 9:
                not_owning = number
            else:
                owning = number
            if None not in (owning, not_owning):
                break
        assert owning is not None
        assert not_owning is not None
        server.current.tell(Fleet((other, mine), seats(owning)), 1)
        server.warming.start(server.views)
        assert server.is_ready.wait(PATIENCE_S)
        assert server.warming.status() == {}
        server.is_ready.clear()
        server.current.tell(Fleet((other, mine), seats(not_owning)), 2)
        assert server.is_ready.wait(PATIENCE_S)
        assert server.warming.status() == {"taken": 1}
        server.check(table)


class Halting(Neighbours):
    """Has two tables, and calls a function once the first half of a record has come."""

    def __init__(self, paths: tuple[str, str], stream: bytes, halfway: Callable[[], None]) -> None:
        super().__init__(None)
        self.paths, self.stream, self.halfway = paths, stream, halfway
        self.asked = 0

    def tables(self, url: str, within_s: float) -> tuple[str, ...]:
        return self.paths

    def record(self, url: str, base_path: str, most_bytes: int, within_s: float) -> Iterator[bytes]:
        self.asked += 1
        half = len(self.stream) // 2
        yield self.stream[:half]
        self.halfway()
        yield self.stream[half:]


def test_a_server_that_stops_takes_no_further_piece(table):
    path = f"file://{table.storage.base_path}"
    stopped = threading.Event()

    def stop() -> None:
        server.warming.stop()
        stopped.set()

    neighbours = Halting((path, f"{path}-2"), stream_of(table), stop)
    views = ViewManager([str(Path(table.storage.base_path).parent)])
    with closing(views):
        server = Joined(views, neighbours, Layout())
        server.current.tell(joining("http://a:1", "http://b:1"), 1)
        server.warming.start(views)
        assert stopped.wait(PATIENCE_S)
        wait_until(lambda: server.warming.status() == {"service_unreachable": 2})
        assert neighbours.asked == 1
        assert views.open_tables() == ()


def test_an_owner_s_tables_come_first_and_the_owner_s_record_before_a_copy_s() -> None:
    members = [Member(name, f"http://{name}:1", False, at) for at, name in enumerate("abcd", 1)]
    seats = tuple(HeldSeat(at, (each.name,), each.url) for at, each in enumerate(members))
    fleet = KnownFleet(Fleet(tuple(members), seats))
    tables = [f"file:///lake/{number}" for number in range(50)]
    opened = {f"http://{name}:1": tables for name in "bcd"}
    me = "http://a:1"
    found = wanted(fleet, me, opened)
    placed = {table: [seat.url for seat in fleet.owners(table)] for table in tables}
    assert {each.base_path for each in found} == {t for t in tables if me in placed[t]}
    assert 0 < len(found) < len(tables)
    owned = [placed[each.base_path][0] == me for each in found]
    assert owned == sorted(owned, reverse=True)
    for each in found:
        others = [url for url in placed[each.base_path] if url != me]
        assert list(each.urls[: len(others)]) == others
        assert sorted(each.urls) == sorted(opened)
    assert wanted(fleet, me, {}) == ()
    assert wanted(fleet, me, {"http://b:1": ["x"]}) in ((), (Wanted("x", ("http://b:1",)),))


def test_the_routes_open_nothing_and_want_the_token(fleet, table):
    client, base = fleet.client(0), {"basepath": table.storage.base_path}
    assert json.loads(client.request("GET", TABLES).body) == [f"file://{base['basepath']}"]
    sent = client.request("GET", RECORD, base)
    assert sent.headers["content-type"] == "application/octet-stream"
    assert sent.headers["transfer-encoding"] == "chunked"
    view = TableView(table.storage, record=kept_in(MemoryStore()))
    view.state.take([sent.body], PIECE_BYTES)
    view.newest()
    assert sorted(view.held_partitions()) == sorted(PARTITIONS)
    other = fleet.client(1)
    assert json.loads(other.request("GET", TABLES).body) == []
    assert other.request("GET", RECORD, base).status == HTTPStatus.NOT_FOUND
    assert json.loads(other.request("GET", TABLES).body) == []
    outside = other.request("GET", RECORD, {"basepath": "/"})
    assert outside.status == HTTPStatus.FORBIDDEN
    assert other.request("GET", RECORD).status == HTTPStatus.BAD_REQUEST
    other.token = None
    for path in (TABLES, RECORD):
        assert other.request("GET", path, base).status == HTTPStatus.UNAUTHORIZED


def test_a_server_on_its_own_has_no_such_routes(table):
    with serving(table.storage.base_path) as server:
        neighbours = Neighbours(TOKEN)
        with pytest.raises(ServiceError):
            neighbours.tables(server.url, PATIENCE_S)
        with pytest.raises(RemoteFailureError, match="answered with 404"):
            list(neighbours.record(server.url, table.storage.base_path, 1 << 20, PATIENCE_S))
