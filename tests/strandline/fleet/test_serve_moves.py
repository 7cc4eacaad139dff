"""``strandline serve``: tables move to another group of servers, whatever dies meanwhile."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fsview.wire.marker_form import CREATE_MARKER
from fsview.wire.routes import BY_NAME
from strandline.__main__ import main
from strandline.fleet.changes import await_move, plan_move
from strandline.fleet.mounts import Move, MoveState
from strandline.fleet.moving.neighbours import TABLES as TABLES_PATH
from strandline.fleet.records import read_fleet
from strandline.fleet.state.base import StateStore
from strandline.fleet.state.url import open_state
from tests.executor_proxy.scripted_server import Raw, Reply, Request, ScriptedServer
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.formats.marker_name import marker_name
from tests.kit.servers.live_service import HttpClient, known, serving
from tests.kit.tables.small_table import SmallTable
from tests.strandline.fleet.serve_fleet import FleetServer, state_url, wait_for_seats, wait_until
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.property

LATEST, NEWEST = (BY_NAME[name].path for name in ("latest_base_files", "last_instant"))
INSTANT = "20300101000000000"
TABLES = 3


class Lake:
    """Tables in ``hot`` at a server of the group default; another server of the group hot."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.tables = [
            SmallTable(LocalStorage(str(folder / "lake" / "hot" / f"t{number}")))
            for number in range(TABLES)
        ]
        for table in self.tables:
            table.write(("p=1", "a-0"), ("p=2", "b-0"))
        self.where = str(folder / "lake" / "hot")
        self._stack = stack
        self._started: list[FleetServer] = []
        self.a = self.start("a", "lake")
        self.b = self.start("b", "lake/hot", "--group", "hot")
        self.state: StateStore = stack.enter_context(closing(open_state(state_url(folder))))

    def start(self, name: str, root: str | None, *options: str) -> FleetServer:
        place = None if root is None else self.folder / root
        server = self._stack.enter_context(FleetServer(place, self.folder, name, *options))
        self._started.append(server)
        return server

    def resume(self) -> None:
        """Have stopped servers go on: they can't end otherwise."""
        for server in self._started:
            if server.is_up and server.is_stopped():
                server.send(signal.SIGCONT)

    def ask(self, server: FleetServer) -> list[bytes]:
        """Return a server's answers about all partitions, as a client at the newest instant."""
        answers = [
            server.ask(LATEST, known(table.storage, partition=partition))
            for table in self.tables
            for partition in ("p=1", "p=2")
        ]
        assert [answer.status for answer in answers] == [200] * len(answers)
        return [answer.body for answer in answers]

    def built_anew(self) -> list[bytes]:
        """Return the same answers of a service of its own, which opens the tables now."""
        with (
            serving(str(self.folder / "lake")) as service,
            HttpClient(service.port) as client,
        ):
            return [
                client.request("GET", LATEST, known(table.storage, partition=partition)).body
                for table in self.tables
                for partition in ("p=1", "p=2")
            ]

    def create(self, server: FleetServer, name: str) -> tuple[int, bytes]:
        base = self.tables[0].storage.base_path
        params = {
            "markerdirpath": f"{base}/.hoodie/.temp/{INSTANT}",
            "markername": marker_name(INSTANT, name),
        }
        answered = server.ask(CREATE_MARKER, params, "POST")
        return answered.status, answered.body

    def run(self, *arguments: str) -> Result:
        verb, *rest = arguments
        return CliRunner().invoke(main, ["fleet", verb, state_url(self.folder), *rest])

    def all_know(self, *servers: FleetServer) -> None:
        """Wait until servers, by default a and b, have read what the state store has."""
        epoch = read_fleet(self.state).epoch
        for server in servers or (self.a, self.b):
            wait_until(lambda server=server: server.fleet()["epoch"] == epoch)  # type: ignore[misc]

    def order(self) -> Move:
        return plan_move(self.state, self.where, "hot", now_ms=0)

    def end(self, move: Move) -> Move:
        return await_move(self.state, move, lambda _: None, PATIENCE_S)


def until(lake: Lake, move: Move, state: MoveState) -> None:
    """Wait until a move has reached a state; it stays there if a server is stopped."""

    def is_there() -> bool:
        moves = {each.number: each.state for each in read_fleet(lake.state).fleet.moves}
        return moves.get(move.number) is state

    wait_until(is_there)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with ExitStack() as stack:
        made = Lake(tmp_path, stack)
        wait_for_seats((made.a, made.b), {0: made.a.url, 1: made.b.url})
        try:
            yield made
        finally:
            made.resume()


