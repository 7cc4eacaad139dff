"""Servers that may have lost their seat without knowing it: creations of markers, look-ups."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fsview.wire.marker_form import CREATE_MARKER
from fsview.wire.param import WAIT_HEADER
from fsview.wire.routes import BY_NAME
from strandline.fleet.current import KnownFleet
from strandline.fleet.forward import EPOCH, FORWARDED
from strandline.fleet.mounts import Mount, MountTable
from strandline.fleet.safe_mode import RENEWED, UNSURE
from strandline.fleet.seats import HeldSeat, Member
from strandline.server.marker.file import MarkerFiles
from tests.kit.concurrency.patience import PATIENCE_S, pause
from tests.kit.formats.marker_name import marker_name
from tests.kit.servers.live_service import Answered, known
from tests.kit.tables.small_table import SmallTable
from tests.strandline.fleet.knowing_fleet import (
    KnowingServer,
    fleet_of,
    knowing_fleet,
    path_of_seat,
)
from timeline.storage.local import LocalStorage

LATEST = BY_NAME["latest_base_files"].path
INSTANT = "20300101000000000"
BRIEFLY = {WAIT_HEADER: "0.3"}


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    """A table of the first of two seats."""
    found = SmallTable(LocalStorage(path_of_seat(0, 2, str(tmp_path))))
    found.write(("p=1", "a-0"))
    return found


@pytest.fixture
def servers(table: SmallTable) -> Iterator[list[KnowingServer]]:
    """The owner and a copy, and a standby."""
    with knowing_fleet(table.storage.base_path) as made:
        owner, copy, standby = made
        for server in made:
            server.current.tell(fleet_of(owner, copy, standbys=(standby,)), 1)
        yield made


def create(
    server: KnowingServer, table: SmallTable, name: str, headers: dict[str, str] | None = None
) -> Answered:
    params = {
        "markerdirpath": f"{table.storage.base_path}/.hoodie/.temp/{INSTANT}",
        "markername": marker_name(INSTANT, name),
    }
    return server.client().request("POST", CREATE_MARKER, params, headers=headers)


def kept(servers: list[KnowingServer]) -> list[int]:
    return [server.markers() for server in servers]


def test_who_is_sure_creates_markers_itself(servers, table):
    owner, copy, _ = servers
    assert create(copy, table, "a").body == b"true"
    assert create(owner, table, "a").body == b"false"
    assert kept(servers) == [1, 0, 0]
    told = owner.client().request("GET", RENEWED).body
    assert json.loads(told) == {"renewed": True, "epoch": 1}


def test_a_creation_goes_to_the_server_that_has_the_seat_now(servers, table):
    """The former owner is cut off from the store; the standby has its seat."""
    owner, copy, standby = servers
    assert create(owner, table, "a").body == b"true"
    owner.is_sure = False
    for server in (copy, standby):
        server.current.tell(fleet_of(standby, copy), 2)
    assert create(owner, table, "a").body == b"false", "it is on storage"
    assert create(owner, table, "b").body == b"true"
    assert create(standby, table, "b").body == b"false"
    assert kept(servers) == [1, 0, 1]
    # A look-up needs none of this.
    asked = known(table.storage, partition="p=1")
    assert owner.client().request("GET", LATEST, asked).status == 200


def test_a_creation_is_held_until_the_seat_is_decided(servers, table):
    owner, copy, standby = servers
    owner.is_sure = False
    answers: list[Answered] = []
    asking = threading.Thread(target=lambda: answers.append(create(owner, table, "a")))
    asking.start()
    # It waits where it was passed to.
    while not (copy.current.waits or standby.current.waits):
        pause()
    assert answers == []
    for server in (copy, standby):
        server.current.tell(fleet_of(None, copy, standbys=(standby,)), 2)
    asking.join(PATIENCE_S)
    assert [answer.body for answer in answers] == [b"true"]
    assert kept(servers) == [0, 1, 0]


def test_a_creation_is_refused_if_the_seat_stays_undecided(servers, table):
    owner, _, _ = servers
    owner.is_sure = False
    refused = create(owner, table, "a", BRIEFLY)
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert b"still owns the table, and can't reach the fleet's state store" in refused.body
    assert kept(servers) == [0, 0, 0]
    # It has renewed its membership meanwhile.
    owner.is_sure = True
    assert create(owner, table, "a").body == b"true"


def test_if_the_store_is_away_for_all_the_last_owner_goes_on(servers, table):
    for server in servers:
        server.is_sure = False
    owner, copy, standby = servers
    standby.end.close()  # another fault at the same time
    assert create(copy, table, "a").body == b"true"
    assert create(owner, table, "a").body == b"false"
    assert kept(servers) == [1, 0, 0]


def test_a_seat_that_changed_before_the_store_went_away_is_respected(servers, table):
    """The owner was cut off first, the standby took its seat, then the store was away for all."""
    owner, copy, standby = servers
    for server in (copy, standby):
        server.current.tell(fleet_of(standby, copy), 2)
    for server in servers:
        server.is_sure = False
    refused = create(owner, table, "a")
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert b"knows the fleet's epoch 1, and" in refused.body
    assert create(standby, table, "a").body == b"true"
    assert kept(servers) == [0, 0, 1]


def test_if_nobody_answers_no_marker_is_created(servers, table):
    owner, copy, standby = servers
    for server in (copy, standby):
        server.end.close()
    assert create(owner, table, "a").body == b"true"
    owner.is_sure = False
    refused = create(owner, table, "b")
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert b"2 other servers don't answer: it may not own the table any more" in refused.body
    asked = known(table.storage, partition="p=1")
    assert owner.client().request("GET", LATEST, asked).status == 200


def test_a_server_without_others_goes_on(servers, table):
    owner = servers[0]
    owner.current.tell(fleet_of(owner), 2)
    owner.is_sure = False
    assert create(owner, table, "a").body == b"true"


def test_doubt_is_only_believed_of_servers_with_the_token(servers, table):
    owner = servers[0]
    told = {UNSURE: owner.url, **BRIEFLY}
    assert create(owner, table, "a", told).body == b"true", "nobody has passed it on"
    assert create(owner, table, "a", {**told, FORWARDED: "1"}).status == 503


def test_a_creation_that_a_late_server_forwards_goes_on_to_the_new_owner(servers, table):
    """Any server answers a look-up; if both created a marker, both might call it new."""
    owner, copy, standby = servers
    for server in (owner, standby):
        server.current.tell(fleet_of(standby, copy), 2)
    assert create(copy, table, "a").body == b"true"
    assert kept(servers) == [0, 0, 1]
    # The owner of the newer epoch is down: the next copy creates it, which has asked.
    standby.end.close()
    assert create(copy, table, "a").body == b"false"
    assert kept(servers[:2]) == [0, 1]
    # With the same epoch it is the copy's turn, as the owner can't be reached.
    owner.current.tell(fleet_of(copy, owner), 3)
    copy.current.tell(fleet_of(owner, copy), 3)
    assert create(copy, table, "b").body == b"true"
    assert kept(servers[:2]) == [1, 1]


def is_refused(answer: Answered, *urls: str) -> bool:
    """Whether a creation is to be asked for again, as these servers don't answer."""
    told = f": {', '.join(urls)}" in answer.body.decode()
    return (answer.status, answer.headers.get("retry-after")) == (503, "1") and told


