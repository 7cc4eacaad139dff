"""Servers in the owner's place, and what only the owner is told."""

from __future__ import annotations

import socket
from urllib.parse import urlencode

import pytest

from executor_proxy.http import HttpSession
from fsview.wire.marker_form import CREATE_MARKER, DELETE_DIRECTORY, MARKERS
from fsview.wire.routes import BY_NAME
from strandline.fleet.forward import Forwarder
from strandline.fleet.peer_connection import PeerLimits
from strandline.server.http.request import INSTANT_STATES
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.formats.marker_name import marker_name
from tests.kit.papers import Papers
from tests.kit.servers.live_service import TOKEN, known
from tests.kit.tables.small_table import SmallTable
from tests.strandline.fleet.fixed_fleet import A, FixedFleet, fixed_fleet
from timeline.errors import ConfigError

LATEST, SYNC, NEWEST = (BY_NAME[n].path for n in ("latest_base_files", "sync", "last_instant"))
INSTANT = "20300101000000000"


def directory(table: SmallTable) -> dict[str, str]:
    return {"markerdirpath": f"{table.storage.base_path}/.hoodie/.temp/{INSTANT}"}


def create(fleet: FixedFleet, table: SmallTable, name: str) -> bytes:
    params = {**directory(table), "markername": marker_name(INSTANT, name)}
    answered = fleet.client(2).request("POST", CREATE_MARKER, params)
    assert answered.status == 200, answered.body
    return answered.body


def markers(fleet: FixedFleet, table: SmallTable, by: int = 2) -> bytes:
    return fleet.client(by).request("GET", f"{MARKERS}/all", directory(table)).body


def names(*found: str) -> bytes:
    listed = ",".join(f'"{marker_name(INSTANT, name)}"' for name in found)
    return f"[{listed}]".encode()


def test_a_marker_that_a_dead_owner_made_is_not_new_to_the_next(fleet, table):
    assert create(fleet, table, "a") == b"true"
    fleet.kill(0)
    assert create(fleet, table, "a") == b"false"
    assert create(fleet, table, "b") == b"true"
    assert markers(fleet, table) == names("a", "b")
    kept = [server.parts.status()["markers"]["directories"] for server in fleet.servers[1:]]
    assert kept == [1, 0]


def test_an_owner_that_is_back_knows_that_the_next_deleted_its_markers(fleet, table):
    create(fleet, table, "a")
    owner = fleet.order.pop(0)
    assert fleet.client(2).request("POST", DELETE_DIRECTORY, directory(table)).body == b"true"
    fleet.order.insert(0, owner)
    assert create(fleet, table, "a") == b"true", "it is made anew"
    assert [markers(fleet, table, by) for by in range(3)] == [names("a")] * 3


def test_states_that_the_dead_owner_was_told_of_are_listed_by_the_next(fleet, table):
    folder = ".hoodie/.aux/ckp_meta"
    where = {"instantstatedirpath": f"{table.storage.base_path}/{folder}"}

    def states(number: int) -> bytes:
        return fleet.client(number).request("GET", f"{INSTANT_STATES}/all", where).body

    table.storage.create(f"{folder}/1.INFLIGHT")
    owner = fleet.order.pop(0)
    before = states(2)  # kept by the server that is the owner now
    fleet.order.insert(0, owner)
    table.storage.create(f"{folder}/2.INFLIGHT")
    fleet.client(2).request("POST", f"{INSTANT_STATES}/refresh", where)
    newer = states(0)
    assert newer != before
    fleet.kill(0)
    assert states(2) == newer
    assert fleet.forwarded(2)["answered"] == 3


def test_each_partition_may_have_an_owner_and_commits_are_told_to_the_tables(fleet, table):
    fleet.order[:] = [fleet.urls[0]]
    fleet.of_partition["p=1"] = [fleet.urls[1]]
    ask = fleet.client(2).request
    pinned = known(table.storage)
    assert ask("GET", LATEST, {**pinned, "partition": "p=1"}).status == 200
    assert ask("GET", LATEST, {**pinned, "partition": "p=2"}).status == 200
    assert (fleet.asked(0), fleet.asked(1)) == ({"latest_base_files": 1}, {"latest_base_files": 1})
    new = table.write(A)
    base = {"basepath": table.storage.base_path}
    assert ask("POST", SYNC, base).body == b"true"
    assert new.encode() in ask("GET", LATEST, {**base, "partition": "p=1"}).body
    assert fleet.asked(1) == {"latest_base_files": 1}, "it isn't told of commits"
    newest = {**known(table.storage), "partition": "p=1"}
    assert new.encode() in ask("GET", LATEST, newest).body
    assert fleet.asked(1) == {"latest_base_files": 2}, "a client's instant tells it"
    assert fleet.asked(2) == {}


