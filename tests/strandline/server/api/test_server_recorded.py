"""Recordings of Hudi's server apart from the tables' steps, replayed in every way to run a service.

Odd requests, markers, a table replaced in place under its clients, the raw requests of Java's
client. Where ours is better, on purpose: a client that is behind is answered at its own instant
where that is sound, and ``refresh/`` syncs at once and never drops a view.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, quote_plus

import orjson
import pytest

from fsview.wire.routes import BY_NAME
from strandline.server.api.routes import PARTITION_INDEX
from tests.conformance.view_suite import canonical, without_times
from tests.kit.servers.golden_services import WAYS, GoldenLake, InPlace, Service, running_as
from tests.kit.servers.live_service import HttpClient
from tests.kit.tables import golden
from tests.strandline.server.api.recorded import (
    BETTER,
    REFUSED,
    answer,
    check_answer,
    check_conversation,
    check_tree,
    meant,
)

REFRESHED = [name for name in golden.server_names() if name.startswith("refresh_")]
CLEANED = [name for name in REFRESHED if "cleanonly" in name]
TRACES = [name for name in golden.server_names() if name.startswith("client_trace")]
MARKS = {"child": pytest.mark.property, "process": pytest.mark.property}
TRACED = {"mor_basic_v6": 7, "mor_basic_v9": 7, "special_cow_v6": 2}
"""Table → the step that its client's requests were traced at."""


