"""``ServiceServer``: binding, marker creations that wait together, shutdown."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from strandline.server.http.server import ServiceServer
from strandline.server.http.server_options import ServerOptions, bind
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.formats.marker_name import marker_name
from tests.kit.servers.live_service import GoldenTables, HttpClient, parts_of, serving
from tests.kit.tables import golden
from timeline.errors import ConfigError
from timeline.storage.base import FileInfo, Storage
from timeline.storage.local import LocalStorage

CREATE = "/v1/hoodie/marker/create"
INSTANT = "20261121090000000"
TABLES = GoldenTables()


class Slow(golden.GoldenStorage):
    """Lists a partition when it is let go."""

    began = threading.Event()
    go = threading.Event()

    def list(self, path: str) -> tuple[FileInfo, ...]:
        if path == "2024-01-01":
            self.began.set()
            assert self.go.wait(PATIENCE_S)
        return super().list(path)


class HeldMarkers(LocalStorage):
    """Writes markers when it is let go."""

    go = threading.Event()

    def create(self, path: str, data: bytes = b"") -> None:
        assert self.go.wait(PATIENCE_S)
        super().create(path, data)


def test_a_port_in_use_is_refused_in_one_line() -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError) as caught:
            bind("127.0.0.1", port)
    assert str(caught.value) == f"can't listen on 127.0.0.1 port {port}: Address already in use"


def test_a_host_that_is_not_ours_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"can't listen on 192\.0\.2\.1 port 0: Cannot assign"):
        bind("192.0.2.1", 0)
    for host in ("no such host", "a" * 64, "a..b"):
        with pytest.raises(ConfigError, match=f"host '{host}' is no address of this machine"):
            bind(host, 0)


def test_only_the_given_address_is_bound() -> None:
    with serving("/golden", opener=TABLES, host="127.0.0.2") as server:
        assert server.url == f"http://127.0.0.2:{server.port}"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.port), timeout=5)
        socket.create_connection(("127.0.0.2", server.port), timeout=5).close()


def test_ipv6_addresses_are_bracketed() -> None:
    with serving("/golden", opener=TABLES, host="::1") as server:
        assert server.url == f"http://[::1]:{server.port}"
        socket.create_connection(("::1", server.port), timeout=5).close()


def test_waiting_markers_hold_no_thread(tmp_path: Path) -> None:
    """Sixty creations wait at once on a server of two threads, which still answers others."""
    golden.build("cow_basic_v9", 1, tmp_path / "t")

    def opener(path: str, options: Mapping[str, Any] | None) -> Storage:
        return HeldMarkers(path)

    directory = f"{tmp_path}/t/.hoodie/.temp/{INSTANT}"
    with serving(str(tmp_path), opener=opener, threads=2) as server:
        clients = [HttpClient(server.port) for _ in range(60)]

        def create(number: int) -> bytes:
            asked = {"markerdirpath": directory, "markername": marker_name(INSTANT, number % 50)}
            return clients[number].ask("POST", CREATE, asked)[1]

        with ThreadPoolExecutor(60) as pool, HttpClient(server.port) as other:
            answers = [pool.submit(create, number) for number in range(60)]
            assert other.ask("GET", "/v1/strandline/status", {})[0] == 200
            HeldMarkers.go.set()
            bodies = [answer.result() for answer in answers]
            assert (bodies.count(b"true"), bodies.count(b"false")) == (50, 10)
            names = other.ask("GET", "/v1/hoodie/marker/all", {"markerdirpath": directory})[1]
        assert names.count(b"marker") == 50
        for client in clients:
            client.connection.close()


@pytest.mark.parametrize(
    ("asked", "status", "part"),
    [
        ({"markername": marker_name(INSTANT)}, 400, b"'markerdirpath' is missing"),
        ({"markerdirpath": f"/golden/t/.hoodie/.temp/{INSTANT}"}, 400, b"'markername' is missing"),
        ({"markerdirpath": "/golden/t", "markername": "a"}, 400, b"markerdirpath is '/golden/t'"),
        (
            {"markerdirpath": f"/x/.hoodie/.temp/{INSTANT}", "markername": marker_name(INSTANT)},
            403,
            b"outside",
        ),
        (
            {"markerdirpath": f"/x/.hoodie/.temp/{INSTANT}", "markername": "a"},
            400,
            b"markername is 'a'",
        ),
    ],
)
def test_markers_in_wrong_places_are_refused(
    asked: dict[str, str], status: int, part: bytes
) -> None:
    with serving("/golden", opener=TABLES) as server, HttpClient(server.port) as client:
        answered = client.request("POST", CREATE, asked)
        assert (answered.status, part in answered.body) == (status, True)
        client.token = None
        assert client.request("POST", CREATE, asked).status == 401


def test_an_answer_in_flight_is_finished_when_the_service_stops() -> None:
    Slow.began.clear()
    Slow.go.clear()
    parts = parts_of("/golden", opener=lambda path, _: Slow("cow_basic_v9", 7, path))
    server = ServiceServer(parts, ServerOptions(grace_s=20))
    thread = server.start_thread()
    asked = {"basepath": "/golden/t", "partition": "2024-01-01", "refreshoff": "true"}
    path = "/v1/hoodie/view/slices/partition/latest/"
    port = server.port
    with HttpClient(server.port) as client, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(client.ask, "GET", path, asked)
        assert Slow.began.wait(PATIENCE_S)
        server.stop()
        Slow.go.set()
        status, body = answer.result()
        assert (status, body.count(b'"baseFile"')) == (200, 2)
    thread.join(PATIENCE_S)
    assert server.wait(0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_an_answer_that_never_comes_does_not_hold_the_end_up() -> None:
    Slow.began.clear()
    Slow.go.clear()
    parts = parts_of("/golden", opener=lambda path, _: Slow("cow_basic_v9", 7, path))
    server = ServiceServer(parts, ServerOptions(grace_s=0.05))
    thread = server.start_thread()
    asked = {"basepath": "/golden/t", "partition": "2024-01-01", "refreshoff": "true"}
    with HttpClient(server.port) as client, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(client.ask, "GET", "/v1/hoodie/view/slices/all", asked)
        assert Slow.began.wait(PATIENCE_S)
        server.stop()
        thread.join(PATIENCE_S)
        assert server.wait(0)
        Slow.go.set()
        assert answer.result() == (503, b"the service is stopping")


def test_a_server_stopped_before_it_runs_ends_at_once() -> None:
    server = ServiceServer(parts_of("/golden", opener=TABLES), ServerOptions())
    server.stop()
    server.run()
    assert server.wait(0)
