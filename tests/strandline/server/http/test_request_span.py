"""Requests are recorded by OpenTelemetry's conventions; those from ready bytes only if sampled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from executor_proxy.view_location import ViewLocation
from strandline.server.http.server import ServiceServer
from tests.kit.servers.live_service import TOKEN, GoldenTables, HttpClient, known, serving
from tests.kit.spans import Recording, recording
from tests.kit.tables import golden
from tests.timeline.test_tracing import HOSTILE, PARENT, UNSAMPLED
from timeline import tracing
from timeline.storage.local import LocalStorage

TABLES = GoldenTables()
LATEST = "/v1/hoodie/view/datafiles/latest/partition/"
ROUTE = LATEST.rstrip("/")
ASKED = TABLES.known("cow_basic_v9", 7, partition="2024-01-01")
INVALID = [{"traceparent": value} for value in HOSTILE if value.isascii()]


@pytest.fixture
def recorded() -> Iterator[Recording]:
    with recording() as found:
        yield found


@pytest.fixture
def server(recorded: Recording) -> Iterator[ServiceServer]:
    with serving(TABLES.root, opener=TABLES) as found:
        yield found


def test_a_request_that_is_not_ready_has_its_sync_its_load_and_their_calls(recorded, tmp_path):
    golden.build("cow_basic_v9", 7, tmp_path / "t")
    asked = known(LocalStorage(str(tmp_path / "t")), partition="2024-01-01")
    with serving(str(tmp_path)) as server, HttpClient(server.port) as client:
        answer = client.request("GET", LATEST, asked, PARENT)
    spans, name = recorded.spans, f"GET {ROUTE}"
    request = spans.one(name)
    assert (request.trace, request.parent, request.kind) == ("a" * 32, "b" * 16, "SERVER")
    assert request.attributes == {
        "http.request.method": "GET",
        "http.route": ROUTE,
        "http.response.status_code": 200,
        "url.path": LATEST,
        "url.scheme": "http",
        "client.address": "127.0.0.1",
        "network.protocol.version": "1.1",
        "strandline.table": asked["basepath"],
        "strandline.request.id": answer.request_id,
    }
    above = {tuple(spans.above(span)) for span in spans.all}
    assert {("sync", name), ("storage list", "sync", name)} <= above
    assert {("storage list", "load", name), ("storage list", "sync", "load", name)} <= above
    first = spans.named("sync")[0]
    assert first.attributes["strandline.instant"] == asked["lastinstantts"]
    assert {span.trace for span in spans.all} == {request.trace}


def test_a_ready_answer_is_recorded_if_its_trace_is_sampled(server, recorded):
    with HttpClient(server.port) as client:
        client.request("GET", LATEST, ASKED, PARENT)
        before = len(recorded.spans.all)
        for headers in ({}, UNSAMPLED, *INVALID):
            client.request("GET", LATEST, ASKED, headers)
        assert len(recorded.spans.all) == before
        client.request("GET", LATEST, ASKED, {**PARENT, "X-Request-Id": "mine"})
    hot = recorded.spans.all[before]
    assert (hot.name, hot.parent, hot.kind) == (f"GET {ROUTE}", "b" * 16, "SERVER")
    assert hot.attributes["strandline.request.id"] == "mine"
    assert hot.attributes["http.response.status_code"] == 200
    assert 0 < hot.took_s < 60
    assert sum(server.parts.hot.counts.values()) == len(INVALID) + 3


def test_invalid_headers_begin_a_trace_and_change_no_answer(server, recorded):
    with HttpClient(server.port) as client:
        right = client.request("GET", LATEST, ASKED)
        for headers in INVALID:
            answer = client.request("GET", LATEST, ASKED, headers)
            assert (answer.status, answer.body) == (200, right.body), headers
            client.request("GET", LATEST, {"basepath": "/none"}, headers)
    requests = recorded.spans.named(f"GET {ROUTE}")
    assert [span.parent for span in requests] == [""] * (1 + len(INVALID))


def test_refusals_name_no_route_that_there_is_not(server, recorded):
    with HttpClient(server.port) as client:
        assert client.request("GET", "/none/such").status == 404
        assert client.request("GET", LATEST, {"basepath": "/elsewhere"}).status == 403
    spans = recorded.spans
    assert spans.one("GET").attributes["http.response.status_code"] == 404
    assert "http.route" not in spans.one("GET").attributes
    # The client's fault, by the conventions, is no failure of the server.
    assert not spans.one("GET").failed
    assert spans.one(f"GET {ROUTE}").attributes["http.response.status_code"] == 403


def test_strangers_record_nothing(server, recorded):
    with HttpClient(server.port, None) as client:
        for path in ("/healthz", "/ui", "/ui/", "/ui/none"):
            client.request("GET", path, headers=PARENT)
        assert client.request("GET", LATEST, ASKED, PARENT).status == 401
    assert recorded.spans.all == ()


def test_a_look_up_of_a_client_is_the_parent_of_the_request(server, recorded):
    url, pin = f"http://127.0.0.1:{server.port}", (ASKED["lastinstantts"], ASKED["timelinehash"])
    location = ViewLocation(ASKED["basepath"], (url,), TOKEN, {}, *pin)
    with tracing.span("job"):
        location.open().latest_base_files("2024-01-01")
    spans = recorded.spans
    (sent,) = [span for span in spans.all if span.kind == "CLIENT"]
    (received,) = [span for span in spans.all if span.kind == "SERVER"]
    assert spans.above(received) == [received.name, sent.name, "job"]
    assert sent.attributes == {
        "http.request.method": "GET",
        "http.response.status_code": 200,
        "server.address": "127.0.0.1",
        "server.port": server.port,
        "url.full": f"{url}{ROUTE}",
        "url.template": ROUTE,
    }
