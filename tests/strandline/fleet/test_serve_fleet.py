"""``strandline serve`` as a fleet: servers are killed, replaced, and return."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from executor_proxy.seat_ring import Layout
from fsview.wire.marker_form import CREATE_MARKER
from fsview.wire.routes import BY_NAME
from tests.kit.formats.marker_name import marker_name
from tests.kit.servers.live_service import Answered, known
from tests.kit.tables.small_table import SmallTable
from tests.strandline.fleet.serve_fleet import (
    FleetServer,
    placed,
    refused,
    state_url,
    wait_for_seats,
    wait_until,
)
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.property

INSTANT = "20300101000000000"
LATEST, NEWEST = (BY_NAME[name].path for name in ("latest_base_files", "last_instant"))


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    found = SmallTable(LocalStorage(str(tmp_path / "lake" / "t")))
    found.write(("p=1", "a-0"), ("p=2", "b-0"))
    return found


class Fleet:
    """Starts servers of one lake, which end with the test."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack

    def start(self, name: str, *options: str) -> FleetServer:
        server = FleetServer(self.folder / "lake", self.folder, name, *options)
        return self._stack.enter_context(server)


@pytest.fixture
def fleet(tmp_path: Path, table: SmallTable) -> Iterator[Fleet]:
    with ExitStack() as stack:
        yield Fleet(tmp_path, stack)


def test_the_owner_answers_then_the_next_and_who_returns_has_its_seat(
    fleet: Fleet, table: SmallTable
) -> None:
    layout = Layout(copies=2)
    servers = [fleet.start(name, "--fleet-copies", "2") for name in "abc"]
    seats = {number: server.url for number, server in enumerate(servers)}
    wait_for_seats(servers, seats)
    owner, copy, other = placed(servers, table.storage.base_path, layout)
    asked = known(table.storage, partition="p=1")
    first = other.ask(LATEST, asked)
    assert first.status == 200
    assert b"a-0" in first.body
    assert (owner.asked(), copy.asked(), other.asked()) == (1, 0, 0)
    # Its death isn't known yet; the copy answers, also of a commit that it was never told of.
    owner.kill()
    assert other.ask(LATEST, asked).body == first.body
    newest = table.write(("p=1", "a-0"))
    base = {"basepath": table.storage.base_path}
    assert newest.encode() in other.ask(NEWEST, base).body
    assert copy.asked() >= 2
    assert other.asked() == 0
    left = {number: url for number, url in seats.items() if url != owner.url}
    wait_for_seats((copy, other), left)
    assert other.ask(LATEST, known(table.storage, partition="p=1")).status == 200
    owner.start()
    wait_for_seats(servers, seats)
    assert newest.encode() in other.ask(NEWEST, base).body
    assert owner.asked() >= 1


def loads(server: FleetServer) -> dict[str, int]:
    """Return how often a server has loaded partitions of the only table, by source."""
    (told,) = server.status()["tables"].values()
    found = told["counters"].items()
    return {name: n for name, n in found if name.startswith("partition_loads")}


@pytest.mark.parametrize("how", [(), ("--standby",)])
def test_who_takes_a_seat_has_the_tables_before_it_is_asked(
    fleet: Fleet, table: SmallTable, how: tuple[str, ...]
) -> None:
    a, b = fleet.start("a"), fleet.start("b")
    wait_for_seats((a, b), {0: a.url, 1: b.url})
    asked = [known(table.storage, partition=partition) for partition in ("p=1", "p=2")]
    for server in (a, b):
        assert [server.ask(LATEST, each).status for each in asked] == [200, 200]
    newest = table.write(("p=1", "a-0"))
    c = fleet.start("c", *how)
    if how:
        b.kill()
        wait_for_seats((a, c), {0: a.url, 1: c.url})
    else:
        wait_for_seats((a, b, c), {0: a.url, 1: b.url, 2: c.url})
    assert c.fleet()["records"] == {"taken": 1}
    assert loads(c) == {"partition_loads{source=record}": 2}
    asked = [known(table.storage, partition=partition) for partition in ("p=1", "p=2")]
    answers = [c.ask(LATEST, each) for each in asked]
    assert newest.encode() in answers[0].body
    assert [each.body for each in answers] == [a.ask(LATEST, each).body for each in asked]
    assert loads(c) == {"partition_loads{source=record}": 2}, "nothing was listed"


