"""``strandline serve`` in groups: a request is answered by the group that has its table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner

from fsview.wire.marker_form import CREATE_MARKER
from fsview.wire.routes import BY_NAME
from strandline.__main__ import main
from strandline.fleet.records import read_fleet
from strandline.fleet.state.url import open_state
from tests.kit.servers.live_service import HttpClient, known
from tests.kit.tables import golden
from tests.kit.tables.small_table import SmallTable
from tests.strandline.fleet.serve_fleet import (
    FleetServer,
    refused,
    state_url,
    wait_for_seats,
    wait_until,
)
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.property

LATEST, NEWEST = (BY_NAME[name].path for name in ("latest_base_files", "last_instant"))


def small_table(path: Path) -> SmallTable:
    found = SmallTable(LocalStorage(str(path)))
    found.write(("p=1", "a-0"), ("p=2", "b-0"))
    return found


class Lakes:
    """Starts servers of roots in one folder, which end with the test."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack

    def start(self, name: str, root: str | None, *options: str) -> FleetServer:
        place = None if root is None else self.folder / root
        server = FleetServer(place, self.folder, name, *options)
        return self._stack.enter_context(server)


@pytest.fixture
def lakes(tmp_path: Path) -> Iterator[Lakes]:
    with ExitStack() as stack:
        yield Lakes(tmp_path, stack)


def wait_for_epoch(folder: Path, *servers: FleetServer) -> None:
    """Wait until servers know the newest epoch, which grows if one was slow and joined again."""
    with closing(open_state(state_url(folder))) as state:
        for server in servers:
            wait_until(lambda server=server: server.fleet()["epoch"] == read_fleet(state).epoch)  # type: ignore[misc]


def test_a_server_of_another_group_forwards_and_every_one_refuses_the_same(
    lakes: Lakes, tmp_path: Path
) -> None:
    lake, pond = small_table(tmp_path / "lake" / "t"), small_table(tmp_path / "pond" / "t")
    a = lakes.start("a", "lake")
    b = lakes.start("b", "pond", "--group", "hot")
    wait_for_seats((a, b), {0: a.url, 1: b.url})
    asked = known(lake.storage, partition="p=1")
    answers = [server.ask(LATEST, asked) for server in (a, b)]
    assert [answer.status for answer in answers] == [200, 200]
    assert answers[0].body == answers[1].body
    assert (a.asked(), b.asked()) == (2, 0)
    # No mount gives it to the group hot.
    outside = [s.ask(LATEST, known(pond.storage, partition="p=1")) for s in (a, b)]
    assert [answer.status for answer in outside] == [403, 403]
    assert b"is the group default's, and outside the roots of that group" in outside[1].body
    joins = ("--fleet", state_url(tmp_path), "--no-token", "--advertise", "http://127.0.0.1:1")
    code, said = refused(tmp_path / "lake", *joins, "--group", "hot")
    assert code == 2
    # Its middle is cut out if the paths are long.
    assert said.startswith(f"the server's roots are {tmp_path}/lake; allowed: ")
    assert f"at the member {b.url} (give all servers of a group the same --root" in said
    a.kill()
    gone = b.ask(LATEST, asked)
    assert gone.status == 503
    assert b"no server of the group default answers" in gone.body
    assert gone.headers["retry-after"] == "1"


def test_a_mounted_table_goes_to_its_group_and_comes_back(lakes: Lakes, tmp_path: Path) -> None:
    table = small_table(tmp_path / "lake" / "hot" / "t")
    a = lakes.start("a", "lake")
    b = lakes.start("b", "lake/hot", "--group", "hot")
    wait_for_seats((a, b), {0: a.url, 1: b.url})
    asked = [known(table.storage, partition=partition) for partition in ("p=1", "p=2")]
    before = [a.ask(LATEST, each).body for each in asked]
    assert (a.asked(), b.asked()) == (2, 0)
    fleet, where = state_url(tmp_path), str(tmp_path / "lake" / "hot")
    done = CliRunner().invoke(main, ["fleet", "mount", "add", fleet, where + "/", "hot"])
    assert done.exit_code == 0, done.output
    # It takes the record before it is asked.
    wait_until(lambda: b.fleet()["records"] == {"taken": 1})
    assert b.fleet()["groups"] == {
        "default": {"seats": 1, "vacant": 0, "mounts": 0},
        "hot": {"seats": 1, "vacant": 0, "mounts": 1},
    }
    newest = table.write(("p=1", "a-0"))
    base = {"basepath": table.storage.base_path}
    wait_for_epoch(tmp_path, a)
    assert newest.encode() in a.ask(NEWEST, base).body
    assert b.asked() >= 1
    assert [b.ask(LATEST, each).body for each in asked] == before
    (told,) = b.status()["tables"].values()
    loads = {name: n for name, n in told["counters"].items() if name.startswith("partition_load")}
    assert loads == {"partition_loads{source=record}": 2}, "nothing was listed"
    done = CliRunner().invoke(main, ["fleet", "mount", "remove", fleet, where])
    assert done.exit_code == 0, done.output
    asked_before = a.asked()
    wait_for_epoch(tmp_path, a, b)
    assert newest.encode() in b.ask(NEWEST, base).body
    assert a.asked() > asked_before


