"""Limits of the server for one request: bytes, headers, targets, bodies, and the settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline import TimelineService
from strandline.server.http.limits import Limits
from strandline.server.http.server import ServiceServer
from strandline.server.http.server_options import ServerOptions
from strandline.server.process.options import Birth, PartsOptions
from strandline.settings.service import SERVICE_SETTINGS
from strandline.settings.setting import Settings
from tests.kit.servers.live_service import TOKEN
from tests.kit.servers.raw_http import RawConnection, request
from tests.kit.tables import golden
from tests.strandline.server.http.limited_server import connections, limited, refused


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([f"X-{n}: y" for n in range(300)], "more than 100 headers"),
        (["X-A: " + "y" * (1 << 16)], "headers of more than 65536 bytes"),
        (["X" * (1 << 16) + ": y"], "headers of more than 65536 bytes"),
        ([f"X-{n}: " + "y" * 1000 for n in range(70)], "headers of more than 65536 bytes"),
    ],
)
def test_too_many_headers_are_refused(usual: ServiceServer, lines: list[str], said: str) -> None:
    answer = refused(usual, request("/", *lines, token=TOKEN))
    assert (answer.status, answer.body) == (431, said.encode())


@pytest.mark.parametrize(
    "endless", [b"X-A: " + b"y" * (1 << 20), b"y" * (1 << 20), b"X-A: y\r\n" * (1 << 18)]
)
def test_headers_without_an_end_are_refused_before_it(usual: ServiceServer, endless: bytes) -> None:
    answer = refused(usual, b"GET / HTTP/1.1\r\nHost: h\r\n" + endless)
    assert answer.status == 431


def test_as_many_headers_as_allowed_are_taken(usual: ServiceServer) -> None:
    lines = [f"X-{n}: " + "y" * 600 for n in range(98)]
    with RawConnection(usual.port) as raw:
        assert raw.ask(request("/", *lines, token=TOKEN)).status == 200
        long = f"/?x={'y' * (1 << 20)}"
        assert raw.ask(request(long, *lines, token=TOKEN)).status == 200


def test_a_long_target_is_refused() -> None:
    with limited(target_bytes=1000) as server:
        with RawConnection(server.port) as raw:
            assert raw.ask(request("/?x=" + "y" * 996, token=TOKEN)).status == 200
        answer = refused(server, request("/?x=" + "y" * 997, token=TOKEN))
        assert (answer.status, answer.body) == (414, b"request target of more than 1000 bytes")
        endless = refused(server, b"GET /?" + b"x" * (1 << 20))
        assert endless.status == 414
        assert connections(server)["refused_414"] == 2


def test_a_long_body_is_refused_by_its_announced_length() -> None:
    with limited(body_bytes=1000) as server:
        with RawConnection(server.port) as raw:
            for _ in range(2):
                sent = request("/", token=TOKEN, method="POST", body=b"x" * 1000)
                assert raw.ask(sent).status == 404
        sent = request("/", token=TOKEN, method="POST", body=b"x" * 1001)
        answer = refused(server, sent)
        assert (answer.status, answer.body) == (413, b"body of more than 1000 bytes")


def chunked(body: bytes) -> bytes:
    head = request("/nowhere", "Transfer-Encoding: chunked", method="POST", token=TOKEN)
    return head + body


@pytest.mark.parametrize(
    "endless",
    [
        b"400\r\n" + b"x" * 1024 + b"\r\n" + b"1\r\nx\r\n" * 100,
        b"1\r\nx\r\n" * 100_000,
        b"1;" + b"y" * (1 << 20),
        b"0\r\nX-Trailer: " + b"y" * (1 << 20),
        b"0\r\n" + b"X-Trailer: y\r\n" * 100_000,
    ],
)
def test_a_body_without_an_end_ends_the_connection(endless: bytes) -> None:
    """It was answered at once, as its route reads no body; there is no second answer."""
    with limited(body_bytes=1000) as server, RawConnection(server.port) as raw:
        raw.send_what_is_taken(chunked(endless))
        answer = raw.answer()
        assert answer is not None
        assert answer.status == 404
        assert raw.rest() == b""


def test_a_trailer_is_dropped(usual: ServiceServer) -> None:
    with RawConnection(usual.port) as raw:
        for _ in range(2):
            assert raw.ask(chunked(b"1\r\nx\r\n0\r\nX-Trailer: y\r\n\r\n")).status == 404


@pytest.mark.property
def test_limits_and_networks_reach_a_child(tmp_path: Path) -> None:
    golden.build("cow_basic_v9", 7, tmp_path / "t")
    named = {
        "strandline.service.header.max.count": "20",
        "strandline.service.admit.networks": "127.0.0.0/8=reads, ::1",
    }
    settings = Settings.parse(named, SERVICE_SETTINGS)
    birth = Birth(
        PartsOptions(("/t",), "s", admit_networks="127.0.0.0/8=reads"),
        ServerOptions.of(settings, "127.0.0.1", 0),
    )
    assert Birth.of_line(birth.to_line()) == birth
    with TimelineService([str(tmp_path)], settings=settings) as service:
        with RawConnection(int(service.url.rpartition(":")[2])) as raw:
            assert raw.ask(request("/v1/strandline/status")).status == 200
            assert raw.ask(request("/v1/hoodie/marker/all")).status == 401
        with RawConnection(int(service.url.rpartition(":")[2])) as raw:
            assert raw.ask(request("/", *(f"X-{n}: y" for n in range(30)))).status == 431
        assert service.status()["connections"]["refused_431"] == 1


def test_limits_are_settings() -> None:
    named = {
        "strandline.service.request.line.max.bytes": "10000",
        "strandline.service.header.max.bytes": "10001",
        "strandline.service.header.max.count": "102",
        "strandline.service.body.max.bytes": "103",
        "strandline.service.request.timeout.secs": "1.5",
        "strandline.service.write.timeout.secs": "2.5",
        "strandline.service.connections.max": "106",
        "strandline.service.pipelined.max": "107",
    }
    settings = Settings.parse(named, SERVICE_SETTINGS)
    expected = Limits(10000, 10001, 102, 103, 1.5, 2.5, 106, 107)
    assert ServerOptions.of(settings, "::1", 0).limits == expected
    assert Settings({}, {}).read(Limits) == Limits()
