"""The rules of a request's head are checked first, whatever answers the request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import product
from urllib.parse import urlencode

import pytest

from strandline.server.http.authorization import Admission
from strandline.server.http.connection import ServiceProtocol
from strandline.server.http.connection_registry import ConnectionRegistry
from strandline.server.http.limits import Limits
from strandline.server.http.refusals import Refusals
from strandline.server.http.reply import Reply, success
from strandline.server.http.request import Fields, Request, checked_fields
from strandline.server.http.server import ServiceServer
from strandline.server.table_threads import TableThreads
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.servers.live_service import TOKEN, GoldenTables, serving
from tests.kit.servers.raw_http import Answer, RawConnection, request

TABLES = GoldenTables()
ASKED = TABLES.known("cow_basic_v9", 7, partition="2024-01-01")
HOT = ("GET", f"/v1/hoodie/view/slices/partition/latest/?{urlencode(ASKED)}")
WAYS = (
    HOT,
    ("GET", f"/v1/hoodie/view/timeline/instants/all?{urlencode(ASKED)}"),
    ("POST", f"/v1/hoodie/view/refresh/?{urlencode(ASKED)}"),
    ("POST", "/v1/hoodie/marker/create?markerdirpath=/golden/t/.hoodie/.temp/1"),
    ("GET", "/v1/strandline/status"),
    ("GET", "/healthz"),
    ("GET", "/nowhere"),
)
"""Ready bytes, a thread for a look-up and for a change, a wait on the loop, probes, no route."""
POSTS = [target for method, target in WAYS if method == "POST"]
BEARER = f"Authorization: Bearer {TOKEN}"


@pytest.fixture(scope="module")
def server() -> Iterator[ServiceServer]:
    with serving(TABLES.root, opener=TABLES) as server:
        yield server


@pytest.fixture(scope="module")
def open_server() -> Iterator[ServiceServer]:
    with serving(TABLES.root, opener=TABLES, token=None) as server:
        yield server


def head(method: str, target: str, *lines: str, version: str = "1.1") -> bytes:
    return "\r\n".join([f"{method} {target} HTTP/{version}", *lines, "", ""]).encode()


def last(server: ServiceServer, data: bytes) -> Answer:
    """Return the one answer, after which the connection ends."""
    with RawConnection(server.port) as raw:
        raw.socket.sendall(data)
        (answer,) = raw.answers()
    assert answer.headers["connection"] == "close"
    return answer


def test_two_authorization_headers_are_refused_on_every_way(
    subtests: pytest.Subtests, server: ServiceServer
) -> None:
    for method, target in WAYS:
        with subtests.test(method=method, target=target):
            for second in (BEARER, BEARER.lower(), "Authorization: Basic eDp5"):
                for lines in (("Host: h", BEARER, second), (second, "Host: h", BEARER)):
                    answer = last(server, head(method, target, *lines))
                    assert (answer.status, answer.body) == (
                        400,
                        b"more than one Authorization header",
                    )


def test_http_1_1_names_its_host_once(subtests: pytest.Subtests, server: ServiceServer) -> None:
    for method, target in WAYS:
        with subtests.test(method=method, target=target):
            answer = last(server, head(method, target, BEARER))
            assert (answer.status, answer.body) == (400, b"no Host header")
            for version in ("1.0", "1.1"):
                two = head(method, target, "Host: h", BEARER, "host: h", version=version)
                answer = last(server, two)
                assert (answer.status, answer.body) == (400, b"more than one Host header")


def test_a_body_in_a_coding_that_is_not_known_is_refused(
    subtests: pytest.Subtests, server: ServiceServer
) -> None:
    for method, target in WAYS:
        with subtests.test(method=method, target=target):
            for coding in ("gzip", "gzip, chunked", "identity", "xchunked"):
                coded = f"Transfer-Encoding: {coding}"
                answer = last(server, head(method, target, "Host: h", BEARER, coded))
                assert answer.status == 501
                assert (
                    answer.body == b"a Transfer-Encoding that isn't supported; supported: chunked"
                )
                twice = head(method, target, "Host: h", BEARER, coded, "Transfer-Encoding: chunked")
                assert last(server, twice).status == 400


def test_a_refusal_of_head_has_no_body(server: ServiceServer) -> None:
    with RawConnection(server.port) as raw:
        raw.socket.sendall(head("HEAD", "/healthz"))
        told = raw.rest()
    assert told.startswith(b"HTTP/1.1 400 ")
    assert told.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("lines", [(), ("Host: h",)])
def test_probes_of_http_1_0_need_no_host(server: ServiceServer, lines: tuple[str, ...]) -> None:
    greeted = last(server, head("GET", "/", *lines, version="1.0"))
    assert (greeted.status, greeted.body) == (200, b"Hello Hudi")
    assert b'"ok"' in last(server, head("GET", "/healthz", *lines, version="1.0")).body


@pytest.mark.parametrize("target", POSTS)
def test_a_web_page_can_post_nothing(
    server: ServiceServer, open_server: ServiceServer, target: str
) -> None:
    """Without a token any page could: a browser reaches all that its machine reaches."""
    for page in ("https://example.com", "null", "http://127.0.0.1:26754", ""):
        origin = f"Origin: {page}"
        for asked, lines in ((open_server, ()), (server, (BEARER,)), (server, ())):
            answer = last(asked, head("POST", target, "Host: h", origin, *lines))
            assert answer.status == 403
            assert b"web page" in answer.body
        with RawConnection(open_server.port) as raw:
            assert raw.ask(head("POST", target, "Host: h")).status in (200, 400)
            assert raw.ask(head("GET", "/", "Host: h", origin)).status == 200


def test_several_headers_of_one_name_are_one_list() -> None:
    """RFC 9110, section 5.3."""
    headers = [(b"host", b"h"), (b"accept-encoding", b"gzip"), (b"accept-encoding", b"br")]
    fields = checked_fields(headers, b"GET", "1.1")
    assert fields == {b"host": b"h", b"accept-encoding": b"gzip,br"}
    assert Request("GET", "/", b"", fields).accepted.zipped


class NeverAsked:
    """A hot path and an application that no request should reach."""

    def __init__(self) -> None:
        self.asked = 0

    def respond(self, target: bytes, fields: Fields) -> bytes | None:
        self.asked += 1
        return None

    async def __call__(self, request: Request) -> Reply:
        self.asked += 1
        return success(b"")


def test_a_request_is_refused_before_its_body_and_any_handler(subtests: pytest.Subtests) -> None:
    """It needs no thread: a refusal once took twenty times as long as an answer."""

    async def serve(never: NeverAsked, asked: bytes) -> bytes:
        loop = asyncio.get_running_loop()
        refusals = Refusals(ManualClock(0), ())
        threads = TableThreads("requests", 1)
        registry = ConnectionRegistry(
            never, threads, never, Admission(TOKEN), Limits(), 120, refusals
        )
        listener = await loop.create_server(lambda: ServiceProtocol(registry), "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(asked)
        said = await reader.read()
        writer.close()
        listener.close()
        await registry.close(5)
        return said

    ways = [way for way in WAYS if way[1] != "/healthz"]
    for (method, target), lines in product(ways, [(), ("Authorization: Bearer wrong",)]):
        with subtests.test(method=method, target=target, lines=lines):
            never = NeverAsked()
            asked = head(method, target, "Host: h", "Content-Length: 9", *lines)
            said = asyncio.run(serve(never, asked))
            assert said.startswith(b"HTTP/1.1 401 Unauthorized\r\n")
            assert never.asked == 0


def test_a_refusal_for_want_of_a_token_has_the_forms_of_all_errors(server: ServiceServer) -> None:
    text = last(server, request(HOT[1]))
    assert text.headers["www-authenticate"] == "Bearer"
    wanted = b"this service wants its bearer token in Authorization, which has "
    assert text.body == wanted + b"none"
    assert last(server, request(HOT[1], "Authorization: Bearer no")).body == wanted + b"another"
    same = last(server, request(HOT[1], "Accept: application/json"))
    assert same.headers["content-type"] == "application/json"
    assert b'"status": 401' in same.body
    with RawConnection(server.port) as raw:
        raw.socket.sendall(request(HOT[1], method="HEAD"))
        assert raw.rest().endswith(b"connection: close\r\n\r\n")


@pytest.mark.parametrize(
    ("status", "asked"),
    [
        (400, ("Host: other",)),
        (403, ("Origin: https://example.org",)),
        (413, (f"Content-Length: {1 << 40}",)),
    ],
)
def test_early_refusals_are_in_json_if_accepted(
    server: ServiceServer, status: int, asked: tuple[str, ...]
) -> None:
    accepting = ("Accept: application/json", *asked)
    refused = last(server, request(POSTS[0], *accepting, method="POST", token=TOKEN))
    assert (refused.status, refused.headers["content-type"]) == (status, "application/json")
    assert json.loads(refused.body)["status"] == status
    plain = last(server, request(POSTS[0], *asked, method="POST", token=TOKEN))
    assert (plain.status, plain.headers["content-type"]) == (status, "text/plain")
    assert plain.body.decode() == json.loads(refused.body)["title"]
