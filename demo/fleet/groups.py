"""A run of two groups of servers behind two routers: a table turns hot, and moves.

A plan needs a group above its marks. The usual mark of load, 60 % of a core for each server over
five minutes, is more than a client, Spark and the servers can make together on a few cores; the
demo's is ``LOAD_MARK``.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from http.client import HTTPException
from pathlib import Path
from typing import Final

from demo.feed import flights
from demo.fleet.airlines import feeds, land, proved
from demo.fleet.groups_record import GroupsRecord, LoadSample, LookUp, moving_of
from demo.fleet.job import FlightsJob
from demo.fleet.machines import LAYOUT, Machines, Watcher, stopwatch
from demo.fleet.record import Event
from demo.fleet.run import leading, tell, tell_round, zookeeper
from demo.spark import start_session
from strandline.fleet.mounts import MoveState
from strandline.fleet.planning.load import by_group, capacities_of, loads_of
from strandline.fleet.planning.milp import open_solver
from strandline.fleet.planning.placement import Marks
from strandline.fleet.planning.plan import Plan, as_text, plan
from strandline.fleet.records import read_fleet
from strandline.fleet.state.url import open_state
from tests.fleet.answers import LATEST, Question, built_anew
from tests.kit.servers.live_service import HttpClient
from tests.kit.servers.zookeeper_ensemble import EnsembleServer
from timeline.errors import StateUnavailableError
from timeline.storage.local import LocalStorage

SECOND: Final = "second"
GROUPS: Final = {"default": ("a", "b"), SECOND: ("c", "d", "e")}
ROUTERS: Final = ("r1", "r2")
MOUNTED: Final = 3
"""Tables that the second group has at the beginning, the least busy ones."""
LOAD_MARK: Final = 0.002
"""Of a core for each server, over five minutes: some 38 ready answers a second."""
HOT_FROM: Final = 3
"""The round before which a table turns hot."""
MOST_ROUNDS: Final = 60
"""If the group isn't above its mark by then, the run ends, and isn't right."""
_EACH_S: Final = 1.0
_REPEATED: Final = 50
"""Rounds of questions about the hot table, before they are asked about its newest instant."""
_ANSWER_S: Final = 20.0
_LOOK_S: Final = 0.01
"""Between two looks at the moves."""
_ATTEMPTS: Final = 5


class HotClient:
    """A thread that asks about one table over and over, through the routers.

    Each answer is compared with a view that is built anew at the same instant.

    Args:
        machines: The servers.
        table: The table's base path.
        record: Gets the look-ups.
        clock: Returns seconds since the beginning.
    """

    def __init__(
        self, machines: Machines, table: str, record: GroupsRecord, clock: Callable[[], float]
    ) -> None:
        self._machines, self._storage = machines, LocalStorage(table)
        self._record, self._clock = record, clock
        self._ends = threading.Event()
        self._wrong: list[BaseException] = []
        self._clients: dict[str, HttpClient] = {}
        self._routers = list(ROUTERS)
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """End; raises what an answer was wrong in."""
        self._ends.set()
        if self._thread.ident is not None:
            self._thread.join()
        for client in self._clients.values():
            client.connection.close()
        for exc in self._wrong:
            raise exc

    def _run(self) -> None:
        try:
            while not self._ends.is_set():
                self._ask_about_now()
        except BaseException as exc:  # noqa: BLE001 - raised by ``end``
            self._wrong.append(exc)

    def _ask_about_now(self) -> None:
        """Ask about the newest instant, several times."""
        partitions = sorted(path.name for path in Path(self._storage.base_path).glob("dt=*"))
        asked = [one for one in built_anew(self._storage, partitions) if one.path == LATEST.path]
        right: dict[str, bytes] = {}
        for _ in range(_REPEATED):
            for question in asked:
                if self._ends.is_set():
                    return
                begun_s = self._clock()
                body = self._answer(question)
                ended_s = self._clock()
                self._record.lookups.append(LookUp(ended_s, ended_s - begun_s))
                if body is not None and right.get(question.params["partition"]) != body:
                    question.check(body, "a router")
                    right[question.params["partition"]] = body

    def _answer(self, question: Question) -> bytes | None:
        """Return an answer of one of the routers, ``None`` if both fail.

        The one that answers is asked first the next time.
        """
        for attempt, name in enumerate(tuple(self._routers)):
            client = self._clients.get(name)
            if client is None:
                client = HttpClient(self._machines.server(name).port, None)
                client.connection.timeout = _ANSWER_S
                self._clients[name] = client
            try:
                answered = client.request("GET", question.path, question.params)
            except (OSError, HTTPException):
                client.connection.close()
                continue
            if answered.status == 200:
                self._record.retried += attempt
                self._routers = [name, *(other for other in ROUTERS if other != name)]
                return answered.body
        self._record.failed += 1
        return None


class GroupsDemo:
    """What happens to the groups, round by round.

    Args:
        machines: The servers.
        ensemble: The servers of ZooKeeper.
        client: Makes the table hot.
        record: Of the run.
        clock: Returns seconds since the beginning.
        table: The base path of the table that turns hot.
    """

    def __init__(
        self,
        machines: Machines,
        ensemble: Sequence[EnsembleServer],
        client: HotClient,
        record: GroupsRecord,
        clock: Callable[[], float],
        table: str,
    ) -> None:
        self._machines, self._ensemble, self._client = machines, ensemble, client
        self._record, self._clock, self._table = record, clock, table
        self._killed = ""
        self._planned_in: int | None = None
        self._applying: threading.Thread | None = None
        self._left = [
            self._kill_owner,
            self._kill_router,
            self._kill_zookeeper,
            self._cool_down,
        ]

    def before(self, number: int) -> bool:
        """Do what comes before a round; return whether there is one more."""
        if number == HOT_FROM:
            self._note(f"{self._record.hot} turns hot: a client asks about it all the time")
            self._client.start()
        elif number > HOT_FROM and self._planned_in is None:
            self._plan_if_above(number)
        elif self._planned_in is not None:
            self.join()
            if self._killed:
                self._machines.start(self._killed)
                self._note(f"{self._killed} is started again")
                self._killed = ""
            if not self._left:
                return False
            self._note(self._left.pop(0)())
        return number <= MOST_ROUNDS

    def join(self) -> None:
        """Wait until the moves have ended."""
        if self._applying is not None:
            self._applying.join()
            self._applying = None

    def _note(self, what: str) -> None:
        self._record.events.append(Event(self._clock(), what))
        tell(self._record.events[-1].at_s, what)

    def _plan_if_above(self, number: int) -> None:
        record = self._record
        loads = record.loads[-1].loads if record.loads else {}
        if all(load <= record.marks[group] for group, load in loads.items()):
            return
        record.load_before = self._machines.command("load")
        record.usual_plan = self._machines.command("plan")
        made = planned(self._machines)
        record.plan = as_text(made)
        if not made.better.moves:
            return
        self._planned_in = number
        moves = [(move.prefix, move.destination) for move in made.better.moves]
        self._note(
            f"a group is above its mark; a plan is applied, of this many moves: {len(moves)}"
        )
        self._applying = threading.Thread(target=self._apply, args=(moves,))
        leader = self._machines.leader()
        self._applying.start()
        state = self._wait_for_move(self._applying)
        self._killed = self._machines.named(leader)
        self._machines.kill(self._killed)
        when = "after the moves" if state is None else f"while a move is {state.name}"
        self._note(f"{self._killed}, the fleet's leader, is killed {when}")

    def _wait_for_move(self, applying: threading.Thread) -> MoveState | None:
        """Return the state of a move that is being carried out; ``None``: all have ended before."""
        with closing(open_state(self._machines.state, make=False)) as state:
            while applying.is_alive():
                moves = read_fleet(state).fleet.moves
                begun = [move.state for move in moves if move.state is not MoveState.PLANNED]
                if begun:
                    return begun[0]
                applying.join(_LOOK_S)
        return None

    def _apply(self, moves: Sequence[tuple[str, str]]) -> None:
        for path, group in moves:
            for _ in range(_ATTEMPTS):
                told = self._machines.try_command("move", path, group, "--json")
                if not told:  # what happened is in the servers' logs, and in the list of moves
                    tell(self._clock(), f"the move of {path} can't be followed")
                    continue
                state = json.loads(told)
                if state["state"] == "DONE":
                    break
                tell(self._clock(), f"the move is {state['state']}, as {state['why']}")
        tell(self._clock(), "the moves have ended")

    def _kill_owner(self) -> str:
        owner = self._machines.named(self._machines.owners(self._table)[0])
        self._machines.kill(owner)
        self._killed = owner
        return f"{owner}, the new owner of {self._record.hot}, is killed"

    def _kill_router(self) -> str:
        self._killed = ROUTERS[0]
        self._machines.kill(self._killed)
        return f"{self._killed}, the router that clients ask first, is killed"

    def _kill_zookeeper(self) -> str:
        leading(self._ensemble).kill()
        return "ZooKeeper's leader is killed"

    def _cool_down(self) -> str:
        self._client.end()
        return f"{self._record.hot} cools down"


def planned(machines: Machines) -> Plan:
    """Return the plan of moves at the demo's marks; all servers run."""
    with closing(open_state(machines.state, make=False)) as state:
        fleet = read_fleet(state).fleet
    statuses = {server.url: server.status() for server in map(machines.server, _servers())}
    tables = loads_of(statuses, fleet.mounts, LAYOUT)
    groups = capacities_of(statuses, {seat.url: seat.group for seat in fleet.seats})
    return plan(tables, groups, Marks(load=LOAD_MARK), solver=open_solver())


