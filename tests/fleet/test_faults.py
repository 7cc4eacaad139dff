"""Faults of a running fleet's servers during Spark jobs: answers stay right, and rows too."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from tests.fleet.faulty_fleet import FaultyFleet, faulty_fleet
from tests.fleet.postgres_place import new_database
from tests.kit.servers.postgres_server import PostgresServer, postgres_server
from tests.strandline.fleet.serve_fleet import DEAD_S, FleetServer, state_url

pytestmark = pytest.mark.fleet

Choose = Callable[[FaultyFleet], FleetServer]
Fault = Callable[[FaultyFleet, FleetServer], None]

STOPPED_S: Final = 20.0
"""How long a server is stopped at least; the first ``DEAD_S`` until it has lost its seat."""


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
    server.kill()
    fleet.go_on_without(server)
    server.start()


def stopped(fleet: FaultyFleet, server: FleetServer) -> None:
    server.hang()
    try:
        fleet.go_on_without(server)
        fleet.go_on_for(STOPPED_S - DEAD_S, *fleet.others(server))
        assert server.is_stopped()
    finally:
        server.send(signal.SIGCONT)


@pytest.mark.parametrize("choose", [owner, copy, leader])
@pytest.mark.parametrize("fault", [killed, stopped])
def test_a_server_is(
    fault: Fault, choose: Choose, postgres: PostgresServer, spark: SparkSession, tmp_path: Path
) -> None:
    shared = ("--storage", "sql", "--store-url", new_database(postgres))
    with faulty_fleet(spark, tmp_path, state_url(tmp_path), *shared) as fleet:
        fault(fleet, choose(fleet))
        fleet.all_well()
        fleet.go_on()
