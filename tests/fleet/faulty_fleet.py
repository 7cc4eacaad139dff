"""A fleet of ``strandline serve`` to which faults happen while its table is written and read.

A thread runs Spark jobs, which write and look up (``tests.fleet.fleet_job``). One thread for each
server asks it, as Hudi's clients do, about a snapshot that a view built anew has just shown.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

import orjson
from pyspark.sql import SparkSession

from executor_proxy.seat_ring import Layout
from fsview.local_view import LocalView
from fsview.table_view import TableView
from fsview.wire.routes import BY_NAME
from tests.conformance.view_suite import canonical, without_times
from tests.fleet.fleet_job import COPIES, REGIONS, FleetJob
from tests.fsview.subject import LocalClient
from tests.kit.concurrency.patience import PATIENCE_S
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

LATEST, SLICES, NEWEST = (
    BY_NAME[name] for name in ("latest_base_files", "latest_file_slices", "last_instant")
)
JOB = "job"
_IN_VAIN = ("service_unreachable", "service_timeout", "spared", "away", "late")
ROUNDS = 2
"""One that began before a fault, and one after it."""
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
        self._changed = threading.Condition()
        self._looks: Counter[object] = Counter()
        self._ended = False
        self._wrong: list[BaseException] = []

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
        awaited = [*(servers or self.servers), JOB]
        with self._changed:
            start = self._looks.copy()
            assert self._changed.wait_for(
                lambda: (
                    self._wrong
                    or all(self._looks[each] >= start[each] + ROUNDS for each in awaited)
                ),
                3 * PATIENCE_S,
            ), (self.refused, self.job.looked, self._looks, start)
        self._check()

    def go_on_for(self, seconds: float, *servers: FleetServer) -> None:
        """Go on, as ``go_on`` does, for so long at least."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self.go_on(*servers)

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
        self._check()

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
        works = [*(self._reading(server) for server in self.servers), self._working]
        threads = [threading.Thread(target=self._run, args=(work,), daemon=True) for work in works]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()
            for thread in threads:
                thread.join(3 * PATIENCE_S)
        logger.info("tasks: %s; refused by status: %s", self.job.looked, dict(self.refused))
        self._check()
        assert not any(thread.is_alive() for thread in threads)
        self._check_the_end()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            while not self._ended:
                work()
        except BaseException as exc:  # told to the test, which fails
            with self._changed:
                self._wrong.append(exc)
                self._changed.notify_all()

    def _look(self, who: object) -> None:
        with self._changed:
            self._looks[who] += 1
            self._changed.notify_all()

    def _check(self) -> None:
        for exc in self._wrong:
            raise exc

    def _working(self) -> None:
        if self.job.run():
            self._look(JOB)

    def _reading(self, server: FleetServer) -> Callable[[], None]:
        def read() -> None:
            pin, wanted = self._anew()
            if all(
                self._is_right(server, path, {**pin, **params}, body)
                for (path, params), body in wanted
            ):
                self._look(server)
            with self._changed:
                self._changed.wait_for(lambda: self._ended, PAUSE_S)

        return read

    def _anew(self) -> tuple[Mapping[str, str], list[tuple[tuple[str, dict[str, str]], bytes]]]:
        """Return the parameters of a client, and questions with the answers of a view anew."""
        view = TableView(self._storage)
        view.sync()
        LocalView.newest(view).load_all_partitions()
        timeline = view.newest().timeline.client_timeline()
        assert timeline.last is not None
        pin = {
            "basepath": self._storage.base_path,
            "lastinstantts": timeline.last.requested_time,
            "timelinehash": timeline.hash,
        }
        asked = LocalClient(view)
        wanted = []
        for route in (LATEST, SLICES):
            for region in REGIONS:
                params = {"partition": region}
                status, body = asked.ask("GET", route.path, {**pin, **params})
                assert status == 200, body
                wanted.append(((route.path, params), body))
        return pin, wanted

    def _is_right(
        self, server: FleetServer, path: str, params: dict[str, str], wanted: bytes
    ) -> bool:
        body = self._ask(server, path, params)
        if body is None:
            return False
        got, should = _shown(body), _shown(wanted)
        assert got == should, f"{server.url} {params}: {got}, not {should}"
        return True

    def _ask(
        self, server: FleetServer, path: str, params: dict[str, str], method: str = "GET"
    ) -> bytes | None:
        """Return an answer; ``None`` if there is none, or an error that may be."""
        try:
            answered = server.ask(path, params, method)
        except (OSError, HTTPException):
            return None
        if answered.status == 200:
            return answered.body
        # Hudi's routes answer with an error's text: it names the store that is away, or the
        # client's instant, docs/stores.md. Its client asks the next server, or again.
        self.refused[answered.status] += 1
        is_told = b"postgresql://" in answered.body
        assert is_told or answered.status == ViewBehindError.status, answered.body
        return None

    def _check_the_end(self) -> None:
        """Check the rows, and that each server has all that there is."""
        self.job.check_rows()
        pin, wanted = self._anew()
        newest = known(self._storage)["lastinstantts"].encode()
        for server in self.servers:
            for (path, params), body in wanted:
                assert self._is_right(server, path, {**pin, **params}, body)
            answered = server.ask(NEWEST.path, {"basepath": pin["basepath"]})
            assert newest in answered.body


def _troubles(server: FleetServer) -> int:
    """Return how often a server has asked or told another one in vain, or has spared it."""
    told = server.status()
    counts = Counter(told["forwarded"]) + Counter(told["copies"])
    return sum(counts[name] for name in _IN_VAIN)


def _shown(body: bytes) -> Any:
    return canonical(without_times(orjson.loads(body)))


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