def test_a_server_that_has_not_the_table_creates_none_of_its_markers(servers, table):
    """It may be the only one that can't reach those that have it."""
    owner, copy, standby = servers
    for server in (owner, copy):
        server.end.close()
    for _ in range(2):  # then it spares them
        assert is_refused(create(standby, table, "a"), owner.url, copy.url)
    asked = known(table.storage, partition="p=1")
    assert standby.client().request("GET", LATEST, asked).status == 200
    # Nobody passes one on to it that may know better than to ask it.
    passed = {FORWARDED: "1", EPOCH: "1"}
    assert is_refused(create(standby, table, "a", passed), owner.url, copy.url)
    assert kept([standby]) == [0]
    # They count as dead, and no server has a seat.
    standby.current.tell(fleet_of(None, None, standbys=(standby,)), 1)
    assert create(standby, table, "a").body == b"true"


def test_once_no_server_that_has_the_table_lives_a_further_one_creates_its_markers(servers, table):
    _, copy, further = servers
    path = table.storage.base_path
    mounts = MountTable((Mount.of(path, "default", copies=1),))
    # Of three seats another one may be the table's.
    holders = (None, copy, further)
    first = KnownFleet(fleet_of(*servers)).owners(f"file://{path}")[0].number
    dead = replace(fleet_of(*(holders[at - first] for at in range(3))), mounts=mounts)
    for server in (copy, further):
        server.current.tell(dead, 2)
    assert create(further, table, "a").body == b"true"
    assert create(copy, table, "a").body == b"false"
    assert kept(servers) == [0, 1, 0], "all find the same one"
    copy.end.close()
    assert create(further, table, "a").body == b"false"
    assert create(further, table, "b").body == b"true", "as the next copy does"
    served = [server.current.creations.status()["served_here"] for server in servers]
    assert served == [0, 0, 2]


