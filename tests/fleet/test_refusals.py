"""What is refused by name when a server starts, with each state store, on real servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from strandline.fleet.records import EPOCH
from strandline.fleet.state.base import Put
from strandline.fleet.state.url import open_state
from tests.conformance.state_subject import children
from tests.fleet.jvm import running_jvm
from tests.fleet.postgres_place import new_database
from tests.kit.servers.postgres_server import PostgresServer, postgres_server
from tests.kit.servers.zookeeper_server import ZookeeperServer, zookeeper_server
from tests.strandline.fleet.serve_fleet import FleetServer, refused, state_url, wait_for_seats

pytestmark = pytest.mark.fleet

ELSEWHERE = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZookeeperServer]:
    with running_jvm() as jvm, zookeeper_server(jvm, tmp_path_factory.mktemp("zk")) as running:
        yield running


@pytest.fixture
def states(postgres: PostgresServer, zookeeper: ZookeeperServer, tmp_path: Path) -> dict[str, str]:
    """The URL of a new fleet in each kind of state store."""
    return {
        "sqlite": state_url(tmp_path),
        "postgresql": f"{new_database(postgres)}?fleet=f",
        "zk": f"zk://{zookeeper.hosts}/{tmp_path.name}",
    }


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    made = tmp_path / "lake"
    made.mkdir()
    return made


KINDS = pytest.mark.parametrize("kind", ["sqlite", "postgresql", "zk"])


@KINDS
def test_who_is_no_member(kind: str, states: dict[str, str], lake: Path, tmp_path: Path) -> None:
    """Another token, another way to place tables, and an address that is taken."""
    state = states[kind]
    (tmp_path / "token").write_text("another")
    joins = ("--fleet", state, "--fleet-heartbeat", "0.5", "--fleet-dead", "4")
    with FleetServer(lake, tmp_path, "a", state=state) as a:
        token = ("--token-file", str(tmp_path / "token"))
        code, said = refused(lake, *joins, "--advertise", ELSEWHERE, *token)
        assert code == 2
        assert "the server's token is *** with the mark" in said
        assert f"allowed: none, as at the member {a.url} (give all servers" in said
        assert "another" not in said
        more = ("--no-token", "--fleet-tokens", "7")
        code, said = refused(lake, *joins, "--advertise", ELSEWHERE, *more)
        assert code == 2
        assert f"strandline.fleet.tokens is 7; allowed: 100, as at the member {a.url}" in said
        code, said = refused(lake, *joins, "--advertise", a.url, "--no-token")
        assert code == 1
        assert f"a member of the fleet has the address {a.url}" in said
        wait_for_seats((a,), {0: a.url})
        assert a.fleet()["trouble"] is None


@KINDS
def test_records_of_another_release(kind: str, states: dict[str, str], lake: Path) -> None:
    state = states[kind]
    epoch = b'{"schema": 7, "epoch": 1}'
    with closing(open_state(state)) as opened:
        opened.write(Put(EPOCH, epoch))
    joins = ("--fleet", state, "--advertise", ELSEWHERE, "--no-token")
    code, said = refused(lake, *joins)
    assert code == 2
    assert "the fleet's records have schema 7; allowed: 1" in said
    with closing(open_state(state)) as opened:
        found = opened.get(EPOCH)
        assert found is not None
        assert found.value == epoch, "it was left as it was"
        assert children(opened, "members") == ()


def another_release(url: str) -> None:
    with closing(open_state(f"{url}?fleet=f")), psycopg.connect(url) as connection:
        connection.execute("UPDATE strandline_fleet.schema_version SET version = 77")


def another_program(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE SCHEMA strandline_fleet")


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (another_release, "has tables of version 77; allowed: 1"),
        (another_program, "the schema strandline_fleet is another program's"),
    ],
)
def test_tables_of_another(
    make: Callable[[str], None], wanted: str, postgres: PostgresServer, lake: Path
) -> None:
    url = new_database(postgres)
    make(url)
    joins = ("--fleet", f"{url}?fleet=f", "--advertise", ELSEWHERE, "--no-token")
    code, said = refused(lake, *joins)
    assert code == 2
    assert wanted in said


def test_a_file_that_has_another_fleet(lake: Path, tmp_path: Path) -> None:
    ours, theirs = (f"{state_url(tmp_path)}?fleet={name}" for name in ("ours", "theirs"))
    with FleetServer(lake, tmp_path, "a", state=ours) as a:
        code, said = refused(lake, "--fleet", theirs, "--advertise", ELSEWHERE, "--no-token")
        assert code == 2
        assert "'ours'" in said
        wait_for_seats((a,), {0: a.url})


@pytest.mark.parametrize("kind", ["postgresql", "zk"])
def test_fleets_of_one_store_are_apart(
    kind: str, states: dict[str, str], lake: Path, tmp_path: Path
) -> None:
    state = states[kind]
    with (
        FleetServer(lake, tmp_path, "a", state=state) as a,
        FleetServer(lake, tmp_path, "b", state=f"{state}-other") as b,
    ):
        wait_for_seats((a,), {0: a.url})
        wait_for_seats((b,), {0: b.url})
