"""A fleet of an earlier release is upgraded server by server, while clients look tables up.

The records of servers of earlier releases are as those wrote them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest

from fsview.wire.routes import BY_NAME
from strandline.fleet.changes import add_mount, drain, plan_move
from strandline.fleet.groups import Group
from strandline.fleet.mounts import Mount
from strandline.fleet.records import (
    EPOCH,
    GROUPS_SCHEMA,
    SCHEMA,
    member_key,
    member_name,
    read_fleet,
    roots_mark,
    seat_key,
)
from strandline.fleet.roster import Roster
from strandline.fleet.state.base import Lease, Put
from tests.kit.servers.live_service import known
from tests.kit.tables.small_table import SmallTable
from tests.strandline.fleet.knowing_fleet import KnowingServer, knowing_fleet
from tests.strandline.fleet.rosters import Servers
from timeline.errors import ConfigError
from timeline.storage.local import LocalStorage

LATEST: Final = BY_NAME["latest_base_files"].path

EPOCH_3: Final = b'{"schema": 1, "epoch": 3}'
SEAT: Final = '{"holders": ["NAME"], "url": "URL"}'
WITH_ROOTS: Final = (
    '{"url": "URL", "standby": false, "joined": JOINED, "ready": true, "copies": 3, "depth": 1,'
    ' "tokens": 100, "token": "", "roots": "ROOTS", "tables": 0, "bytes": 0}'
)
"""A member's record, as the last release without groups wrote it."""
WITHOUT_ROOTS: Final = WITH_ROOTS.replace('"roots": "ROOTS", ', "")
"""As releases before that wrote it."""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Servers]:
    running = Servers(tmp_path / "fleet.db")
    with running.opened:
        yield running


@pytest.fixture
def tables(tmp_path: Path) -> list[SmallTable]:
    found = [SmallTable(LocalStorage(str(tmp_path / "lake" / f"t{n}"))) for n in range(4)]
    for table in found:
        table.write(("p=1", "a-0"))
    return found


def join_earlier(fleet: Servers, url: str, record: str, mark: str) -> Lease:
    """Join as a server of an earlier release does."""
    name = member_name(url)
    lease = fleet.state.hold(member_key(name), b"{}", 3600)
    told = record.replace("URL", url).replace("ROOTS", mark)
    assert lease.renew(told.replace("JOINED", str(lease.version)).encode())
    return lease


def look_up(fleet: Servers, asked: Iterable[KnowingServer], tables: Iterable[SmallTable]) -> None:
    """Have servers know the fleet, and ask each of them about tables: all answer alike."""
    asked, now = tuple(asked), read_fleet(fleet.state)
    for server in asked:
        server.current.tell(now.fleet, now.epoch)
    for table in tables:
        newest = table.write(("p=1", "a-0"))
        pinned = known(table.storage, partition="p=1")
        answers = [server.client().request("GET", LATEST, pinned) for server in asked]
        assert {answer.status for answer in answers} == {200}
        assert len({answer.body for answer in answers}) == 1
        assert newest.encode() in answers[0].body


def check_that_groups_are_refused(fleet: Servers, root: Path, left: Iterable[str]) -> None:
    """Whatever needs groups names a server of the earlier release, and changes nothing."""
    before, hot = read_fleet(fleet.state), str(root / "hot")
    holder = before.fleet.seats[0].url
    refused = (
        lambda: fleet.start("x", group="hot", roots=[hot]),
        lambda: fleet.start("r", group=""),
        lambda: add_mount(fleet.state, Mount.of(hot, "default")),
        lambda: plan_move(fleet.state, hot, "hot", now_ms=0),
        lambda: drain(fleet.state, holder),
    )
    for change in refused:
        with pytest.raises(ConfigError, match="is of a release without groups") as told:
            change()
        assert any(url in str(told.value) for url in left)
    assert read_fleet(fleet.state) == before
    assert before.schema == SCHEMA


@pytest.mark.property
@pytest.mark.parametrize("record", [WITHOUT_ROOTS, WITH_ROOTS])
def test_look_ups_go_on_while_servers_are_replaced_one_after_another(
    record: str, fleet: Servers, tables: list[SmallTable], tmp_path: Path
) -> None:
    root = tmp_path / "lake"
    with knowing_fleet(str(root)) as servers:
        urls = [server.url for server in servers]
        leases = [join_earlier(fleet, url, record, roots_mark([str(root)])) for url in urls]
        for number, url in enumerate(urls):
            seat = SEAT.replace("NAME", member_name(url)).replace("URL", url)
            fleet.state.write(Put(seat_key(number), seat.encode()))
        fleet.state.write(Put(EPOCH, EPOCH_3))
        seats = {seat.number: seat.url for seat in read_fleet(fleet.state).fleet.seats}
        assert seats == dict(enumerate(urls))
        look_up(fleet, servers, tables)
        upgraded: list[Roster] = []
        for at, lease in enumerate(leases):
            check_that_groups_are_refused(fleet, root, urls[at:])
            lease.release()
            look_up(fleet, (each for each in servers if each is not servers[at]), tables)
            upgraded.append(Roster(fleet.client(), urls[at], clock=fleet.clock, roots=[str(root)]))
            upgraded[-1].join()
            fleet.run(2, *upgraded)
            look_up(fleet, servers, tables)
        found = read_fleet(fleet.state)
        assert {seat.number: seat.url for seat in found.fleet.seats} == seats, "none moved"
        assert (found.epoch, found.schema) == (3, SCHEMA)
        assert found.fleet.groups == (Group.of("default", [str(root)]),)
        add_mount(fleet.state, Mount.of(str(root / "t0"), "default", copies=1))
        look_up(fleet, servers, tables)
        assert read_fleet(fleet.state).schema == GROUPS_SCHEMA


def test_earlier_releases_had_the_same_marks_of_roots() -> None:
    """Else their servers were refused, as if they had other roots."""
    assert roots_mark(["s3://lake/", "/data"]) == "2f97a3a7"
