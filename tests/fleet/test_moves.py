"""Spark jobs, ours and real Hudi's, go on through routers while tables move and faults strike."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

import pytest

from strandline.fleet.mounts import MoveState
from strandline.fleet.records import read_fleet
from tests.fleet.jvm import java_command
from tests.fleet.moving_lake import MovingLake, Place, moving_lake
from tests.fleet.postgres_place import new_database
from tests.kit.servers.postgres_server import postgres_server
from tests.kit.servers.zookeeper_ensemble import EnsembleServer, zookeeper_ensemble
from tests.oracle.driver_log import driver_log, fallbacks
from tests.oracle.hudi import Hudi
from tests.strandline.fleet.serve_fleet import FleetServer, wait_until
from timeline.errors import FleetError

pytestmark = pytest.mark.fleet

Fault = Callable[[MovingLake, FleetServer], AbstractContextManager[None]]

STATES: Final = (MoveState.PLANNED, MoveState.WARMING, MoveState.FLIPPED, MoveState.DROPPING)


def source(lake: MovingLake, source: str, destination: str) -> FleetServer:
    return lake.owner(source)


def destination(lake: MovingLake, source: str, destination: str) -> FleetServer:
    return lake.owner(destination)


def leader(lake: MovingLake, source: str, destination: str) -> FleetServer:
    url = lake.routers[1].fleet()["leader"]
    return next(member for member in lake.members if member.url == url)


def router(lake: MovingLake, source: str, destination: str) -> FleetServer:
    return next(r for r in lake.routers if r.port == lake.balancer.upstream)


VICTIMS: Final = (source, leader, destination, router)
"""In this order: the next move goes back, so that servers of both groups are struck."""


@contextmanager
def killed(lake: MovingLake, server: FleetServer) -> Iterator[None]:
    lake.turn_balancer(server)
    server.kill()  # which ends the connections that it has
    yield
    server.start()


@contextmanager
def stopped(lake: MovingLake, server: FleetServer) -> Iterator[None]:
    is_led_to = lake.turn_balancer(server)
    server.hang()
    if is_led_to:
        lake.balancer.hang_up()  # as a load balancer that has noticed it
    yield
    server.send(signal.SIGCONT)


@contextmanager
def cut_off(lake: MovingLake, server: FleetServer) -> Iterator[None]:
    """From the state store alone: clients and other servers still reach it."""
    lake.cut(server)
    yield
    lake.mend(server)


FAULTS: Final[tuple[Fault, ...]] = (killed, stopped, cut_off)
FAR_S: Final = 5 * 3600
WITHOUT_STORE: Final = 200
"""Retries of Hudi's job: creations of markers are refused while the state store is away after a
flip (docs/how-to/fleet-groups.md), here until a test starts it again."""


def clock_set(off_s: int) -> Fault:
    """Return what sets a server's wall clock, which stays so."""

    @contextmanager
    def jumped(lake: MovingLake, server: FleetServer) -> Iterator[None]:
        lake.clocks[server].set(off_s)
        yield

    return jumped


@pytest.fixture
def postgresql() -> Iterator[Place]:
    with postgres_server() as running:
        url = new_database(running)

        def by_way_of(ports: object) -> str:
            (port,) = ports  # type: ignore[misc]
            return f"{url.replace(f':{running.port}/', f':{port}/')}?fleet=f"

        yield Place((running.port,), by_way_of)


@contextmanager
def ensemble(folder: Path) -> Iterator[tuple[list[EnsembleServer], Place]]:
    with zookeeper_ensemble(java_command(), folder) as servers:
        wait_until(lambda: all(server.mode() is not None for server in servers))
        yield (
            servers,
            Place(
                [server.port for server in servers],
                lambda ports: f"zk://{','.join(f'127.0.0.1:{port}' for port in ports)}/lake",
            ),
        )


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("fault", FAULTS)
def test_jobs_go_on_while_tables_move_and_a_server_is(
    fault: Fault,
    state: MoveState,
    postgresql: Place,
    hudi: Hudi,
    tmp_path: Path,
    report: Callable[[str], None],
) -> None:
    """Each of the servers that a move concerns, while it is in a state."""
    log = tmp_path / "driver.log"
    with driver_log(hudi, log), moving_lake(hudi, tmp_path, postgresql) as lake:
        lake.move()
        for choose in VICTIMS:
            lake.strike(fault, choose, state)
        lake.move()
        report(f"{fault.__name__}: {lake.told()}")
    assert fallbacks(log) == []


def test_jobs_go_on_while_tables_move_and_clocks_jump(
    postgresql: Place, hudi: Hudi, tmp_path: Path, report: Callable[[str], None]
) -> None:
    """Each victim's and in each state once, by hours: leases go by the database's clock."""
    log = tmp_path / "driver.log"
    with (
        driver_log(hudi, log),
        moving_lake(hudi, tmp_path, postgresql, has_clocks=True) as lake,
    ):
        seats = lake.routers[0].seats()
        for n, choose in enumerate(VICTIMS):
            lake.strike(clock_set(FAR_S * (-1) ** n), choose, STATES[n - 1])
        assert all(server.seats() == seats for server in lake.members), "none has changed hands"
        assert sum(abs(clock.off_s()) > FAR_S / 2 for clock in lake.clocks.values()) > 1
        lake.move()
        report(f"clocks: {lake.told()}")
    assert fallbacks(log) == []


def test_jobs_go_on_while_tables_move_over_zookeeper(
    hudi: Hudi, tmp_path: Path, report: Callable[[str], None]
) -> None:
    """Each victim and each state once."""
    log = tmp_path / "driver.log"
    with (
        driver_log(hudi, log),
        ensemble(tmp_path) as (_, place),
        moving_lake(hudi, tmp_path, place) as lake,
    ):
        lake.move()
        for n, choose in enumerate(VICTIMS):
            lake.strike(FAULTS[n % len(FAULTS)], choose, STATES[n - 1])
        lake.move()
        report(f"over ZooKeeper: {lake.told()}")
    assert fallbacks(log) == []


def test_look_ups_go_on_and_a_move_waits_while_the_quorum_is_lost(
    hudi: Hudi, tmp_path: Path
) -> None:
    """It has flipped, which a server of the source that is cut off from the store doesn't know."""
    log = tmp_path / "driver.log"
    with (
        driver_log(hudi, log),
        ensemble(tmp_path) as (zookeepers, place),
        moving_lake(hudi, tmp_path, place, retries=WITHOUT_STORE) as lake,
    ):
        move = lake.order()
        held = next(each for each in lake.group(move.source) if each is not leader(lake, "", ""))
        lake.cut(held)
        assert lake.sees(move, MoveState.FLIPPED)
        for zookeeper in zookeepers[:2]:
            zookeeper.kill()
        lake.mend(held)
        wait_until(lambda: all(each.fleet()["trouble"] is not None for each in lake.members))
        # Tasks of Hudi's that wait for a marker may have all cores of Spark's.
        lake.ask()
        for zookeeper in zookeepers[:2]:
            zookeeper.start()
        wait_until(lambda: is_reachable(lake))
        assert lake.end(move).state is MoveState.DONE
        lake.recover()
        lake.go_on()
        lake.move()
    assert fallbacks(log) == []


def is_reachable(lake: MovingLake) -> bool:
    """Return whether the state store can be read from here."""
    try:
        read_fleet(lake.state)
    except FleetError:
        return False
    return True
