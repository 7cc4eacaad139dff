"""Requests about another server's table: by whom they are answered, and in whose place."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor_proxy.seat_ring import Seat
from fsview.wire.lookup_form import LOOKUP_PATH
from fsview.wire.marker_form import CREATE_MARKER, MARKERS
from fsview.wire.routes import BY_NAME
from strandline.fleet.copies import Copies
from strandline.fleet.current import CurrentFleet
from strandline.fleet.forward import BUSY_SHARE, SHARE, Forwarded, Forwarder
from strandline.fleet.safe_mode import HOLD_S, UNSURE, SafeMode
from strandline.server.api.forwarding import Forwarding, _Asked
from strandline.server.api.routes import PARTITION_INDEX
from strandline.server.http.reply import Reply as ServiceReply
from strandline.server.http.request import INSTANT_STATES, Request, request_of
from strandline.server.process.composition_root import Parts
from strandline.server.process.options import PartsOptions
from tests.executor_proxy.scripted_server import Hang, Raw, Reply, ScriptedServer
from tests.kit.servers.live_service import TOKEN, AppClient, known
from tests.kit.tables.small_table import SmallTable
from tests.strandline.fleet.fixed_fleet import A
from timeline.errors import InputError

LATEST, SYNC, NEWEST = (BY_NAME[n].path for n in ("latest_base_files", "sync", "last_instant"))
MARKER = "p=1/a_1-0-1_20300101000000000.parquet.marker.CREATE"


def marker(table: SmallTable, **more: str) -> dict[str, str]:
    directory = f"{table.storage.base_path}/.hoodie/.temp/20300101000000000"
    return {"markerdirpath": directory, **more}


@pytest.mark.parametrize("headers", [{}, {"Accept": "application/json"}])
@pytest.mark.parametrize("partition", ["p=1", "p=2", "none"])
def test_an_answer_of_the_owner_comes_back_as_it_was_sent(fleet, table, partition, headers):
    del fleet.order[1:]
    params = known(table.storage, partition=partition)
    direct = fleet.client(0).request("GET", LATEST, params, headers)
    for _ in range(2):
        passed = fleet.client(1).request("GET", LATEST, params, headers)
        assert (passed.status, passed.sent) == (direct.status, direct.sent)
        assert passed.headers == direct.headers
    assert fleet.asked(0) == {"latest_base_files": 3}
    assert fleet.asked(1) == {}
    assert fleet.opened(0) == 2, "a connection is kept"


def test_a_refusal_of_the_owner_comes_back(fleet, table):
    del fleet.order[1:]
    params = known(table.storage) | {"timelinehash": "00" * 32, "partition": "p=1"}
    direct, passed = (fleet.client(n).request("GET", LATEST, params) for n in (0, 1))
    assert (passed.status, passed.body) == (direct.status, direct.body)
    assert passed.status == 400
    assert fleet.asked(1) == {}


def test_a_copy_answers_at_an_instant_and_asks_the_owner_for_the_newest(fleet, table):
    del fleet.order[2:]
    fleet.client(1).request("GET", LATEST, known(table.storage, partition="p=1"))
    assert fleet.asked(1) == {"latest_base_files": 1}
    new = table.write(A)
    base = {"basepath": table.storage.base_path}
    assert fleet.client(1).request("POST", SYNC, base).body == b"true"
    assert new.encode() in fleet.client(2).request("GET", NEWEST, base).body
    assert fleet.asked(0) == {"sync": 2, "last_instant": 1}
    assert fleet.client(1).request("GET", LATEST, {**base, "partition": "p=1"}).status == 200
    assert fleet.asked(0)["latest_base_files"] == 1, "it names no instant"


def test_a_server_that_answers_for_the_owner_syncs_first(fleet, table):
    fleet.client(1).request("GET", LATEST, known(table.storage, partition="p=1"))
    new = table.write(A)
    fleet.kill(0)
    base = {"basepath": table.storage.base_path}
    for number in (2, 1):  # asked by way of another, and itself
        assert new.encode() in fleet.client(number).request("GET", NEWEST, base).body
    assert fleet.asked(1)["sync"] == 2
    assert fleet.asked(2) == {}


def test_a_server_that_cannot_sync_for_the_owner_says_so_and_tells_nothing_old(fleet, table):
    fleet.client(1).request("GET", LATEST, known(table.storage, partition="p=1"))
    fleet.kill(0)
    base = {"basepath": table.storage.base_path}
    timeline = Path(table.storage.base_path, ".hoodie")
    away = timeline.rename(timeline.with_name("away"))
    with fleet.client(1) as client:
        synced = client.request("POST", SYNC, base)
        asked = client.request("GET", NEWEST, base)
        assert synced.status >= 400
        assert (asked.status, asked.body) == (synced.status, synced.body)
        away.rename(timeline)
        assert client.request("GET", NEWEST, base).status == 200


def test_without_any_of_the_owners_a_server_answers_itself(fleet, table):
    del fleet.order[2:]
    fleet.kill(0)
    fleet.kill(1)
    params = known(table.storage, partition="p=1")
    with fleet.client(2) as client:
        for _ in range(3):
            assert client.request("GET", LATEST, params).status == 200
    assert fleet.forwarded(2)["served_here"] >= 1
    assert fleet.forwarded(2)["service_unreachable"] == 2, "asked once, then spared"


def test_a_batch_of_look_ups_is_passed_on_with_its_body(fleet, table):
    del fleet.order[1:]
    body = b'{"queries":[{"name":"latest_base_files","partitions":["p=1","p=2"]}]}'
    target = (
        f"{LOOKUP_PATH}?basepath={table.storage.base_path}&timelinehash="
        + (known(table.storage)["timelinehash"])
    )
    answers = []
    for number in (0, 1):
        with fleet.client(number) as client:
            headers = {"Authorization": f"Bearer {client.token}"}
            client.connection.request("POST", target, body, headers)
            response = client.connection.getresponse()
            answers.append((response.status, response.read()))
    assert answers[0] == answers[1]
    assert fleet.forwarded(1) == {"answered": 1}


def test_servers_that_know_other_owners_send_no_request_in_circles(fleet, table):
    fleet.order[:] = [fleet.urls[1]]
    params = known(table.storage, partition="p=1")
    passed = fleet.client(2).request("GET", LATEST, params, {"Strandline-Forwarded": "1"})
    assert passed.status == 200
    assert fleet.asked(2) == {"latest_base_files": 1}
    assert fleet.asked(1) == {}


def test_writers_state_is_the_owners(fleet, table):
    for number in (2, 1, 0):
        made = fleet.client(number).request("POST", CREATE_MARKER, marker(table, markername=MARKER))
        assert made.body == (b"true" if number == 2 else b"false")
    names = [fleet.client(n).request("GET", f"{MARKERS}/all", marker(table)).body for n in range(3)]
    assert names == [f'["{MARKER}"]'.encode()] * 3
    assert [s.parts.status()["markers"]["directories"] for s in fleet.servers] == [1, 0, 0]
    states = {"instantstatedirpath": f"{table.storage.base_path}/.hoodie/.aux/ckp_meta"}
    assert fleet.client(2).request("POST", f"{INSTANT_STATES}/refresh/", states).body == b"true"
    assert fleet.forwarded(2) == {"answered": 3}


def test_markers_of_a_dead_owner_are_kept_by_the_next_and_none_is_lost(fleet, table):
    second = MARKER.replace("a_1", "b_1")
    fleet.client(2).request("POST", CREATE_MARKER, marker(table, markername=MARKER))
    owner = fleet.order.pop(0)  # taken for dead
    made = fleet.client(2).request("POST", CREATE_MARKER, marker(table, markername=second))
    assert made.body == b"true"
    fleet.order.insert(0, owner)  # and back, with what it knew
    found = fleet.client(2).request("GET", f"{MARKERS}/all", marker(table)).body
    assert found == f'["{MARKER}","{second}"]'.encode()


def test_all_servers_compute_the_same_start_of_buckets(fleet):
    params = {"numbuckets": "4", "partitionnum": "7", "partitionpath": "p=2"}
    fleet.client(0).request("GET", PARTITION_INDEX, {**params, "partitionpath": "p=1"})
    starts = {fleet.client(n).request("GET", PARTITION_INDEX, params).body for n in range(3)}
    assert len(starts) == 1


HALF = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 100\r\n\r\nhalf"
BAD = {
    "garbage": Raw(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "half an answer": Raw(HALF),
    "half a head": Raw(HALF[:30]),
    "an end": Raw(),
    "two answers": Raw(Reply(b"[]").encoded() * 2),
    "a long head": Raw(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000),
    "a long body": Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n"),
    "no status": Raw(b"HTTP/1.1 999 X\r\ncontent-length: 0\r\n\r\n"),
    "an announcement": Raw(b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a wrong token": Reply(b"", 401),
    "other roots": Reply(b"", 403),
    "its end": Reply(b"", 503),
}


@pytest.mark.parametrize("what", BAD)
def test_whatever_is_wrong_with_the_owner_the_next_answers(fleet, table, what):
    with ScriptedServer(lambda _: BAD[what]) as owner:
        fleet.order[:] = [owner.url, fleet.urls[0]]
        answered = fleet.client(1).request("GET", LATEST, known(table.storage, partition="p=1"))
    assert answered.status == 200
    assert answered.body != b"[]"
    assert fleet.asked(0) == {"latest_base_files": 1}
    assert owner.requests[0].headers["strandline-forwarded"] == "1"


@pytest.mark.parametrize("what", ["garbage", "half an answer", "an end", "its end"])
def test_a_marker_that_may_have_arrived_is_sent_to_nobody_else(fleet, table, what):
    with ScriptedServer(lambda _: BAD[what]) as owner:
        fleet.order[:] = [owner.url, fleet.urls[0]]
        params = marker(table, markername=MARKER)
        answered = fleet.client(1).request("POST", CREATE_MARKER, params)
    assert answered.status in (502, 503)
    assert len(owner.requests) == 1
    assert not Path(params["markerdirpath"]).exists()


@pytest.mark.parametrize("what", ["a wrong token", "other roots"])
def test_a_marker_that_the_owner_refused_goes_to_the_next(fleet, table, what):
    with ScriptedServer(lambda _: BAD[what]) as owner:
        fleet.order[:] = [owner.url, fleet.urls[0]]
        params = marker(table, markername=MARKER)
        assert fleet.client(1).request("POST", CREATE_MARKER, params).body == b"true"


def test_a_client_that_bounds_its_wait_does_not_wait_for_an_owner_that_hangs(fleet, table):
    with ScriptedServer(lambda _: Hang()) as owner:
        fleet.order[:] = [owner.url, fleet.urls[0]]
        params = known(table.storage, partition="p=1")
        with fleet.client(1) as client:
            for _ in range(3):
                answered = client.request("GET", LATEST, params, {"Strandline-Wait": "0.1"})
                assert answered.status == 200
    assert len(owner.requests) == 1, "after that it is spared"
    assert fleet.forwarded(1) == {"answered": 3, "service_timeout": 1, "spared": 2}


@pytest.mark.property
def test_servers_that_hang_leave_time_for_the_next_while_the_client_waits(fleet, table):
    with ScriptedServer(lambda _: Hang()) as owner, ScriptedServer(lambda _: Hang()) as copy:
        fleet.order[:] = [owner.url, copy.url, fleet.urls[0]]
        params = known(table.storage, partition="p=1")
        answered = fleet.client(1).request("GET", LATEST, params, {"Strandline-Wait": "1.5"})
        waits = [float(s.requests[0].headers["strandline-wait"]) for s in (owner, copy)]
    assert answered.status == 200
    assert fleet.forwarded(1) == {"answered": 1, "service_timeout": 2}
    assert 0.5 < waits[0] <= 1.5 * SHARE * BUSY_SHARE, "an owner that is at work says so before"
    assert waits[1] <= waits[0] * SHARE, "of what the owner has left"


def test_who_answers_itself_in_the_end_has_what_others_left_of_the_wait(fleet, table):
    asked: list[Request] = []

    async def here(request: Request) -> ServiceReply:
        asked.append(request)
        return ServiceReply(200, b"")

    async def play(owner: str) -> None:
        forwarder = Forwarder("http://here:1", lambda *_: [Seat(0, owner)], TOKEN)
        forwarding = Forwarding(forwarder, Copies(forwarder), lambda _: None)
        query = urlencode(known(table.storage, partition="p=1")).encode()
        request = Request("GET", LATEST, query, {b"strandline-wait": b"1"})
        await forwarding.answer(here, request)
        forwarder.close()

    with ScriptedServer(lambda _: Hang()) as owner:
        asyncio.run(play(owner.url))
    (request,) = asked
    assert 0.25 <= float(request.fields[b"strandline-wait"]) <= 0.5


def test_a_path_outside_its_own_roots_is_not_passed_on(tmp_path):
    """It is refused, even if another server has other roots (#32)."""
    lake = tmp_path / "lake"
    lake.mkdir()
    (tmp_path / "link").symlink_to(lake)
    with ScriptedServer(lambda _: Reply(b"[]")) as other:
        forwarder = Forwarder("http://here:1", lambda *_: [Seat(0, other.url)], TOKEN)
        parts = Parts(PartsOptions((str(tmp_path / "link"),), None), forwarder=forwarder)
        client = AppClient(parts)
        for path, status in (
            (tmp_path / "pond" / "t", 403),
            (tmp_path / "link" / ".." / "pond", 403),
            (tmp_path / "lakes", 403),
            (lake / "t", 200),
            (tmp_path / "link" / "t", 200),
        ):
            answered = client.request("GET", LATEST, {"basepath": str(path), "partition": "p=1"})
            assert answered.status == status, path
        assert len(other.requests) == 2
        client.loop.run_until_complete(hung_up(parts))
    parts.close()


async def hung_up(parts: Parts) -> None:
    parts.hang_up()


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        (b"/v2/x HTTP/1.1\r\nhost: a\r\n\r\nGET /", {}),
        (b"/a b", {}),
        (b"/a\tb", {}),
        (b"/caf\xc3\xa9", {}),
        (b"", {}),
        (b"/", {b"accept": b"a\r\nb: c"}),
        (b"/", {b"accept": b"a\nb"}),
        (b"/", {b"accept\r\nb": b"c"}),
        (b"/", {b"accept": b"caf\xe9"}),
    ],
)
def test_what_could_be_read_as_several_requests_is_not_sent(target, headers):
    async def play(url: str) -> None:
        forwarder = Forwarder("http://here:1", lambda *_: (), TOKEN)
        with pytest.raises(InputError, match="isn't forwarded"):
            await forwarder.ask([url], Forwarded("GET", target, headers))
        forwarder.close()

    with ScriptedServer(lambda _: Reply(b"[]")) as other:
        asyncio.run(play(other.url))
        assert other.connections == 0


