"""``/v2`` over HTTP: answers have the documented schemas, and equal those of ``Table``."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable, Hashable
from typing import Any

import pyarrow as pa
import pytest

from strandline.server.http.reply import Reply
from strandline.server.http.request import Request
from strandline.server.rest.listing import plain
from strandline.server.rest.openapi import ARROW
from strandline.server.rest.operation import OPERATIONS
from strandline.server.table_threads import TableThreads
from strandline.table_api.table import Table
from tests.kit.servers.live_service import parts_of
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables import golden
from tests.kit.tables.small_table import SmallTable
from tests.strandline.server.rest.conftest import ARCHIVED, SCENARIOS, Asked

pytestmark = pytest.mark.property


def as_json(table: pa.Table) -> list[dict]:
    return [plain(row) for row in table.to_pylist()]


def columns(rows: list[dict], names: list[str]) -> list[dict]:
    return [{name: row[name] for name in names} for row in rows]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_answers_equal_those_of_the_table(asked: Asked, scenario: str) -> None:
    table = Table(asked.table(scenario))
    for name, params, wanted in (
        ("partitions", {}, table.partitions()),
        ("slices", {"limit": "2"}, table.files()),
        ("slices", {"all": "true", "limit": "3"}, table.slices()),
        ("timeline", {"archived": "", "limit": "2"}, table.inspect.instants(archived=True)),
        ("pending", {}, table.inspect.pending()),
        ("leases", {}, table.pins()),
        ("clean", {"retain": "1"}, table.cleanable(retain=1).files),
        (
            "clean",
            {"policy": "KEEP_LATEST_FILE_VERSIONS", "retain": "1"},
            table.cleanable("KEEP_LATEST_FILE_VERSIONS", 1).files,
        ),
    ):
        rows = asked.rows(name, scenario, **params)
        assert columns(rows, wanted.schema.names) == as_json(wanted), (name, params)
    files = asked.rows("files", scenario, limit="3")
    slices = table.slices().to_pylist()
    bases = [row["path"] for row in slices if row["path"] is not None]
    logs = [path for row in slices for path in row["log_paths"]]
    assert [row["path"] for row in files if row["kind"] == "base"] == bases
    assert sorted(row["path"] for row in files if row["kind"] == "log") == sorted(logs)
    newest = {
        path for row in table.files().to_pylist() for path in (row["path"], *row["log_paths"])
    }
    assert {row["path"] for row in files if row["newest"]} >= newest - {None}


def test_details_and_the_archive_equal_the_history(asked: Asked) -> None:
    table = Table(asked.table(ARCHIVED))
    history = table.history()
    rows = asked.rows("timeline", ARCHIVED, archived="true", details="true", limit="7")
    assert any(row["archived"] for row in rows)
    found = [{name: row.get(name) for name in history.schema.names} for row in rows]
    assert found == as_json(history)
    backwards = asked.rows("timeline", ARCHIVED, archived="true", order="newest")
    assert [r["requested_time"] for r in backwards] == [r["requested_time"] for r in rows][::-1]
    some = asked.rows("timeline", ARCHIVED, archived="true", action="clean", state="COMPLETED")
    assert some
    assert {row["action"] for row in some} == {"clean"}


def test_a_lease_is_shown_while_it_is_held(asked: Asked) -> None:
    table = Table(asked.table("nonpart_cow_v6"))
    with table.pin() as pinned:
        (row,) = asked.rows("leases", "nonpart_cow_v6")
        assert [row] == as_json(table.pins())
        assert row["id"] == pinned.id
    assert asked.rows("leases", "nonpart_cow_v6") == []


def test_a_groups_life_is_that_of_its_slices(asked: Asked) -> None:
    scenario = "mor_basic_v9"
    slices = asked.rows("slices", scenario, all="true")
    first = slices[0]
    of_group = [row for row in slices if row["file_id"] == first["file_id"]]
    life = asked.get("group", scenario, partition=first["partition"], file_id=first["file_id"])
    assert life["replaced_by"] is life["pending"] is None
    assert [row["base_instant"] for row in life["rows"]] == [
        row["base_instant"] for row in reversed(of_group)
    ]
    assert [row["newest"] for row in life["rows"]] == [False] * (len(of_group) - 1) + [True]
    assert [[log["path"] for log in row["logs"]] for row in life["rows"]] == [
        row["log_paths"] for row in reversed(of_group)
    ]
    missing = {"table": asked.table(scenario), "partition": "", "file_id": "none"}
    assert asked.refused("group", missing)["code"] == "group_not_found"


@pytest.mark.parametrize("scenario", ["mor_basic_v9", "replace_cow_v9"])
def test_an_instant_is_answered_as_the_table_was_then(
    asked: Asked, scenario: str, tmp_path
) -> None:
    steps = golden.steps(scenario)[:-1]
    times, last = [], asked.rows("timeline", scenario)
    for step in steps:
        base = golden.build(scenario, step, tmp_path / str(step))
        instant = Table(str(base)).inspect.instants().to_pylist()[-1]["requested_time"]
        if any(row["requested_time"] == instant for row in last):
            times.append((instant, as_json(Table(str(base)).partitions())))
    answered = 0
    for instant, partitions in times:
        params = {"table": asked.table(scenario), "at": instant}
        found = asked.send("partitions", params)
        if found.status == 410:  # a clean has deleted files of that state
            assert json.loads(found.body)["code"] == "snapshot_gone"
            continue
        value = asked.get("partitions", scenario, at=instant)
        assert value["instant"] == instant
        assert columns(value["rows"], [*partitions[0]]) == partitions
        answered += 1
    assert answered


def test_an_instant_that_is_unknown_or_gone_is_named(asked: Asked) -> None:
    table = asked.table(ARCHIVED)
    error = asked.refused("partitions", {"table": table, "at": "20200101000000000"})
    assert (error["status"], error["code"], error["parameter"]) == (404, "instant_not_found", "at")
    # Deleted files' sizes aren't known any more.
    first = asked.rows("timeline", ARCHIVED)[0]["requested_time"]
    error = asked.refused("partitions", {"table": table, "at": first})
    assert (error["status"], error["code"], error["value"]) == (410, "snapshot_gone", first)


def test_summaries_add_up(asked: Asked) -> None:
    for scenario in ("mor_basic_v9", "nonpart_cow_v6"):
        rows = asked.rows("partitions", scenario)
        summary = asked.get("partitions", scenario, summary="")
        marks, total = summary["marks"], summary["total"]
        assert total["partitions"] == len(rows) == sum(marks["partitions"])
        for name in ("bytes", "files", "slices", "file_groups"):
            assert sum(marks[name]) == total[name] == sum(row[name] for row in rows)
    few = asked.get("partitions", "mor_basic_v9", summary="true", marks="2")
    assert few["marks"]["path"][1] is None
    assert sum(few["marks"]["partitions"]) == 4
    for scenario in ("mor_basic_v9", ARCHIVED):
        instants = asked.get("timeline", scenario, summary="", archived="")
        assert sum(instants["marks"]["instants"]) == instants["total"]["instants"]
        fewer = asked.get("timeline", scenario, summary="", archived="", marks="8")
        assert len(fewer["marks"]["begin"]) <= 8
        assert fewer["total"] == instants["total"]
    rows = asked.rows("timeline", ARCHIVED, archived="")
    prefix = rows[len(rows) // 2]["requested_time"]
    some = asked.get("timeline", ARCHIVED, summary="", archived="", prefix=prefix)
    fitting = sum(row["requested_time"] == prefix for row in rows)
    assert 0 < some["total"]["instants"] == fitting < len(rows)
    clean = {"policy": "KEEP_LATEST_FILE_VERSIONS", "retain": "1"}
    rows = asked.rows("clean", ARCHIVED, **clean)
    summary = asked.get("clean", ARCHIVED, summary="", **clean)
    assert rows
    assert summary["total"]["files"] == len(rows) == sum(summary["reasons"].values())
    assert summary["total"]["bytes"] == sum(row["bytes"] for row in rows)


def test_filters_and_prefixes_choose_rows(asked: Asked) -> None:
    scenario = "mor_basic_v9"
    rows = asked.rows("partitions", scenario)
    size = sorted(row["bytes"] for row in rows)[1]
    for term, fits in (
        (f"bytes>{size}", lambda row: row["bytes"] > size),
        (f"bytes<={size},partition~-0", lambda row: row["bytes"] <= size),
        ("partition=2024-01-02", lambda row: row["partition"] == "2024-01-02"),
        ("partition!=2024-01-02", lambda row: row["partition"] != "2024-01-02"),
        ("partition=a%2Cb%2525", lambda row: False),
    ):
        found = asked.rows("partitions", scenario, filter=term, limit="1")
        assert found == [row for row in rows if fits(row)], term
    assert asked.rows("partitions", scenario, prefix="2024-01-03") == rows[2:3]
    slices = asked.rows("slices", scenario, prefix="2024-01-03", filter="logs>=0")
    assert {row["partition"] for row in slices} == {"2024-01-03"}
    assert asked.rows("pending", scenario, filter="heartbeat_at=") == []
    assert asked.rows("files", scenario, filter="newest=true,log_version=")


def test_a_tag_spares_the_answer(asked: Asked) -> None:
    for name in ("partitions", "timeline", "status", "openapi.json"):
        table = {} if name in ("status", "openapi.json") else {"table": asked.table("mor_basic_v9")}
        more = {"names": "strandline_build"} if name == "status" else {}
        first = asked.send(name, {**table, **more})
        if name == "status":  # its figures change all the time
            assert first.headers["etag"].startswith('W/"')
            continue
        again = asked.send(name, table, {"If-None-Match": first.headers["etag"]})
        assert (again.status, again.body) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]
        other = asked.send(name, table, {"If-None-Match": '"other"'})
        assert (other.status, other.body) == (200, first.body)


def test_rows_come_as_arrow(asked: Asked) -> None:
    scenario, accept = "mor_basic_v9", {"Accept": f"{ARROW}, application/json;q=0.5"}
    for operation in OPERATIONS:
        if not operation.columns or operation.name == "group":
            continue
        table = {"table": asked.table(scenario)} if operation.of_table else {}
        answered = asked.send(operation.name, table, accept)
        assert answered.headers["content-type"] == ARROW
        found = pa.ipc.open_stream(answered.body).read_all()
        names = [each.name for each in operation.columns if not each.optional]
        assert found.schema.names == names
        if operation.name not in ("tables", "clean"):
            rows = asked.get(operation.name, scenario)["rows"]
            assert as_json(found) == rows
    metadata = found.schema.metadata
    assert b"strandline.tables_open" in metadata or b"strandline.state" in metadata


def test_a_page_with_a_cursor_has_no_tag_of_the_state(asked: Asked) -> None:
    params = {"table": asked.table("mor_basic_v9"), "limit": "1"}
    for accept in (ARROW, "application/json"):
        first = asked.send("files", params, {"Accept": accept})
        fields = {"Accept": accept, "If-None-Match": first.headers["etag"]}
        assert asked.send("files", params, fields).status == 200, accept


def test_tables_and_status_tell_what_the_service_does(asked: Asked) -> None:
    table = asked.table("mor_basic_v9")
    asked.get("partitions", "mor_basic_v9")
    found = asked.get("tables")
    rows = {row["table"]: row for row in found["rows"]}
    row = rows[f"file://{table}"]
    assert (row["server"], row["owner"], row["is_owner"]) == (None, None, True)
    assert (row["loaded"], row["partitions_loaded"]) == (True, 4)
    assert row["state"] == asked.get("timeline", "mor_basic_v9")["state"]
    assert found["tables_open"] == len(rows)
    status = asked.get("status")
    (server,) = status["servers"]
    assert status["fleet"] is None
    scraped = asked.client.request("GET", "/metrics").body.decode()
    for name, metric in server["metrics"].items():
        plain_name = name.removesuffix("_total") if metric["type"] == "counter" else name
        assert f"# HELP {plain_name}" in scraped, name
    some = asked.get("status", names="strandline_syncs,strandline_memory", table=f"file://{table}")
    metrics = some["servers"][0]["metrics"]
    assert {name.split("_")[1] for name in metrics} == {"syncs", "memory"}
    samples = metrics["strandline_syncs_total"]["samples"]
    assert {sample["labels"]["table"] for sample in samples} == {f"file://{table}"}
    assert sum(sample["value"] for sample in samples) >= 1


def test_long_answers_are_compressed_on_the_thread_that_made_them() -> None:
    made: list[Reply] = []

    class Threads(TableThreads):
        async def run(self, table: Hashable, work: Callable[..., Any], *args: Any) -> Any:
            made.append(await super().run(table, work, *args))
            return made[-1]

    table = SmallTable(MemoryStorage("/t"))
    table.write(*(("p", f"f{number}") for number in range(100)))
    parts, threads = parts_of("/t", opener=lambda *_: table.storage), Threads("requests", 1)
    for query, rows in ((b"table=/t", 100), (b"table=/t&limit=1", 1)):
        request = Request("GET", "/v2/files", query, {b"accept-encoding": b"gzip"})
        reply = asyncio.run(parts.rest.answer(threads, request))
        assert reply is made[-1]
        is_long = rows > 1
        assert reply.headers.get("content-encoding") == ("gzip" if is_long else None)
        body = gzip.decompress(reply.body) if is_long else reply.body
        assert len(json.loads(body)["rows"]) == rows
    threads.close()
    parts.close()


def test_head_has_the_same_head_without_a_body(asked: Asked) -> None:
    params = {"table": asked.table("mor_basic_v9")}
    got = asked.send("partitions", params)
    answered = asked.client.request("HEAD", "/v2/partitions", params)
    assert (answered.status, answered.body) == (200, b"")
    assert answered.headers["etag"] == got.headers["etag"]
    assert json.loads(got.body)["rows"]
