"""The status: its cost is linear in the tables, and it comes in pages."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from strandline.server.api.dispatcher import PAGE_ROUTES, STATUS
from strandline.server.api.pages import create_pages
from strandline.server.http.reply import pretty
from strandline.server.process.composition_root import Parts
from tests.kit.servers.live_service import AppClient, parts_of
from tests.kit.tables import golden
from timeline.storage.base import Storage

LATEST = "/v1/hoodie/view/slices/partition/latest/"


def opened(base_path: str, _: Mapping[str, Any] | None) -> Storage:
    return golden.GoldenStorage("cow_basic_v9", 7, base_path)


@pytest.fixture
def parts() -> Iterator[Parts]:
    parts = parts_of("/lake", opener=opened)
    yield parts
    parts.close()


def ask_tables(parts: Parts, numbers: range) -> None:
    client = AppClient(parts)
    for number in numbers:
        asked = {"basepath": f"/lake/t{number:03d}", "partition": "2024-01-01"}
        assert client.ask("GET", LATEST, asked)[0] == 200


def calls_of_status(parts: Parts) -> int:
    """Return how many functions the status calls, which is what its time is made of."""
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        parts.status()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.property
def test_the_status_costs_the_same_for_each_table_however_many_there_are(parts: Parts) -> None:
    ask_tables(parts, range(16))
    few = calls_of_status(parts)
    ask_tables(parts, range(16, 64))
    assert calls_of_status(parts) <= 4 * few


def page(parts: Parts, **asked: str) -> dict[str, Any]:
    status, body = AppClient(parts).ask("GET", STATUS, asked)
    assert status == 200
    found: dict[str, Any] = json.loads(body)
    return found


def test_the_status_comes_in_pages_of_tables(parts: Parts) -> None:
    ask_tables(parts, range(5))
    found = page(parts)
    assert list(found["tables"]) == [f"file:///lake/t{number:03d}" for number in range(5)]
    assert (found["open_tables"], found["next_table"]) == (5, None)
    names, start = [], ""
    while start is not None:
        found = page(parts, table=start, tables="2")
        assert (len(found["tables"]), found["open_tables"]) == (min(2, 5 - len(names)), 5)
        names += found["tables"]
        start = found["next_table"]
    assert names == [f"file:///lake/t{number:03d}" for number in range(5)]


def test_a_page_begins_with_the_table_named_in_any_spelling_or_the_next(parts: Parts) -> None:
    ask_tables(parts, range(3))
    for spelling in ("/lake/t001", "file:/lake/x/../t001/", "file:///lake/t001"):
        assert list(page(parts, table=spelling, tables="1")["tables"]) == ["file:///lake/t001"]
    assert next(iter(page(parts, table="/lake/t000x")["tables"])) == "file:///lake/t001"
    assert page(parts, table="/zoo")["tables"] == {}
    assert page(parts, tables="0")["tables"] == {}


def test_the_dispatcher_names_every_page(parts: Parts) -> None:
    """They are routes before Flask is loaded."""
    pages = create_pages(parts.status_of)
    assert {("GET", rule.rule) for rule in pages.url_map.iter_rules()} == PAGE_ROUTES


@pytest.mark.parametrize("many", ["-1", "1001", "x", "", "9" * 5000])
def test_a_number_of_tables_that_is_none_is_refused(parts: Parts, many: str) -> None:
    status, body = AppClient(parts).ask("GET", STATUS, {"tables": many})
    assert status == 400
    assert body.decode() == f"tables is {many[:100]!r}; allowed: 0 to 1000"


def test_each_table_is_on_a_line_of_its_own(parts: Parts) -> None:
    ask_tables(parts, range(40))
    body = AppClient(parts).ask("GET", STATUS, {})[1]
    lines = body.decode().splitlines()
    assert sum(line.startswith('    "file:///lake/t0') for line in lines) == 40
    indented = AppClient(parts).ask("GET", STATUS, {"pretty": ""})[1]
    assert list(json.loads(indented)) == list(json.loads(body))
    assert pretty(indented) == indented