@given(
    st.sampled_from(["/v2/", "/v2/partitions", f"{MARKERS}/", LATEST]),
    st.text(max_size=6),
    st.text(max_size=6),
)
def test_what_is_forwarded_is_a_known_path_and_a_query_with_escapes(path, more, value):
    target = f"{quote(path + more)}?table=/t&basepath=/t&markerdirpath={quote(value)}".encode()
    request = request_of(target, "GET", "1.1", {}, "", 0)
    asked = _Asked.of(request, 0.0)
    assert asked is None or re.fullmatch(rb"/[!-~]+", asked.forwarded().target)
    assert asked is None or not more.strip("/")


@pytest.mark.parametrize("bears_token", [True, False])
def test_only_who_bears_the_token_says_that_a_request_was_passed_on(bears_token):
    forwarder = Forwarder("http://here:1", lambda *_: (), TOKEN)
    fields = {b"strandline-forwarded": b"1", b"authorization": b"Bearer " + TOKEN.encode()}
    if not bears_token:
        fields[b"authorization"] = b"Bearer other"
    assert forwarder.is_passed_on(fields) is bears_token
    assert not forwarder.is_passed_on({b"authorization": fields[b"authorization"]})
    assert not forwarder.is_passed_on({b"strandline-forwarded": b"1"})
    assert Forwarder("http://here:1", lambda *_: (), None).is_passed_on(fields)


