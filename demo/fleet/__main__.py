"""``python -m demo.fleet``: five servers and a standby under a Spark job, and what kills them.

Their state is in three servers of ZooKeeper, their views in PostgreSQL (Debian's, which is
installed if it is missing, as root). The page shows who answered when.

Exit codes: 0 success, 1 an answer or a row is wrong, 2 bad usage.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from demo.feed import Landing, arrow, batches, flights
from demo.fleet.job import FlightsJob
from demo.fleet.machines import Machines, Watcher, stopwatch
from demo.fleet.page import write_page
from demo.fleet.record import Event, FleetRecord
from demo.prove import prove
from demo.replay import replay
from demo.spark import start_session
from tests.kit.servers.postgres_server import PostgresServer, postgres_server
from tests.kit.servers.zookeeper_ensemble import EnsembleServer, zookeeper_ensemble
from tests.strandline.fleet.serve_fleet import wait_until

FEWEST_DAYS: Final = 12
SERVERS: Final = ("a", "b", "c", "d", "e")
STANDBY: Final = "standby"
PAGE: Final = "report/fleet.html"


class Faults:
    """What is done to the fleet before a day's batch.

    Args:
        machines: The fleet's servers.
        ensemble: The servers of ZooKeeper.
        database: PostgreSQL.
        table: The table's base path.
    """

    def __init__(
        self,
        machines: Machines,
        ensemble: Sequence[EnsembleServer],
        database: PostgresServer,
        table: str,
    ) -> None:
        self._machines, self._ensemble, self._database = machines, ensemble, database
        self._table = table
        self._killed = ""
        self.by_day: Final[Mapping[int, Callable[[], str]]] = {
            3: self._kill_owner,
            5: self._kill_zookeeper,
            7: self._return,
            8: self._stop_database,
            9: self._start_database,
            10: self._join,
            11: self._kill_owner,
        }

    def _kill_owner(self) -> str:
        self._killed = self._machines.owner(self._table)
        self._machines.kill(self._killed)
        return f"{self._killed}, the table's owner, is killed"

    def _return(self) -> str:
        self._machines.start(self._killed)
        return f"{self._killed} is started again"

    def _join(self) -> str:
        self._machines.start("f")
        return "f joins"

    def _kill_zookeeper(self) -> str:
        _leader(self._ensemble).kill()
        return "ZooKeeper's leader is killed"

    def _stop_database(self) -> str:
        self._database.stop()
        return "PostgreSQL is stopped, as by a crash"

    def _start_database(self) -> str:
        self._database.start()
        return "PostgreSQL is started again"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and write its page."""
    parser = argparse.ArgumentParser(prog="python -m demo.fleet", description=__doc__)
    parser.add_argument("--days", type=int, default=14, help="batches (default 14)")
    parser.add_argument("--report", type=Path, default=Path(PAGE), help=f"default {PAGE}")
    given = parser.parse_args(arguments)
    if given.days < FEWEST_DAYS:
        parser.error(f"--days is {given.days}; allowed: {FEWEST_DAYS} or more")
    with tempfile.TemporaryDirectory(prefix="strandline-fleet-") as folder:
        record = _run(Path(folder), given.days)
    write_page(record, given.report)
    verdict = "proved" if record.is_right else "WRONG: an answer or a row differs"
    print(f"{verdict}; {given.report.resolve()}")
    return 0 if record.is_right else 1


def _leader(ensemble: Sequence[EnsembleServer]) -> EnsembleServer:
    """Return the server of ZooKeeper that leads, once one does."""
    found: list[EnsembleServer] = []

    def is_found() -> bool:
        found.extend(server for server in ensemble if server.mode() == "leader")
        return bool(found)

    wait_until(is_found)
    return found[0]


def _run(folder: Path, days: int) -> FleetRecord:
    from tests.fleet.jvm import java_command  # noqa: PLC0415 - it needs pyspark, the page doesn't

    lake, logs = folder / "lake", folder / "logs"
    lake.mkdir()
    logs.mkdir()
    table = lake / "flights"
    record = FleetRecord()
    with ExitStack() as stack:
        database = stack.enter_context(postgres_server())
        ensemble = stack.enter_context(zookeeper_ensemble(java_command(), folder))
        _leader(ensemble)  # until there is one, none of them serves
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in ensemble)
        state = f"zk://{hosts}/demo"
        machines = stack.enter_context(Machines(lake, logs, state, database.url()))
        for name in SERVERS:
            machines.start(name)
        machines.start(STANDBY, "--standby")
        machines.wait_for_members()
        spark = start_session("strandline-fleet-demo")
        stack.callback(spark.stop)
        clock = stopwatch()
        faults = Faults(machines, ensemble, database, str(table))
        feed = list(batches(flights(), days))
        landing = Landing(folder / "landing")
        for batch in feed:
            landing.write(batch)
        record.before = machines.status(str(table))
        job = stack.enter_context(FlightsJob(spark, table, landing, machines.urls, clock))
        with Watcher(machines, record.samples, clock):
            for batch in feed:
                if batch.number in faults.by_day:
                    # It is told what happens before it has happened: a start takes a second.
                    at_s = clock()
                    record.events.append(Event(at_s, faults.by_day[batch.number]()))
                    print(f"{at_s:6.1f} s  {record.events[-1].what}", file=sys.stderr)
                record.rounds.append(job.run(batch.number, batch.day.isoformat()))
                done = record.rounds[-1]
                print(
                    f"{done.ended_s:6.1f} s  {done.day}: {done.lookups} look-ups, "
                    f"{done.own} listed by tasks, {done.wrong} wrong",
                    file=sys.stderr,
                )
        record.after = machines.status(str(table))
        record.proofs = prove(table, arrow(replay(feed).rows))
    return record


if __name__ == "__main__":
    sys.exit(main())
