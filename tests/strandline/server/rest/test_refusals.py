"""Bad requests to ``/v2`` get one JSON shape, which names what is wrong and what is allowed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from openapi_spec_validator import validate

from strandline.server.process.composition_root import Parts
from strandline.server.rest.listing import (
    AT_MOST_BYTES,
    HELD_S,
    LARGEST_BYTES,
    Cursors,
    Listing,
    Place,
    cursor_text,
    one_block,
)
from strandline.server.rest.openapi import document
from strandline.server.rest.operation import BY_NAME, OPERATIONS
from strandline.server.rest.parameter import Refusal
from strandline.table_api import served_table
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.servers.live_service import AppClient, GoldenTables, HttpClient, parts_of
from tests.kit.tables import golden
from tests.strandline.server.rest.conftest import Asked, checked

SHAPE = {"status", "code", "error", "parameter", "value", "allowed", "hint"}


@pytest.mark.property
def test_the_document_is_valid_openapi() -> None:
    found = document()
    validate(found)
    assert set(found["paths"]) == {*(each.path for each in OPERATIONS), "/v2/openapi.json"}


def test_every_column_has_a_type_of_arrow() -> None:
    found = [each for operation in OPERATIONS for each in (*operation.columns, *operation.marks)]
    assert {each.type for each in found} == set(served_table.TYPES)


@pytest.mark.parametrize(
    ("name", "params", "code", "parameter"),
    [
        ("partitions", {"tabel": "x"}, "unknown_parameter", "tabel"),
        ("partitions", {}, "missing_parameter", "table"),
        ("partitions", {"table": ""}, "bad_parameter", "table"),
        ("partitions", {"table": "T", "limit": "0"}, "bad_parameter", "limit"),
        ("partitions", {"table": "T", "limit": "10001"}, "bad_parameter", "limit"),
        ("partitions", {"table": "T", "limit": "1e3"}, "bad_parameter", "limit"),
        ("partitions", {"table": "T", "limit": "-1"}, "bad_parameter", "limit"),
        ("partitions", {"table": "T", "at": "yesterday"}, "bad_parameter", "at"),
        ("partitions", {"table": "T", "summary": "maybe"}, "bad_parameter", "summary"),
        ("partitions", {"table": "T", "cursor": "x"}, "bad_cursor", "cursor"),
        ("partitions", {"table": "T", "filter": "bytes"}, "bad_parameter", "filter"),
        ("partitions", {"table": "T", "filter": "size>1"}, "bad_parameter", "filter"),
        ("partitions", {"table": "T", "filter": "bytes>many"}, "bad_parameter", "filter"),
        (
            "partitions",
            {"table": "T", "filter": ",".join(["bytes>1"] * 9)},
            "bad_parameter",
            "filter",
        ),
        *(
            (name, {"table": "T", "summary": "", "filter": "x"}, "bad_parameter", "filter")
            for name in ("partitions", "timeline", "clean")
        ),
        ("slices", {"table": "T", "filter": "log_paths=a"}, "bad_parameter", "filter"),
        ("files", {"table": "T", "filter": "newest>true"}, "bad_parameter", "filter"),
        ("timeline", {"table": "T", "order": "random"}, "bad_parameter", "order"),
        ("clean", {"table": "T", "policy": "KEEP"}, "bad_parameter", "policy"),
        ("watch", {"table": "T", "timeout": "301"}, "bad_parameter", "timeout"),
        ("watch", {"table": "T", "timeout": "nan"}, "bad_parameter", "timeout"),
        ("status", {"tables": "1"}, "unknown_parameter", "tables"),
        ("status", {"table": ""}, "bad_parameter", "table"),
        ("watch", {"table": "relative"}, "bad_parameter", "table"),
    ],
)
def test_a_bad_parameter_is_named(
    asked: Asked, name: str, params: dict[str, str], code: str, parameter: str
) -> None:
    if params.get("table") == "T":
        params = {**params, "table": asked.table("mor_basic_v9")}
    error = asked.refused(name, params)
    assert (error["status"], error["code"], error["parameter"]) == (400, code, parameter)
    assert error["allowed"]
    assert set(error) == SHAPE


def test_arrow_shows_names_that_arent_utf_8() -> None:
    columns = BY_NAME["slices"].columns
    row = {"partition": "p\udcff", "log_paths": ["l\udcff"]}
    stream = served_table.arrow_stream(columns, [row], {"table": "t\udcff"})
    found = pa.ipc.open_stream(stream).read_all()
    assert found.select(["partition", "log_paths"]).to_pylist() == [
        {"partition": "p?", "log_paths": ["l?"]}
    ]
    assert found.schema.metadata[b"strandline.table"] == b"t?"


def test_a_table_that_isnt_served_is_refused(asked: Asked) -> None:
    for table, status, code in (
        (f"{asked.folder}/none", 404, "table_not_found"),
        ("/elsewhere", 403, "root_not_allowed"),
        ("relative", 400, "bad_parameter"),
    ):
        for name in ("partitions", "watch", "timeline"):
            error = asked.refused(name, {"table": table})
            assert (error["status"], error["code"]) == (status, code), (name, table)


def test_other_methods_and_paths_are_refused(asked: Asked) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        answered = asked.client.request(method, "/v2/partitions", {"table": "x"})
        assert answered.status == 405
        assert answered.headers["allow"] == "GET, HEAD"
        assert json.loads(answered.body)["code"] == "method_not_allowed"
    for path in ("/v2", "/v2/", "/v2/none", "/v2/partitions/more"):
        answered = asked.client.request("GET", path)
        value = json.loads(answered.body)
        assert (answered.status, value["code"]) == (404, "unknown_route")
        assert "/v2/partitions" in value["allowed"]
    assert asked.client.request("GET", "/v2x").status == 404
    with HttpClient(asked.client.connection.port, token=None) as stranger:
        assert stranger.request("GET", "/v2/tables").status == 401


def test_a_cursor_holds_its_snapshot_and_is_dropped(asked: Asked) -> None:
    first = asked.get("files", "mor_basic_v9", limit="2")
    table = {"table": asked.table("mor_basic_v9")}
    again = [asked.get("files", "mor_basic_v9", cursor=first["next"]) for _ in range(2)]
    assert again[0]["rows"] == again[1]["rows"] != []
    assert again[0]["state"] == first["state"]
    error = asked.refused("files", {**table, "cursor": first["next"], "prefix": "p"})
    assert (error["code"], error["parameter"]) == ("bad_cursor", "prefix")
    error = asked.refused("slices", {**table, "cursor": first["next"]})
    assert error["code"] == "bad_cursor"
    name, _, _ = first["next"].partition(".")
    error = asked.refused("files", {**table, "cursor": f"{name}.999.0.0"})
    assert error["code"] == "bad_cursor"
    error = asked.refused("files", {**table, "cursor": f"{'x' * 16}.0.0.0"})
    assert (error["status"], error["code"]) == (410, "cursor_gone")


def test_cursors_are_bounded_in_time_number_and_bytes() -> None:
    clock = ManualClock(0)
    cursors = Cursors(clock, at_most=2)
    operation = BY_NAME["tables"]
    given: dict[str, str] = {}

    def found(name: str) -> bool:
        try:
            cursors.find(operation, {"cursor": cursor_text(name, Place())}, given)
        except Refusal as refusal:
            return refusal.status != 410
        return True

    listing = Listing({}, ["unit"], one_block(list))
    a, b = (cursors.hold(operation, {}, listing) for _ in range(2))
    assert found(a)
    c = cursors.hold(operation, {}, listing)
    assert [found(each) for each in (a, b, c)] == [True, False, True]
    clock.advance(int(HELD_S * 1000))
    assert not found(a)
    assert len(cursors) == 0
    cursors.drop_old()
    large = Listing({}, ["unit"], one_block(list), bytes=AT_MOST_BYTES * 2 // 3)
    cursors = Cursors(clock)
    names = [cursors.hold(operation, {}, large) for _ in range(3)]
    assert [found(each) for each in names] == [False, True, True]


def test_a_large_listing_drops_neither_itself_nor_small_ones() -> None:
    cursors, operation = Cursors(ManualClock(0)), BY_NAME["tables"]
    large = Listing({}, ["unit"], one_block(list), bytes=AT_MOST_BYTES + 1)
    names = [cursors.hold(operation, {}, Listing({}, [], one_block(list)))]
    names.append(cursors.hold(operation, {}, large))
    for name in names:
        assert cursors.find(operation, {"cursor": cursor_text(name, Place())}, {})
    cursors.hold(operation, {}, large)
    assert len(cursors) == 1
    with pytest.raises(Refusal, match="to be held") as refused:
        cursors.hold(operation, {}, replace(large, bytes=LARGEST_BYTES))
    assert refused.value.code == "too_many_rows"


@pytest.fixture
def golden_parts() -> Iterator[tuple[Parts, str]]:
    """A service of the golden tables in memory, and the base path of one."""
    tables = GoldenTables()
    parts = parts_of("/golden", opener=tables)
    yield parts, tables.base_path("mor_basic_v9", golden.steps("mor_basic_v9")[-1])
    parts.close()


def test_a_page_alone_holds_no_cursor(golden_parts: tuple[Parts, str]) -> None:
    parts, table = golden_parts
    params = {"table": table, "limit": "1", "once": "true"}
    for name, more in (("files", True), ("pending", False)):
        value = checked(AppClient(parts).request("GET", f"/v2/{name}", params), f"/v2/{name}")
        assert (value["next"], value["more"]) == (None, more)
    assert len(parts.rest.cursors) == 0


@pytest.mark.parametrize("name", ["files", "timeline"])
def test_a_cursor_doesnt_outlast_its_root(golden_parts: tuple[Parts, str], name: str) -> None:
    parts, table = golden_parts
    client, params = AppClient(parts), {"table": table, "limit": "1"}
    first = checked(client.request("GET", f"/v2/{name}", params), f"/v2/{name}")
    assert first["more"]
    parts.remove_root("/golden")
    params["cursor"] = first["next"]
    error = checked(client.request("GET", f"/v2/{name}", params), f"/v2/{name}")
    assert (error["status"], error["code"]) == (403, "root_not_allowed")


def test_an_unforeseen_error_isnt_revealed(tmp_path) -> None:
    parts = parts_of(str(tmp_path))

    def fail(*_: object) -> None:
        raise ZeroDivisionError("secret")

    parts.rest._scrape = fail
    answered = AppClient(parts).request("GET", "/v2/status")
    value = json.loads(answered.body)
    assert (value["status"], value["code"]) == (500, "internal")
    assert "secret" not in answered.body.decode()
    parts.close()
