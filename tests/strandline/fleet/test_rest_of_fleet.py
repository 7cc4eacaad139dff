"""``/v2`` in a fleet: the owner answers, figures are merged, watchers share one watch there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from fsview.wire.routes import BY_NAME
from strandline.fleet.peer_connection import PeerLimits
from tests.executor_proxy.scripted_server import Reply, ScriptedServer
from tests.kit.concurrency.patience import PATIENCE_S, pause
from tests.kit.servers.live_service import TOKEN, HttpClient
from tests.kit.servers.raw_http import RawConnection, request
from tests.kit.tables.small_table import SmallTable
from tests.strandline.fleet.knowing_fleet import (
    KnowingServer,
    fleet_of,
    knowing_fleet,
    path_of_seat,
)
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.property

LATEST = BY_NAME["latest_base_files"].path
SYNC = BY_NAME["sync"]


class Pair:
    """Two servers, and a table that the first of them owns."""

    def __init__(self, servers: list[KnowingServer], folder: Path) -> None:
        self.servers = servers
        for server in servers:
            server.current.tell(fleet_of(*servers), 1)
        self.path = path_of_seat(0, 2, str(folder))
        self.table = SmallTable(LocalStorage(self.path))
        self.table.write(("p=1", "a-0"), ("p=2", "b-0"))

    def ask(self, number: int, name: str, **params: str) -> Any:
        with HttpClient(self.servers[number].port) as client:
            answered = client.request("GET", f"/v2/{name}", params)
        assert answered.status == 200, answered.body
        return json.loads(answered.body)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with knowing_fleet(str(tmp_path), 2) as servers:
        yield Pair(servers, tmp_path)


def test_the_owner_answers_whichever_server_is_asked(pair: Pair) -> None:
    first = pair.ask(1, "partitions", table=pair.path, limit="1")
    second = pair.ask(1, "partitions", table=pair.path, cursor=first["next"])
    assert [row["partition"] for row in (*first["rows"], *second["rows"])] == ["p=1", "p=2"]
    opened = [len(server.parts.views.open_tables()) for server in pair.servers]
    assert opened == [1, 0]
    with HttpClient(pair.servers[1].port) as client:
        whole = client.request("GET", "/v2/partitions", {"table": pair.path})
        tag = {"If-None-Match": whole.headers["etag"]}
        again = client.request("GET", "/v2/partitions", {"table": pair.path}, tag)
        assert (whole.status, again.status, again.body) == (200, 304, b"")
        answered = client.request("GET", "/v2/group", {"table": pair.path, "file_id": "none"})
    assert (answered.status, json.loads(answered.body)["code"]) == (404, "group_not_found")


SMUGGLED = "/v2/x%20HTTP/1.1%0D%0Ahost:%20a%0D%0A%0D%0AGET%20/v1/hoodie/view/anything"


@pytest.mark.parametrize(
    "path", [SMUGGLED, "/v2/caf%C3%A9", "/v2/partitions%0D%0A", "/v2/partitions%20/x", "/v2/none"]
)
def test_a_path_that_is_no_route_goes_to_no_other_server(pair: Pair, path: str) -> None:
    """It would be forwarded without its escapes: with line ends, as several requests."""
    with RawConnection(pair.servers[1].port) as client:
        answered = client.ask(request(f"{path}?table={pair.path}", token=TOKEN))
    assert (answered.status, json.loads(answered.body)["code"]) == (404, "unknown_route")
    connections = [server.parts.status()["connections"] for server in pair.servers]
    assert [each.get("accepted", 0) for each in connections] == [0, 1]
    assert pair.servers[1].parts.status()["forwarded"] == {}


def test_a_route_with_escapes_is_forwarded_as_it_is_known(pair: Pair) -> None:
    with RawConnection(pair.servers[1].port) as client:
        target = f"/v2/p%61rtitions/?table={pair.path}"
        answered = client.ask(request(target, 'If-None-Match: "caf\xe9"', token=TOKEN))
    assert len(json.loads(answered.body)["rows"]) == 2
    assert pair.servers[1].parts.status()["forwarded"] == {"answered": 1}


@pytest.mark.parametrize("body", [b"Not found", b'{"title": "Not found", "status": 404}'])
def test_a_server_without_these_routes_is_no_obstacle(pair: Pair, body: bytes) -> None:
    """While servers of a former release are replaced, one after another."""
    with ScriptedServer(lambda _: Reply(body, 404)) as former:
        pair.servers[1].current.tell(fleet_of(cast("Any", former), pair.servers[1]), 2)
        assert pair.ask(1, "partitions", table=pair.path)["rows"]
        assert [each.path for each in former.requests] == ["/v2/partitions"]


def test_a_server_that_knows_no_order_gives_its_tables(pair: Pair) -> None:
    """As above; it refuses a parameter that it doesn't know, with status 400."""
    row = {"table": "/lake/t", "server": None, "requests": 7}
    body = json.dumps({"rows": [row], "next": None, "tables_open": 1}).encode()

    def answer(asked: Any) -> Reply:
        return Reply(b"{}", 400) if {"once", "order"} & set(asked.params) else Reply(body)

    with ScriptedServer(answer) as former:
        pair.servers[1].current.tell(fleet_of(cast("Any", former), pair.servers[1]), 2)
        found = pair.ask(1, "tables", limit="1", once="true", order="requests")
        assert (found["unreachable"], found["tables_open"]) == ([], 1)
        assert [row["table"] for row in found["rows"]] == ["/lake/t"]


