"""A lake whose tables move between two groups of servers while jobs use them through routers.

The clients are threads:

* a Spark job writes tables of ours, and its tasks look them up (``tests.fleet.fleet_job``),
* a Spark job of Hudi's writes its own tables; it names one host, as if there were a load balancer
  before the routers,
* one asks about tables as Hudi's clients do, and compares with a view that it builds anew,
* one creates markers, each at both routers.
"""

from __future__ import annotations

import itertools
import json
import logging
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from executor_proxy.seat_ring import Layout, Seat, owners
from fsview.wire.marker_form import CREATE_MARKER
from strandline.fleet.changes import await_move, plan_move
from strandline.fleet.mounts import OVER, Move, MoveState
from strandline.fleet.records import read_fleet
from strandline.fleet.state.base import StateStore
from strandline.fleet.state.url import open_state
from tests.fleet.answers import Question, built_anew
from tests.fleet.fleet_job import COPIES, REGIONS, FleetJob
from tests.fleet.rounds import Rounds, Work
from tests.fleet.two_creators import Known, known_of, may_both_create
from tests.kit.concurrency.patience import PATIENCE_S, pause
from tests.kit.concurrency.wall_clock import WallClock
from tests.kit.formats.marker_name import marker_name
from tests.kit.servers.live_service import Answered, HttpClient
from tests.kit.servers.tcp_relay import TcpRelay
from tests.kit.tables.small_table import SmallTable
from tests.oracle.drop_in.jobs import CITIES, KINDS, RETRYING, Job, pointed_at
from tests.oracle.drop_in.recording_relay import OK, Exchange, RecordingRelay
from tests.oracle.hudi import Hudi
from tests.strandline.fleet.serve_fleet import FleetServer, wait_until
from timeline.storage.base import Storage
from timeline.storage.local import LocalStorage
from timeline.storage.table_id import TableId

logger = logging.getLogger(__name__)

DEFAULT, HOT = "default", "hot"
OURS, HUDIS, ASKER, MARKER = "ours", "Hudi's", "asker", "marker"
STATUS: Final = "/v1/strandline/status"
STATUS_S: Final = 1.0
"""How long a member's status is waited for."""
ANSWER_S: Final = 20.0
"""How long a client waits for an answer, before it asks the next router."""
PAUSE_S: Final = 0.3
"""Of threads that ask, so that the jobs have the machine's cores."""
ATTEMPTS: Final = 12
"""Moves to and fro until one is seen in a state, which may last for milliseconds."""
INSTANT: Final = "20300101000000000"
RETRIES: Final = 5
"""Most times that Hudi's job asks again, for some seconds in all; then it fails."""
HUDI_KINDS: Final = (KINDS[0], KINDS[3])


@dataclass(frozen=True)
class Place:
    """A state store to which each server has lines of its own.

    Attributes:
        ports: Where its servers listen.
        url: Returns its URL by way of other ports.
    """

    ports: Sequence[int]
    url: Callable[[Sequence[int]], str]