def test_tables_move_and_come_back(lake: Lake) -> None:
    a, b = lake.a, lake.b
    before = lake.ask(a)
    assert (a.status()["open_tables"], b.status()["open_tables"]) == (TABLES, 0)
    assert lake.create(a, "x") == (200, b"true")
    done = lake.run("move", lake.where + "/", "hot")
    assert done.exit_code == 0, done.output
    states = [line.rpartition(": ")[2] for line in done.output.splitlines()]
    assert states[0] == "PLANNED"
    assert states[-1] == "DONE"
    assert (a.status()["open_tables"], b.status()["open_tables"]) == (0, TABLES)
    assert b.fleet()["records"] == {"taken": TABLES}
    lake.all_know()  # one that is late forwards to the former server, which answers
    assert lake.ask(b) == lake.ask(a) == before == lake.built_anew()
    lake.tables[0].write(("p=1", "c-0"))
    assert files(lake.ask(b)) == files(lake.ask(a)) == files(lake.built_anew())
    for told in b.status()["tables"].values():
        loads = {n: v for n, v in told["counters"].items() if n.startswith("partition_load")}
        assert loads == {"partition_loads{source=record}": 2}, "nothing was listed"
    assert a.status()["open_tables"] == 0, "it forwards"
    assert [lake.create(server, "x") for server in (a, b)] == [(200, b"false")] * 2
    assert [lake.create(server, "y")[1] for server in (a, b)] == [b"true", b"false"]
    assert b.status()["markers"]["directories"] == 1
    assert a.status()["markers"]["directories"] == 0
    reached = {"DONE": 1, "DROPPING": 1, "FLIPPED": 1, "WARMING": 1}
    assert a.fleet()["moved"]["reached"] == reached, "it leads"
    assert b.fleet()["moved"]["reached"] == {}
    told = a.ask("/metrics", {}).body.decode()
    assert 'strandline_fleet_moves_total{state="DONE"} 1.0' in told
    back = lake.run("move", lake.where, "default", "--json")
    assert back.exit_code == 0, back.output
    assert json.loads(back.output)["state"] == "DONE"
    lake.all_know()
    assert read_fleet(lake.state).fleet.mounts.mounts == (), "as before"
    assert [lake.create(server, "y")[1] for server in (a, b)] == [b"false"] * 2
    assert files(lake.ask(a)) == files(lake.built_anew())
    assert b.status()["open_tables"] == 0
    rows = json.loads(lake.run("moves", "--json").output)["moves"]
    assert [(row["destination"], row["state"]) for row in rows] == [
        ("default", "DONE"),
        ("hot", "DONE"),
    ]


def files(answers: list[bytes]) -> list[list[str]]:
    """Return the paths and lengths of files; times of those that commits name are the commits'."""
    return [
        sorted(
            f"{row['fullPath']} {row['fileLen']} {row['commitTime']}" for row in json.loads(each)
        )
        for each in answers
    ]


class Asking:
    """Clients that ask servers about all tables, over and over, until the block ends.

    Attributes:
        odd: Answers that weren't as before: status and body.
    """

    def __init__(self, lake: Lake, *servers: FleetServer) -> None:
        self.odd: list[tuple[int, bytes]] = []
        self.rounds = 0
        self._lake, self._servers = lake, servers
        self._ends = threading.Event()
        self._asked = [
            known(table.storage, partition=partition)
            for table in lake.tables
            for partition in ("p=1", "p=2")
        ]
        self._expected = lake.ask(lake.a)
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Asking:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        while not self._ends.is_set():
            for server in self._servers:
                for asked, body in zip(self._asked, self._expected, strict=True):
                    answer = server.ask(LATEST, asked)
                    if (answer.status, answer.body) != (200, body):
                        self.odd.append((answer.status, answer.body))
            self.rounds += 1


def test_look_ups_through_a_router_go_on_while_tables_move(lake: Lake) -> None:
    router = lake.start("r", None, "--router")
    wait_until(lambda: len(router.fleet()["members"]) == 3)
    with Asking(lake, router, lake.b) as asking:
        for group in ("hot", "default", "hot"):
            before = asking.rounds
            move = plan_move(lake.state, lake.where, group, now_ms=0)
            assert lake.end(move).state is MoveState.DONE
            wait_until(lambda before=before: asking.rounds >= before + 2)  # type: ignore[misc]
    assert asking.odd == []
    assert router.status()["open_tables"] == 0


def test_a_leader_that_is_killed_leaves_a_move_undone_or_finished(lake: Lake) -> None:
    """The leader is the source: it is killed while the destination can't acknowledge."""
    a, b = lake.a, lake.b
    before = lake.ask(a)
    b.hang()
    move = lake.order()
    until(lake, move, MoveState.WARMING)
    a.kill()
    b.send(signal.SIGCONT)
    ended = lake.end(move)
    assert ended.state is MoveState.UNDONE
    assert ended.why == "the leader that carried it out has ended; order it again"
    a.start()
    wait_for_seats((a, b), {0: a.url, 1: b.url})
    assert lake.ask(a) == lake.ask(b) == before
    again = lake.run("move", lake.where, "hot")
    assert again.exit_code == 0, again.output
    wait_until(lambda: a.status()["open_tables"] == 0)
    assert lake.ask(a) == before


