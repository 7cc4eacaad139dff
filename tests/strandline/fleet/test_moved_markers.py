"""Creations of markers while their table moves: who holds them, who passes them on."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fsview.wire.routes import BY_NAME
from strandline.fleet.forward import EPOCH, FORWARDED
from strandline.fleet.groups import Group
from strandline.fleet.mounts import Mount, MountTable, Move, MoveState
from strandline.fleet.moving.neighbours import TABLES
from strandline.fleet.seats import Fleet, HeldSeat, Member
from tests.kit.concurrency.patience import PATIENCE_S, pause
from tests.kit.servers.live_service import Answered, known
from tests.kit.servers.tcp_relay import TcpRelay
from tests.kit.tables.small_table import SmallTable
from tests.strandline.fleet.knowing_fleet import KnowingServer, knowing_fleet
from tests.strandline.fleet.test_safe_mode import BRIEFLY, create, kept
from timeline.storage.local import LocalStorage

LATEST = BY_NAME["latest_base_files"].path


class Moving:
    """A table, its former server, its new one, and one more of the former group."""

    def __init__(self, table: SmallTable, servers: list[KnowingServer]) -> None:
        self.table, self.servers = table, servers
        self.source, self.destination, self.other = servers
        self.destination.current.group = "hot"
        path = table.storage.base_path
        self.move = Move(1, Mount.of(path, "hot"), "default")

    def fleet(self, state: MoveState | None, *acks: KnowingServer) -> Fleet:
        """Return the fleet in a state of the move, which servers have acknowledged."""
        members = tuple(
            Member(
                server.url,
                server.url,
                False,
                at,
                group="hot" if server is self.destination else "default",
                acks=((1, state.name),) if server in acks and state is not None else (),
            )
            for at, server in enumerate(self.servers, 1)
        )
        seats = (
            HeldSeat(0, (self.source.url,), self.source.url),
            HeldSeat(1, (self.destination.url,), self.destination.url, "hot"),
        )
        root = [self.table.storage.base_path]
        groups = (Group.of("default", root), Group.of("hot", root))
        moves = () if state is None else (replace(self.move, state=state),)
        is_flipped = state not in (MoveState.PLANNED, MoveState.WARMING)
        mounts = MountTable((self.move.mount,) if is_flipped else ())
        return Fleet(members, seats, groups, mounts, moves=moves)

    def tell(self, fleet: Fleet, epoch: int, *servers: KnowingServer) -> None:
        for server in servers or self.servers:
            server.current.tell(fleet, epoch)


@pytest.fixture
def moving(tmp_path: Path) -> Iterator[Moving]:
    table = SmallTable(LocalStorage(str(tmp_path / "t")))
    table.write(("p=1", "a-0"))
    with knowing_fleet(table.storage.base_path) as servers:
        made = Moving(table, servers)
        made.tell(made.fleet(MoveState.WARMING), 2)
        yield made


@pytest.mark.property  # it waits for 5 s
def test_the_new_server_holds_creations_until_all_of_the_former_group_know(
    moving: Moving,
) -> None:
    table, source, destination, other = (
        moving.table,
        moving.source,
        moving.destination,
        moving.other,
    )
    assert create(destination, table, "a").body == b"true", "it forwards to the source"
    moving.tell(moving.fleet(MoveState.FLIPPED, source), 3)
    refused = create(destination, table, "b", BRIEFLY)
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    said = f"the table has come to {destination.url}, which {other.url} may not know yet: no "
    assert said.encode() in refused.body
    # A look-up is right at any server.
    asked = known(table.storage, partition="p=1")
    assert [s.client().request("GET", LATEST, asked).status for s in moving.servers] == [200] * 3
    answers: list[Answered] = []
    asking = threading.Thread(target=lambda: answers.append(create(source, table, "b")))
    asking.start()
    # The source forwards it to the new server, where it waits.
    while destination.current.waits < 2:
        pause()
    assert answers == []
    moving.tell(moving.fleet(MoveState.FLIPPED, source, other), 3)
    asking.join(PATIENCE_S)
    assert [answer.body for answer in answers] == [b"true"]
    assert kept(moving.servers) == [1, 1, 0]
    counted = [server.current.creations.status() for server in (source, destination)]
    assert counted == [
        {"held": 0, "refused": 0, "passed_on": 0, "served_here": 0},
        {"held": 2, "refused": 1, "passed_on": 0, "served_here": 0},
    ]


def test_a_creation_that_a_late_server_sends_to_the_source_is_passed_on(moving: Moving) -> None:
    table, source, destination, other = (
        moving.table,
        moving.source,
        moving.destination,
        moving.other,
    )
    flipped = moving.fleet(MoveState.FLIPPED, source, other)
    moving.tell(flipped, 3, source, destination)
    assert create(other, table, "a").body == b"true"
    assert kept(moving.servers) == [0, 1, 0]
    # Also if the sender has the same epoch, as it may have noticed the move on the way.
    passed = {FORWARDED: "1", EPOCH: "3"}
    assert create(source, table, "a", passed).body == b"false"
    assert kept(moving.servers) == [0, 1, 0]
    # The new server is down, or the only one that can't reach it is the source.
    destination.end.close()
    refused = create(source, table, "a", passed)
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert f"of the group hot: {destination.url}".encode() in refused.body
    assert kept([source, other]) == [0, 0]
    assert source.current.creations.status() == {
        "held": 0,
        "refused": 0,
        "passed_on": 2,
        "served_here": 0,
    }


def test_a_source_that_has_let_go_calls_no_marker_new_whatever_it_can_reach(
    moving: Moving,
) -> None:
    """It could not reach the new server a moment ago, and spares it; others reach it."""
    table, (source, destination, other) = moving.table, moving.servers
    with TcpRelay(destination.port) as relay:
        destination.url = destination.current.url = f"http://127.0.0.1:{relay.port}"
        for state, epoch in ((MoveState.FLIPPED, 3), (MoveState.DROPPING, 4)):
            moving.tell(moving.fleet(state, source, other), epoch)
        assert create(other, table, "a").body == b"true"
        relay.cut()
        assert create(source, table, "b").status >= 500
        relay.mend()
        assert create(source, table, "c").status == 503, "it spares it"
        assert create(destination, table, "c").body == b"true"
        assert kept(moving.servers) == [0, 1, 0]


@pytest.mark.property  # it waits for 5 s
def test_a_late_new_server_waits_until_it_knows_what_its_sender_knew(moving: Moving) -> None:
    table, source, destination, other = (
        moving.table,
        moving.source,
        moving.destination,
        moving.other,
    )
    moving.tell(moving.fleet(MoveState.FLIPPED), 3, other)
    refused = create(other, table, "a", BRIEFLY)
    assert refused.status == 503
    assert f"which {destination.url} may not know yet".encode() in refused.body
    assert destination.caught_up == 1
    moving.tell(moving.fleet(MoveState.FLIPPED, source, other), 3)
    assert create(other, table, "a").body == b"true"
    assert kept(moving.servers) == [0, 1, 0]


def test_after_the_move_all_is_as_before(moving: Moving) -> None:
    moving.tell(moving.fleet(None), 4)
    answers = [create(server, moving.table, "a").body for server in moving.servers]
    assert answers == [b"true", b"false", b"false"]
    assert kept(moving.servers) == [0, 1, 0]


def test_a_look_up_that_a_late_server_sends_to_the_source_opens_no_table_there(
    moving: Moving,
) -> None:
    table, (source, destination, other) = moving.table, moving.servers
    moving.tell(moving.fleet(None), 4, source, destination)
    asked = known(table.storage, partition="p=1")
    base = {"basepath": table.storage.base_path}
    expected = destination.client().request("GET", LATEST, asked).body
    assert other.client().request("GET", LATEST, asked).body == expected
    assert other.client().request("POST", BY_NAME["sync"].path, base).status == 200
    assert [len(server.parts.views.open_tables()) for server in moving.servers] == [0, 1, 0]
    assert other.caught_up == 1, "it was told that it is late"
    # Whoever knows as much gets an answer, and from then on all, as the table is open.
    told = {FORWARDED: "1", EPOCH: "4"}
    assert source.client().request("GET", LATEST, asked, headers=told).body == expected
    asked_before = destination.parts.status()["requests"]
    assert other.client().request("GET", LATEST, asked).body == expected
    assert destination.parts.status()["requests"] == asked_before
    # Nobody else answers: the source opens it.
    (view,) = source.parts.views.open_tables()
    assert source.parts.views.close_table(view, "test")
    destination.end.close()
    assert other.client().request("GET", LATEST, asked).body == expected
    assert len(source.parts.views.open_tables()) == 1


def test_a_server_that_is_about_to_get_a_table_keeps_it_open_and_follows(moving: Moving) -> None:
    source, destination, other = moving.servers
    table = f"file://{moving.table.storage.base_path}"
    assert destination.parts._has(table)
    assert not destination.parts._has(f"{table}-2")
    assert not other.parts._has(table)
    assert source.current.known.followers(table) == ()
    warm = moving.fleet(MoveState.WARMING, destination)
    moving.tell(warm, 2)
    assert source.current.known.followers(table) == (destination.url,)
    asked = {"basepath": moving.table.storage.base_path}
    instant = moving.table.write(("p=1", "a-0"))
    answer = source.client().request("POST", BY_NAME["sync"].path, asked)
    assert answer.status == 200
    (view,) = destination.parts.views.open_tables()
    assert view.newest().timeline.instants[-1].requested_time == instant, "it was notified"


def test_tables_below_a_root_that_is_a_link_are_the_fleet_s_as_clients_name_them(
    tmp_path: Path,
) -> None:
    (tmp_path / "mnt").mkdir()
    (tmp_path / "lake").symlink_to("mnt")
    table = SmallTable(LocalStorage(str(tmp_path / "lake" / "t")))
    table.write(("p=1", "a-0"))
    text = f"file://{tmp_path}/lake/t"
    with knowing_fleet(str(tmp_path / "lake"), 1) as (server,):
        parts = server.parts
        assert server.client().request("GET", LATEST, known(table.storage)).status == 200
        assert create(server, table, "a").body == b"true"
        assert json.loads(server.client().request("GET", TABLES).body) == [text]
        parts.views.close_foreign(lambda name: name == text, 0)
        assert len(parts.views.open_tables()) == 1
        parts.forget_markers(lambda name: name != text)
        assert server.markers() == 1
        parts.forget_markers(lambda name: name == text)
        assert server.markers() == 0
