"""The protocol and its hot path, whose bytes equal the application's, over sockets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from urllib.parse import quote_plus, urlencode

import pytest

from strandline.server.http.request import Fields
from strandline.server.http.server import ServiceServer
from strandline.server.lookup.ready_answer import HotCount
from tests.kit.servers.live_service import TOKEN, GoldenTables, HttpClient, serving
from tests.kit.servers.raw_http import RawConnection, request
from tests.kit.tables import golden

TABLES = GoldenTables()
SCENARIOS = [("cow_basic_v9", 7), ("special_cow_v6", None), ("mor_basic_v9", None)]
LATEST = "/v1/hoodie/view/slices/partition/latest/"


class NothingHot:
    """Leaves every request to the router."""

    def __init__(self) -> None:
        self.counts: Counter[HotCount] = Counter()

    def respond(self, target: bytes, fields: Fields) -> bytes | None:
        return None


@pytest.fixture(scope="module")
def hot() -> Iterator[ServiceServer]:
    with serving(TABLES.root, opener=TABLES) as server:
        yield server


@pytest.fixture(scope="module")
def long_way() -> Iterator[ServiceServer]:
    with serving(TABLES.root, opener=TABLES, hot=NothingHot()) as server:
        yield server


def asked(target: str, *lines: str) -> bytes:
    return request(target, *lines, token=TOKEN)


@pytest.mark.property
@pytest.mark.parametrize(("scenario", "step"), SCENARIOS)
@pytest.mark.parametrize("accepts", ["", "Accept-Encoding: gzip,deflate"])
def test_both_ways_answer_the_same_bytes(
    hot: ServiceServer, long_way: ServiceServer, scenario: str, step: int | None, accepts: str
) -> None:
    step = step or golden.recorded_steps(scenario)[-1]
    base = TABLES.base_path(scenario, step)
    before = sum(hot.parts.hot.counts.values())
    headers = [accepts] if accepts else []
    count = 0
    with RawConnection(hot.port) as short, RawConnection(long_way.port) as long:
        for exchange in golden.recording(scenario, step, base=base).exchanges:
            if exchange.method != "GET":
                continue
            target = f"{exchange.path}?{urlencode(exchange.params)}"
            question = asked(target, *headers)
            expected = long.ask(question)
            assert [short.ask(question) for _ in range(2)] == [expected] * 2, target
            count += 1
    # Every second request to a hot route is answered from what the first has left.
    assert sum(hot.parts.hot.counts.values()) - before > count // 4


def params(**more: str) -> dict[str, str]:
    return TABLES.known("cow_basic_v9", 7) | {"partition": "2024-01-01"} | more


def test_a_wrong_hash_is_refused_on_the_hot_path_too(hot: ServiceServer) -> None:
    with RawConnection(hot.port) as wire:
        wire.ask(asked(f"{LATEST}?{urlencode(params())}"))
        refused = wire.ask(asked(f"{LATEST}?{urlencode(params(timelinehash='stale'))}"))
    assert refused.status == 400
    assert refused.body.startswith(b"Last known instant from client was")


def test_pipelined_requests_are_answered_in_order(hot: ServiceServer) -> None:
    """Ready answers wait behind one that the application makes."""
    with RawConnection(hot.port) as wire:
        fast = f"{LATEST}?{urlencode(params())}"
        slow = f"/v1/hoodie/view/timeline/instants/all?{urlencode(params())}"
        expected = {target: wire.ask(asked(target)) for target in (fast, slow)}
        order = [fast, slow, fast, fast, slow, slow, fast]
        wire.socket.sendall(b"".join(map(asked, order)))
        assert [wire.answer() for _ in order] == [expected[target] for target in order]


def test_a_request_may_come_byte_by_byte(hot: ServiceServer) -> None:
    with RawConnection(hot.port) as wire:
        question = asked(f"{LATEST}?{urlencode(params())}")
        expected = wire.ask(question)
        for byte in question:
            wire.socket.sendall(bytes([byte]))
        assert wire.answer() == expected


@pytest.mark.parametrize("close", ["Connection: close", None])
def test_a_connection_ends_when_the_client_wants_it(hot: ServiceServer, close: str | None) -> None:
    target = f"{LATEST}?{urlencode(params())}"
    with RawConnection(hot.port) as wire:
        if close is None:  # HTTP/1.0 has no other way
            wire.socket.sendall(asked(target).replace(b"HTTP/1.1", b"HTTP/1.0"))
        else:
            wire.socket.sendall(asked(target, close))
        assert [answer.status for answer in wire.answers()] == [200]


def test_an_unread_body_does_no_harm(hot: ServiceServer) -> None:
    with RawConnection(hot.port) as wire:
        target = f"{LATEST}?{urlencode(params())}"
        expected = wire.ask(asked(target))
        assert wire.ask(request(target, token=TOKEN, body=b"x" * 100_000)) == expected
        assert wire.ask(asked(target)) == expected


@pytest.mark.property
def test_a_query_of_a_mebibyte_is_taken(hot: ServiceServer) -> None:
    partitions = "[" + ",".join(f'"{n:08d}"' for n in range(70_000)) + "]"
    query = urlencode({**params(), "partitions": partitions})
    assert len(query) > 1 << 20
    with RawConnection(hot.port) as wire:
        answered = wire.ask(asked(f"{LATEST}?{query}"))
        assert answered.status == 200
        assert answered == wire.ask(asked(f"{LATEST}?{urlencode(params())}"))


@pytest.mark.parametrize("odd", ["é".encode(), b"\xff\xfe"])
def test_a_target_that_is_not_ascii_is_refused(hot: ServiceServer, odd: bytes) -> None:
    with RawConnection(hot.port) as wire:
        question = asked(f"{LATEST}?{urlencode(params())}")
        assert wire.ask(question.replace(b"2024-01-01", odd)).status == 400


def test_escaped_bytes_that_are_not_utf8_are_a_name_like_any_other(hot: ServiceServer) -> None:
    with RawConnection(hot.port) as wire:
        target = f"{LATEST}?{urlencode(params())}".replace("2024-01-01", "%FF%FE")
        assert wire.ask(asked(target)).body == b"[]"


@pytest.mark.parametrize(
    "rubbish", [b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"]
)
def test_rubbish_is_refused_and_the_service_goes_on(hot: ServiceServer, rubbish: bytes) -> None:
    with RawConnection(hot.port) as wire:
        assert wire.ask(rubbish).status == 400
    with RawConnection(hot.port) as wire:
        assert wire.ask(asked("/")).body == b"Hello Hudi"


@pytest.mark.parametrize("more", ["pretty", "pretty=1", "refreshoff=true", "p%72etty", "%"])
def test_what_is_unusual_is_answered_by_the_router(hot: ServiceServer, more: str) -> None:
    with RawConnection(hot.port) as wire:
        before = sum(hot.parts.hot.counts.values())
        first, second = (wire.ask(asked(f"{LATEST}?{urlencode(params())}&{more}")) for _ in "12")
        assert first == second
        assert first.status == 200
        assert sum(hot.parts.hot.counts.values()) - before == (2 if more == "%" else 0)


def test_base_paths_keep_their_spelling(hot: ServiceServer) -> None:
    base = params()["basepath"]
    with HttpClient(hot.port) as client:
        for spelled in (base, f"{base}/", f"file:{base}", f"file://{base}"):
            for _ in range(2):
                answered = client.request("GET", LATEST, params(basepath=spelled))
                assert answered.status == 200
                assert f'"fullPath":"file:{base}/2024' in answered.body.decode()
    assert quote_plus(base) != base
