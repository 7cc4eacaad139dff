"""A root that is removed while requests run: they are refused or answered, and nothing is left."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from strandline.service.http.server import ServiceServer
from tests.kit import golden
from tests.kit.live_service import HttpClient, known, serving
from tests.kit.marker_name import marker_name
from timeline.storage.base import Storage
from timeline.storage.local import LocalStorage

LATEST = "/v1/hoodie/view/datafiles/latest/partition/"
LOOKUP = "/v1/strandline/lookup"
CREATE = "/v1/hoodie/marker/create"
PARTITION = "2024-01-01"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for name in ("gone", "kept"):
        golden.build("cow_basic_v9", 7, tmp_path / name)
    return tmp_path


def gated() -> type:
    """Return a class of local tables whose listings of the partition wait until they may go on."""

    class Gated(LocalStorage):
        began, go_on = threading.Event(), threading.Event()

        def list(self, path):
            if path == PARTITION:
                self.began.set()
                assert self.go_on.wait(20)
            return super().list(path)

    return Gated


@pytest.fixture
def server(lake: Path) -> Iterator[ServiceServer]:
    with serving(f"{lake}/gone", f"{lake}/kept") as server:
        yield server


def params(base: Path) -> dict[str, str]:
    return known(LocalStorage(str(base)), partition=PARTITION)


def test_ready_answers_of_a_removed_root_are_not_sent_any_more(
    server: ServiceServer, lake: Path
) -> None:
    parts = server.parts
    with HttpClient(server.port) as http:
        for _ in range(3):
            for table in ("gone", "kept"):
                assert http.ask("GET", LATEST, params(lake / table))[0] == 200
        before = parts.status()
        assert {table for table, _ in parts.hot.counts} == set(parts.views.open_tables())
        parts.remove_root(f"{lake}/gone")
        assert http.ask("GET", LATEST, params(lake / "gone"))[0] == 403
        assert http.ask("GET", LATEST, params(lake / "kept"))[0] == 200
        after = parts.status()
    assert (before["roots"], after["roots"]) == ([f"{lake}/gone", f"{lake}/kept"], [f"{lake}/kept"])
    assert list(after["tables"]) == [f"file://{lake}/kept"]
    assert {table for table, _ in parts.hot.counts} == set(parts.views.open_tables())
    assert before["ready_answers"]["answers"] == 2 * after["ready_answers"]["answers"] == 2
    assert before["ready_answers"]["bytes"] > after["ready_answers"]["bytes"]
    # The service's totals stay true; no counter of the table is left.
    assert after["requests"]["latest_base_files"] == before["requests"]["latest_base_files"] + 1
    labels = {dict(labels).get("table") for _, labels in parts.metrics.counts()}
    assert labels == {None, f"file://{lake}/kept"}


@pytest.mark.parametrize("path", [LATEST, LOOKUP])
def test_a_request_under_way_is_refused_like_one_of_a_foreign_root(lake: Path, path: str) -> None:
    gate = gated()

    def opener(base_path: str, _: object) -> Storage:
        storage: Storage = gate(base_path)
        return storage

    with serving(f"{lake}/gone", opener=opener) as server, ThreadPoolExecutor(1) as pool:

        def ask() -> tuple[int, bytes]:
            with HttpClient(server.port) as http:
                if path == LATEST:
                    return http.ask("GET", LATEST, params(lake / "gone"))
                return batch(http, lake / "gone")

        asked = pool.submit(ask)
        assert gate.began.wait(20)
        server.parts.remove_root(f"{lake}/gone")
        gate.go_on.set()
        status, body = asked.result(20)
        assert status == 403, body
        assert b"root" in body
        assert server.parts.views.stores.budget.used == 0


def batch(http: HttpClient, base: Path) -> tuple[int, bytes]:
    """Ask for a partition's files in a batched look-up."""
    body = b'{"queries": [{"query": "latest_base_files", "partitions": ["2024-01-01"]}]}'
    headers = {"Authorization": f"Bearer {http.token}", "Content-Type": "application/json"}
    query = "&".join(f"{k}={v}" for k, v in params(base).items() if k != "partition")
    http.connection.request("POST", f"{LOOKUP}?{query}", body, headers)
    response = http.connection.getresponse()
    return response.status, response.read()


def test_markers_of_a_removed_root_are_refused(server: ServiceServer, lake: Path) -> None:
    instant = "20261121090000000"

    def create(http: HttpClient, table: str, file_id: str) -> tuple[int, bytes]:
        folder = f"{lake}/{table}/.hoodie/.temp/{instant}"
        name = marker_name(instant, file_id, PARTITION)
        return http.ask("POST", CREATE, {"markerdirpath": folder, "markername": name})

    markers = server.parts.markers
    with HttpClient(server.port) as http:
        for table in ("gone", "kept"):
            assert create(http, table, "a") == (200, b"true")
        assert markers.status()["directories"] == 2
        server.parts.remove_root(f"{lake}/gone")
        assert markers.status()["directories"] == 1
        assert create(http, "kept", "b") == (200, b"true")
        assert create(http, "gone", "b")[0] == 403


def test_a_deleted_table_keeps_the_service_ready_once_its_root_is_removed(
    server: ServiceServer, lake: Path
) -> None:
    (lake / "gone").rename(lake / "elsewhere")
    server.parts.readiness._kept_s = 0
    with HttpClient(server.port) as http:
        status, body = http.ask("GET", "/healthz", {})
        assert (status, f"root {lake}/gone".encode() in body) == (503, True)
        server.parts.remove_root(f"{lake}/gone")
        assert http.ask("GET", "/healthz", {})[0] == 200
    assert not any("gone" in name for name in server.parts.readiness._states)


def test_flink_messages_of_a_table_are_listed_anew_when_its_root_is_added_again(
    server: ServiceServer, lake: Path
) -> None:
    folder = lake / "gone" / ".hoodie" / ".aux" / "ckp_meta"
    folder.mkdir(parents=True)
    (folder / "1.INFLIGHT").touch()
    states = server.parts.instant_states
    assert [state.instant for state in states.all(str(folder))] == ["1"]
    (folder / "1.INFLIGHT").rename(folder / "2.INFLIGHT")
    server.parts.remove_root(f"{lake}/gone")
    server.parts.views.add_root(f"{lake}/gone")
    assert [state.instant for state in states.all(str(folder))] == ["2"]
