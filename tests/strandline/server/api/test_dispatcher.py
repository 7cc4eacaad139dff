"""``Dispatcher``: tokens, forms of answers, faults of the storage, and the log."""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsview.wire.column_form import COLUMNS
from fsview.wire.marker_form import CREATE_MARKER
from fsview.wire.routes import ROUTES
from strandline.server.api.dispatcher import STATUS
from strandline.server.http.reply import accepted, pretty
from strandline.server.http.server import ServiceServer
from strandline.server.process.composition_root import Parts
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.formats.marker_name import create, marker_name
from tests.kit.servers.live_service import (
    TOKEN,
    AppClient,
    GoldenTables,
    HttpClient,
    parts_of,
    serving,
)
from tests.kit.tables import golden
from timeline.errors import StorageUnavailableError
from timeline.storage.base import FileInfo

TABLES = GoldenTables()
BASE = TABLES.base_path("cow_basic_v9", 7)
PARTITION = "2024-01-01"
VIEW = "/v1/hoodie/view"
LATEST = f"{VIEW}/slices/partition/latest/"
GROUPS = f"{VIEW}/filegroups/all/partition/"
OTHERS = {
    ("GET", "/"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", STATUS),
    ("POST", CREATE_MARKER),
    ("GET", "/v1/hoodie/marker/all"),
    ("POST", "/v1/hoodie/marker/dir/delete"),
    ("GET", "/v1/hoodie/partitioner/getpartitionindex"),
    ("POST", "/v1/hoodie/instantstate/refresh"),
}


class FailingStorage(golden.GoldenStorage):
    """Lists partitions with whatever error it is given."""

    error: Exception = StorageUnavailableError("the disk is away")

    def list(self, path: str) -> tuple[FileInfo, ...]:
        if path == PARTITION:
            raise self.error
        return super().list(path)


@pytest.fixture(scope="module")
def server() -> Iterator[ServiceServer]:
    with serving(TABLES.root, opener=GoldenTables()) as server:
        yield server


@pytest.fixture
def parts() -> Iterator[Parts]:
    parts = parts_of(TABLES.root, opener=TABLES)
    yield parts
    parts.close()


@pytest.fixture
def client(parts: Parts) -> AppClient:
    return AppClient(parts)


def params(**more: str) -> dict[str, str]:
    return TABLES.known("cow_basic_v9", 7) | more


def test_requests_without_the_token_are_refused(server: ServiceServer) -> None:
    for token in (None, "wrong"):
        for path in (*(route.path for route in ROUTES), "/nope", STATUS):
            with HttpClient(server.port, token) as client:
                response = client.request("GET", path, params())
            assert response.status == 401, path
            assert response.headers["www-authenticate"] == "Bearer"
            assert b"bearer token" in response.body
    assert not server.parts.views.open_tables()


def test_a_service_without_a_token_admits_everybody(tmp_path: Path) -> None:
    with serving(str(tmp_path), token=None) as server, HttpClient(server.port, None) as client:
        assert client.ask("GET", STATUS, {})[0] == 200
        assert client.ask("GET", "/", {}) == (200, b"Hello Hudi")


def test_a_route_is_found_by_its_method_with_and_without_a_slash(
    subtests: pytest.Subtests, server: ServiceServer
) -> None:
    for route in sorted({(r.method, r.path) for r in ROUTES} | OTHERS):
        with subtests.test(route=route):
            method, path = route
            bare = path.rstrip("/")
            with HttpClient(server.port) as client:
                for spelled in (bare or "/", f"{bare}/"):
                    assert client.ask(method, spelled, {})[0] != 404
                    other = "POST" if method == "GET" else "GET"
                    assert client.ask(other, spelled, {}) == (404, b"Not found")


def test_the_first_of_repeated_parameters_counts_and_unknown_ones_do_not(
    server: ServiceServer,
) -> None:
    query = f"basepath={BASE}&basepath=/x&odd=1&refreshoff=true&partition={PARTITION}"
    with HttpClient(server.port) as client:
        status, body = client.ask("GET", f"{LATEST}?{query}", {})
    assert status == 200
    assert len(json.loads(body)) == 2


def test_long_answers_are_compressed_if_accepted(client: AppClient) -> None:
    plain = client.request("GET", GROUPS, params(partition=PARTITION))
    zipped = client.request(
        "GET", GROUPS, params(partition=PARTITION), {"Accept-Encoding": "gzip,deflate"}
    )
    assert "content-encoding" not in plain.headers
    assert zipped.headers["content-encoding"] == "gzip"
    assert gzip.decompress(zipped.sent) == plain.body
    assert len(plain.body) >= 1500


@pytest.mark.parametrize("path", ["all", "create-and-merge"])
def test_markers_are_indented_and_compressed_likewise(tmp_path: Path, path: str) -> None:
    parts = parts_of(str(tmp_path))
    base = golden.build("cow_basic_v9", 0, tmp_path / "t")
    folder = f"{base}/.hoodie/.temp/20261121090000000"
    for number in range(50):
        create(parts.markers, folder, marker_name("20261121090000000", number)).result(PATIENCE_S)
    for more in ({}, {"pretty": ""}):
        asked = {"markerdirpath": folder, **more}
        plain, zipped = (
            AppClient(parts).request("GET", f"/v1/hoodie/marker/{path}", asked, headers)
            for headers in ({}, {"Accept-Encoding": "gzip"})
        )
        assert "content-encoding" not in plain.headers
        assert zipped.headers["content-encoding"] == "gzip"
        assert gzip.decompress(zipped.sent) == plain.body
        assert (plain.body == pretty(plain.body)) is bool(more)
    parts.close()


def test_the_status_is_indented_as_asked(client: AppClient) -> None:
    said = client.request("GET", "/v1/strandline/status", {"pretty": "1"}).body
    assert said == pretty(said)


def test_what_an_accept_encoding_header_admits(subtests: pytest.Subtests) -> None:
    for header, zipped in [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("*", True),
        ("gzip; q=0", False),
        ("identity", False),
        ("", False),
    ]:
        with subtests.test(header=header):
            assert accepted(header.encode(), b"*/*") == (zipped, False)


def test_what_an_accept_header_admits(subtests: pytest.Subtests) -> None:
    for header, columns in [
        (COLUMNS, True),
        (COLUMNS.upper(), True),
        (f"application/json, {COLUMNS} ; q=0.5", True),
        (f"{COLUMNS}; q=0", False),
        (f"application/json, {COLUMNS};q=0.000", False),
        (f"{COLUMNS}-v2", False),
        (f"x{COLUMNS}", False),
        ("*/*", False),
    ]:
        with subtests.test(header=header):
            assert accepted(b"", header.encode()) == (False, columns)


def test_pretty_is_jacksons_form() -> None:
    said = b'{"a":[{"b":null,"c":[]},{}],"d":"\xc3\xa9"}'
    assert pretty(said).decode() == (
        '{\n  "a" : [ {\n    "b" : null,\n    "c" : [ ]\n  }, { } ],\n  "d" : "é"\n}'
    )


@pytest.mark.parametrize("path", [GROUPS, STATUS, f"{VIEW}/datafiles/all/latest/"])
def test_head_has_the_headers_and_no_body(server: ServiceServer, path: str) -> None:
    with HttpClient(server.port) as client:
        client.ask("GET", GROUPS, params(partition=PARTITION))  # the last path needs it loaded
        response = client.request("HEAD", path, params(partition=PARTITION))
        assert (response.status, response.body) == (200, b"")
        assert int(response.headers["content-length"]) > 100
        assert client.request("HEAD", CREATE_MARKER).status == 404
        assert client.ask("GET", "/", {}) == (200, b"Hello Hudi")


def test_a_storage_fault_is_5xx_without_a_traceback() -> None:
    parts = parts_of("/golden", opener=lambda path, _: FailingStorage("cow_basic_v9", 7, path))
    response = AppClient(parts).request("GET", LATEST, params(partition=PARTITION))
    assert (response.status, response.body) == (503, b"the disk is away")
    asked = {"Accept": "application/json"}
    answered = AppClient(parts).request("GET", LATEST, params(partition=PARTITION), asked)
    said = json.loads(answered.body)
    assert (said["code"], said["status"]) == ("storage_unavailable", 503)
    assert AppClient(parts).request("GET", LATEST, params(partition="2024-01-02")).body != b"[]"
    parts.close()


def test_an_unforeseen_error_is_logged_and_not_shown(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FailingStorage, "error", RuntimeError("a secret of the inside"))
    parts = parts_of("/golden", opener=lambda path, _: FailingStorage("cow_basic_v9", 7, path))
    with caplog.at_level(logging.ERROR):
        response = AppClient(parts).request("GET", LATEST, params(partition=PARTITION))
    assert (response.status, response.body) == (500, b"Internal server error")
    assert "a secret of the inside" in caplog.text
    assert TOKEN not in caplog.text
    parts.close()


def test_status_counts_requests_and_storage_calls(client: AppClient) -> None:
    for _ in range(3):
        client.request("GET", LATEST, params(partition=PARTITION))
    status = json.loads(client.request("GET", "/v1/strandline/status").body)
    table = status["tables"][f"file://{BASE}"]
    assert status["requests"] == {"latest_file_slices": 3}
    assert table["partitions_loaded"] == 1
    assert table["counters"]["requests{route=latest_file_slices,way=computed}"] == 3
    assert {"kind": "list", "cause": "lookup", "count": 1} in table["storage_calls"]
    assert TOKEN not in json.dumps(status)