def test_a_client_with_a_bound_hears_that_the_owner_is_at_work(fleet, table):
    busy = Reply(b"later", 503, {"Retry-After": "1"})
    with ScriptedServer(lambda _: busy) as owner:
        fleet.order[:] = [owner.url, fleet.urls[0]]
        params = known(table.storage, partition="p=1")
        answered = fleet.client(1).request("GET", LATEST, params, {"Strandline-Wait": "2"})
    assert (answered.status, answered.headers["retry-after"]) == (503, "1")
    assert len(owner.requests) == 1


@pytest.mark.property
def test_a_client_without_a_bound_waits_until_the_owner_has_done(fleet, table):
    answers = iter([Reply(b"", 503, {"Retry-After": "0"}), Reply(b"", 503, {"Retry-After": "1"})])
    with ScriptedServer(lambda _: next(answers, Reply(b"[1]"))) as owner:
        fleet.order[:] = [owner.url]
        params = known(table.storage, partition="p=1")
        assert fleet.client(1).request("GET", LATEST, params).body == b"[1]"
    assert len(owner.requests) == 3
    assert {request.headers["strandline-wait"] for request in owner.requests} == {"5"}


def test_a_creation_is_held_only_once_for_all_that_it_waits_for():
    """For the seat of a server in doubt, then until no server of the former group creates any."""
    held_until_s: list[float] = []

    class Noting(SafeMode):
        async def _changed(self, is_so: Callable[[], bool], until_s: float) -> bool:
            held_until_s.append(until_s)
            return await super()._changed(is_so, until_s)

    async def here(_: Request) -> ServiceReply:
        return ServiceReply(200, b"true")

    async def play() -> bytes:
        current = CurrentFleet("http://here:1")
        forwarder = Forwarder(current.url, current.owners, None)
        forwarding = Forwarding(forwarder, Copies(forwarder), lambda _: None, current=current)
        forwarding._safe_mode = Noting(current, forwarder)
        query = urlencode({"markerdirpath": "/t/.hoodie/.temp/1", "basepath": "/t"}).encode()
        fields = {b"strandline-forwarded": b"1", UNSURE.encode(): b"http://other:1"}
        reply = await forwarding.answer(here, Request("POST", CREATE_MARKER, query, fields))
        return bytes(reply.body)

    assert asyncio.run(play()) == b"true"
    assert len(held_until_s) == 2
    assert held_until_s[0] == held_until_s[1] > HOLD_S