def test_a_late_server_waits_until_it_knows_that_it_has_the_table(servers, table):
    owner, copy, standby = servers
    owner.end.close()
    passed = {FORWARDED: "1", EPOCH: "2", **BRIEFLY}
    refused = create(standby, table, "a", passed)
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert f"the table has come to {standby.url}, which {standby.url} may not".encode() in (
        refused.body
    )
    assert standby.caught_up == 1
    for server in (copy, standby):
        server.current.tell(fleet_of(standby, copy), 2)
    assert create(standby, table, "a", passed).body == b"true"


@pytest.mark.parametrize("has_joined_again", [False, True])
def test_a_creation_that_outlasts_its_server_s_membership_is_not_answered(
    servers, table, monkeypatch, has_joined_again
):
    """The process stops during the write, or storage is slow; its seat is another's meanwhile."""
    owner, copy, standby = servers
    assert create(owner, table, "a").body == b"true"
    write, answers = MarkerFiles.append, []

    def late(self: MarkerFiles, fresh: Collection[str]) -> None:
        monkeypatch.setattr(MarkerFiles, "append", write)
        taken = fleet_of(standby, copy)
        if has_joined_again:
            again = Member(owner.url, owner.url, False, 70_000)
            owner.current.tell(replace(taken, members=(*taken.members, again)), 2)
        else:
            owner.is_sure = False
        for server in (copy, standby):
            server.current.tell(taken, 2)
        answers.append(create(standby, table, "m"))
        write(self, fresh)

    monkeypatch.setattr(MarkerFiles, "append", late)
    answers.append(create(owner, table, "m"))
    assert [each.status for each in answers] == [200, 503]
    assert answers[0].body == b"true"
    assert answers[1].headers["retry-after"] == "1"
    assert f"{owner.url} may have lost the base path".encode() in answers[1].body
    assert create(owner, table, "m").body == b"false"


def test_a_creation_goes_on_while_the_store_is_away_for_all(servers, table, monkeypatch):
    """Also if that begins during the creation: the client asks again."""
    owner = servers[0]
    write = MarkerFiles.append

    def late(self: MarkerFiles, fresh: Collection[str]) -> None:
        for server in servers:
            server.is_sure = False
        write(self, fresh)

    monkeypatch.setattr(MarkerFiles, "append", late)
    assert create(owner, table, "a").status == 503
    assert create(owner, table, "b").body == b"true"


def test_a_creation_that_has_outlasted_a_whole_move_goes_to_the_new_owner(servers, table):
    owner, other, _ = servers
    other.current.group = "hot"
    base = fleet_of(owner)
    members = (*base.members, Member(other.url, other.url, False, 2, group="hot"))
    seats = (*base.seats, HeldSeat(1, (other.url,), other.url, "hot"))
    before = replace(base, members=members, seats=seats)
    mounts = MountTable((Mount.of(table.storage.base_path, "hot"),))
    owner.current.tell(before, 1)
    other.current.tell(replace(before, mounts=mounts), 4)

    def is_sure() -> bool:
        # Once the owner has found that no other server has to answer.
        owner.current.tell(replace(before, mounts=mounts), 4)
        return True

    owner.current.is_sure = is_sure
    assert create(owner, table, "a").body == b"true"
    assert kept(servers) == [0, 1, 0]


def test_a_newer_epoch_in_a_request_or_an_answer_has_the_fleet_read_once(servers, table):
    owner, copy, _ = servers
    asked = known(table.storage, partition="p=1")
    owner.current.tell(fleet_of(owner, copy), 5)
    first = copy.client().request("GET", BY_NAME["last_instant"].path, asked)
    assert first.status == 200
    assert EPOCH not in first.headers, "the client gets the answer as from one server"
    assert (owner.caught_up, copy.caught_up) == (0, 1)
    assert copy.current.known.epoch == 1, "nothing else follows from it"
    copy.client().request("GET", BY_NAME["last_instant"].path, asked)
    assert copy.caught_up == 1
    copy.current.tell(fleet_of(owner, copy), 7)
    copy.client().request("GET", BY_NAME["last_instant"].path, asked)
    assert (owner.caught_up, copy.caught_up) == (1, 1)
    owner.current.hear_anew()  # as each heartbeat has it
    for epoch, expected in (("9", 2), ("9", 2), ("8", 2), ("x", 2), ("9" * 16, 2), ("-9", 2)):
        passed = {FORWARDED: "1", EPOCH: epoch}
        answer = owner.client().request("GET", BY_NAME["last_instant"].path, asked, headers=passed)
        assert (answer.status, answer.headers[EPOCH]) == (200, "5")
        assert owner.caught_up == expected, epoch
    # A request that no server has forwarded doesn't count.
    owner.client().request("GET", BY_NAME["last_instant"].path, asked, headers={EPOCH: "99"})
    assert owner.caught_up == 2
