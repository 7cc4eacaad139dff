"""Whose table a request is about, as far as a server knows the groups of its fleet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fsview.wire.marker_form import CREATE_MARKER
from fsview.wire.routes import BY_NAME
from strandline.fleet.groups import Group
from strandline.fleet.mounts import Mount, MountTable
from strandline.fleet.peer import Peer
from strandline.fleet.seats import Fleet, HeldSeat, Member
from strandline.server.rest.watch import Watches
from tests.kit.formats.marker_name import marker_name
from tests.kit.servers.live_service import Answered, known
from tests.kit.tables.small_table import SmallTable
from tests.strandline.fleet.knowing_fleet import KnowingServer, knowing_fleet, path_of_seat
from tests.strandline.fleet.knowing_fleet import fleet_of as plain_fleet_of
from timeline.storage.local import LocalStorage

LATEST, REFRESH = BY_NAME["latest_base_files"].path, BY_NAME["sync"].path
INSTANT = "20300101000000000"


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    found = SmallTable(LocalStorage(str(tmp_path / "lake" / "t")))
    found.write(("p=1", "a-0"))
    return found


@pytest.fixture
def servers(table: SmallTable) -> Iterator[list[KnowingServer]]:
    """A server of the group hot, to be told which fleet there is, and a router."""
    with knowing_fleet(table.storage.base_path, count=1, routers=1) as made:
        made[0].current.group, made[1].current.group = "hot", ""
        yield made


def fleet_of(servers: list[KnowingServer], table: SmallTable, *roots: str) -> Fleet:
    """Return a fleet in which the first server has a seat, whose group has the table."""
    one, router = servers
    members = (
        Member("r", router.url, is_standby=False, joined=1, group=""),
        Member("o", one.url, is_standby=False, joined=2, group="hot"),
    )
    mounts = MountTable((Mount.of(table.storage.base_path, "hot"),))
    groups = (Group.of("hot", roots),) if roots else ()
    return Fleet(members, (HeldSeat(0, ("o",), one.url, "hot"),), groups, mounts)


def tell(servers: list[KnowingServer], fleet: Fleet, epoch: int) -> None:
    for server in servers:
        server.current.tell(fleet, epoch)


def ask_all(server: KnowingServer, table: SmallTable) -> list[Answered]:
    """Ask for files, for a sync, and for a marker."""
    client, base = server.client(), {"basepath": table.storage.base_path}
    marker = {
        "markerdirpath": f"{table.storage.base_path}/.hoodie/.temp/{INSTANT}",
        "markername": marker_name(INSTANT, "a"),
    }
    return [
        client.request("GET", LATEST, known(table.storage, partition="p=1")),
        client.request("POST", REFRESH, base),
        client.request("POST", CREATE_MARKER, marker),
    ]


def test_a_router_before_any_other_member_has_its_clients_ask_again(
    servers: list[KnowingServer], table: SmallTable
) -> None:
    """It knows no group's roots, so it can't say that the path is outside them."""
    one, router = servers
    whole = fleet_of(servers, table, table.storage.base_path)
    for group, fleet in (
        ("hot", replace(whole, members=whole.members[:1], seats=(), groups=())),
        ("default", Fleet(whole.members[:1])),
    ):
        tell([router], fleet, 1)
        for answer in ask_all(router, table):
            assert (answer.status, answer.headers["retry-after"]) == (503, "1"), answer.body
            assert f"no server of the group {group} answers".encode() in answer.body
    tell(servers, whole, 2)
    assert [answer.status for answer in ask_all(router, table)] == [200, 200, 200]
    assert one.markers() == 1


def test_a_table_of_a_group_whose_roots_are_not_known_is_the_group_s_to_refuse(
    servers: list[KnowingServer], table: SmallTable, tmp_path: Path
) -> None:
    """As while the group's record is damaged."""
    _, router = servers
    tell(servers, fleet_of(servers, table), 1)
    assert [answer.status for answer in ask_all(router, table)] == [200, 200, 200]
    elsewhere = SmallTable(LocalStorage(str(tmp_path / "pond")))
    elsewhere.write(("p=1", "a-0"))
    tell(servers, fleet_of(servers, elsewhere), 2)
    for answer in ask_all(router, elsewhere):
        assert answer.status == 503, answer.body


def test_a_path_outside_the_group_s_roots_is_refused_by_the_group_s_name(
    servers: list[KnowingServer], table: SmallTable, tmp_path: Path
) -> None:
    tell(servers, fleet_of(servers, table, str(tmp_path / "pond")), 1)
    for answer in ask_all(servers[1], table):
        assert answer.status == 403
        assert b"is the group hot's, and outside the roots of that group" in answer.body


def test_another_server_of_the_group_answers_if_the_table_s_own_do_not(tmp_path: Path) -> None:
    """With one copy, while its seat is vacant, and while its server is down."""
    path = path_of_seat(0, 2, str(tmp_path))
    table = SmallTable(LocalStorage(path))
    table.write(("p=1", "a-0"))
    with knowing_fleet(str(tmp_path), count=2, routers=1) as servers:
        *holders, router = servers
        router.current.group = ""
        whole = plain_fleet_of(*holders)
        mounts = MountTable((Mount.of(path, "default", copies=1),))
        router.current.tell(replace(whole, mounts=mounts), 1)
        assert [answer.status for answer in ask_all(router, table)] == [200, 200, 200]
        assert [server.markers() for server in holders] == [1, 0]
        holders[0].end.close()
        asked = ask_all(router, table)
        assert [answer.status for answer in asked] == [200, 200, 503], "others may reach it"
        assert asked[-1].headers["retry-after"] == "1"
        router.current.tell(replace(whole, mounts=mounts, members=whole.members[1:]), 1)
        assert [answer.status for answer in ask_all(router, table)] == [200, 200, 200]
        assert holders[1].markers() == 1
        holders[1].end.close()
        for answer in ask_all(router, table):
            assert (answer.status, answer.headers["retry-after"]) == (503, "1"), answer.body


def test_who_cannot_answer_asks_servers_that_another_request_is_trying(
    servers: list[KnowingServer], table: SmallTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has just come back, and one request is finding that out."""
    one, router = servers
    tell(servers, fleet_of(servers, table, table.storage.base_path), 1)
    may_be_asked = Peer.may_be_asked

    def on_trial(self: Peer, *, beside_trial: bool = False) -> bool:
        return self.url != one.url or (beside_trial and may_be_asked(self))

    monkeypatch.setattr(Peer, "may_be_asked", on_trial)
    assert [answer.status for answer in ask_all(router, table)] == [200, 200, 200]
    assert one.markers() == 1


def test_errors_about_another_group_s_table_have_the_shape_of_their_routes(
    servers: list[KnowingServer], table: SmallTable, tmp_path: Path
) -> None:
    one, router = servers

    def refused(name: str) -> tuple[int, str]:
        params = {"table": table.storage.base_path}
        answer = router.client().request("GET", f"/v2/{name}", params)
        shape = json.loads(answer.body)
        assert shape["status"] == answer.status
        return answer.status, shape["code"]

    tell(servers, fleet_of(servers, table, str(tmp_path / "pond")), 1)
    assert refused("timeline") == refused("watch") == (403, "root_not_allowed")
    tell(servers, fleet_of(servers, table, table.storage.base_path), 2)
    one.parts.rest.watches = Watches(at_most=0)
    assert refused("watch") == (503, "too_many_watchers")
    one.end.close()
    assert refused("timeline") == refused("watch") == (503, "no_server")