@pytest.fixture(
    scope="module",
    # What differs between the child and serve's process is how they are told things.
    params=[pytest.param(way, marks=MARKS.get(way, ())) for way in WAYS],
)
def service(
    request: pytest.FixtureRequest, lake: GoldenLake, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    log = tmp_path_factory.mktemp("log") / "log"
    with running_as(request.param, lake.root, log) as service:
        yield service


# Odd requests and markers.


def test_odd_requests_are_answered_as_recorded_or_better(
    service: Service, lake: GoldenLake
) -> None:
    base = lake.base_path("cow_basic_v9", 7)
    recorded = golden.server_recording("errors", base=base).exchanges
    assert BETTER.keys() <= {exchange.n for exchange in recorded}
    with service.client(base) as client:
        for exchange in recorded:
            asked = exchange.raw["request_headers"]
            answered = client.request(exchange.method, exchange.path, exchange.params, asked)
            check_answer(exchange, answered.status, answered.headers, answered.body)


@pytest.mark.parametrize("release", ["1.2.0", "0.15.0"])
def test_markers_and_partitioner_answer_as_recorded(
    service: Service, lake: GoldenLake, release: str
) -> None:
    """But for Java's faults: ``REFUSED``, and commas in files."""
    base = lake.root / f"markers-{release}"
    shutil.rmtree(base, ignore_errors=True)
    golden.build("cow_basic_v9", 1, base)
    recorded = golden.server_recording(f"markers_{release}", base=str(base)).exchanges
    temp = base / ".hoodie" / ".temp"
    found_on_disk = "".join(f"{m}\n" for m in answer(recorded, "dir found on disk", "all"))
    for instant, file, text in (
        ("20261121091111111", "MARKERS.type", "TIMELINE_SERVER_BASED"),
        ("20261121091111111", "MARKERS7", found_on_disk),
        ("20261121092222222", "p/f.parquet.marker.CREATE", ""),
    ):
        (temp / instant / file).parent.mkdir(parents=True, exist_ok=True)
        (temp / instant / file).write_text(text)
    with service.client() as client:
        for exchange in recorded:
            status, body = client.ask(exchange.method, exchange.path, exchange.params)
            if exchange.phase in REFUSED or not exchange.params:
                assert (status, REFUSED.get(exchange.phase, b"") in body) == (400, True), exchange
            elif release == "0.15.0" and exchange.path == PARTITION_INDEX:
                assert (status, exchange.status) == (200, 404)
            else:
                assert status == exchange.status, exchange
                if status == 200:
                    assert meant(orjson.loads(body)) == meant(exchange.body), exchange
                    check_tree(temp, exchange)


def test_instant_states_answer_as_recorded(service: Service, lake: GoldenLake) -> None:
    with service.client() as client:
        check_conversation(client, lake.root / f"messages-{service.port}")


# A table replaced in place.


def as_told(body: object) -> object:
    """Return a body without files' times, which a view that synced from commits lacks."""
    return canonical(without_times(body))


@pytest.fixture
def in_place(lake: GoldenLake, request: pytest.FixtureRequest) -> Iterator[InPlace]:
    table = InPlace(lake, re.sub("refresh_(cleanonly_)?", "", request.param))
    yield table
    table.step(None)


@pytest.mark.property
@pytest.mark.parametrize(
    ("in_place", "name"),
    [(name, name) for name in REFRESHED if name not in CLEANED],
    indirect=["in_place"],
)
def test_a_table_that_moves_on_is_answered_at_the_clients_instant(
    service: Service, in_place: InPlace, name: str
) -> None:
    recorded = golden.server_recording(name, base=str(in_place.base)).exchanges
    right = {
        (exchange.path, exchange.params["timelinehash"]): as_told(exchange.body)
        for exchange in recorded
        if exchange.phase == "client on the new timeline"
    }
    newest = {
        (exchange.path, exchange.raw["table_step"]): as_told(exchange.body)
        for exchange in recorded
        if exchange.phase == "client on the new timeline"
    }
    better = 0
    client = None
    dropped = False
    for exchange in recorded:
        in_place.step(exchange.raw["table_step"])
        client = client or service.client(str(in_place.base))
        status, body = client.ask(exchange.method, exchange.path, exchange.params)
        if exchange.phase == "client on the new timeline":
            dropped = False
        if exchange.phase in WITHOUT_A_HASH:
            assert (exchange.status, status) == (400, 200)
            assert (
                as_told(orjson.loads(body)) == newest[exchange.path, exchange.raw["table_step"]]
            ), exchange
        elif exchange.status == 400 and status == 200:
            assert exchange.phase in STALE, exchange
            key = exchange.path, exchange.params["timelinehash"]
            assert as_told(orjson.loads(body)) == right[key], exchange
            better += 1
        elif dropped and exchange.status == 200:
            assert status == 200  # Java has read the table anew by now, ours has been synced before
        else:
            assert status == exchange.status, exchange
            if status == 200:
                assert as_told(orjson.loads(body)) == as_told(exchange.body), exchange
            else:
                assert body.decode() == exchange.body_text, exchange
        dropped = dropped or exchange.path.endswith("/refresh/")
    assert client is not None
    client.connection.close()
    assert better > 0


STALE = frozenset(
    {"stale client after the server synced", "table moved on, client still on the old timeline"}
)
"""Clients that Java refuses, though what they ask can be known."""

WITHOUT_A_HASH: Final = frozenset(
    {"no lastinstantts, no timelinehash", "right lastinstantts, no timelinehash"}
)
"""Who says no hash, which Hudi's clients never do: Java refuses, ours tells the newest state."""


@pytest.mark.parametrize("name", CLEANED)
def test_a_clean_that_comes_last_is_tolerated(
    service: Service, lake: GoldenLake, name: str, tmp_path: Path
) -> None:
    told = golden.server_recording(name).client
    base = lake.root / name
    shutil.rmtree(base, ignore_errors=True)
    golden.build(told["scenario"], 4, base)
    aside = taken_aside(base, told["new"]["lastinstantts"], tmp_path)
    with service.client(str(base)) as client:
        for exchange in golden.server_recording(name, base=str(base)).exchanges:
            if exchange.phase.startswith("clean added"):
                for path, kept in aside.items():
                    shutil.move(kept, path)
            status, body = client.ask(exchange.method, exchange.path, exchange.params)
            assert status == exchange.status, exchange
            if status == 200:
                assert as_told(orjson.loads(body)) == as_told(exchange.body), exchange
            else:
                assert body.decode() == exchange.body_text


def taken_aside(base: Path, instant: str, directory: Path) -> Mapping[Path, Path]:
    """Move the files of an instant out of a table; return where they were and are."""
    found = [Path(at, name) for at, _, names in os.walk(base / ".hoodie") for name in names]
    moved = {path: directory / path.name for path in found if path.name.startswith(instant)}
    assert len(moved) >= 3
    for path, kept in moved.items():
        shutil.move(path, kept)
    return moved


# The requests of Java's client, byte by byte.


@pytest.mark.parametrize("name", TRACES)
def test_the_requests_of_javas_client_are_answered(
    service: Service, lake: GoldenLake, name: str
) -> None:
    first, *lines = golden.server_lines(name)
    scenario = first["client"]["scenario"]
    base = lake.base_path(scenario, TRACED[scenario])
    places = {"{BASE_PERCENT_ENCODED}": quote_plus(base)}
    with service.client(base) as client:
        if scenario == "special_cow_v6":
            places |= of_another_build(client, base, lines)
        for line in lines:
            target = line["raw_target"]
            for place, text in places.items():
                target = target.replace(place, text)
            sent = {k: v for k, v in line["headers"].items() if k not in {"Host", "Connection"}}
            answered = client.request(line["method"], target, headers=sent)
            # Java's one 500 is for a loaded group without a slice in the range.
            assert answered.status == 200, target
            assert answered.headers["content-type"] == line["content_type"] or line["status"] == 500
            if FILES.search(target):
                assert orjson.loads(answered.body), target


FILES = re.compile("/(datafiles|datafile/latest|slices?)/.*[?&]partition=")
"""Requests for files of a partition that has some."""


def of_another_build(client: HttpClient, base: str, lines: list[dict[str, str]]) -> dict[str, str]:
    """Return replacements of the times, the hash and the group in a trace.

    It was recorded of the same table, written at another time: the same instants in order, other
    file ids.
    """
    queries = [parse_qs(line["raw_target"].partition("?")[2]) for line in lines]
    known = golden.client("special_cow_v6", TRACED["special_cow_v6"])
    was = next(q["instants"][0] for q in queries if "instants" in q).split(",")
    now = [instant["requestedTime"] for instant in known["client_timeline"]["instants"]]
    partition = next(q["partition"][0] for q in queries if "partition" in q)
    asked = {"basepath": base, "partition": partition, "refreshoff": "true", "maxinstant": now[0]}
    route = BY_NAME["latest_base_files_before_or_on"]
    status, body = client.ask(route.method, route.path, asked)
    assert status == 200
    group = next(q["fileid"][0] for q in queries if "fileid" in q)
    hashed = queries[0]["timelinehash"][0]
    file_id = orjson.loads(body)[0]["fileId"]
    assert len(was) == len(now)
    return {
        **dict(zip(was, now, strict=True)),
        hashed: known["timelinehash"],
        group: file_id,
    }