def test_with_a_shared_store_a_lost_owner_s_table_is_listed_by_nobody(
    fleet: Fleet, table: SmallTable, tmp_path: Path
) -> None:
    shared = ("--storage", "sql", "--store-url", f"sqlite://{tmp_path}/views.db")
    a, b = (fleet.start(name, "--fleet-copies", "1", *shared) for name in "ab")
    wait_for_seats((a, b), {0: a.url, 1: b.url})
    owner, other = placed((a, b), table.storage.base_path, Layout(copies=1))
    asked = known(table.storage, partition="p=1")
    first = other.ask(LATEST, asked)
    assert first.status == 200
    assert [server.fleet()["upkeep"]["leads"] for server in (a, b)] == [True, False]
    owner.kill()
    assert other.ask(LATEST, asked).body == first.body
    assert loads(other) == {"partition_loads{source=record}": 1}
    wait_until(lambda: other.fleet()["upkeep"]["leads"])


def test_a_server_that_is_started_again_at_once_waits_for_its_own_end(fleet: Fleet) -> None:
    # Its lease must last longer than a start on a busy machine.
    a, b = (fleet.start(name, "--fleet-dead", "12") for name in "ab")
    wait_for_seats((a, b), {0: a.url, 1: b.url})
    b.kill()
    waited: list[bytes] = []

    def look(line: bytes) -> None:
        if b"waiting: " in line:
            waited.append(line)
            with pytest.raises(ConnectionRefusedError):
                b.ask("/healthz", {})

    b.start(look)
    assert len(waited) == 1
    wait_for_seats((a, b), {0: a.url, 1: b.url})


def test_a_standby_takes_the_seat_and_who_returns_is_one(fleet: Fleet) -> None:
    a, b = fleet.start("a"), fleet.start("b")
    standby = fleet.start("s", "--standby")
    wait_for_seats((a, b, standby), {0: a.url, 1: b.url})
    a.kill()  # the leader
    wait_for_seats((b, standby), {0: standby.url, 1: b.url})
    assert b.fleet()["leader"] == b.url
    a.start()
    wait_until(lambda: len(b.fleet()["members"]) == 3)
    assert b.seats() == {0: standby.url, 1: b.url}


def test_a_server_that_hangs_is_replaced_and_joins_anew(fleet: Fleet, table: SmallTable) -> None:
    a, b = fleet.start("a"), fleet.start("b")
    wait_for_seats((a, b), {0: a.url, 1: b.url})
    standby = fleet.start("s", "--standby")
    a.hang()
    wait_for_seats((b, standby), {0: standby.url, 1: b.url})
    assert b.ask(LATEST, known(table.storage, partition="p=1")).status == 200
    a.send(signal.SIGCONT)
    wait_for_seats((a, b, standby), {0: standby.url, 1: b.url})
    wait_until(lambda: len(b.fleet()["members"]) == 3)


def test_an_owner_that_hung_calls_no_marker_new_that_its_successor_made(
    fleet: Fleet, table: SmallTable
) -> None:
    """It has kept the markers of its directory, and doesn't know yet that it has lost its seat."""
    a, b = (fleet.start(name, "--fleet-copies", "1") for name in "ab")
    wait_for_seats((a, b), {0: a.url, 1: b.url})
    owner, other = placed((a, b), table.storage.base_path, Layout(copies=1))
    standby = fleet.start("s", "--standby", "--fleet-copies", "1")
    folder = {"markerdirpath": f"{table.storage.base_path}/.hoodie/.temp/{INSTANT}"}

    def create(server: FleetServer, name: str) -> bytes:
        """Create a marker; a server in doubt says "ask again"."""
        marker = {**folder, "markername": marker_name(INSTANT, name)}
        answers: list[Answered] = []

        def is_settled() -> bool:
            answers.append(server.ask(CREATE_MARKER, marker, "POST"))
            return answers[-1].status != 503

        wait_until(is_settled)
        return answers[-1].body

    assert [create(server, "a") for server in (owner, other)] == [b"true", b"false"]
    owner.hang()
    wait_until(lambda: standby.url in other.seats().values())
    assert [create(other, name) for name in "abc"] == [b"false", b"true", b"true"]
    owner.send(signal.SIGCONT)
    assert [create(owner, name) for name in "abc"] == [b"false"] * 3
    assert standby.status()["markers"]["directories"] == 1


