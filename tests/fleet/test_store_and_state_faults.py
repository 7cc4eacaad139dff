"""Faults of what servers share, during Spark jobs: answers stay right, in the end all is well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.fleet.faulty_fleet import FaultyFleet, faulty_fleet
from tests.fleet.jvm import java_command
from tests.fleet.postgres_place import new_database
from tests.kit.servers.namespaces import namespace, run
from tests.kit.servers.postgres_server import USER, postgres_server
from tests.kit.servers.zookeeper_ensemble import EnsembleServer, zookeeper_ensemble
from tests.spark.faults import own_process
from tests.strandline.fleet.serve_fleet import state_url, wait_until

pytestmark = pytest.mark.fleet


def shared(url: str) -> tuple[str, ...]:
    """Return the options of servers that share a store."""
    return ("--storage", "sql", "--store-url", url)


def wait_for_a_step(fleet: FaultyFleet, url: str) -> None:
    """Wait until servers record in the database what they read."""

    def head() -> object:
        with psycopg.connect(url) as connection:
            return connection.execute("SELECT stamp FROM strandline.head").fetchone()

    before = head()
    wait_until(lambda: head() != before)
    fleet.go_on()


def knows_trouble(fleet: FaultyFleet) -> None:
    fleet.wait(lambda server: server.fleet()["trouble"] is not None)


def test_the_database_and_state_store_is_killed_and_started(
    spark: SparkSession, tmp_path: Path
) -> None:
    with postgres_server() as postgres:
        url = new_database(postgres)
        state = f"{postgres.url()}?fleet=f"
        with faulty_fleet(spark, tmp_path, state, *shared(url)) as fleet:
            postgres.kill()
            knows_trouble(fleet)
            fleet.go_on()
            postgres.start()
            fleet.all_well()
            wait_for_a_step(fleet, url)


def test_a_database_without_the_last_commits_takes_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Of the views and of the state."""
    with postgres_server() as postgres:
        url = new_database(postgres)
        with faulty_fleet(spark, tmp_path, f"{postgres.url()}?fleet=f", *shared(url)) as fleet:
            with postgres.standby() as standby:
                fleet.go_on()
                postgres.kill()
                postgres.data.rename(postgres.directory / "lost")
                standby.data.rename(postgres.data)
            knows_trouble(fleet)
            postgres.start()
            fleet.all_well()
            wait_for_a_step(fleet, url)


def test_the_database_is_full(spark: SparkSession, tmp_path: Path) -> None:
    """Its tables are on a small file system, which no other process sees."""
    with namespace("--mount") as inside, postgres_server(inside=inside) as postgres:
        small = postgres.directory / "small"
        small.mkdir()
        size = f"size=40m,uid={USER}"
        run(*inside, "mount", "-t", "tmpfs", "-o", size, "none", str(small))
        with psycopg.connect(postgres.url(), autocommit=True) as connection:
            connection.execute(f"CREATE TABLESPACE small LOCATION '{small}'")
            connection.execute("CREATE DATABASE small TABLESPACE small")
        url = postgres.url("small")
        with faulty_fleet(spark, tmp_path, state_url(tmp_path), *shared(url)) as fleet:
            filler = f"{small}/filler"
            run(*inside, "sh", "-c", f"cat /dev/zero >{filler} || true")
            said = [server.log for server in fleet.servers]
            wait_until(lambda: any("No space left" in log.read_text() for log in said))
            fleet.go_on()
            run(*inside, "rm", filler)
            wait_for_a_step(fleet, url)


Fault = Callable[[FaultyFleet, list[EnsembleServer]], list[EnsembleServer]]


def leader_killed(fleet: FaultyFleet, servers: list[EnsembleServer]) -> list[EnsembleServer]:
    leader = next(server for server in servers if server.mode() == "leader")
    leader.kill()
    assert leader.mode() is None
    wait_until(lambda: any(server.mode() == "leader" for server in servers))
    return [leader]


def quorum_lost(fleet: FaultyFleet, servers: list[EnsembleServer]) -> list[EnsembleServer]:
    for server in servers[:2]:
        server.kill()
    knows_trouble(fleet)
    assert all(server.mode() is None for server in servers)
    return servers[:2]


@pytest.mark.parametrize("fault", [leader_killed, quorum_lost])
def test_zookeeper_s(fault: Fault, spark: SparkSession, tmp_path: Path) -> None:
    """Seats stay with those who had them; who dies afterwards loses its own."""
    with zookeeper_ensemble(java_command(), tmp_path) as servers:
        wait_until(lambda: all(server.mode() is not None for server in servers))
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
        with faulty_fleet(spark, tmp_path, f"zk://{hosts}/f") as fleet:
            seats = fleet.servers[0].seats()
            killed = fault(fleet, servers)
            fleet.go_on()
            for server in killed:
                server.start()
            # On a busy machine a server's session may end before it finds another one to go on
            # with: its seat has no address until it has joined again, and is nobody else's.
            fleet.all_well()
            assert all(server.seats() == seats for server in fleet.servers)
            first, *others = fleet.servers
            first.kill()
            fleet.wait(lambda each: first.url not in each.seats().values(), *others)
            fleet.go_on(*others)
            first.start()
            fleet.all_well()
            fleet.go_on()


def test_a_server_is_cut_off(tmp_path: Path) -> None:
    """In a network of its own, which takes a process of its own."""
    assert own_process.run("tests.fleet.cut_off_job", tmp_path, before=("unshare", "--net")) == {
        "well": True
    }
