"""Moves of tables between groups: their states, who is waited for, what is refused."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from strandline.fleet.changes import (
    add_mount,
    await_move,
    drain,
    remove_mount,
    undo_move,
)
from strandline.fleet.mounts import MAX_MOUNTS, Mount, MountTable, Move, MoveState
from strandline.fleet.moving.moves import FAILED, MOST_MOVES
from strandline.fleet.records import (
    MOST_MOVED,
    MOUNTS,
    MOVED,
    FleetRead,
    member_key,
    mounting,
    mounts_bytes,
    move_bytes,
    move_key,
    moved_bytes,
    read_fleet,
)
from strandline.fleet.seats import Fleet, HeldSeat, Member
from strandline.fleet.state.base import Put
from tests.strandline.fleet.moving.moved_servers import ALL, HOT, ROUNDS, Servers, T
from tests.strandline.fleet.moving.moving_fleet import Server
from timeline.errors import ConfigError, FleetError


def test_a_move_goes_through_its_states_and_the_servers_follow(servers: Servers) -> None:
    a, b, c = servers.a, servers.b, servers.c
    before = a.current.known
    move = servers.order("/lake/hot/")
    assert (move.source, move.destination, move.state) == ("default", "hot", MoveState.PLANNED)
    epochs = [read_fleet(servers.state).epoch]
    assert move.number == epochs[0]
    a.step()
    assert servers.moves() == ["WARMING"]
    assert servers.group() == "default"
    servers.run(1, a)
    assert servers.moves() == ["WARMING"], "c hasn't taken the tables"
    c.step()
    assert c.current.known.takes(T, c.url)
    assert c.current.known.followers(T) == ()
    c.work()
    c.step()
    a.step()
    assert (servers.moves(), servers.group()) == (["FLIPPED"], "hot")
    # Neither a nor b may create markers of it any more, but b doesn't know.
    c.step()
    assert set(c.current.known.unaware(T, c.url, "hot", None)) == {a.url, b.url}
    assert a.current.known.former(T, "default", before)
    assert a.current.known.unaware(T, a.url, "default", None) == ()
    servers.run(2, a, c)
    assert servers.moves() == ["FLIPPED"]
    assert c.current.known.unaware(T, c.url, "hot", None) == (b.url,)
    servers.run(2, b, a, c)
    assert c.current.known.unaware(T, c.url, "hot", None) == ()
    servers.run(ROUNDS)
    assert (servers.moves(), servers.ended()) == ([], [("DONE", "")])
    (ended,) = read_fleet(servers.state).ended
    assert [name for name, _ in ended.began] == ALL
    servers.run(2)
    assert all(each.acks == () for each in read_fleet(servers.state).fleet.members)
    assert c.current.known.group(T) == "hot"
    now = a.current.known
    assert now.former(T, "default", before), "the whole move came since"
    assert not now.former(T, "default", now), "it steps in, as nobody else answers"
    assert not c.current.known.former(T, "hot", before)


def test_the_leader_that_writes_a_step_counts_it(servers: Servers) -> None:
    a, b, c = servers.a, servers.b, servers.c
    servers.order()
    servers.run(ROUNDS)
    servers.order(group="default")
    servers.run_until("WARMING", a, b)
    undo_move(servers.state, read_fleet(servers.state).fleet.moves[0].number, now_ms=0)
    servers.run(1)
    counted = a.roster.move_counts.status()
    assert counted["reached"] == {
        "DONE": 1,
        "DROPPING": 1,
        "FLIPPED": 1,
        "UNDONE": 1,
        "WARMING": 2,
    }
    assert set(counted["seconds"]) == {"PLANNED", "WARMING", "FLIPPED", "DROPPING"}
    assert sum(counted["seconds"].values()) > 0
    for server in (b, c):
        assert server.roster.move_counts.status() == {"reached": {}, "seconds": {}}


def test_the_time_of_a_step_is_how_long_its_leader_has_seen_the_state_before(
    servers: Servers,
) -> None:
    a, c = servers.a, servers.c
    servers.order()
    servers.run_until("FLIPPED", a, c)
    before = a.roster.move_counts.status()["seconds"]
    servers.run(4, a, c)
    servers.run(ROUNDS)
    after = a.roster.move_counts.status()["seconds"]
    assert after["WARMING"] == before["WARMING"]
    assert 4 <= after["FLIPPED"] <= 6, "b came late"


def test_a_late_server_of_the_destination_waits_until_it_knows_more(servers: Servers) -> None:
    """The one that passes a creation on knows of the flip already."""
    known = servers.c.current.known
    assert known.unaware(T, servers.c.url, "hot", known.epoch + 1) == (servers.c.url,)
    assert known.unaware(T, servers.c.url, "hot", known.epoch) == ()
    assert known.unaware(T, servers.a.url, "default", known.epoch + 1) == ()


def test_a_move_back_removes_the_mount(servers: Servers) -> None:
    servers.order()
    servers.run(ROUNDS)
    servers.order(group="default")
    servers.run(ROUNDS)
    assert read_fleet(servers.state).fleet.mounts == MountTable()
    assert [state for state, _ in servers.ended()] == ["DONE", "DONE"]


def test_a_mount_keeps_how_it_places_its_tables() -> None:
    one = MountTable((Mount.of("/lake", "hot", copies=1), Mount.of("/lake/a", "cold")))
    assert one.moving(Mount.of("/lake/a", "hot", copies=1)).mounts == (one.mounts[0],)
    assert one.moving(Mount.of("/lake/a", "hot")).mount("file:///lake/a/t") == Mount.of(
        "/lake/a", "hot"
    )
    assert one.moving(Mount.of("/lake", "default")).mounts == (one.mounts[1],)


def test_a_mount_s_copies_move_with_it(servers: Servers) -> None:
    add_mount(servers.state, Mount.of("/lake/hot", "default", copies=2))
    assert servers.order().mount == Mount.of("/lake/hot", "hot", copies=2)
    undo_move(servers.state, read_fleet(servers.state).fleet.moves[0].number, now_ms=0)
    assert servers.order(copies=1, depth=2).mount == Mount.of("/lake/hot", "hot", 1, 2)


def test_a_table_keeps_how_a_mount_above_it_places_it(servers: Servers) -> None:
    add_mount(servers.state, Mount.of("/lake/hot", "default", copies=1, depth=2))
    assert servers.order("/lake/hot/t").mount == Mount.of("/lake/hot/t", "hot", 1, 2)
    servers.run(ROUNDS)
    servers.order("/lake/hot/t", "default")
    servers.run(ROUNDS)
    (mount,) = read_fleet(servers.state).fleet.mounts.mounts
    assert mount.path == "/lake/hot", "the other says no more"


def test_a_mount_without_room_has_no_server_stop(servers: Servers) -> None:
    full = MountTable(tuple(Mount(f"file:///lake/{n}", "default") for n in range(MAX_MOUNTS)))
    move = Move(1, Mount.of("/lake/hot/t", "hot"), "default", MoveState.WARMING)
    assert Fleet(mounts=full, moves=(move,)).mounts_after() == full


def test_moves_that_are_ordered_together_have_room_for_all_of_their_mounts(
    servers: Servers,
) -> None:
    table = MountTable(tuple(Mount.of(f"/lake/{n:04000}", "default") for n in range(63)))
    servers.state.write(Put(MOUNTS, mounts_bytes(table)))
    servers.order(f"/lake/hot/{1:04000}")
    with pytest.raises(ConfigError, match=r"the 65 mounts take 26\d+ bytes; allowed: 262144"):
        servers.order(f"/lake/hot/{2:04000}")
    servers.order("/lake/hot/t")
    servers.run(ROUNDS)
    assert servers.ended() == [("DONE", "")] * 2


def test_a_mount_that_is_replaced_takes_no_more_than_there_is_room_for() -> None:
    mounts = tuple(Mount.of(f"/lake/{n:04000}", "a") for n in range(65))
    found = FleetRead(Fleet(mounts=MountTable(mounts)), 1, {})
    longer = found.fleet.mounts.moving(replace(mounts[0], group="abc"))
    with pytest.raises(ConfigError, match=r"the 65 mounts take 26\d+ bytes; allowed: 262144"):
        mounting(found, longer)
    assert mounting(found, found.fleet.mounts.removing(mounts[0].path))


@pytest.mark.property
def test_so_many_moves_are_under_way_that_each_server_can_name_them(servers: Servers) -> None:
    for number in range(MOST_MOVES):
        servers.order(f"/lake/hot/{number}")
    with pytest.raises(ConfigError, match="32 moves are under way; allowed: 32"):
        servers.order("/lake/hot/t")
    servers.a.step()
    assert servers.moves() == ["WARMING"] * 8 + ["PLANNED"] * 24, "seats are decided in between"
    servers.run(3 * ROUNDS)
    assert [state for state, _ in servers.ended()] == ["DONE"] * MOST_MOVES
    servers.order("/lake/hot/t")


def test_a_group_whose_servers_are_drained_gets_no_tables(servers: Servers) -> None:
    Server(servers.lake, "d", "other")
    servers.run(3)
    drain(servers.state, "http://d:1")
    with pytest.raises(ConfigError, match="the group other has no server; allowed: hot"):
        servers.order("/lake/hot/t", "other")


def test_a_table_below_a_deeper_mount_does_not_move(servers: Servers) -> None:
    add_mount(servers.state, Mount.of("/lake/hot/t", "default"))
    servers.order()
    fleet = read_fleet(servers.state).fleet
    assert fleet.move(T) is None
    assert fleet.move(f"{HOT}/u") is not None
    assert fleet.move("file:///lake/cold") is None


def test_what_is_moving_is_not_changed_and_a_second_mover_is_told_of_the_first(
    servers: Servers,
) -> None:
    move = servers.order("/lake/hot/t")
    said = f"move {move.number} of /lake/hot/t from default to hot is PLANNED, and concerns "
    with pytest.raises(ConfigError, match=f"{said}/lake/hot;"):
        servers.order()
    with pytest.raises(ConfigError, match=said):
        servers.order("/lake/hot/t/below")
    with pytest.raises(ConfigError, match=said):
        add_mount(servers.state, Mount.of("/lake/hot", "hot"))
    other = servers.order("/lake/hot/u")
    assert other.number > move.number
    servers.run(ROUNDS)
    servers.order("/lake/hot/t", "default")
    with pytest.raises(ConfigError, match="is PLANNED, and concerns /lake/hot/t;"):
        remove_mount(servers.state, "/lake/hot/t")


@pytest.mark.parametrize(
    ("path", "group", "said"),
    [
        ("/lake/hot", "gone", "the group gone has no server; allowed: hot"),
        ("/lake/hot", "default", "belongs to the group default; allowed: another group"),
        ("/lake/cold", "hot", "outside the roots of the group hot; allowed: at or below /lake/hot"),
        ("lake", "hot", "is relative"),
        ("/lake/../x", "hot", "has '..'; allowed: names"),
        ("/lake/hot", "a/b", "the group is 'a/b'; allowed"),
    ],
)
def test_what_can_not_move_is_refused_by_name(
    servers: Servers, path: str, group: str, said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        servers.order(path, group)
    assert said in str(refused.value)
    assert servers.moves() == []


def test_a_record_that_can_not_be_read_is_ignored_and_can_be_forgotten(
    servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    good = move_bytes(Move(1, Mount.of("/lake", "hot"), "default"))
    for value in (
        b"no JSON",
        b"{}",
        good.replace(b"PLANNED", b"ELSEWHERE"),
        good.replace(b"PLANNED", b"DONE"),
        good.replace(b"PLANNED", b"UNDONE"),
        good.replace(b'"began": {}', b'"began": {"PLANNED": "x"}'),
        good.replace(b'"hot"', b'"a/b"'),
        good.replace(b'"default"', b'""'),
        good.replace(b'"copies": null', b'"copies": 7'),
    ):
        servers.state.write(Put(move_key(1), value))
        servers.run(2)
        assert servers.a.current.known.fleet.moves == ()
        assert move_key(1) in read_fleet(servers.state).unreadable, value
        assert undo_move(servers.state, 1, now_ms=0) is None
        assert not read_fleet(servers.state).unreadable
    servers.state.write(Put("moves/x", good))
    assert "is of no move; allowed: moves/NUMBER" in read_fleet(servers.state).unreadable["moves/x"]
    servers.state.write(Put(MOVED, b"[]"))
    with caplog.at_level(logging.WARNING):
        assert read_fleet(servers.state).ended == ()
    assert "the moves that ended are forgotten: the record 'moved' is list" in caplog.text
    servers.order()
    servers.run(ROUNDS)
    assert servers.ended() == [("DONE", "")]


@pytest.mark.property
def test_the_last_moves_are_kept(servers: Servers) -> None:
    numbers = range(1000, 1000 + MOST_MOVED)
    many = [Move(n, Mount.of(f"/lake/hot/{n}", "hot"), "default") for n in numbers]
    servers.state.write(Put(MOVED, moved_bytes(many)))
    move = servers.order()
    servers.run(ROUNDS)
    kept = read_fleet(servers.state).ended
    assert [each.number for each in kept] == [*numbers[1:], move.number]
    long = [Move(n, Mount.of(f"/lake/{n:04}" + "x" * 4000, "hot"), "default") for n in range(100)]
    assert 10 < moved_bytes(long).count(b'"number"') < 40, "a write has room for them"


def test_a_move_is_awaited_until_it_ends(servers: Servers) -> None:
    move = servers.order()
    seen: list[str] = []

    def tell(now: Move) -> None:
        seen.append(now.state.name)
        servers.run(ROUNDS)

    assert await_move(servers.state, move, tell, within_s=0) == move
    servers.a.step()
    assert await_move(servers.state, move, tell).state is MoveState.DONE
    assert seen[-1] == "DONE"
    version = read_fleet(servers.state).version(MOVED)
    servers.state.write(Put(MOVED, moved_bytes([]), version))
    with pytest.raises(FleetError, match="nothing is known of move"):
        await_move(servers.state, move, tell)


def test_acks_are_members_records(servers: Servers) -> None:
    servers.order()
    servers.run(1, servers.a)
    servers.run(2, servers.c)
    found = read_fleet(servers.state)
    (number,) = (move.number for move in found.fleet.moves)
    acks = {each.url: each.acks for each in found.fleet.members}
    assert acks == {
        servers.a.url: (),
        servers.b.url: (),
        servers.c.url: ((number, "WARMING"),),
    }
    assert servers.c.current.known.fleet.moves
    key = member_key(servers.c.roster.name)
    record = servers.state.get(key)
    assert record is not None
    servers.state.write(Put(key, record.value.replace(b'"WARMING"', b"7"), record.version))
    assert "has the acks" in read_fleet(servers.state).unreadable[key]


def test_whom_a_state_waits_for() -> None:
    members = tuple(
        Member(name, f"http://{name}:1", False, at, group=group)
        for at, (name, group) in enumerate((("a", "x"), ("b", "y"), ("c", "y"), ("r", "")), 1)
    )
    fleet = Fleet(members, (HeldSeat(0, ("b",), "http://b:1", "y"),))
    move = Move(1, Mount.of("/t", "y"), "x")

    def waits(state: MoveState, **acks: str) -> str:
        told = tuple(
            replace(each, acks=((1, acks[each.name]),) if each.name in acks else ())
            for each in members
        )
        found = replace(fleet, members=told).awaited(replace(move, state=state))
        return "".join(each.name for each in found)

    assert waits(MoveState.PLANNED) == waits(MoveState.DONE) == ""
    fleet = replace(fleet, members=tuple(replace(each, is_ready=False) for each in members))
    members = fleet.members
    assert waits(MoveState.PLANNED) == waits(MoveState.WARMING, b="WARMING") == "b", "it starts"
    members = tuple(replace(each, is_ready=True) for each in members)
    assert waits(MoveState.WARMING) == "b", "c has no seat"
    assert waits(MoveState.WARMING, b=f"{FAILED} x") == "b"
    assert waits(MoveState.WARMING, b="WARMING") == ""
    assert waits(MoveState.FLIPPED, b="FLIPPED") == "a"
    assert waits(MoveState.FLIPPED, a="FLIPPED") == waits(MoveState.FLIPPED, a="DROPPING") == ""
    assert waits(MoveState.DROPPING, a="FLIPPED") == "a"
    assert waits(MoveState.DROPPING, a="DROPPING") == ""


def test_the_tables_of_a_group_that_has_lost_all_its_servers_can_be_moved(
    servers: Servers,
) -> None:
    servers.order()
    servers.run(ROUNDS)
    assert servers.group() == "hot"
    servers.run(12, servers.a, servers.b)
    assert {each.group for each in read_fleet(servers.state).fleet.members} == {"default"}
    servers.order(group="default")
    servers.run(ROUNDS, servers.a, servers.b)
    assert (servers.group(), servers.ended()[-1][0]) == ("default", "DONE")
