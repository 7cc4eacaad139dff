"""Each answer of 400 or more is counted, and logged with its reason at a bounded rate."""

from __future__ import annotations

import logging
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import orjson
import pytest

from strandline.server.http.refusals import CLIENTS, KEYS, PERIOD_S, Refusal, Refusals
from strandline.server.http.server import ServiceServer
from strandline.server.http.server_options import ServerOptions
from strandline.server.process.composition_root import Parts
from strandline.server.process.options import PartsOptions
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.servers.live_service import TOKEN, HttpClient, running
from tests.kit.servers.raw_http import RawConnection, request
from tests.kit.tables import golden

VIEW = "/v1/hoodie/view"
FILES = f"{VIEW}/datafiles/latest/partition"
MINUTE_MS = round(PERIOD_S * 1000)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(0)


@pytest.fixture
def refusals(clock: ManualClock) -> Refusals:
    return Refusals(clock, ["/", FILES, f"{VIEW}/refresh/"])


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, "strandline.server.http.refusals")
    return caplog


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the refusals logged since the last call."""
    found = [r.getMessage() for r in caplog.records if r.name == "strandline.server.http.refusals"]
    caplog.clear()
    return found


def one(number: int = 0, **more: Any) -> Refusal:
    """Return a refusal of an admitted client."""
    said = {"code": "input", "table": "/t", "peer": "10.0.0.7", "admitted": True, **more}
    return Refusal(400, **{"reason": f"reason {number}", "path": FILES, **said})


def test_a_refusal_is_logged_at_once_and_repeats_once_a_minute(
    clock: ManualClock, refusals: Refusals, lines: pytest.LogCaptureFixture
) -> None:
    for number in range(58):
        refusals.note(one(number))
        clock.advance(1000)
    assert told(lines) == ["400 input to 10.0.0.7 for table /t: reason 0"]
    clock.advance(2000)
    refusals.log_due()
    left_out = "400 input, 57 more in 60 s, the last to 10.0.0.7 for table /t: reason 57"
    assert told(lines) == [left_out]
    refusals.note(one(58))
    clock.advance(MINUTE_MS)
    refusals.log_due()
    assert told(lines) == [
        "400 input, 1 more in 60 s, the last to 10.0.0.7 for table /t: reason 58"
    ]
    # A minute without any, and it is told at once again.
    clock.advance(MINUTE_MS)
    refusals.log_due()
    assert told(lines) == []
    refusals.note(one(59))
    assert told(lines) == ["400 input to 10.0.0.7 for table /t: reason 59"]


def test_the_rest_is_logged_at_the_end(
    clock: ManualClock, refusals: Refusals, lines: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        refusals.note(one(number))
    refusals.note(one(code="view_behind"))
    clock.advance(7000)
    told(lines)
    refusals.log_rest()
    assert told(lines) == ["400 input, 2 more in 7 s, the last to 10.0.0.7 for table /t: reason 2"]


@pytest.mark.parametrize("other", [{"code": "view_behind"}, {"table": "/u"}, {"peer": "::1"}])
def test_codes_tables_and_peers_are_logged_separately(
    refusals: Refusals, lines: pytest.LogCaptureFixture, other: dict[str, str]
) -> None:
    for number in range(3):
        refusals.note(one(number))
        refusals.note(one(number, **other))
    assert len(told(lines)) == 2


def test_clients_that_are_not_admitted_are_logged_by_code_alone(
    clock: ManualClock, refusals: Refusals, lines: pytest.LogCaptureFixture
) -> None:
    for number in range(3 * KEYS):
        refusals.note(one(number, table=f"/{number}", peer=f"10.0.0.{number}", admitted=False))
    assert told(lines) == ["400 input to 10.0.0.0 for table /0: reason 0"]
    refusals.note(one())
    assert len(told(lines)) == 1, "an admitted one isn't left out for that"


def test_at_most_a_thousand_kinds_are_logged_in_a_minute(
    clock: ManualClock, refusals: Refusals, lines: pytest.LogCaptureFixture
) -> None:
    """An admitted client can name any number of tables; the log has so many lines and one."""
    for number in range(3 * KEYS):
        refusals.note(one(table=f"/{number}"))
    assert len(told(lines)) == KEYS + 1
    clock.advance(MINUTE_MS)
    refusals.log_due()
    (line,) = told(lines)
    assert line.startswith(f"400 input, {2 * KEYS - 1} more in 60 s, the last to 10.0.0.7")
    refusals.note(one(table="/another"))
    assert len(told(lines)) == 1


def test_a_line_has_the_ends_of_what_is_long(
    refusals: Refusals, lines: pytest.LogCaptureFixture
) -> None:
    refusals.note(Refusal(400, "a" * 9_000 + "end", table="/t" * 9_000, admitted=True))
    (line,) = told(lines)
    assert len(line) < 800
    assert line.endswith("end")


def test_secrets_in_base_paths_are_not_shown(
    refusals: Refusals, lines: pytest.LogCaptureFixture
) -> None:
    table = "s3a://KEY:SECRET@bucket/t"
    refusals.note(one(table=table, reason=f"no table at {table} (see {table})"))
    (line,), (row,) = told(lines), refusals.newest()
    assert "SECRET" not in f"{line} {row}"
    assert row["table"] == "s3a://KEY:***@bucket/t"
    azure = "abfss://container@account/t"
    refusals.note(one(table=azure))
    assert refusals.newest()[0]["table"] == azure


@pytest.mark.property
def test_what_is_kept_of_refusals_is_no_more_than_a_line_of_each(
    refusals: Refusals, caplog: pytest.LogCaptureFixture
) -> None:
    """An admitted client chooses path, table and, by those, the reason: 64 KiB each."""
    caplog.set_level(logging.CRITICAL, "strandline.server.http.refusals")  # it keeps all it hears
    long = 60_000 * "x"
    tracemalloc.start()
    try:
        for number in range(2 * KEYS):
            said = f"/{number // 2}{long}"
            # Each is told, then left out.
            refusals.note(Refusal(404, said, "input", said, said, "10.0.0.7", admitted=True))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < KEYS * 4_096


def test_refusals_are_counted_by_route_status_and_code(refusals: Refusals) -> None:
    for path in (FILES, f"{FILES}/", "/x", "/y", "", "/", f"{VIEW}/refresh"):
        refusals.note(Refusal(404, "none", path=path))
    refusals.note(one())
    assert refusals.status() == [
        {"route": "/", "status": 404, "code": "not_found", "count": 1},
        {"route": FILES, "status": 400, "code": "input", "count": 1},
        {"route": FILES, "status": 404, "code": "not_found", "count": 2},
        {"route": f"{VIEW}/refresh", "status": 404, "code": "not_found", "count": 1},
        {"route": "other", "status": 404, "code": "not_found", "count": 3},
    ]


# Of a service.


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden.build("cow_basic_v9", 7, tmp_path_factory.mktemp("lake") / "t")


@pytest.fixture
def server(base: Path, clock: ManualClock) -> Iterator[ServiceServer]:
    parts = Parts(PartsOptions((str(base.parent),), TOKEN), clock=clock)
    with running(ServiceServer(parts, ServerOptions())) as server:
        yield server


def counted(server: ServiceServer) -> set[tuple[str, int, str, int]]:
    with HttpClient(server.port) as client:
        status = orjson.loads(client.ask("GET", "/v1/strandline/status", {})[1])
    return {tuple(row.values()) for row in status["refusals"]}


def test_the_first_tables_and_clients_are_counted_each(refusals: Refusals) -> None:
    """Clients that aren't admitted take no place of others; none moves to another place."""
    for number in range(CLIENTS + 3):
        for admitted in (True, False):
            refusals.note(one(table=f"/t{number}", admitted=admitted, code=f"of {admitted}"))
    refusals.note(one(table="/t0", code="of True"))
    refusals.note(one(table="", code="none", admitted=False))
    counted = {tuple(each.values())[:3]: each["count"] for each in refusals.by_client()}
    assert counted["of True", "file:///t0", "10.0.0.7"] == 2
    for admitted in (True, False):
        assert counted[f"of {admitted}", f"file:///t{CLIENTS - 1}", "10.0.0.7"] == 1
        assert counted[f"of {admitted}", "other", "other"] == 3
    assert counted["none", "other", "other"] == 1
    assert len(counted) == 2 * CLIENTS + 3
    assert sum(counted.values()) == 2 * (CLIENTS + 3) + 2


