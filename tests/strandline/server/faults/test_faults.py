"""A failing storage, seen over HTTP: 5xx that names the file, while loaded partitions are answered.

Through a running service, its hot path included, and through the app alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache

import pytest

from fsview.table_view import TableView
from fsview.wire.routes import ROUTES, Route
from strandline.server.http.server import ServiceServer
from tests.kit.servers.live_service import Answered, HttpClient, serving
from tests.kit.storage.troubled_storage import (
    Damage,
    TroubledStorage,
    cuts,
    foreign,
    partitions_of,
    table_at,
)
from tests.kit.tables import golden
from timeline.errors import PathNotFoundError, StorageUnavailableError

SCENARIO = "cow_basic_v9"
BASE = "/golden/table"
PARTITION = "2024-01-01"
LATEST = "/v1/hoodie/view/slices/partition/latest/"
REFRESH = "/v1/hoodie/view/refresh/"
OF_PLANS = {"pending_log_compaction_operations", "file_groups_in_pending_clustering"}


@pytest.fixture
def storage() -> TroubledStorage:
    return TroubledStorage(SCENARIO, 2)


@pytest.fixture
def service(storage: TroubledStorage) -> Iterator[ServiceServer]:
    with serving(BASE, opener=lambda _path, _options: storage) as server:
        yield server


@pytest.fixture
def client(service: ServiceServer) -> Iterator[HttpClient]:
    with HttpClient(service.port) as client:
        yield client


@cache
def known(step: int) -> tuple[str, str]:
    """Return the last instant and the hash of a client at a step."""
    timeline = TableView(table_at(SCENARIO, step)).newest().client_timeline
    assert timeline.last is not None
    return timeline.last.requested_time, timeline.hash


def of(step: int, **more: str) -> dict[str, str]:
    """Return the parameters of a client that knows a step."""
    last, hashed = known(step)
    return {
        "basepath": BASE,
        "lastinstantts": last,
        "timelinehash": hashed,
        "partition": PARTITION,
        **more,
    }


def newest_commit(storage: TroubledStorage) -> str:
    """Return the path of the file of the last completed commit."""
    folder = ".hoodie/timeline"
    names = [info.name for info in storage.now.list(folder) if info.name.endswith(".commit")]
    return f"{folder}/{names[-1]}"


def check_told(answered: Answered, named: str) -> None:
    """Check that an error names its cause, and no internals."""
    assert answered.status in (500, 503, 404), answered.body
    text = answered.body.decode()
    assert named in text
    assert "Traceback" not in text
    assert ".py" not in text
    assert "\n" not in text.strip() or answered.headers["content-type"] == "application/json"


def all_damages(storage: TroubledStorage) -> list[Damage]:
    path = newest_commit(storage)
    found = [*cuts(storage.now.read(path)), *foreign(path, storage.now.read(path))]
    return [damage for damage in found if damage.data or damage.error]


def test_a_damaged_commit_is_named_and_older_clients_are_answered(
    storage: TroubledStorage, client: HttpClient
) -> None:
    held = client.request("GET", LATEST, of(2))
    assert held.status == 200
    storage.step(3)
    path = newest_commit(storage)
    name = path.rpartition("/")[2]
    for damage in all_damages(storage):
        with storage.damaged(path, damage):
            refused = client.request("GET", LATEST, of(3))
            check_told(refused, name)
            assert refused.status == {PathNotFoundError: 404, StorageUnavailableError: 503}.get(
                damage.error or Exception, 500
            )
            shaped = client.request("GET", LATEST, of(3), {"Accept": "application/json"})
            check_told(shaped, name)
            said = json.loads(shaped.body)
            assert (said["status"], said["title"]) == (refused.status, refused.body.decode())
            assert client.request("GET", LATEST, of(2)).body == held.body
            check_told(client.request("POST", REFRESH, of(3)), name)
    caught_up = client.request("GET", LATEST, of(3))
    assert caught_up.status == 200
    assert caught_up.body != held.body
    assert client.request("GET", LATEST, of(2)).body == held.body


def test_while_the_storage_is_away_all_that_is_held_is_answered(
    storage: TroubledStorage, service: ServiceServer, client: HttpClient
) -> None:
    """Every route, by the hot path and by the long way, answers as before and asks no storage.

    But for the two about plans, which look at the timeline each time: a plan that only storage has
    must not be missed.
    """
    asked = [(route, of(2, **arguments(route))) for route in ROUTES if route.method == "GET"]
    client.request("POST", "/v1/hoodie/view/loadallpartitions/", of(2))
    for partition in partitions_of(SCENARIO):
        client.request("GET", LATEST, of(2, partition=partition))
    before = [client.request("GET", route.path, params) for route, params in asked]
    assert {answered.status for answered in before} == {200}
    hot = sum(service.parts.hot.counts.values())

    def away(_nth: int, kind: str, path: str) -> None:
        raise StorageUnavailableError(f"injected: {kind} {path}")

    with storage.acting(away):
        for (route, params), answered in zip(asked, before, strict=True):
            again = client.request("GET", route.path, params)
            if route.name in OF_PLANS:
                check_told(again, "injected: list .hoodie/timeline")
                continue
            assert (again.status, again.body) == (200, answered.body), route.name
            indented = client.request("GET", route.path, {**params, "pretty": ""})
            assert json.loads(indented.body) == json.loads(answered.body)
        check_told(client.request("GET", LATEST, of(3)), "injected: list .hoodie/timeline")
        health = client.request("GET", "/healthz")
        assert (health.status, b"injected: stat" in health.body) == (503, True)
        status = json.loads(client.request("GET", "/v1/strandline/status").body)
        assert f"file://{BASE}" in status["tables"]
    assert sum(service.parts.hot.counts.values()) > hot


def arguments(route: Route) -> dict[str, str]:
    """Return something for every parameter that a route needs."""
    base_file = next(
        entry.path.rpartition("/")[2]
        for entry in golden.listing(SCENARIO, 2)
        if entry.path.startswith(PARTITION) and entry.path.endswith(".parquet")
    )
    file_id, _, rest = base_file.partition("_")
    values = {
        "partition": PARTITION,
        "fileid": file_id,
        "instant": rest.rpartition("_")[2].removesuffix(".parquet"),
        "includependingcompaction": "true",
        "includefilesinpendingcompaction": "true",
    }
    return {param.name: values.get(param.name, known(2)[0]) for param in route.params}
