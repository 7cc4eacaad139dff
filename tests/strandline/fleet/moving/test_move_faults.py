"""Moves of tables while their servers or the state store fail: each ends, done or undone."""

from __future__ import annotations

import pytest

from strandline.fleet.changes import (
    undo_move,
)
from strandline.fleet.current import Creations
from strandline.fleet.moving.moves import WARM_LASTS_S
from strandline.fleet.records import (
    read_fleet,
)
from strandline.fleet.state.base import Op
from tests.strandline.fleet.moving.moved_servers import ROUNDS, Servers, T
from tests.strandline.fleet.moving.moving_fleet import Server
from timeline.errors import ConfigError


def test_another_leader_undoes_a_move_before_the_flip_and_finishes_it_afterwards(
    servers: Servers,
) -> None:
    a, b, c = servers.a, servers.b, servers.c
    servers.order()
    a.step()
    a.kill()
    servers.run(12, b, c)
    assert servers.ended() == [
        ("UNDONE", "the leader that carried it out has ended; order it again")
    ]
    assert servers.group() == "default"
    servers.order()
    b.step()
    servers.run(1, c)
    c.step()
    b.step()
    assert servers.moves() == ["FLIPPED"]
    b.kill()
    servers.run(16, c)
    assert servers.ended()[-1] == ("DONE", "")
    assert servers.group() == "hot"


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("write", range(4))
def test_a_leader_that_dies_at_a_write_leaves_a_log_that_ends(
    servers: Servers, write: int, after: bool
) -> None:
    a = servers.a
    a.state.dies_at, a.state.dies_after = a.state.writes + write, after
    servers.state = servers.b.state
    servers.order()
    servers.run(ROUNDS)
    assert not a.is_up
    servers.run(20, servers.b, servers.c)
    # The first write takes it to WARMING, the second flips it.
    is_flipped = write > 1 or (write == 1 and after)
    is_begun = write > 0 or after
    expected = "DONE" if is_flipped or not is_begun else "UNDONE"
    assert [state for state, _ in servers.ended()] == [expected]
    assert servers.group() == ("hot" if expected == "DONE" else "default")
    assert servers.moves() == []


@pytest.mark.parametrize("silent", [False, True], ids=["others", "nobody else"])
@pytest.mark.parametrize("write", range(4))
def test_a_leader_that_stops_before_a_write_does_not_write_it(
    servers: Servers, write: int, silent: bool
) -> None:
    """It goes on once it counts as dead, which it can't know."""
    a, first = servers.a, servers.a.state.writes

    def stops(_: tuple[Op, ...]) -> None:
        if a.state.writes == first + write:
            a.state.before_write = lambda _: None
            a.is_stopped = True
            for _ in range(12):
                servers.lake.clock.advance(1_000)
                for server in () if silent else (servers.b, servers.c):
                    server.step()
                    server.work()
            a.is_stopped = False

    a.state.before_write = stops
    servers.state = servers.b.state
    servers.order()
    servers.run(2 * ROUNDS)
    assert servers.lake.place.unfenced == []
    assert servers.moves() == []
    expected = "UNDONE" if write == 1 else "DONE"
    assert [state for state, _ in servers.ended()] == [expected]
    assert servers.group() == ("hot" if expected == "DONE" else "default")


FAULTS = ("killed", "stopped", "cut off")


@pytest.mark.property
@pytest.mark.parametrize("state", ["PLANNED", "WARMING", "FLIPPED", "DROPPING"])
@pytest.mark.parametrize("who", ["leader", "source", "destination", "router"])
@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_happens_to_a_server_at_any_step_the_move_ends(
    servers: Servers, state: str, who: str, fault: str
) -> None:
    lake, a, b, c = servers.lake, servers.a, servers.b, servers.c
    router = Server(lake, "r", "")
    servers.run(3)
    server = {"leader": a, "source": b, "destination": c, "router": router}[who]
    servers.state = (b if server is a else a).state
    servers.order()
    for _ in range(ROUNDS):
        for each in lake.servers:
            if servers.moves() != [state]:
                each.step()
                each.work()
    assert servers.moves() == [state]
    if fault == "killed":
        server.kill()
    server.is_stopped, server.state.is_away = fault == "stopped", fault == "cut off"
    for number in range(14):
        servers.run(1)
        for each in lake.servers:
            each.create(T, f"x{number}")
            lake.settle()
    server.is_stopped, server.state.is_away = False, False
    held, server.held = server.held, []
    for do in held:
        do()
    if not server.is_up:
        server.start()
    servers.run(2 * ROUNDS)
    assert servers.moves() == []
    (ended,) = servers.ended()
    groups = {"DONE": "hot", "UNDONE": "default"}
    assert servers.group() == groups[ended[0]]
    assert {each.current.known.group(T) for each in lake.servers} == {servers.group()}
    for each in lake.servers:
        each.create(T, "last")
        lake.settle()
    assert lake.told_new[T, "last"] == 1
    assert set(lake.told_new.values()) == {1}, "no marker is new twice"
    assert lake.place.unfenced == []
    assert set(lake.closed_in) <= {"DROPPING"}


