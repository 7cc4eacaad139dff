"""Real Hudi jobs whose servers are killed for good: a fleet's others take over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from executor_proxy.seat_ring import Layout
from tests.oracle.driver_log import fallbacks
from tests.oracle.drop_in.jobs import CITIES, KINDS, RETRYING, Job, Kind, pointed_at
from tests.oracle.drop_in.recording_relay import OK, Exchange, RecordingRelay
from tests.oracle.hudi import Hudi
from tests.strandline.fleet.serve_fleet import FleetServer, placed, wait_for_seats

pytestmark = pytest.mark.oracle

SERVERS = 3
TABLES = [(KINDS[0], "sql"), (KINDS[3], "memory")]
LOOK_UP, MARKER = "/latest", "/marker/create"


@dataclass(frozen=True, slots=True)
class Fleet:
    """Servers that live, the relay that a job names as its server, and the table's path.

    The servers are in the order in which they are asked about the table.
    """

    servers: list[FleetServer]
    relay: RecordingRelay
    table: Path

    def kill(self, server: FleetServer) -> None:
        """Kill a server; what comes to the relay goes to one that lives, as by a load balancer."""
        self.servers.remove(server)
        server.kill()
        if self.relay.upstream == server.port:
            self.relay.upstream = self.servers[0].port
            self.relay.hang_up()


@pytest.fixture
def fleet(tmp_path: Path, kind: Kind, storage: str) -> Iterator[Fleet]:
    """A fleet whose tables have one server that isn't asked, or, with a shared store, two."""
    options, layout = ["--storage", storage], Layout(copies=SERVERS - 1)
    if storage == "sql":
        options += ["--store-url", f"sqlite://{tmp_path}/views.db"]
        layout = Layout(copies=1)
    options += ["--fleet-copies", str(layout.copies)]
    lake = tmp_path / "lake"
    lake.mkdir()
    with ExitStack() as stack:
        servers = [
            stack.enter_context(FleetServer(lake, tmp_path, name, *options))
            for name in "abc"[:SERVERS]
        ]
        wait_for_seats(servers, {number: one.url for number, one in enumerate(servers)})
        table = lake / str(kind)
        servers = placed(servers, str(table), layout)
        relay = stack.enter_context(RecordingRelay(servers[0].port))
        yield Fleet(servers, relay, table)


class Killing:
    """Kills servers of a table, one before each of some requests.

    Attributes:
        left: What is still to come: the end of a request's path, and the server.
    """

    def __init__(self, fleet: Fleet, *kills: tuple[str, FleetServer]) -> None:
        self._fleet = fleet
        self._lock = threading.Lock()
        self.left = list(kills)

    def __call__(self, request: Exchange) -> None:
        with self._lock:
            if self.left and self.left[0][0] in request.path:
                _, server = self.left.pop(0)
                self._fleet.kill(server)


@pytest.mark.parametrize(("kind", "storage"), TABLES, ids=str)
def test_a_job_outlives_the_owner_of_its_table(
    hudi: Hudi, fleet: Fleet, log: Path, kind: Kind, report: Callable[[str], None]
) -> None:
    """The job names another server and no option for retries: it must notice nothing."""
    owner, _, last = fleet.servers
    fleet.relay.upstream = last.port
    job = Job(hudi, fleet.table, kind, pointed_at(fleet.relay.port))
    job.write("bulk_insert", job.changed(CITIES, range(8)))
    job.write("upsert", job.changed(CITIES, range(2, 10)))
    assert owner.asked() > 0, "the owner is asked, by way of the other"

    fleet.relay.before = killing = Killing(fleet, (LOOK_UP, owner))
    job.write("upsert", job.changed(CITIES, range(4, 12)))
    assert killing.left == []
    check_goes_on(job, fleet, log)
    report(f"real Hudi: {len(fleet.relay.exchanges)} requests, the owner killed: all answered")
    assert {one.status for one in fleet.relay.exchanges} == {OK}


@pytest.mark.parametrize(("kind", "storage"), TABLES, ids=str)
def test_a_job_outlives_the_server_that_it_asks_and_then_the_next(
    hudi: Hudi, fleet: Fleet, log: Path, kind: Kind
) -> None:
    """The load balancer leads to another one each time, and the job asks again."""
    owner, following, _ = fleet.servers
    job = Job(hudi, fleet.table, kind, pointed_at(fleet.relay.port) | RETRYING)
    job.write("bulk_insert", job.changed(CITIES, range(8)))

    fleet.relay.before = killing = Killing(fleet, (MARKER, owner), (LOOK_UP, following))
    job.write("upsert", job.changed(CITIES, range(4, 12)))
    job.write("upsert", job.changed(CITIES[:2], range(6)))
    assert killing.left == []
    check_goes_on(job, fleet, log)
    # What was under way when a server died was asked again, by Hudi.
    assert {one.status for one in fleet.relay.exchanges} <= {OK, None}


def check_goes_on(job: Job, fleet: Fleet, log: Path) -> None:
    """Have a job read and write; it must hold its rows, and never do without the service."""
    fleet.relay.before = None
    job.check()
    job.write("delete", job.changed(CITIES, range(3)))
    job.write("upsert", job.changed(CITIES[1:], range(2, 5)))
    job.check()
    assert fallbacks(log) == []
    for server in fleet.servers:
        assert "Traceback" not in server.log.read_text()
