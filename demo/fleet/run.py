"""A run of one fleet without groups, whose servers, ZooKeeper and PostgreSQL are killed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from demo.feed import flights
from demo.fleet.airlines import feeds, land, proved
from demo.fleet.job import FlightsJob
from demo.fleet.machines import Machines, Watcher, stopwatch
from demo.fleet.record import Event, FleetRecord, Round
from demo.spark import start_session
from tests.kit.servers.postgres_server import PostgresServer, postgres_server
from tests.kit.servers.zookeeper_ensemble import EnsembleServer, zookeeper_ensemble
from tests.strandline.fleet.serve_fleet import wait_until

FEWEST_ROUNDS: Final = 12
SERVERS: Final = ("a", "b", "c", "d", "e")
STANDBY: Final = "standby"


class Faults:
    """What is done to the fleet before a round.

    Args:
        machines: The fleet's servers.
        ensemble: The servers of ZooKeeper.
        database: PostgreSQL.
        tables: The tables' base paths.
    """

    def __init__(
        self,
        machines: Machines,
        ensemble: Sequence[EnsembleServer],
        database: PostgresServer,
        tables: Sequence[str],
    ) -> None:
        self._machines, self._ensemble, self._database = machines, ensemble, database
        self._tables = tables
        self._killed = ""
        self.by_round: Final[Mapping[int, Callable[[], str]]] = {
            3: self._kill_owner,
            5: self._kill_zookeeper,
            7: self._return,
            8: self._stop_database,
            9: self._start_database,
            10: self._join,
            11: self._kill_owner,
        }

    def _kill_owner(self) -> str:
        """Kill the server that owns the most tables."""
        owned = self._machines.owned(self._tables)
        self._killed = max(sorted(owned), key=lambda name: len(owned[name]))
        had = self._machines.answered().get(self._killed, 0)
        self._machines.kill(self._killed)
        return (
            f"{self._killed} is killed: the owner of {len(owned[self._killed])} of"
            f" {len(self._tables)} tables, it had answered {had:,} questions"
        )

    def _return(self) -> str:
        self._machines.start(self._killed)
        return f"{self._killed} is started again"

    def _join(self) -> str:
        self._machines.start("f")
        return "f joins"

    def _kill_zookeeper(self) -> str:
        leading(self._ensemble).kill()
        return "ZooKeeper's leader is killed"

    def _stop_database(self) -> str:
        self._database.stop()
        return "PostgreSQL is stopped, as by a crash"

    def _start_database(self) -> str:
        self._database.start()
        return "PostgreSQL is started again"


def leading(ensemble: Sequence[EnsembleServer]) -> EnsembleServer:
    """Return the server of ZooKeeper that leads, once one does."""
    found: list[EnsembleServer] = []

    def is_found() -> bool:
        found.extend(server for server in ensemble if server.mode() == "leader")
        return bool(found)

    wait_until(is_found)
    return found[0]


@contextmanager
def zookeeper(folder: Path) -> Iterator[tuple[Sequence[EnsembleServer], str]]:
    """Run three servers of ZooKeeper within the block; yield them and a fleet's URL."""
    from tests.fleet.jvm import java_command  # noqa: PLC0415 - it needs pyspark, the page doesn't

    with zookeeper_ensemble(java_command(), folder) as ensemble:
        leading(ensemble)  # until there is one, none of them serves
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in ensemble)
        yield ensemble, f"zk://{hosts}/demo"


def tell(at_s: float, what: str) -> None:
    """Print a line of progress."""
    print(f"{at_s:6.1f} s  {what}", file=sys.stderr)


def tell_round(done: Round) -> None:
    """Print what a round has done."""
    tell(
        done.ended_s,
        f"round {done.number}: {len(done.tables)} tables written, {done.lookups} look-ups,"
        f" {done.own} listed by tasks, {done.wrong} wrong",
    )


def run(folder: Path, rounds: int) -> FleetRecord:
    """Run the fleet, the job and the faults; return what there was.

    Args:
        folder: An empty one.
        rounds: Of the job, ``FEWEST_ROUNDS`` or more.
    """
    lake, logs = folder / "lake", folder / "logs"
    lake.mkdir()
    logs.mkdir()
    record = FleetRecord()
    with ExitStack() as stack:
        database = stack.enter_context(postgres_server())
        ensemble, state = stack.enter_context(zookeeper(folder))
        shared = ("--storage", "sql", "--store-url", database.url())
        machines = stack.enter_context(Machines(lake, logs, state, *shared))
        for name in SERVERS:
            machines.start(name)
        machines.start(STANDBY, "--standby")
        machines.wait_for_members()
        spark = start_session("strandline-fleet-demo")
        stack.callback(spark.stop)
        clock = stopwatch()
        sent = feeds(flights(), rounds)
        tables = [str(lake / name) for name in sent]
        faults = Faults(machines, ensemble, database, tables)
        landings = land(sent, folder / "landing")
        record.before = machines.status(*tables)
        job = stack.enter_context(FlightsJob(spark, lake, landings, machines.urls, clock))
        with Watcher(machines, record.samples, clock):
            for number in range(1, rounds + 1):
                if number in faults.by_round:
                    # It is told what happens before it has happened: a start takes a second.
                    at_s = clock()
                    record.events.append(Event(at_s, faults.by_round[number]()))
                    tell(at_s, record.events[-1].what)
                record.rounds.append(job.run(number))
                tell_round(record.rounds[-1])
        record.after = machines.status(*tables)
        record.proofs = proved(sent, rounds, lake)
    return record
