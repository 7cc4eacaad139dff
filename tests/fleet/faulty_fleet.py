"""A fleet of ``strandline serve`` to which faults happen while its table is written and read.

A thread runs Spark jobs, which write and look up (``tests.fleet.fleet_job``). One thread for each
server asks it, as Hudi's clients do, about a snapshot that a view built anew has just shown.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from pyspark.sql import SparkSession

from executor_proxy.seat_ring import Layout
from tests.fleet.answers import NEWEST, Question, built_anew
from tests.fleet.fleet_job import COPIES, REGIONS, FleetJob
from tests.fleet.rounds import Rounds, Work
from tests.kit.servers.live_service import known
from tests.strandline.fleet.serve_fleet import (
    FleetServer,
    placed,
    wait_for_seats,
    wait_until,
)
from timeline.errors import ViewBehindError
from timeline.storage.local import LocalStorage

logger = logging.getLogger(__name__)

JOB = "job"
_IN_VAIN = ("service_unreachable", "service_timeout", "spared", "away", "late")
PAUSE_S = 0.2
"""Of a thread that asks, so that the job has the machine's cores."""


class FaultyFleet:
    """Three servers, and the threads of their clients.

    Attributes:
        servers: The servers.
        placed_at_first: The owner, the copy, and the other one, before anything happened.
        job: What runs on Spark.
        refused: How often which error was answered, by status.
    """

    def __init__(self, spark: SparkSession, base: Path, servers: list[FleetServer]) -> None:
        self.base, self.servers = base, servers
        self.refused: Counter[int] = Counter()
        self._storage = LocalStorage(str(base))
        self.placed_at_first = self.placed()
        self.job = FleetJob(spark, base, tuple(server.url for server in self.placed_at_first))
        self._rounds = Rounds()

    # What tests do.

    def placed(self) -> list[FleetServer]:
        """Return the owner, the copy, and the other one."""
        return placed(self.servers, self._storage.base_path, Layout(copies=COPIES))

    def leader(self) -> FleetServer:
        url = self.servers[0].fleet()["leader"]
        return next(server for server in self.servers if server.url == url)

    def others(self, server: FleetServer) -> list[FleetServer]:
        return [each for each in self.servers if each is not server]

    def go_on(self, *servers: FleetServer) -> None:
        """Wait until each of these servers had new right answers, and a job's tasks by servers."""
        self._rounds.go_on([*(servers or self.servers), JOB], self._told)

    def go_on_for(self, seconds: float, *servers: FleetServer) -> None:
        """Go on, as ``go_on`` does, for so long at least."""
        self._rounds.go_on_for(seconds, [*(servers or self.servers), JOB], self._told)

    def go_on_without(self, lost: FleetServer) -> None:
        """Wait until the others have met a server's loss, and have gone on before and after."""
        others = self.others(lost)
        before = {server: _troubles(server) for server in others}
        self.go_on(*others)
        self.wait(lambda each: lost.url not in each.seats().values(), *others)
        self.go_on(*others)
        if lost in self.placed_at_first[:COPIES]:
            # It was asked, or told of a change, and others did without it.
            assert any(_troubles(server) > before[server] for server in others)
        assert all(each.fleet()["leader"] != lost.url for each in others)

    def wait(self, is_so: Callable[[FleetServer], bool], *servers: FleetServer) -> None:
        """Wait until something is so at servers."""
        for server in servers or self.servers:
            wait_until(lambda server=server: is_so(server))  # type: ignore[misc]
        self._rounds.check()

    def all_well(self) -> None:
        """Wait until all servers have seats and reach the state store."""

        def is_well(server: FleetServer) -> bool:
            told = server.fleet()
            return told["trouble"] is None and len(server.seats()) == len(self.servers)

        self.wait(is_well)

    # Threads.

    @contextmanager
    def used(self) -> Iterator[None]:
        """Write and read within the block; afterwards check what there is."""
        self.job.write()
        works: dict[object, Work] = {server: self._reading(server) for server in self.servers}
        with self._rounds.of({**works, JOB: self.job.run}):
            yield
        logger.info("tasks: %s; refused by status: %s", *self._told())
        self._check_the_end()

    def _told(self) -> tuple[object, object]:
        return self.job.looked, dict(self.refused)

    def _reading(self, server: FleetServer) -> Work:
        def read() -> bool:
            is_right = all(self._is_right(server, each) for each in self._anew())
            self._rounds.rest(PAUSE_S)
            return is_right

        return read

    def _anew(self) -> list[Question]:
        return built_anew(self._storage, REGIONS)

    def _is_right(self, server: FleetServer, question: Question) -> bool:
        """Return whether a server answers, and rightly; an error that may be isn't an answer."""
        try:
            answered = server.ask(question.path, dict(question.params))
        except (OSError, HTTPException):
            return False
        if answered.status == 200:
            question.check(answered.body, server.url)
            return True
        # Hudi's routes answer with an error's text: it names the store that is away, or the
        # client's instant, docs/stores.md. Its client asks the next server, or again.
        self.refused[answered.status] += 1
        is_told = b"postgresql://" in answered.body
        assert is_told or answered.status == ViewBehindError.status, answered.body
        return False

    def _check_the_end(self) -> None:
        """Check the rows, and that each server has all that there is."""
        self.job.check_rows()
        questions = self._anew()
        newest = known(self._storage)["lastinstantts"].encode()
        for server in self.servers:
            assert all(self._is_right(server, each) for each in questions)
            answered = server.ask(NEWEST.path, {"basepath": self._storage.base_path})
            assert newest in answered.body


def _troubles(server: FleetServer) -> int:
    """Return how often a server has asked or told another one in vain, or has spared it."""
    told = server.status()
    counts = Counter(told["forwarded"]) + Counter(told["copies"])
    return sum(counts[name] for name in _IN_VAIN)


@dataclass(frozen=True)
class Host:
    """Where a server runs.

    Attributes:
        address: The address that it binds.
        inside: What runs the command that follows it there.
    """

    address: str = "127.0.0.1"
    inside: tuple[str, ...] = ()


HERE = (Host(),) * 3


@contextmanager
def faulty_fleet(
    spark: SparkSession, folder: Path, state: str, *options: str, hosts: Sequence[Host] = HERE
) -> Iterator[FaultyFleet]:
    """Run a server on each host, and their clients, within the block; all have seats.

    Args:
        spark: Runs the jobs.
        folder: For the table, logs and a state in a file.
        state: URL of the state store.
        options: Of all servers.
        hosts: The hosts.
    """
    lake = folder / "lake"
    lake.mkdir()
    options = ("--fleet-copies", str(COPIES), *options)
    servers = [
        FleetServer(
            *(lake, folder, f"server{n}", *options),
            state=state,
            inside=host.inside,
            host=host.address,
        )
        for n, host in enumerate(hosts)
    ]
    with ExitStack() as stack:
        for server in servers:
            stack.enter_context(server)
        wait_for_seats(servers, {n: server.url for n, server in enumerate(servers)})
        fleet = FaultyFleet(spark, lake / "t", servers)
        with fleet.used():
            fleet.go_on()
            yield fleet