class MovingLake:
    """Two groups of two servers, two routers, the tables and their clients.

    Attributes:
        servers: The members that may have seats, those of the group default first.
        routers: The routers.
        clocks: The wall clocks of servers and routers, if they have one of their own.
        balancer: What Hudi's job names as its server; leads to one of the routers.
        state: The state store.
        struck: How many faults struck moves in which state.
        failed: Answers of routers that the thread that asks had to ask again for, by status; 0:
            there was none.
        refused: What servers that it asks directly answered in place of 200, by status.
    """

    def __init__(
        self,
        hudi: Hudi,
        folder: Path,
        place: Place,
        stack: ExitStack,
        *,
        has_clocks: bool,
        retries: int,
    ) -> None:
        self.folder, self._place, self._stack = folder, place, stack
        self._has_clocks = has_clocks
        self.clocks: dict[FleetServer, WallClock] = {}
        self.lake, self.hot = folder / "lake", folder / "lake" / "hot"
        self.hot.mkdir(parents=True)
        self.marked = SmallTable(LocalStorage(str(self.hot / "marked")))
        self.marked.write(("p=1", "a-0"))
        self._lines: dict[FleetServer, list[TcpRelay]] = {}
        self.servers = [
            *(self._start(name, self.lake) for name in "ab"),
            *(self._start(name, self.hot, "--group", HOT) for name in "cd"),
        ]
        self.routers = [self._start(name, None, "--router") for name in ("r1", "r2")]
        self.balancer = stack.enter_context(RecordingRelay(self.routers[0].port))
        self.state: StateStore = stack.enter_context(closing(open_state(place.url(place.ports))))
        urls = tuple(router.url for router in self.routers)
        bases = (self.hot / "t0", self.hot / "t1", self.lake / "cool")
        self.ours = [FleetJob(hudi.spark, base, urls) for base in bases]
        often = {"hoodie.filesystem.view.remote.retry.max_numbers": str(retries)}
        pointed = pointed_at(self.balancer.port) | RETRYING | often
        self.hudis = [Job(hudi, self.hot / str(kind), kind, pointed) for kind in HUDI_KINDS]
        self._tables: list[tuple[Storage, tuple[str, ...]]] = [
            *((LocalStorage(str(base)), REGIONS) for base in bases),
            *((LocalStorage(str(job.path)), _folders(CITIES)) for job in self.hudis),
        ]
        self._rounds = Rounds()
        self._turns = {who: itertools.count() for who in (OURS, HUDIS, ASKER, MARKER)}
        self.struck: Counter[str] = Counter()
        self.failed: Counter[int] = Counter()
        self.refused: Counter[int] = Counter()
        self._seats: list[int] = []
        self._stood_in: dict[str, int] = {}

    def _start(self, name: str, root: Path | None, *options: str) -> FleetServer:
        lines = [self._stack.enter_context(TcpRelay(port)) for port in self._place.ports]
        state = self._place.url([line.port for line in lines])
        options = ("--fleet-copies", str(COPIES), *options)
        clock = WallClock(self.folder, name) if self._has_clocks else None
        inside = () if clock is None else clock.inside
        server = FleetServer(root, self.folder, name, *options, state=state, inside=inside)
        if clock is not None:
            self.clocks[server] = clock
        self._stack.enter_context(server)
        self._lines[server] = lines
        return server

    @property
    def members(self) -> list[FleetServer]:
        """All servers and routers."""
        return [*self.servers, *self.routers]

    # Clients.

    @contextmanager
    def used(self) -> Iterator[None]:
        """Have clients within the block; afterwards check rows, answers and requests."""
        by_url = {url: number for number, url in self.routers[0].seats().items()}
        self._seats = [by_url[server.url] for server in self.servers]
        for ours in self.ours:
            ours.write()
        for job in self.hudis:
            job.write("bulk_insert", job.changed(CITIES, range(8)))
        works: dict[object, Work] = {OURS: self._work, HUDIS: self._write}
        works |= {ASKER: self._ask, MARKER: self._mark}
        try:
            with self._rounds.of(works):
                self.go_on()
                yield
        finally:
            self._resume()
        self._check_the_end()

    def go_on(self) -> None:
        """Wait until our job and the one that asks have got on, and a write of Hudi's has ended."""
        self._rounds.go_on((HUDIS,), self.told, rounds=1)
        self.look_up()

    def look_up(self) -> None:
        """Wait until tables have been looked up."""
        self._rounds.go_on((OURS, ASKER), self.told)

    def ask(self) -> None:
        """Wait until the client that asks has got on, which needs no core of Spark's."""
        self._rounds.go_on((ASKER,), self.told)

    def told(self) -> str:
        """Return what clients have met."""
        seen = self.balancer.exchanges
        lost = Counter(one.status for one in seen if one.status != OK)
        most = max(_in_vain(seen, max).values(), default=0)
        tasks = sum((ours.looked.sources for ours in self.ours), Counter[str]())
        return (
            f"rounds {dict(self._rounds.counted)}; faults at moves {dict(self.struck)};"
            f" Hudi's requests {len(seen)}, of which asked again {dict(lost)}, one {most} times at"
            f" most; look-ups of tasks {dict(tasks)};"
            f" those of the client that asks, asked again: {dict(self.failed)};"
            f" refused by servers: {dict(self.refused)}"
        )

    def _work(self) -> bool:
        turn = next(self._turns[OURS])
        return self.ours[turn % len(self.ours)].run()

    def _write(self) -> bool:
        """Write a table with Hudi, and read it with Hudi from time to time."""
        turn = next(self._turns[HUDIS])
        job = self.hudis[turn % len(self.hudis)]
        first = turn % 9
        job.write("upsert", job.changed(CITIES[: 1 + turn % 3], range(first, first + 4)))
        if turn % 6 < len(self.hudis):
            job.check()
        return True

    def _ask(self) -> bool:
        """Ask about a table through the routers, and one of the servers, too."""
        turn = next(self._turns[ASKER])
        questions = built_anew(*self._tables[turn % len(self._tables)])
        for question in questions:
            question.check(self._routed(question), "a router")
        server = self.servers[turn % len(self.servers)]
        for question in questions:
            answered = self._answered(server, question)
            if answered is None:
                break  # a fault struck it: its clients go on with another one
            if answered.status == OK:
                question.check(answered.body, server.url)
            else:
                self.refused[answered.status] += 1
        self._rounds.rest(PAUSE_S)
        return True

    def _routed(self, question: Question) -> bytes:
        """Return an answer; whoever gets none asks once again, at the other router."""
        said = b""
        for router in self._by_turns():
            answered = self._answered(router, question)
            if answered is not None and answered.status == OK:
                return answered.body
            self.failed[0 if answered is None else answered.status] += 1
            said = b"no answer" if answered is None else answered.body
        raise AssertionError(f"{question.path} {question.params} fails twice: {said!r}")

    def _by_turns(self) -> list[FleetServer]:
        """Return the router to which the balancer leads, then the other one."""
        return sorted(self.routers, key=lambda each: each.port != self.balancer.upstream)

    def _answered(self, server: FleetServer, question: Question) -> Answered | None:
        try:
            with HttpClient(server.port, None) as asked:
                asked.connection.timeout = ANSWER_S
                return asked.request("GET", question.path, question.params)
        except (OSError, HTTPException):
            return None

    def _mark(self) -> bool:
        """Create a marker at both routers; at most one of them calls it new.

        But for what docs/markers.md names, "In a fleet": see ``tests.fleet.two_creators``.
        """
        name = marker_name(INSTANT, f"m{next(self._turns[MARKER])}")
        base = self.marked.storage.base_path
        params = {"markerdirpath": f"{base}/.hoodie/.temp/{INSTANT}", "markername": name}
        told = []
        self._stood_in |= self._stand_ins()
        moments = [self._known()]
        for router in self._by_turns():
            with suppress(OSError, HTTPException):  # it may be there
                answered = router.ask(CREATE_MARKER, params, "POST")
                told += [answered.body] if answered.status == OK else []
            moments.append(self._known())
        if told.count(b"true") > 1:
            now = self._stand_ins()
            assert may_both_create(moments, self._stood_in, now), (
                f"{name} is new twice, and both routers knew, and could ask, the same owner:"
                f" {moments}, {self._stood_in}, {now}"
            )
        self._rounds.rest(PAUSE_S)
        return b"true" in told

    def _known(self) -> dict[str, Known]:
        """Return what each router that answers knows of who has the table of the markers."""
        table = str(TableId.of(self.marked.storage.base_path).normal())
        seats = {DEFAULT: self._seats[:2], HOT: self._seats[2:]}
        found = {}
        for router in self.routers:
            told = self._told(router)
            if told is not None:
                # The mount of the tables that move is the only one.
                group = HOT if told["groups"].get(HOT, {}).get("mounts") else DEFAULT
                ready = {each["seat"]: each["url"] for each in told["members"] if each["ready"]}
                found[router.url] = known_of(group, seats, ready, table, Layout(copies=COPIES))
        return found

    def _stand_ins(self) -> dict[str, int]:
        """Return how many markers each server that answers has created in place of an owner."""
        told = {server.url: self._told(server) for server in self.servers}
        return {url: each["creations"]["served_here"] for url, each in told.items() if each}

    def _told(self, server: FleetServer) -> dict[str, Any] | None:
        """Return the fleet as a member knows it; ``None`` if it doesn't answer at once."""
        with suppress(OSError, HTTPException), HttpClient(server.port, None) as asked:
            asked.connection.timeout = STATUS_S
            found: dict[str, Any] = json.loads(asked.request("GET", STATUS).body)["fleet"]
            return found
        return None

    # Moves.

    def order(self) -> Move:
        """Order that the tables move to the group that doesn't have them."""
        now = read_fleet(self.state).fleet.mounts.group(self._prefix)
        return plan_move(self.state, str(self.hot), HOT if now == DEFAULT else DEFAULT, now_ms=0)

    @property
    def _prefix(self) -> str:
        return str(TableId.of(str(self.hot)).normal())

    def sees(self, move: Move, state: MoveState) -> bool:
        """Wait until a move has reached a state; return whether it was seen in it."""
        order = list(MoveState)
        while True:
            moves = {each.number: each.state for each in read_fleet(self.state).fleet.moves}
            now = moves.get(move.number, MoveState.DONE)
            if now is state or order.index(now) > order.index(state):
                return now is state

    def end(self, move: Move) -> Move:
        """Wait until a move has ended."""
        ended = await_move(self.state, move, lambda _: None, 3 * PATIENCE_S)
        assert ended.state in OVER, f"{ended} is {ended.state.name}; {self.told()}"
        self._rounds.check()
        return ended

    def move(self) -> None:
        """Move the tables without a fault; the source's memory falls."""
        move = self.order()
        before = self.used_bytes(move.source)
        ended = self.end(move)
        assert ended.state is MoveState.DONE, ended.why
        for server in self.group(move.source):
            wait_until(lambda server=server: self.open_tables(server) == 0)  # type: ignore[misc]
        assert self.used_bytes(move.source) < before
        for server in self.group(move.destination):
            assert self.open_tables(server) > 0

    def group(self, name: str) -> list[FleetServer]:
        """Return the servers of a group."""
        return self.servers[:2] if name == DEFAULT else self.servers[2:]

    def used_bytes(self, group: str) -> int:
        """Return the memory accounts of a group's servers."""
        return sum(each.status()["store"]["budget"]["used_bytes"] for each in self.group(group))

    def open_tables(self, server: FleetServer) -> int:
        """Return how many of the tables that move a server has open."""
        return sum(str(self.hot) in name for name in server.status()["tables"])

    def owner(self, group: str) -> FleetServer:
        """Return the server that is or becomes the owner of Hudi's first table in a group."""
        urls = {server.url: server for server in self.group(group)}
        seats = [
            Seat(number, url) for number, url in self.routers[0].seats().items() if url in urls
        ]
        table = str(TableId.of(str(self.hudis[0].path)).normal())
        return urls[str(owners(seats, table, layout=Layout(copies=COPIES))[0].url)]

    # Faults.

    def strike(
        self,
        fault: Callable[[MovingLake, FleetServer], AbstractContextManager[None]],
        choose: Callable[[MovingLake, str, str], FleetServer],
        state: MoveState,
    ) -> None:
        """Have a fault strike a server while the tables' move is in a state.

        The move is undone or finished meanwhile, and clients go on. Undone ones are ordered again.
        """
        for _ in range(ATTEMPTS):
            source = read_fleet(self.state).fleet.mounts.group(self._prefix)
            victim = choose(self, source, DEFAULT if source == HOT else HOT)
            move = self.order()
            if self.sees(move, state):
                break
            self.end(move)
        else:
            raise AssertionError(f"no move was seen {state.name}; {self.told()}")
        with fault(self, victim):
            self.struck[state.name] += 1
            ended = self.end(move)
            self.go_on()
        self.recover()
        logger.info("%s %s when %s: %s", fault.__name__, victim.url, state.name, ended.state.name)
        if ended.state is MoveState.UNDONE:
            assert ended.why.startswith("the leader that carried it out has ended"), ended.why
            assert self.end(self.order()).state is MoveState.DONE

    def recover(self) -> None:
        """Wait until all members are there, and reach the state store."""
        epoch = read_fleet(self.state).epoch

        def is_well(server: FleetServer) -> bool:
            told = server.fleet()
            has_all = len(told["members"]) == len(self.members)
            is_last = told["trouble"] is None and told["epoch"] >= epoch
            return has_all and is_last and len(server.seats()) == len(self.servers)

        for server in self.members:
            wait_until(lambda server=server: is_well(server))  # type: ignore[misc]
        self._rounds.check()

    def turn_balancer(self, away: FleetServer) -> bool:
        """Lead new connections to the other router; return whether they came to this server."""
        is_there = away.port == self.balancer.upstream
        if is_there:
            self.balancer.upstream = next(r.port for r in self.routers if r is not away)
        return is_there

    def cut(self, server: FleetServer) -> None:
        for line in self._lines[server]:
            line.cut()

    def mend(self, server: FleetServer) -> None:
        for line in self._lines[server]:
            line.mend()

    def _resume(self) -> None:
        """Have stopped servers go on: they can't end otherwise."""
        for server in self.members:
            if server.is_up and server.is_stopped():
                server.send(signal.SIGCONT)

    # The end.

    def _check_the_end(self) -> None:
        """Check the rows; each server's answers; that no request was lost; memory."""
        for ours in self.ours:
            ours.check_rows()
        for job in self.hudis:
            job.check()
        for table in self._tables:
            for question in built_anew(*table):
                for server in self.members:
                    answered = self._answered(server, question)
                    assert answered is not None
                    assert answered.status == OK, answered.body
                    question.check(answered.body, server.url)
        asked = {one.path for one in self.balancer.exchanges}
        assert any(path.endswith("/marker/create") for path in asked), "as if it had no server"
        assert any("/view/" in path for path in asked)
        lost = {key for key, times in _in_vain(self.balancer.exchanges).items() if times}
        assert not lost, "never answered"
        group = read_fleet(self.state).fleet.mounts.group(self._prefix)
        deadline = time.monotonic() + 2 * PATIENCE_S  # what a fault kept open is closed in a minute
        for server in self.group(DEFAULT if group == HOT else HOT):
            while self.open_tables(server):
                assert time.monotonic() < deadline, server.status()["tables"]
                pause()
        for server in self.members:
            assert "Traceback" not in server.log.read_text()


def _folders(cities: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"p={city}" for city in cities)


def _in_vain(
    exchanges: Sequence[Exchange], keep: Callable[[int, int], int] = lambda _, n: n
) -> Counter[tuple[str, str]]:
    """Return how often each request was asked in vain since it was answered last.

    Args:
        exchanges: In the order of the answers.
        keep: Combines that with what it was before; ``max``: the most.
    """
    running: Counter[tuple[str, str]] = Counter()
    found: Counter[tuple[str, str]] = Counter()
    for one in exchanges:
        key = (one.method, one.target)
        running[key] = 0 if one.status == OK else running[key] + 1
        found[key] = keep(found[key], running[key])
    return found


@contextmanager
def moving_lake(
    hudi: Hudi, folder: Path, place: Place, *, has_clocks: bool = False, retries: int = RETRIES
) -> Iterator[MovingLake]:
    """Run the fleet and the clients of its tables within the block."""
    with ExitStack() as stack:
        lake = MovingLake(hudi, folder, place, stack, has_clocks=has_clocks, retries=retries)
        lake.recover()
        with lake.used():
            yield lake
