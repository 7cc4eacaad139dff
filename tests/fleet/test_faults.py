"""Faults of a running fleet: answers stay right, rows too, and in the end all is well."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fleet.faulty_fleet import FaultyFleet, faulty_fleet
from tests.fleet.postgres_place import new_database
from tests.kit.postgres_server import PostgresServer, postgres_server
from tests.strandline.fleet.serve_fleet import FleetServer, state_url

pytestmark = pytest.mark.fleet

Choose = Callable[[FaultyFleet], FleetServer]
Fault = Callable[[FaultyFleet, FleetServer], None]


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


def owner(fleet: FaultyFleet) -> FleetServer:
    return fleet.placed()[0]


def copy(fleet: FaultyFleet) -> FleetServer:
    return fleet.placed()[1]


def leader(fleet: FaultyFleet) -> FleetServer:
    return fleet.leader()


def killed(fleet: FaultyFleet, server: FleetServer) -> None:
    others = fleet.others(server)
    server.kill()
    fleet.go_on(*others)
    fleet.wait(lambda each: server.url not in each.seats().values(), *others)
    fleet.go_on(*others)
    server.start()


def stopped(fleet: FaultyFleet, server: FleetServer) -> None:
    others = fleet.others(server)
    server.send(signal.SIGSTOP)
    try:
        fleet.go_on(*others)
        fleet.wait(lambda each: server.url not in each.seats().values(), *others)
        fleet.go_on(*others)
    finally:
        server.send(signal.SIGCONT)


@pytest.mark.parametrize("choose", [owner, copy, leader])
@pytest.mark.parametrize("fault", [killed, stopped])
def test_a_server_is(
    fault: Fault, choose: Choose, postgres: PostgresServer, tmp_path: Path
) -> None:
    shared = ("--storage", "sql", "--store-url", new_database(postgres))
    with faulty_fleet(tmp_path, state_url(tmp_path), *shared) as fleet:
        fault(fleet, choose(fleet))
        fleet.all_well()
        fleet.go_on()
