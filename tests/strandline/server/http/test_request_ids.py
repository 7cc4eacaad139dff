"""Each answer names its request, as do the log and the errors of clients."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from executor_proxy.http import HttpSession
from strandline.server.http.server import ServiceServer
from strandline.server.http.server_options import ServerOptions
from strandline.server.log_format import JsonFormatter, TextFormatter, of_request
from strandline.server.process.composition_root import Parts
from strandline.server.process.options import PartsOptions
from tests.kit.servers.live_service import TOKEN, GoldenTables, HttpClient, running, serving
from tests.kit.servers.raw_http import RawConnection, request
from tests.kit.tables.small_table import SmallTable
from timeline.errors import RemoteFailureError, RootNotAllowedError, ServiceUnreachableError
from timeline.storage.local import LocalStorage

TABLES = GoldenTables()
LATEST = "/v1/hoodie/view/datafiles/latest/partition/"
ASKED = TABLES.known("cow_basic_v9", 7, partition="2024-01-01")
MADE = re.compile("[0-9a-f]{8}-[0-9a-f]+")


@pytest.fixture
def server() -> Iterator[ServiceServer]:
    with serving(TABLES.root, opener=TABLES) as found:
        yield found


def test_every_answer_has_an_id(server: ServiceServer) -> None:
    """Built, ready, of a probe, refused by a handler, by the router, and by the parser."""
    with HttpClient(server.port) as client:
        answers = [
            client.request("GET", LATEST, ASKED),
            client.request("GET", LATEST, ASKED),
            client.request("GET", "/healthz"),
            client.request("HEAD", "/healthz"),
            client.request("GET", LATEST, {"basepath": "/elsewhere"}),
            client.request("GET", "/none"),
            client.request("GET", "/metrics"),
        ]
    with HttpClient(server.port, None) as stranger:
        answers.append(stranger.request("GET", LATEST, ASKED))
    with RawConnection(server.port) as wire:
        refused = wire.ask(b"rubbish\r\n\r\n")
    ids = [*(each.request_id for each in answers), refused.request_id]
    assert all(map(MADE.fullmatch, ids)), ids
    assert len(set(ids)) == len(ids)
    assert sum(server.parts.hot.counts.values()) == 1


def test_a_client_s_id_is_taken_if_it_is_sane(server: ServiceServer) -> None:
    given = ["a", "Z" * 128, "4bf92f35-77b3:1/2+3=4@5._~", "'", "a b", "", "Z" * 129, "a\x0bb", "é"]
    with HttpClient(server.port) as client:
        for path, params in ((LATEST, ASKED), ("/none", {}), ("/healthz", {})):
            for number, name in enumerate(given):
                answer = client.request("GET", path, params, {"X-Request-Id": name})
                assert (answer.request_id == name) == (number < 3), name
                assert number < 3 or MADE.fullmatch(answer.request_id)


def test_an_id_can_add_no_header_and_no_line(server: ServiceServer) -> None:
    for given in (b"a\r\nx-evil: 1", b"a\nx-evil: 1", b"a\r\n\r\nHTTP/1.1 200 OK", b"a" * 60_000):
        with RawConnection(server.port) as wire:
            asked = request("/healthz", token=TOKEN)
            head, end, _ = asked.partition(b"\r\n\r\n")
            wire.send_what_is_taken(head + b"\r\nX-Request-Id: " + given + end)
            wire.end_of_requests()
            for answer in wire.answers():
                assert "x-evil" not in answer.headers
                assert answer.request_id == "a" or MADE.fullmatch(answer.request_id)
    with RawConnection(server.port) as wire:
        twice = request("/healthz", "X-Request-Id: a", "X-Request-Id: b", token=TOKEN)
        assert MADE.fullmatch(wire.ask(twice).request_id)


def test_refusals_and_what_handlers_log_have_the_id(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines: list[str] = []
    as_json: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(TextFormatter().format(record))
            as_json.append(JsonFormatter().format(record))

    root = logging.getLogger()
    handler = Lines()
    root.addHandler(handler)
    try:
        SmallTable(LocalStorage(f"{tmp_path}/t")).write(("p=1", "a-0"))
        options = PartsOptions((str(tmp_path),), TOKEN, slow_sync_s=1e-9)
        server = ServiceServer(Parts(options), ServerOptions())
        with running(server), HttpClient(server.port) as client:
            named = {"X-Request-Id": "mine"}
            assert client.request("GET", LATEST, {"basepath": "/x"}, named).status == 403
            asked = {"basepath": f"{tmp_path}/t", "partition": "p=1"}
            assert client.request("GET", LATEST, asked, {"X-Request-Id": "slow"}).status == 200
            with HttpClient(server.port, None) as stranger:
                other = {"X-Request-Id": "stranger"}
                assert stranger.request("GET", LATEST, asked, other).status == 401
    finally:
        root.removeHandler(handler)
    (refused,) = [line for line in lines if "root_not_allowed" in line]
    assert refused.endswith(" [request mine]")
    (unknown,) = [line for line in lines if "401" in line]
    assert unknown.endswith(" [request stranger]")
    slow = [line for line in lines if "a sync for" in line]
    assert slow
    for line in slow:
        assert re.search(r"/t: a sync for \w+ took 0\.\d s \[request slow\]$", line), line
    ids = {json.loads(line).get("request") for line in as_json}
    assert {"mine", "slow", "stranger"} <= ids
    assert caplog.records


def test_a_line_outside_a_request_has_no_id() -> None:
    record = logging.LogRecord("n", logging.INFO, "", 0, "m", None, None)
    with of_request("a"):
        with of_request("b"):
            assert TextFormatter("%(message)s").format(record) == "m [request b]"
        assert json.loads(JsonFormatter().format(record))["request"] == "a"
    assert TextFormatter("%(message)s").format(record) == "m"
    assert "request" not in json.loads(JsonFormatter().format(record))


def test_errors_of_clients_name_the_request(server: ServiceServer) -> None:
    url = f"http://127.0.0.1:{server.port}"
    session = HttpSession(url, TOKEN)
    with pytest.raises(RootNotAllowedError, match=r"\[request [0-9a-f]{8}-[0-9a-f]+\]"):
        session.get(LATEST, {"basepath": "/elsewhere"})
    with pytest.raises(RemoteFailureError, match=r"/none at .* \[request \S+\] was answered with"):
        session.get("/none", {})
    with pytest.raises(ServiceUnreachableError, match=r"\[request \S+\]"):
        HttpSession("http://127.0.0.1:1").get("/", {})