def test_a_relative_path_is_shown_as_it_is(
    refusals: Refusals, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The server's folder is no client's affair, and may be gone."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    refusals.note(one(table="lake/t", code="x"))
    assert [each["table"] for each in refusals.by_client()] == ["lake/t"]


def test_a_job_outside_the_roots_is_logged(
    server: ServiceServer, base: Path, lines: pytest.LogCaptureFixture
) -> None:
    """The job's own log has only the status, and the answer doesn't name the roots."""
    outside = base.parent.parent / "other"
    with HttpClient(server.port) as client:
        for _ in range(20):
            asked = {"basepath": str(outside), "lastinstantts": "1", "timelinehash": "x"}
            assert client.ask("GET", FILES, asked)[0] == 403
    (line,) = told(lines)
    assert line.startswith(f"403 root_not_allowed to 127.0.0.1 for table {outside}: base path")
    assert str(base.parent) in line
    assert counted(server) == {(FILES, 403, "root_not_allowed", 20)}


def test_every_refusal_is_counted_and_logged(
    server: ServiceServer, base: Path, clock: ManualClock, lines: pytest.LogCaptureFixture
) -> None:
    behind = urlencode({"basepath": str(base), "lastinstantts": "1", "timelinehash": "x"})
    markers, refresh = "/v1/hoodie/marker", f"{VIEW}/refresh"
    create = f"{markers}/create"
    for data, status, code, route in (
        (request(f"{FILES}?{behind}"), 401, "unauthorized", FILES),
        (request(f"{FILES}?{behind}", token=TOKEN), 400, "view_behind", FILES),
        (request("/nope", token=TOKEN), 404, "not_found", "other"),
        (request(create, method="POST", token=TOKEN), 400, "input", create),
        (request(f"{markers}/all", token=TOKEN), 400, "input", f"{markers}/all"),
        (request(refresh, "Origin: x", method="POST"), 403, "forbidden", refresh),
        (request(FILES, "Host: h", token=TOKEN), 400, "bad_request", FILES),
        (request(FILES, *["X: y"] * 200), 431, "request_header_fields_too_large", "other"),
        (b"\0\r\n\r\n", 400, "bad_request", "other"),
    ):
        clock.advance(MINUTE_MS)  # so that the log isn't spared any
        before = counted(server)
        told(lines)
        with RawConnection(server.port) as raw:
            assert raw.ask(data).status == status
        (row,) = counted(server) - before
        assert row[:3] == (route, status, code)
        (line,) = told(lines)
        assert line.startswith(f"{status} {code} to 127.0.0.1")


def test_refused_probes_are_counted_and_logged_by_readiness(
    server: ServiceServer, lines: pytest.LogCaptureFixture
) -> None:
    server.parts.readiness.stopping = True
    with HttpClient(server.port) as client:
        assert client.ask("GET", "/healthz", {})[0] == 503
    assert counted(server) == {("/healthz", 503, "service_unavailable", 1)}
    assert told(lines) == []
