"""A server that takes a seat fetches its tables' records from its neighbours."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

import pytest

from executor_proxy.exchange import Timeouts
from executor_proxy.placement import Layout
from fsview.local_view import LocalView
from fsview.state.record_stream import PIECE_BYTES
from fsview.store.stores import Stores
from fsview.table_view import TableView
from fsview.view_manager import ViewManager
from fsview.wire.routes import BY_NAME
from strandline.fleet.current import CurrentFleet, KnownFleet
from strandline.fleet.neighbours import RECORD, TABLES, Neighbours
from strandline.fleet.seats import Fleet, HeldSeat, Member
from strandline.fleet.warming import Wanted, Warming, wanted
from tests.executor_proxy.scripted_server import Hang, Raw, Reply, Request, Script, ScriptedServer
from tests.kit.live_service import TOKEN, known, serving
from tests.kit.patience import PATIENCE_S
from tests.kit.rebuilt import differences_from_rebuilt
from tests.kit.small_table import SmallTable
from tests.kit.stores import ALL_KINDS, options_of
from tests.strandline.fleet.fixed_fleet import FixedFleet, fixed_fleet
from timeline.errors import BadAnswerError, RemoteFailureError, ServiceError
from timeline.storage.local import LocalStorage

ME = "http://me:1"
PARTITIONS = tuple(f"p={number}" for number in range(4))
LATEST = BY_NAME["latest_base_files"].path


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    found = SmallTable(LocalStorage(str(tmp_path / "t")))
    found.write(*((partition, f"{number}-0") for number, partition in enumerate(PARTITIONS)))
    return found


@pytest.fixture
def fleet(table: SmallTable) -> Iterator[FixedFleet]:
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
) -> Iterator[Joined]:
    views = ViewManager(roots, stores=stores)
    server = Joined(views, Asked(hanging), Layout(copies=copies))
    try:
        yield server
    finally:
        server.warming.stop()
        views.close()


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


def test_a_table_that_is_open_is_not_fetched(fleet, table):
    with joined(table.storage.base_path) as server:
        server.views.view(table.storage.base_path)
        assert server.fetch(fleet.urls[0]) == {}


def test_a_table_outside_the_roots_is_refused(fleet, tmp_path):
    (tmp_path / "other").mkdir()
    with joined(str(tmp_path / "other")) as server:
        assert server.fetch(fleet.urls[0]) == {"root_not_allowed": 1}


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
        for number in range(10, 210):
            owner = KnownFleet(
                Fleet((other, mine), seats(number)), 1, server.current.known.layout
            ).owners(text)[0]
            if owner.number == 9:
                not_owning = number
            else:
                owning = number
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


def tables_then(table: SmallTable, record: object) -> Script:
    """Return a neighbour that has the table, and answers so when its record is asked for."""

    def script(request: Request) -> Reply | Raw | Hang:
        headers = {name.lower(): value for name, value in request.headers.items()}
        assert headers["authorization"] == f"Bearer {TOKEN}"
        if request.path == TABLES:
            return Reply(json.dumps([f"file://{table.storage.base_path}"]).encode())
        assert request.path == RECORD
        assert request.params == {"basepath": f"file://{table.storage.base_path}"}
        return record  # type: ignore[return-value]

    return script


def hanging(server: ScriptedServer, code: str, path: str) -> tuple[str, str] | None:
    return (server.url, path) if code == "service_timeout" else None


def stream_of(table: SmallTable) -> bytes:
    view = TableView(table.storage)
    LocalView.newest(view).load_all_partitions()
    stream = view.record()
    assert stream is not None
    return b"".join(stream)


def chunked(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"%x\r\n%b\r\n" % (
        len(body),
        body,
    )


def other_table(table: SmallTable) -> bytes:
    path = f"{table.storage.base_path}-other"
    other = SmallTable(LocalStorage(path))
    other.write(("p=0", "0-0"))
    return stream_of(other)


BAD: dict[str, tuple[Callable[[SmallTable], object], str]] = {
    "killed in mid-stream": (
        lambda table: Raw(chunked(stream_of(table)[:1000])),
        "service_unreachable",
    ),
    "killed in a chunk": (
        lambda table: Raw(chunked(stream_of(table))[:1000]),
        "service_unreachable",
    ),
    "killed before the length": (
        lambda table: Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n" + stream_of(table)),
        "service_unreachable",
    ),
    "gone": (lambda _: Raw(), "service_unreachable"),
    "hangs": (lambda _: Hang(), "service_timeout"),
    "without its end": (lambda table: Reply(stream_of(table)[:-50]), "bad_answer"),
    "damaged": (
        lambda table: Reply(stream_of(table).replace(b'"format"', b'"famort"')),
        "bad_answer",
    ),
    "of another table": (lambda table: Reply(other_table(table)), "bad_answer"),
    "goes on": (lambda table: Reply(stream_of(table) + b"x"), "bad_answer"),
    "a huge frame": (
        lambda _: Reply(b"strandline record 1\n\1\0\0\0\0\xff\xff\xff\xff"),
        "bad_answer",
    ),
    "no HTTP": (lambda _: Raw(b"\0" * 100), "bad_answer"),
    "a bad chunk": (
        lambda _: Raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-1\r\n"),
        "service_unreachable",
    ),
    "closed meanwhile": (lambda _: Reply(b"no view is open", status=404), "remote_failure"),
    "another token": (lambda _: Reply(b"no", status=401), "remote_failure"),
}


@pytest.mark.parametrize(("record", "code"), BAD.values(), ids=BAD)
def test_a_record_that_can_not_be_taken_is_the_next_neighbours(fleet, table, record, code):
    with (
        ScriptedServer(tables_then(table, record(table))) as bad,
        joined(table.storage.base_path, hanging=hanging(bad, code, RECORD)) as server,
    ):
        counts = server.fetch(bad.url, fleet.urls[0])
        # Which of the two comes first, the ring says.
        assert counts in ({code: 1, "taken": 1}, {"taken": 1})
        server.check(table)


@pytest.mark.parametrize(("record", "code"), BAD.values(), ids=BAD)
def test_without_another_neighbour_the_table_is_loaded_as_before(table, record, code):
    with (
        ScriptedServer(tables_then(table, record(table))) as bad,
        joined(table.storage.base_path, hanging=hanging(bad, code, RECORD)) as server,
    ):
        assert server.fetch(bad.url) == {code: 1, "loaded": 1}
        server.check(table, is_taken=False)


def test_a_record_that_is_too_long_is_not_taken(fleet, table, tmp_path):
    stores = Stores(options_of("memory", tmp_path, 4 * 100))
    with joined(table.storage.base_path, stores=stores) as server:
        assert server.fetch(fleet.urls[0]) == {"bad_answer": 1, "loaded": 1}


@pytest.mark.parametrize(
    ("told", "code"),
    [
        (Reply(b"{}"), "bad_answer"),
        (Reply(b"[1]"), "bad_answer"),
        (Reply(b"\xff"), "bad_answer"),
        (Reply(b"no", status=401), "remote_failure"),
        (Raw(), "service_unreachable"),
        (Hang(), "service_timeout"),
        (Reply(b'["", "relative", "s3://elsewhere/t"]'), ""),
    ],
)
def test_a_neighbour_that_tells_nothing_of_use_keeps_nobody_waiting(fleet, table, told, code):
    with (
        ScriptedServer(lambda _: told) as bad,
        joined(table.storage.base_path, hanging=hanging(bad, code, TABLES)) as server,
    ):
        counts = server.fetch(bad.url, fleet.urls[0])
        assert counts.pop("taken") == 1
        assert counts == ({code: 1} if code else {"input": 2, "root_not_allowed": 1})
        server.check(table)


def test_a_neighbour_with_an_address_that_is_none_is_left_out(fleet, table):
    with joined(table.storage.base_path) as server:
        assert server.fetch("ftp://a", fleet.urls[0]) == {"config": 1, "taken": 1}


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
    view = TableView(table.storage)
    view.take([sent.body], PIECE_BYTES)
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


def test_a_stream_longer_than_asked_for_is_broken_off(fleet, table):
    """The socket counts, too: a length isn't believed."""
    with ScriptedServer(lambda _: Reply(b"x" * (8 << 20))) as long:
        stream = Neighbours(TOKEN).record(long.url, "/t", 10, PATIENCE_S)
        with pytest.raises(BadAnswerError, match="longer than"):
            list(stream)
