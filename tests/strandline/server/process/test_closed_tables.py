"""A service closes tables that nobody uses, and keeps nothing of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from executor_proxy.seat_ring import Seat
from strandline.fleet.forward import Forwarder
from strandline.server.process.composition_root import Parts
from strandline.server.process.options import PartsOptions
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.formats.marker_name import create, marker_name
from tests.kit.servers.live_service import AppClient
from tests.kit.tables import golden
from timeline.storage.base import Storage

LATEST = "/v1/hoodie/view/slices/partition/latest/"
INSTANT = "20261121090000000"


def opened(base_path: str, _: Mapping[str, Any] | None) -> Storage:
    return golden.GoldenStorage("cow_basic_v9", 7, base_path)


@pytest.fixture
def parts() -> Iterator[Parts]:
    parts = Parts(PartsOptions(("/lake",), most_open_tables=4), opener=opened)
    yield parts
    parts.close()


def of_table(number: int) -> dict[str, str]:
    client = golden.client("cow_basic_v9", 7)
    pin = {name: client[name] for name in ("lastinstantts", "timelinehash")}
    return {"basepath": f"/lake/{number}", "partition": "2024-01-01", **pin}


@pytest.mark.property
def test_nothing_is_kept_of_tables_that_were_closed(parts: Parts) -> None:
    """Neither answers nor counters, and their sums stay; closed tables are asked for again."""
    client = AppClient(parts)
    for number in (*range(40), *range(20)):
        target = f"{LATEST}?{urlencode(of_table(number))}".encode()
        assert parts.hot.respond(target, {}) is None
        status, body = client.ask("GET", LATEST, of_table(number))
        assert status == 200
        ready = parts.hot.respond(target, {})
        assert ready is not None
        assert ready.endswith(body)
    status = parts.status()
    assert (status["open_tables"], status["open_tables_at_most"]) == (4, 4)
    assert status["requests"] == {"latest_file_slices": 120}
    assert status["ready_answers"]["answers"] == 4
    assert {table for table, _ in parts.hot.counts} == set(parts.views.open_tables())
    labelled = {dict(labels).get("table") for _, labels in parts.metrics.counts()}
    assert labelled == {None, *(str(table.table_id) for table in parts.views.open_tables())}
    assert parts.metrics.get("closed_tables", cause="open-tables") == 56
    assert parts.metrics.get("reloads", cause="closed") == 20


def test_a_table_whose_ready_answers_are_sent_is_in_use(parts: Parts) -> None:
    client = AppClient(parts)
    hot = f"{LATEST}?{urlencode(of_table(0))}".encode()
    client.ask("GET", LATEST, of_table(0))
    for number in range(1, 12):
        client.ask("GET", LATEST, of_table(number))
        assert parts.hot.respond(hot, {}) is not None


def test_a_table_with_a_marker_directory_stays_open(tmp_path: Path) -> None:
    base = golden.build("cow_basic_v9", 7, tmp_path / "t")
    parts = Parts(PartsOptions((str(tmp_path),)))
    assert AppClient(parts).ask("GET", LATEST, {**of_table(0), "basepath": str(base)})[0] == 200
    folder = f"{base}/.hoodie/.temp/{INSTANT}"
    create(parts.markers, folder, marker_name(INSTANT, 1)).result(PATIENCE_S)
    (table,) = parts.views.open_tables()
    assert not parts.views.close_table(table, "test")
    parts.markers.delete(folder)
    assert parts.views.close_table(table, "test")
    parts.close()


def test_a_long_answer_keeps_its_table_open_until_it_is_sent(parts: Parts) -> None:
    view = parts.answers.view_for("test", of_table(0))
    stream = view.in_parts("all_latest_base_files_before_or_on", max_instant="9")
    table = view.table
    del view
    next(iter(stream))
    assert not parts.views.close_table(table, "test")
    stream.close()
    del stream
    assert parts.views.close_table(table, "test")


@pytest.mark.parametrize(
    ("urls", "is_spread", "has"),
    [
        (["http://here:1"], False, True),
        (["http://there:1", "http://here:1"], False, True),  # a copy
        (["http://there:1"], False, False),
        ([], False, True),  # it hasn't joined yet
        ([None, None], False, True),  # no other server answers
        ([None, "http://there:1"], False, False),
        (["http://there:1"], True, True),
    ],
)
def test_a_server_of_a_fleet_has_its_own_tables_and_its_copies(
    urls: list[str | None], is_spread: bool, has: bool
) -> None:
    seats = [Seat(number, url) for number, url in enumerate(urls)]
    forwarder = Forwarder("http://here:1", lambda *_: seats, None, is_spread=lambda _: is_spread)
    assert forwarder.has("file:///lake/t") is has