def test_a_destination_that_is_killed_has_the_move_undone(lake: Lake) -> None:
    a, b = lake.a, lake.b
    b.hang()
    move = lake.order()
    until(lake, move, MoveState.WARMING)
    b.kill()
    ended = lake.end(move)
    assert (ended.state, ended.why) == (MoveState.UNDONE, "the group hot has no server")
    refused = lake.run("move", lake.where, "hot")
    assert refused.exit_code == 2
    assert "the group hot has no server; allowed: none, as no other group has any" in refused.output
    assert lake.create(a, "x") == (200, b"true")


@pytest.fixture
def listing() -> Iterator[str]:
    """Address of what lists no tables in a server's place, and breaks all other connections off."""

    def script(request: Request) -> Reply | Raw:
        return Reply(b"[]") if request.path == TABLES_PATH else Raw()

    with ScriptedServer(script) as running:
        yield running.url


def test_creations_are_held_until_a_stopped_server_of_the_source_knows(
    lake: Lake, listing: str
) -> None:
    """It counts as alive for a minute, and doesn't acknowledge before it goes on."""
    a, b = lake.a, lake.b
    # The move would wait for its list of tables before the flip.
    other = lake.start("o", "lake", "--fleet-dead", "60", "--advertise", listing)
    other.url = listing
    wait_for_seats((a, b, other), {0: a.url, 1: b.url, 2: other.url})
    before = lake.ask(a)
    other.hang()
    move = lake.order()
    wait_until(
        lambda: (
            [(m["state"], m["waits_for"]) for m in b.fleet()["moves"]] == [("FLIPPED", [other.url])]
        )
    )
    # A look-up is answered by anybody.
    assert lake.ask(b) == lake.ask(a) == before
    for server in (b, a):
        status, body = lake.create(server, "x")
        assert status == 503
        assert f"the table has come to {b.url}, which {other.url} may not know".encode() in body
    other.send(signal.SIGCONT)
    assert lake.end(move).state is MoveState.DONE
    wait_until(lambda: b.fleet()["moves"] == [])
    assert [lake.create(server, "x")[1] for server in (b, a, other)] == [
        b"true",
        b"false",
        b"false",
    ]
    assert lake.ask(other) == before


def test_a_source_that_is_killed_does_not_hold_the_move(lake: Lake) -> None:
    a, b = lake.a, lake.b
    router = lake.start("r", None, "--router")
    wait_until(lambda: len(router.fleet()["members"]) == 3)
    before = lake.ask(a)
    a.hang()
    # Nobody leads until the lease of a ends; then b does.
    move = lake.order()
    a.kill()
    assert lake.end(move).state is MoveState.DONE
    lake.all_know(router, b)
    assert lake.ask(router) == lake.ask(b) == before
    assert lake.create(router, "x") == (200, b"true")
    a.start()
    wait_until(lambda: a.seats() == {0: a.url, 1: b.url})
    assert lake.create(a, "x") == (200, b"false")


def test_two_movers_and_what_is_refused_meanwhile(lake: Lake) -> None:
    lake.b.hang()
    move = lake.order()
    until(lake, move, MoveState.WARMING)
    fleet = state_url(lake.folder)
    for arguments in (
        ("move", fleet, f"{lake.where}/t1", "hot"),
        ("move", fleet, str(lake.folder / "lake"), "hot"),
        ("mount", "add", fleet, f"{lake.where}/t1", "hot"),
    ):
        refused = CliRunner().invoke(main, ["fleet", *arguments])
        assert refused.exit_code == 2
        said = f"move {move.number} of {lake.where} from default to hot is WARMING, and concerns"
        assert said in refused.output
    shown = lake.run("moves")
    assert shown.output.splitlines() == [
        f"move {move.number} of {lake.where} from default to hot: WARMING, waits for {lake.b.url}"
    ]
    undone = lake.run("moves", "--undo", str(move.number))
    assert undone.exit_code == 0, undone.output
    assert "UNDONE, as an operator has undone it" in undone.output
    lake.b.send(signal.SIGCONT)
    twice = lake.run("moves", "--undo", str(move.number))
    assert twice.exit_code == 2
    assert f"no move {move.number} is under way; allowed: none, now" in twice.output


def test_a_destination_that_can_not_read_a_table_has_the_move_undone(lake: Lake) -> None:
    """It takes the record, but its timeline is gone when it looks."""
    a = lake.a
    before = lake.ask(a)
    base = Path(lake.tables[0].storage.base_path)
    properties = base / ".hoodie" / "hoodie.properties"
    text = properties.read_bytes()
    properties.write_bytes(b"hoodie.table.version=99")
    done = lake.run("move", lake.where, "hot")
    assert done.exit_code == 1, done.output
    assert f"UNDONE, as {lake.b.url} can't take the tables: file://{base}: " in done.output
    properties.write_bytes(text)
    assert lake.ask(a) == before