SCENARIO, STEP = "cow_basic_v9", 7


def test_a_router_answers_what_the_owner_does_and_opens_no_table(
    lakes: Lakes, tmp_path: Path
) -> None:
    """Byte by byte, on all that Hudi's client asked when the answers were recorded."""
    base = golden.build(SCENARIO, STEP, tmp_path / "lake" / "hot" / "t")
    a = lakes.start("a", "lake")
    b = lakes.start("b", "lake/hot", "--group", "hot")
    router = lakes.start("r", None, "--router")
    fleet = state_url(tmp_path)
    wait_for_seats((a, b, router), {0: a.url, 1: b.url})
    done = CliRunner().invoke(main, ["fleet", "mount", "add", fleet, str(base), "hot"])
    assert done.exit_code == 0, done.output
    wait_for_epoch(tmp_path, router)
    exchanges = golden.recording(SCENARIO, STEP, base=str(base)).exchanges
    assert len(exchanges) > 20
    with HttpClient(router.port, None) as one, HttpClient(b.port, None) as other:
        for each in exchanges:
            asked = each.method, f"{each.path}?{urlencode(each.params)}"
            by_router, by_owner = one.request(*asked), other.request(*asked)
            assert (by_router.status, by_router.sent) == (by_owner.status, by_owner.sent), each
            kinds = (answer.headers.get("content-type") for answer in (by_router, by_owner))
            assert len(set(kinds)) == 1
    assert router.status()["open_tables"] == 0
    members = router.fleet()["members"]
    assert [m["url"] for m in members if m["router"]] == [router.url]
    assert a.asked() == 0
    folder = {"markerdirpath": f"{base}/.hoodie/.temp/20300101000000000"}
    marker = {**folder, "markername": "2024-01-01/f_1-0-1_20300101000000000.parquet.marker.CREATE"}
    made = [router.ask(CREATE_MARKER, marker, "POST").body for _ in range(2)]
    assert made == [b"true", b"false"]
    assert b.status()["markers"]["directories"] == 1
    outside = router.ask(LATEST, {"basepath": "/elsewhere/t", "partition": "p"})
    assert outside.status == 403
    # Nobody is left, and then somebody is again.
    b.kill()
    gone = router.ask(LATEST, {"basepath": str(base), "partition": "2024-01-01"})
    assert (gone.status, gone.headers["retry-after"]) == (503, "1")
    assert b"no server of the group hot answers" in gone.body
    assert router.ask("/healthz", {}).status == 200
    b.start()
    wait_for_seats((router,), {0: a.url, 1: b.url})
    assert router.ask(LATEST, {"basepath": str(base), "partition": "2024-01-01"}).status == 200


def test_what_a_router_has_not_is_refused_by_name(tmp_path: Path) -> None:
    joins = ("--fleet", state_url(tmp_path), "--no-token", "--advertise", "http://127.0.0.1:1")
    for root, options, said in (
        (tmp_path, (), f"--root is {tmp_path}; allowed: none with --router"),
        (None, ("--standby",), "--standby is true; allowed: without --router"),
        (None, ("--group", "hot"), "--group is 'hot'; allowed: without --router"),
    ):
        code, told = refused(root, *joins, "--router", *options)
        assert (code, told.strip()) == (2, said)
    code, told = refused(None, "--no-token", "--router")
    assert code == 2
    assert "--router is given without --fleet; allowed: with --fleet URL" in told


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--group", "a/b"), "--group is 'a/b'; allowed: 1 to 64 letters"),
        (("--group", "auto"), "--group is 'auto'; allowed: with --rack NAME"),
        (("--rack", "r1"), "--rack is 'r1'; allowed: with --group auto"),
    ],
)
def test_bad_groups_are_refused_by_name(
    tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    joins = ("--fleet", state_url(tmp_path), "--no-token", "--advertise", "http://127.0.0.1:1")
    code, told = refused(tmp_path, *joins, *options)
    assert code == 2
    assert said in told


def test_a_group_needs_a_fleet(tmp_path: Path) -> None:
    code, told = refused(tmp_path, "--no-token", "--group", "hot")
    assert code == 2
    assert "--group is given without --fleet" in told