def test_the_next_syncs_first_while_the_owners_seat_is_vacant(fleet, table):
    ask = fleet.client(2).request
    base = {"basepath": table.storage.base_path}
    fleet.client(1).request("GET", LATEST, {**known(table.storage), "partition": "p=1"})
    new = table.write(A)
    assert ask("POST", SYNC, base).body == b"true"
    fleet.order[0] = None
    for by in (ask, fleet.client(1).request):
        assert new.encode() in by("GET", NEWEST, base).body
    fleet.order[0] = fleet.urls[0]
    newer = table.write(A)
    assert ask("POST", SYNC, base).body == b"true"
    fleet.order[0] = None
    assert newer.encode() in ask("GET", NEWEST, base).body
    assert fleet.asked(1) == {"latest_base_files": 1, "sync": 5, "last_instant": 3}
    assert fleet.copies(0) == {"in_step": 4, "told": 4}
    assert fleet.asked(0) == {"sync": 2}


@pytest.mark.parametrize("by", [0, 1])
@pytest.mark.parametrize("route", ["last_instant", "timeline"])
def test_an_owner_that_was_away_tells_nothing_older_than_others_told(fleet, table, route, by):
    """Nobody could tell it of what was committed meanwhile."""
    base = {"basepath": table.storage.base_path}
    assert fleet.client(0).request("POST", SYNC, base).body == b"true"
    fleet.order[0] = None
    new = table.write(A)
    assert fleet.client(1).request("POST", SYNC, base).body == b"true"
    fleet.order[0] = fleet.urls[0]
    told = fleet.client(by).request("GET", BY_NAME[route].path, base)
    assert new.encode() in told.body
    assert fleet.asked(0)[route] == 1


def test_a_server_without_a_fleet_yet_answers_as_one_on_its_own(fleet, table):
    fleet.order.clear()
    base = {"basepath": table.storage.base_path}
    assert fleet.client(1).request("GET", NEWEST, base).status == 200
    assert fleet.asked(1) == {"sync": 1, "last_instant": 1}


@pytest.mark.parametrize(
    "url", ["", "ftp://a:1", "http://a", "http://a:1/b", "http://a..b:1", "https://a:99999", "a"]
)
def test_a_member_with_an_address_that_is_none_costs_no_answer(fleet, table, url):
    fleet.order[:] = [url, fleet.urls[0]]
    params = known(table.storage, partition="p=1")
    assert fleet.client(1).request("GET", LATEST, params).status == 200
    assert fleet.asked(0) == {"latest_base_files": 1}
    assert fleet.forwarded(1) == {"answered": 1, **({"no_address": 1} if url else {})}


def test_an_answer_longer_than_the_server_takes_is_its_own(table):
    with fixed_fleet(table.storage.base_path, limits=PeerLimits(body_bytes=10)) as fleet:
        del fleet.order[2:]
        params = known(table.storage, partition="p=1")
        answered = fleet.client(2).request("GET", LATEST, params)
        assert answered.status == 200
        assert len(answered.body) > 10
        assert fleet.forwarded(2) == {"bad_answer": 2, "served_here": 1}


def test_a_client_that_leaves_ends_the_question_at_the_owner(fleet, table):
    with socket.create_server(("127.0.0.1", 0)) as owner:
        owner.settimeout(PATIENCE_S)
        fleet.order[:] = [f"http://127.0.0.1:{owner.getsockname()[1]}"]
        client = fleet.client(1)
        target = f"{LATEST}?{urlencode(known(table.storage, partition='p=1'))}"
        client.connection.request("GET", target, headers={"Authorization": f"Bearer {TOKEN}"})
        asked, _ = owner.accept()
        with asked:
            asked.settimeout(PATIENCE_S)
            head = b""
            while b"\r\n\r\n" not in head:
                head += asked.recv(1 << 16)
            client.connection.close()
            assert asked.recv(1) == b""
    assert fleet.asked(1) == {}, "nobody waits for its answer"


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


def test_servers_speak_https_with_each_other(table, papers):
    with fixed_fleet(table.storage.base_path, papers=papers) as fleet:
        del fleet.order[2:]
        session = HttpSession(fleet.urls[2], TOKEN, ca_file=papers.ca)
        for _ in range(2):
            assert session.get(LATEST, known(table.storage, partition="p=1"))
        assert fleet.forwarded(2) == {"answered": 2}
        assert fleet.asked(0) == {"latest_base_files": 2}
        assert fleet.opened(0) == 1, "a connection is kept"


def test_a_server_whose_authority_is_another_gets_no_request(table, papers, tmp_path):
    others = Papers(tmp_path)
    trusted, others.ca = others.ca, papers.ca
    with fixed_fleet(table.storage.base_path, papers=others) as fleet:
        del fleet.order[1:]
        session = HttpSession(fleet.urls[1], TOKEN, ca_file=trusted)
        assert session.get(LATEST, known(table.storage, partition="p=1"))
        assert fleet.forwarded(1) == {"served_here": 1, "service_unreachable": 1}
        assert fleet.asked(0) == {}


def test_a_file_without_authorities_is_refused_at_once(tmp_path):
    with pytest.raises(ConfigError, match=r"ca_file .*none: No such file"):
        Forwarder("https://a:1", lambda *_: [], TOKEN, ca_file=str(tmp_path / "none"))