def test_a_destination_that_fails_or_ends_has_the_move_undone(servers: Servers) -> None:
    a, b, c = servers.a, servers.b, servers.c
    c.can_warm = False
    servers.order()
    servers.run(3)
    assert servers.ended()[-1] == ("UNDONE", f"{c.url} can't take the tables: no disk")
    servers.order()
    servers.run(12, a, b)
    assert servers.ended()[-1] == ("UNDONE", "the group hot has no server")


@pytest.mark.property
def test_a_destination_that_starts_is_waited_for(servers: Servers) -> None:
    """It is alive, and has a seat, but others don't ask it yet."""
    servers.c.kill()
    servers.run(12, servers.a, servers.b)
    servers.c.start(is_ready=False)
    servers.run(3)
    move = servers.order()
    servers.run(ROUNDS)
    (still,) = read_fleet(servers.state).fleet.moves
    assert still == move
    assert [each.url for each in read_fleet(servers.state).fleet.awaited(still)] == [servers.c.url]
    servers.c.roster.become_ready()
    servers.run(ROUNDS)
    assert servers.ended() == [("DONE", "")]


@pytest.mark.property
def test_a_destination_that_takes_too_long_has_the_move_undone(servers: Servers) -> None:
    a, c = servers.a, servers.c
    servers.order()
    c.work = lambda: None  # type: ignore[method-assign]
    for _ in range(int(WARM_LASTS_S) // 9 + 3):
        servers.lake.clock.advance(9_000)
        a.step()
        c.step()
    assert servers.ended()[-1] == ("UNDONE", "the group hot takes records for 3600 s already")


def test_a_source_s_server_is_awaited_while_it_lives(servers: Servers) -> None:
    a, b, c = servers.a, servers.b, servers.c
    servers.order()
    servers.run_until("FLIPPED", a, c)
    servers.run(4, a, c)
    assert servers.moves() == ["FLIPPED"], "b is silent, and alive until its lease ends"
    servers.run(7, a, c)
    assert servers.ended() == [("DONE", "")]
    # It was only paused, and knows nothing: it is in doubt, until it has joined again.
    assert not b.is_sure
    servers.run(2)
    assert b.current.known.group(T) == "hot"


def test_creations_under_way_are_waited_for_before_the_flip_is_acknowledged(
    servers: Servers,
) -> None:
    a, b, c = servers.a, servers.b, servers.c
    servers.run(1)
    owner = a if a.current.owners(T)[0].url == a.url else b
    owner.create(T, "x")
    servers.lake.begin_all()
    (under_way,) = servers.lake.under_way
    servers.order()
    servers.run_until("FLIPPED")
    servers.run(ROUNDS)
    assert servers.moves() == ["FLIPPED"]
    c.create(T, "x")
    assert servers.lake.decided == []
    assert servers.lake.under_way == [under_way], "refused, as the source may say the same"
    servers.lake.finish(under_way)
    servers.run(ROUNDS)
    assert servers.ended() == [("DONE", "")]
    owner.create(T, "x")
    servers.lake.begin_all()
    (other,) = servers.lake.under_way
    assert other.server is c
    servers.lake.finish(other)
    assert servers.lake.told_new == {(T, "x"): 1}


def test_markers_that_others_have_created_meanwhile_are_not_new_after_the_move_back(
    servers: Servers,
) -> None:
    a, b, c = servers.a, servers.b, servers.c
    servers.run(1)
    owner = a if a.current.owners(T)[0].url == a.url else b
    for marker, group, at in (("x", "hot", owner), ("y", "default", c), ("y", "hot", owner)):
        at.create(T, marker)
        servers.lake.settle()
        servers.order(group=group)
        servers.run(ROUNDS)
    assert [state for state, _ in servers.ended()] == ["DONE"] * 3
    assert servers.lake.told_new == {(T, "x"): 1, (T, "y"): 1}


def test_creations_are_waited_for_by_table() -> None:
    creations = Creations()
    with creations.of("one"):
        assert creations.wait(lambda table: table == "other", 0)
        assert not creations.wait(lambda table: table == "one", 0)
    assert creations.wait(lambda _: True, 0)


def test_the_store_is_away_while_a_move_is_flipped(servers: Servers) -> None:
    a, b, c = servers.a, servers.b, servers.c
    servers.order()
    servers.run_until("FLIPPED", a, c)
    c.step()
    for server in (a, b, c):
        server.state.is_away = True
    servers.run(30)
    assert c.current.known.group(T) == "hot", "the last known"
    for server in (a, b, c):
        server.state.is_away = False
    servers.run(30)
    assert servers.ended() == [("DONE", "")]


def test_an_undo_is_for_moves_that_have_not_flipped(servers: Servers) -> None:
    a, c = servers.a, servers.c
    with pytest.raises(ConfigError, match="no move 7 is under way; allowed: none, now"):
        undo_move(servers.state, 7, now_ms=0)
    move = servers.order()
    a.step()
    undone = undo_move(servers.state, move.number, now_ms=5)
    assert undone is not None
    assert undone.began[-1] == ("UNDONE", 5)
    assert servers.ended() == [("UNDONE", "an operator has undone it")]
    again = servers.order()
    servers.run_until("FLIPPED", a, c)
    with pytest.raises(ConfigError, match=r"is FLIPPED; allowed: PLANNED, WARMING \(it is finis"):
        undo_move(servers.state, again.number, now_ms=0)
