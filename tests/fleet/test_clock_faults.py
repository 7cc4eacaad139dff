"""Clocks of a fleet jump during Spark jobs: no seat changes hands, and no answer is wrong."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.fleet.faulty_fleet import FaultyFleet, Host, faulty_fleet
from tests.fleet.postgres_place import new_database
from tests.kit.concurrency.wall_clock import WallClock
from tests.kit.servers.postgres_server import PostgresServer, postgres_server
from tests.strandline.fleet.serve_fleet import DEAD_S, FleetServer, state_url

pytestmark = pytest.mark.fleet

HOUR_S: Final = 3600
_DATED: Final = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)", re.MULTILINE)


def last_line_s(server: FleetServer) -> float:
    """Return when a server wrote the last line of its log, by its own clock."""
    return datetime.fromisoformat(_DATED.findall(server.log.read_text())[-1]).timestamp()


def is_unmoved(fleet: FaultyFleet, epoch: int, seats: dict[int, str]) -> bool:
    return all(
        (server.fleet()["epoch"], server.seats()) == (epoch, seats) for server in fleet.servers
    )


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_servers_clocks_jump(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    """Each by an hour, forward and back, others in the other direction; then one is killed."""
    clocks = [WallClock(tmp_path, f"server{n}") for n in range(3)]
    hosts = [Host(inside=clock.inside) for clock in clocks]
    with postgres_server() as postgres:
        state = state_url(tmp_path) if kind == "sqlite" else f"{postgres.url()}?fleet=f"
        shared = ("--storage", "sql", "--store-url", new_database(postgres))
        with faulty_fleet(spark, tmp_path, state, *shared, hosts=hosts) as fleet:
            epoch, seats = fleet.servers[0].fleet()["epoch"], fleet.servers[0].seats()
            for sign in (1, -1):
                for n, clock in enumerate(clocks):
                    clock.set(sign * HOUR_S * (-1) ** n)
                    assert abs(clock.off_s()) == pytest.approx(HOUR_S, abs=60)
                fleet.go_on_for(2 * DEAD_S)
                assert is_unmoved(fleet, epoch, seats)
            owner, copy, _ = fleet.placed()
            copy.kill()
            fleet.go_on_without(copy)
            # The owner has told of it, by its own clock.
            off_s = last_line_s(owner) - datetime.now().timestamp()
            assert HOUR_S / 2 < abs(off_s) < 2 * HOUR_S
            copy.start()
            fleet.all_well()
            fleet.go_on()


@contextmanager
def postgres_on(folder: Path) -> Iterator[tuple[WallClock, PostgresServer]]:
    """Run PostgreSQL on a clock of its own within the block."""
    folder.chmod(0o755)
    clock = WallClock(folder, "database")
    with postgres_server(inside=clock.inside) as postgres:
        yield clock, postgres


def test_the_database_s_clock_jumps(spark: SparkSession, tmp_path: Path) -> None:
    """Leases go by it; all end at once, and each server has its own seat again."""
    with (
        # Not in pytest's directories, which the database's user can't enter.
        tempfile.TemporaryDirectory(prefix="strandline-clock-") as folder,
        postgres_on(Path(folder)) as (clock, postgres),
    ):
        shared = ("--storage", "sql", "--store-url", new_database(postgres))
        state = f"{postgres.url()}?fleet=f"
        with faulty_fleet(spark, tmp_path, state, *shared) as fleet:
            seats = fleet.servers[0].seats()
            for off_s in (HOUR_S, -HOUR_S):
                clock.set(off_s)
                with psycopg.connect(postgres.url()) as connection:
                    (now,) = connection.execute("SELECT clock_timestamp()").fetchone() or ()
                assert now.timestamp() - time.time() == pytest.approx(off_s, abs=60)
                fleet.go_on_for(2 * DEAD_S)
                fleet.all_well()
                assert all(server.seats() == seats for server in fleet.servers)
            copy = fleet.placed()[1]
            copy.kill()
            fleet.go_on_without(copy)
            copy.start()
            fleet.all_well()
            fleet.go_on()