def test_a_server_that_is_told_to_end_leaves_at_once(fleet: Fleet, tmp_path: Path) -> None:
    # It would count as a member for an hour.
    slow = ("--fleet-heartbeat", "600", "--fleet-dead", "3600")
    a = fleet.start("a", *slow)
    with FleetServer(tmp_path / "lake", tmp_path, "b", *slow) as b:
        wait_for_seats((a,), {0: a.url, 1: b.url})
    wait_for_seats((a,), {0: a.url})
    assert a.fleet()["vacant"] == [1]


def test_the_last_seats_are_used_while_the_state_store_is_away(
    fleet: Fleet, table: SmallTable, tmp_path: Path
) -> None:
    a, b = (fleet.start(name, "--fleet-copies", "1") for name in "ab")
    seats = {0: a.url, 1: b.url}
    wait_for_seats((a, b), seats)
    owner, other = placed((a, b), table.storage.base_path, Layout(copies=1))
    state = tmp_path / "fleet.db"
    state.rename(tmp_path / "elsewhere.db")
    for server in (a, b):
        wait_until(lambda server=server: server.fleet()["trouble"] is not None)  # type: ignore[misc]
        assert "was deleted or replaced" in server.fleet()["trouble"]
        assert server.seats() == seats
    assert other.ask(LATEST, known(table.storage, partition="p=1")).status == 200
    assert (owner.asked(), other.asked()) == (1, 0)
    # No seat can have changed its holder, so the owner still creates markers.
    for server in (a, b):
        wait_until(lambda server=server: not server.fleet()["renewed"])  # type: ignore[misc]
    marker = {
        "markerdirpath": f"{table.storage.base_path}/.hoodie/.temp/{INSTANT}",
        "markername": marker_name(INSTANT, "a"),
    }
    made = [server.ask(CREATE_MARKER, marker, "POST").body for server in (other, owner)]
    assert made == [b"true", b"false"]
    assert owner.status()["markers"]["directories"] == 1
    assert other.ask("/healthz", {}).status == 200
    (tmp_path / "elsewhere.db").rename(state)
    for server in (a, b):
        wait_until(lambda server=server: server.fleet()["trouble"] is None)  # type: ignore[misc]
        assert server.seats() == seats


def test_a_server_that_drains_stays_a_member_until_it_ends(fleet: Fleet) -> None:
    """It hears of another one, which joins meanwhile, by its own heartbeats alone."""
    a = fleet.start("a", "--drain", "3600")
    wait_for_seats((a,), {0: a.url})
    a.send(signal.SIGTERM)
    wait_until(lambda: a.ask("/healthz", {}).status == 503)
    b = fleet.start("b")
    wait_for_seats((a, b), {0: a.url, 1: b.url})
    assert a.fleet()["renewed"]
    a.send(signal.SIGTERM)
    wait_for_seats((b,), {1: b.url})
    assert a.end() == 0
    assert a.log.read_text().count("draining for 3600 s") == 1


def test_what_is_no_member_is_refused_by_name(fleet: Fleet, tmp_path: Path) -> None:
    a = fleet.start("a")
    (tmp_path / "token").write_text("another")
    joins = ("--fleet", state_url(tmp_path), "--fleet-heartbeat", "0.3", "--fleet-dead", "1")
    lake, elsewhere = tmp_path / "lake", ("--advertise", "http://127.0.0.1:1")
    code, said = refused(lake, *joins, *elsewhere, "--token-file", str(tmp_path / "token"))
    assert code == 2
    assert "the server's token is *** with the mark" in said
    assert f"allowed: none, as at the member {a.url} (give all servers" in said
    code, said = refused(lake, *joins, *elsewhere, "--no-token", "--fleet-tokens", "7")
    assert code == 2
    assert f"strandline.fleet.tokens is 7; allowed: 100, as at the member {a.url}" in said
    (tmp_path / "pond").mkdir()
    code, said = refused(tmp_path / "pond", *joins, *elsewhere, "--no-token")
    assert code == 2
    assert said.startswith(f"the server's roots are {tmp_path}/pond; allowed: ")
    assert f"at the member {a.url} (give all servers of a group the same --root" in said
    code, said = refused(lake, *joins, "--advertise", a.url, "--no-token")
    assert code == 1
    assert f"a member of the fleet has the address {a.url}" in said
    assert a.seats() == {0: a.url}
