"""Servers of several groups on one state store: they join, get seats, and are drained."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from strandline.fleet.changes import add_mount, drain, remove_mount
from strandline.fleet.groups import AUTO, Group, groups_of
from strandline.fleet.mounts import Mount, MountTable
from strandline.fleet.records import (
    EPOCH,
    GROUPS_SCHEMA,
    MOUNTS,
    SCHEMA,
    group_key,
    member_bytes,
    member_key,
    member_name,
    mounts_bytes,
    next_epoch,
    read_fleet,
)
from strandline.fleet.roster import Roster
from strandline.fleet.seats import Fleet, Member
from strandline.fleet.state.base import Delete, Put
from tests.strandline.fleet.hooked_state import Meanwhile
from tests.strandline.fleet.rosters import Servers
from timeline.errors import ConfigError, FleetError, StateConflictError

LAKE, HOT = ["s3://lake"], ["s3://lake/hot"]


class Grouped(Servers):
    """Servers of a lake by default."""

    def make(
        self, name: str, group: str = "default", roots: Sequence[str] = LAKE, **more: Any
    ) -> Roster:
        return super().make(name, group=group, roots=roots, **more)

    def has_old(self, url: str = "http://old:1") -> None:
        """Have a member of a release without groups."""
        member = Member(member_name(url), url, is_standby=False, joined=1)
        record = json.loads(member_bytes(member))
        del record["group"], record["roots"]
        self.state.hold(member_key(member.name), json.dumps(record).encode(), 3600)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Grouped]:
    running = Grouped(tmp_path / "fleet.db")
    with running.opened:
        yield running


def held(fleet: Fleet) -> dict[int, tuple[str, str]]:
    return {seat.number: (seat.url[7:-2], seat.group) for seat in fleet.seats}


def schema(servers: Grouped) -> int:
    return read_fleet(servers.state).schema


def test_groups_have_their_own_roots_and_seats(servers: Grouped) -> None:
    a = servers.start("a")
    a.step()
    assert schema(servers) == SCHEMA
    b = servers.start("b", "hot", HOT)
    assert schema(servers) == GROUPS_SCHEMA
    servers.run(1, a, b)
    assert held(a.fleet) == {0: ("a", "default"), 1: ("b", "hot")}
    assert a.fleet.groups == (Group("default", ("s3://lake/",)), Group("hot", ("s3://lake/hot",)))
    servers.run(1, a, b)
    assert schema(servers) == GROUPS_SCHEMA


def test_a_seat_is_filled_from_its_group(servers: Grouped) -> None:
    a, b = servers.start("a"), servers.start("b", "hot", HOT)
    s, t = (servers.start(*how, is_standby=True) for how in (("s",), ("t", "hot", HOT)))
    a.step()
    servers.run(11, a, s, t)
    assert held(a.fleet) == {0: ("a", "default"), 1: ("t", "hot")}
    assert b.name not in {member.name for member in a.fleet.members}


def test_who_has_a_seat_keeps_its_group_until_it_is_drained(servers: Grouped) -> None:
    a, b = servers.start("a"), servers.start("b", "hot", HOT)
    a.step()
    b.leave()
    said = "the server's group is default; allowed: hot, as it holds that group's seat 1"
    with pytest.raises(ConfigError, match=said):
        servers.start("b")
    with pytest.raises(ConfigError, match="the server is a router; allowed: hot, as it holds"):
        servers.start("b", "", [])
    assert drain(servers.state, "http://b:1/").number == 1
    servers.run(1, a)
    assert held(a.fleet) == {0: ("a", "default")}
    back = servers.start("b")
    servers.run(1, a, back)
    assert held(a.fleet) == {0: ("a", "default"), 1: ("b", "default")}
    assert not a.fleet.drained


@pytest.mark.parametrize(("group", "roots"), [("hot", HOT), ("", [])])
def test_the_address_of_a_living_server_is_refused_as_such(
    servers: Grouped, group: str, roots: list[str]
) -> None:
    """Not by the group of its seat, with the hint to drain a server that is in order."""
    a = servers.start("a")
    a.step()
    with pytest.raises(StateConflictError, match="a member of the fleet has the address"):
        servers.start("a", group, roots)
    assert held(a.step()) == {0: ("a", "default")}


def test_a_drained_server_gets_no_seat_before_it_is_started_again(servers: Grouped) -> None:
    a, b = servers.start("a"), servers.start("b")
    a.step()
    drain(servers.state, "http://b:1")
    servers.run(2, a, b)
    assert held(a.fleet) == {0: ("a", "default")}
    assert b.seat is None
    servers.run(12, a)  # it counts as dead, and joins again
    servers.run(3, a, b)
    assert held(a.fleet) == {0: ("a", "default")}
    b.leave()
    again = servers.start("b")
    servers.run(1, a, again)
    assert held(a.fleet) == {0: ("a", "default"), 1: ("b", "default")}


def test_a_drained_server_that_nobody_leads_leaves_its_seat_itself(servers: Grouped) -> None:
    a, b = servers.start("a"), servers.start("b")
    a.step()
    drain(servers.state, "http://b:1")
    a.leave()
    b.leave()
    alone = servers.start("b", "hot", HOT)
    assert [seat.group for seat in alone.step().seats] == ["default"], "it waits for its holder"
    servers.run(11, alone)
    assert held(alone.fleet) == {0: ("a", "default"), 1: ("b", "hot")}


def test_nothing_is_mounted_on_a_group_that_loses_its_last_seat(servers: Grouped) -> None:
    a, b = servers.start("a"), servers.start("b", "hot", HOT)
    a.step()
    mount = Mount.of("s3://lake/hot", "hot")
    drain(servers.state, "http://b:1")
    # The leader hasn't removed the seat yet.
    with pytest.raises(ConfigError, match="the group hot has no server; allowed: default"):
        add_mount(servers.state, mount)
    standby = servers.start("s", "hot", HOT, is_standby=True)
    assert add_mount(servers.state, mount).group("s3://lake/hot/t") == "hot"
    servers.run(1, a, b, standby)
    assert held(a.fleet) == {0: ("a", "default"), 1: ("s", "hot")}


def test_a_mount_stays_if_the_group_below_loses_its_last_seat(servers: Grouped) -> None:
    a = servers.start("a", "cold")
    servers.start("b", "hot", HOT)
    a.step()
    add_mount(servers.state, Mount.of("s3://lake/hot", "hot"))
    with pytest.raises(ConfigError, match=r"belongs to the group default; .* servers, none"):
        remove_mount(servers.state, "s3://lake/hot")


def test_what_is_not_drained_is_named(servers: Grouped) -> None:
    with pytest.raises(ConfigError, match="has no seat; allowed: none, as there is no seat"):
        drain(servers.state, "http://a:1")
    a = servers.start("a")
    a.step()
    with pytest.raises(ConfigError, match="'http://x:1' has no seat; allowed: http://a:1"):
        drain(servers.state, "http://x:1")
    with pytest.raises(ConfigError, match="the last one of the group default, which has the tab"):
        drain(servers.state, "http://a:1")
    servers.has_old()
    with pytest.raises(ConfigError, match="the member http://old:1 is of a release without groups"):
        drain(servers.state, "http://a:1")


def test_a_router_gets_no_seat_and_has_no_roots(servers: Grouped) -> None:
    router, a = servers.start("r", "", []), servers.start("a")
    servers.run(2, router, a)
    assert held(a.fleet) == {0: ("a", "default")}
    assert [group.name for group in a.fleet.groups] == ["default"]
    assert schema(servers) == GROUPS_SCHEMA
    assert a.fleet.leader is not None
    assert a.fleet.leader.is_router, "any member can lead"


@pytest.mark.parametrize(
    ("group", "roots", "said"),
    [("hot", HOT, "the server's group is hot"), ("", [], "the server is a router")],
)
def test_there_is_no_group_beside_a_member_that_knows_none(
    servers: Grouped, group: str, roots: list[str], said: str
) -> None:
    servers.has_old()
    a = servers.start("a")
    with pytest.raises(ConfigError, match=f"{said}; allowed: the group default alone.* http://old"):
        servers.start("b", group, roots)
    assert schema(servers) == SCHEMA
    assert [member.group for member in a.step().members] == ["default", "default"]


def test_roots_of_a_group_change_once_all_its_servers_are_stopped(servers: Grouped) -> None:
    a, b = servers.start("a"), servers.start("b", "hot", HOT)
    a.step()
    said = re.escape("roots are s3://pond/; allowed: s3://lake/hot, as in the group hot at the mem")
    with pytest.raises(ConfigError, match=said):
        servers.start("c", "hot", ["s3://pond"])
    b.leave()
    servers.start("c", "hot", ["s3://pond"])
    group = a.step().group("hot")
    assert group is not None
    assert group.roots == ("s3://pond/",)


def test_a_lost_or_damaged_group_is_written_again(servers: Grouped) -> None:
    a = servers.start("a")
    for harm in (Delete, lambda key, version: Put(key, b"{", version)):
        found = read_fleet(servers.state)
        key = group_key("default")
        servers.state.write(harm(key, found.version(key)))
        a.step()
        assert a.step().group("default") == Group("default", ("s3://lake/",))


@pytest.mark.parametrize("root", ["lake", "s3://lake", "s3a://lake/", "s3://lake/a/..", "s3://x/"])
def test_roots_that_the_group_s_servers_do_not_have_are_written_again(
    servers: Grouped, root: str
) -> None:
    a = servers.start("a")
    key = group_key("default")
    found = read_fleet(servers.state)
    damaged = json.dumps({"roots": [root]}).encode()
    servers.state.write(Put(key, damaged, found.version(key)))
    is_read = root == "s3://x/"
    assert (key not in read_fleet(servers.state).unreadable) == is_read
    assert a.step().group("default") == Group("default", ("s3://lake/",))


def test_a_seat_of_no_group_is_written_again(servers: Grouped) -> None:
    a, b = servers.start("a"), servers.start("b", "hot", HOT)
    before = held(a.step())
    found = read_fleet(servers.state)
    harmed = json.dumps({"holders": ["x"], "url": "http://x:1", "group": ""}).encode()
    servers.state.write(Put("seats/1", harmed, found.version("seats/1")))
    assert "allowed: a group's name" in read_fleet(servers.state).unreadable["seats/1"]
    servers.run(1, a, b)
    assert held(a.fleet) == before


def test_mounts_are_read_with_the_seats_and_must_be_readable(servers: Grouped) -> None:
    a, b = servers.start("a"), servers.start("b", "hot", HOT)
    a.step()
    epoch = a.epoch
    mounts = add_mount(servers.state, Mount.of("s3://lake/hot", "hot"))
    assert b.step().mounts == mounts
    assert b.epoch == epoch + 1
    assert b.step().mounts is read_fleet(servers.state).fleet.mounts, "it is parsed once"
    for value, said in (
        (b"{", "'mounts' is no JSON"),
        (b'{"mounts": [7]}', "'mounts' has 7; allowed: JSON objects"),
        (b'{"mounts": [{"prefix": "s3://x", "group": 1}]}', "has the group 1; allowed: str"),
        (b'{"mounts": [{"prefix": "x", "group": "g"}]}', "can't be read: the path 'x' is relat"),
    ):
        found = servers.state.get(MOUNTS)
        assert found is not None
        servers.state.write(Put(MOUNTS, value, found.version))
        with pytest.raises(FleetError, match=said):
            b.step()
        assert b.fleet.mounts == mounts, "the last ones are used"


def test_more_mounts_than_a_record_has_room_for_are_refused(servers: Grouped) -> None:
    a = servers.start("a")
    a.step()
    found = read_fleet(servers.state)
    far = "s3://lake/" + "/".join("x" * 100 for _ in range(9))
    table = MountTable(tuple(Mount.of(f"{far}/{number}", "default") for number in range(280)))
    servers.state.write(Put(MOUNTS, mounts_bytes(table)), next_epoch(found, has_groups=True))
    with pytest.raises(ConfigError, match=r"the 281 mounts take 2\d+ bytes; allowed: 262144"):
        add_mount(servers.state, Mount.of(f"{far}/more", "default"))
    assert remove_mount(servers.state, f"{far}/7").mount(f"{far}/7") is None
    assert a.step().mounts.group(f"{far}/8/t") == "default"


def test_two_who_mount_at_once_both_succeed_or_the_second_is_told(servers: Grouped) -> None:
    a = servers.start("a")
    a.step()
    servers.start("b", "hot", HOT)
    a.step()
    state, other = Meanwhile(servers.client()), servers.client()
    before = iter(
        [
            lambda: add_mount(other, Mount.of("s3://lake/hot/x", "hot")),
            lambda: None,
            lambda: remove_mount(other, "s3://lake/hot/x"),
        ]
    )
    state.before_write = lambda: next(before)()
    mounts = add_mount(state, Mount.of("s3://lake/hot/y", "hot"))
    assert [mount.path for mount in mounts.mounts] == ["s3://lake/hot/x", "s3://lake/hot/y"]
    with pytest.raises(ConfigError, match="'s3://lake/hot/x' isn't mounted"):
        remove_mount(state, "s3://lake/hot/x")


def test_a_rack_s_servers_are_in_the_same_group_and_stay_there(servers: Grouped) -> None:
    with pytest.raises(
        ConfigError, match=r"'auto', and no group has the server's roots s3://lake/"
    ):
        servers.start("x", AUTO, LAKE, rack="r1")
    a, b = servers.start("a", "g1"), servers.start("b", "g2")
    other = servers.start("o", "g3", HOT)
    a.step()
    racks = [f"r{number}" for number in range(6)]
    expected = groups_of(racks, ["g1", "g2"])
    assert len(set(expected.values())) == 2
    started = [servers.start(f"m{rack}", AUTO, LAKE, rack=rack) for rack in racks]
    assert [server.group for server in started] == list(expected.values())
    a.step()
    # With one more group, a server that holds a seat keeps it, whatever its rack is.
    servers.start("c", "g4")
    a.step()
    rack = next(r for r in racks if groups_of([r], ["g1", "g2", "g4"])[r] == "g4")
    moved = started[racks.index(rack)]
    moved.leave()
    again = servers.start(f"m{rack}", AUTO, LAKE, rack=rack)
    assert again.group == expected[rack]
    again.leave()
    drain(servers.state, f"http://m{rack}:1")
    a.step()
    assert servers.start(f"m{rack}", AUTO, LAKE, rack=rack).group == "g4"
    assert {b.group, other.group} == {"g2", "g3"}


def test_a_drained_server_finds_its_rack_s_group_even_before_its_seat_is_given_away(
    servers: Grouped,
) -> None:
    a = servers.start("a", "g1")
    servers.start("b", "g2")
    a.step()
    rack = next(r for r in map(str, range(99)) if groups_of([r], ["g1", "g2"])[r] == "g2")
    moved = servers.start("m", "g1")
    a.step()
    moved.leave()
    drain(servers.state, "http://m:1")
    again = servers.start("m", AUTO, LAKE, rack=rack)
    assert again.group == "g2"
    servers.run(1, a, again)
    assert held(a.fleet)[2] == ("m", "g2")


def test_a_release_without_groups_can_not_join_a_fleet_that_has_some(servers: Grouped) -> None:
    servers.start("a")
    servers.start("b", "hot", HOT)
    record = servers.state.get(EPOCH)
    assert record is not None
    # Such a release compares for equality with 1.
    assert json.loads(record.value)["schema"] == GROUPS_SCHEMA != SCHEMA