def _servers() -> list[str]:
    return [name for names in GROUPS.values() for name in names]


class LoadWatcher(Watcher):
    """Asks for the load of the groups; the samples are ``LoadSample``."""

    def _watch(self) -> None:
        with closing(open_state(self._machines.state, make=False)) as state:
            while not self._ends.wait(self._each_s):
                try:
                    mounts = read_fleet(state).fleet.mounts
                except StateUnavailableError as exc:
                    tell(self._clock(), f"the loads aren't known: {exc}")
                    self._samples.append(LoadSample(self._clock(), {}))
                    continue
                statuses = self._machines.statuses()
                loads = by_group(loads_of(statuses, mounts, LAYOUT))
                found = {group: loads.get(group, (0.0, 0))[0] for group in GROUPS}
                is_whole = all(self._machines.server(name).url in statuses for name in _servers())
                self._samples.append(LoadSample(self._clock(), found if is_whole else {}))


def run_groups(folder: Path, rounds: int) -> GroupsRecord:
    """Run the groups, the job and what happens to them; return what there was.

    Args:
        folder: An empty one.
        rounds: Fewest rounds of the job.
    """
    lake, logs = folder / "lake", folder / "logs"
    lake.mkdir()
    logs.mkdir()
    marks = {group: LOAD_MARK * len(names) for group, names in GROUPS.items()}
    record = GroupsRecord(marks=marks)
    with ExitStack() as stack:
        ensemble, state = stack.enter_context(zookeeper(folder))
        machines = stack.enter_context(Machines(lake, logs, state))
        for group, names in GROUPS.items():
            for name in names:
                machines.start(name, "--group", group)
        for name in ROUTERS:
            machines.start(name, "--router")
        machines.wait_for_members()
        spark = start_session("strandline-fleet-demo")
        stack.callback(spark.stop)
        clock, zero_ms = stopwatch(), 1000 * time.time()
        sent = feeds(flights(), MOST_ROUNDS)
        landings = land(sent, folder / "landing")
        record.hot = next(iter(sent))  # the busiest airline
        for name in list(sent)[-MOUNTED:]:
            machines.command("mount add", str(lake / name), SECOND)
        record.mounts_before = machines.command("mount list")
        routers = tuple(machines.server(name).url for name in ROUTERS)
        job = stack.enter_context(FlightsJob(spark, lake, landings, lambda _: (routers, 1), clock))
        table = record.table = str(lake / record.hot)
        client = HotClient(machines, table, record, clock)
        stack.callback(client.end)
        demo = GroupsDemo(machines, ensemble, client, record, clock, table)
        stack.callback(demo.join)
        with (
            Watcher(machines, record.samples, clock, _EACH_S),
            LoadWatcher(machines, record.loads, clock, _EACH_S),
        ):
            number = 1
            while demo.before(number) or number <= rounds:
                record.rounds.append(job.run(number))
                tell_round(record.rounds[-1])
                number += 1
        record.load_after = machines.command("load")
        record.mounts_after = machines.command("mount list")
        record.moves = json.loads(machines.command("moves", "--json"))["moves"][::-1]
        record.moving = moving_of(record.moves, zero_ms)
        record.proofs = proved(sent, number - 1, lake)
    return record