def test_tables_and_status_are_merged(pair: Pair) -> None:
    other = pair.path + "-other"
    SmallTable(LocalStorage(other)).write(("p=1", "c-0"))
    for path in (pair.path, other):
        pair.ask(0, "timeline", table=path)
    urls = [server.url for server in pair.servers]
    for number in (0, 1):
        found = pair.ask(number, "tables", limit="1")
        rows = found["rows"] + pair.ask(number, "tables", cursor=found["next"])["rows"]
        assert (found["servers"], found["tables_open"], found["unreachable"]) == (2, 2, [])
        by_table = {row["table"]: row for row in rows}
        assert set(by_table) == {f"file://{pair.path}", f"file://{other}"}
        row = by_table[f"file://{pair.path}"]
        assert (row["server"], row["owner"], row["is_owner"]) == (urls[0], urls[0], True)
        status = pair.ask(number, "status", names="strandline_open_tables")
        counted = {
            each["server"]: each["metrics"]["strandline_open_tables"]["samples"][0]["value"]
            for each in status["servers"]
        }
        assert set(counted) == set(urls)
        assert sum(counted.values()) == 2


def test_the_busiest_tables_of_all_servers_come_first(pair: Pair, tmp_path: Path) -> None:
    busiest = path_of_seat(1, 2, str(tmp_path))
    SmallTable(LocalStorage(busiest)).write(("p=1", "c-0"))
    with HttpClient(pair.servers[0].port) as client:
        for path, times in ((pair.path, 1), (busiest, 3)):
            asked = {"basepath": path, "partition": "p=1"}
            assert {client.request("GET", LATEST, asked).status for _ in range(times)} == {200}
    for number in (0, 1):
        found = pair.ask(number, "tables", order="requests")
        tables = [row["table"] for row in found["rows"]]
        assert tables == [f"file://{busiest}", f"file://{pair.path}"]
        assert found["rows"][0]["requests"] > found["rows"][1]["requests"] > 0
        first = pair.ask(number, "tables", order="requests", limit="1", once="true")
        assert (first["rows"], first["more"]) == (found["rows"][:1], True)
        assert (first["tables_open"], first["next"]) == (2, None)


def test_a_server_that_doesnt_answer_is_named(pair: Pair) -> None:
    url = pair.servers[1].url
    pair.servers[1].end.close()
    assert pair.ask(0, "tables")["unreachable"] == [url]
    silent = pair.ask(0, "status")["servers"][1]
    assert silent["server"] == url
    assert url in silent["error"]
    assert silent["metrics"] == {}
    # The owner is asked first; the next server answers in its place.
    pair.servers[0].current.tell(fleet_of(pair.servers[1], pair.servers[0]), 2)
    assert pair.ask(0, "partitions", table=pair.path)["rows"]


def test_a_server_keeps_one_watch_at_the_owner_for_all(pair: Pair) -> None:
    state = pair.ask(1, "watch", table=pair.path)["state"]
    with ThreadPoolExecutor(3) as pool:
        waiting = [
            pool.submit(pair.ask, 1, "watch", table=pair.path, after=state, timeout="60")
            for _ in range(3)
        ]
        counts = [server.parts.rest.watches for server in pair.servers]
        while (counts[0].count, counts[1].count) != (1, 3):
            pause()
        assert pair.servers[1].parts.views.open_tables() == ()
        pair.table.write(("p=1", "d-0"))
        with HttpClient(pair.servers[0].port) as client:
            client.request(SYNC.method, SYNC.path, {"basepath": pair.path})
        answers = [each.result(PATIENCE_S) for each in waiting]
    assert all(answer["changed"] for answer in answers)
    assert {answer["state"] for answer in answers} == {
        pair.ask(0, "timeline", table=pair.path)["state"]
    }


def test_watches_leave_the_connections_to_other_requests(tmp_path: Path) -> None:
    with (
        knowing_fleet(str(tmp_path), 2, limits=PeerLimits(connections=1), watch_s=0.05) as servers,
        ThreadPoolExecutor(1) as pool,
    ):
        pair = Pair(servers, tmp_path)
        state = pair.ask(1, "watch", table=pair.path)["state"]
        waiting = pool.submit(pair.ask, 1, "watch", table=pair.path, after=state, timeout="60")
        counts = [server.parts.rest.watches for server in servers]
        while (counts[0].count, counts[1].count) != (1, 1):
            pause()
        assert pair.ask(1, "timeline", table=pair.path)["rows"]
        assert servers[1].parts.views.open_tables() == ()
        pair.table.write(("p=1", "d-0"))
        pair.ask(0, "timeline", table=pair.path)
        assert waiting.result(PATIENCE_S)["changed"]


def test_servers_that_take_each_other_for_the_owner_watch_nevertheless(tmp_path: Path) -> None:
    with (
        knowing_fleet(str(tmp_path), 2, watch_s=0.05) as servers,
        ThreadPoolExecutor(2) as pool,
    ):
        pair = Pair(servers, tmp_path)
        state = pair.ask(0, "watch", table=pair.path)["state"]
        waiting = [
            pool.submit(pair.ask, number, "watch", table=pair.path, after=state, timeout="20")
            for number in (0, 1)
        ]
        counts = [server.parts.rest.watches for server in servers]
        while (counts[0].count, counts[1].count) != (2, 1):
            pause()
        servers[0].current.tell(fleet_of(*reversed(servers)), 2)
        while counts[1].count != 2:
            pause()
        pair.table.write(("p=1", "d-0"))
        answers = [each.result(PATIENCE_S) for each in waiting]
    assert [answer["changed"] for answer in answers] == [True, True]
    assert state not in {answer["state"] for answer in answers}
