"""Groups, mounts, a router and a drained server over each state store that machines share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from fsview.wire.routes import BY_NAME
from strandline.__main__ import main
from tests.fleet.jvm import running_jvm
from tests.fleet.postgres_place import new_database
from tests.kit.servers.live_service import known
from tests.kit.servers.postgres_server import postgres_server
from tests.kit.servers.zookeeper_server import zookeeper_server
from tests.kit.tables.small_table import SmallTable
from tests.strandline.fleet.serve_fleet import FleetServer, wait_for_seats, wait_until
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.fleet

LATEST, NEWEST = (BY_NAME[name].path for name in ("latest_base_files", "last_instant"))


@pytest.fixture
def postgresql() -> Iterator[str]:
    with postgres_server() as running:
        yield f"{new_database(running)}?fleet=f"


@pytest.fixture
def zk(tmp_path: Path) -> Iterator[str]:
    with running_jvm() as jvm, zookeeper_server(jvm, tmp_path / "zk") as running:
        yield f"zk://{running.hosts}/lake"


def fleet(*words: str) -> str:
    """Run a command; return what it printed."""
    done = CliRunner().invoke(main, ["fleet", *words])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("kind", ["postgresql", "zk"])
def test_tables_follow_mounts_and_drained_servers(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    state: str = request.getfixturevalue(kind)
    hot = tmp_path / "lake" / "hot"
    table = SmallTable(LocalStorage(str(hot / "t")))
    table.write(("p=1", "a-0"), ("p=2", "b-0"))
    with ExitStack() as stack:
        a, b, standby, router = (
            stack.enter_context(FleetServer(root, tmp_path, name, *how, state=state))
            for name, root, how in (
                ("a", tmp_path / "lake", ()),
                ("b", hot, ("--group", "hot")),
                ("s", hot, ("--group", "hot", "--standby")),
                ("r", None, ("--router",)),
            )
        )
        servers = (a, b, standby, router)
        wait_for_seats(servers, {0: a.url, 1: b.url})
        asked = known(table.storage, partition="p=1")
        before = router.ask(LATEST, asked)
        assert (before.status, a.asked(), b.asked()) == (200, 1, 0)

        fleet("mount", "add", state, str(hot), "hot")
        # It takes the record of its new table by itself.
        wait_until(lambda: b.fleet()["records"] == {"taken": 1})
        wait_until(lambda: router.fleet()["epoch"] == b.fleet()["epoch"])
        assert router.ask(LATEST, asked).sent == before.sent
        assert (a.asked(), b.asked()) == (1, 1)

        fleet("drain", state, b.url)
        wait_for_seats(servers, {0: a.url, 1: standby.url})
        newest = table.write(("p=1", "a-0"))
        asked = known(table.storage, partition="p=1")
        by_router = router.ask(LATEST, asked)
        assert newest.encode() in by_router.body
        assert standby.asked() >= 1
        assert a.ask(LATEST, asked).sent == b.ask(LATEST, asked).sent == by_router.sent
        assert fleet("status", state).count("drained") == 1

        epoch = router.fleet()["epoch"]
        fleet("mount", "remove", state, f"{hot}/")
        wait_until(lambda: router.fleet()["epoch"] > epoch)
        others = standby.asked()
        base = {"basepath": table.storage.base_path}
        assert newest.encode() in router.ask(NEWEST, base).body
        assert standby.asked() == others
        assert [each.fleet()["trouble"] for each in servers] == [None] * 4
