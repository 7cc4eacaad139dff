"""A page costs what it shows, whatever its table, partition and archive have."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from fsview.local_view import InspectedView, LocalView
from fsview.table_view import TableView
from fsview.wire.routes import BY_NAME
from strandline.server.rest import listing
from strandline.server.rest.listing import FIRST, Listing, Place, Row, page
from strandline.table_api.served_table import ServedTable
from tests.kit.servers.live_service import AppClient, GoldenTables, parts_of
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables import golden
from tests.kit.tables.model import undoing, writes
from tests.kit.tables.model.table import ModelTable
from tests.kit.tables.small_table import SmallTable
from tests.strandline.server.rest.conftest import ARCHIVED, checked

LATEST = BY_NAME["latest_base_files"].path


def pages(found: Listing, limit: int) -> Iterator[list[Row]]:
    place: Place | None = FIRST
    while place is not None:
        rows, place = page(found, place, limit, lambda row: row["file_id"] != "f7", lambda: None)
        yield rows


@pytest.mark.property
def test_a_large_partition_is_read_in_blocks() -> None:
    table = SmallTable()
    table.write(*(("p", f"f{number}") for number in range(1_200)))
    served_view = TableView(table.storage)
    served_view.sync()
    LocalView.newest(served_view).load_partitions(["p"])
    table.write(*(("p", f"f{number}") for number in range(0, 600, 100)), ("p", "new"))
    view = InspectedView(served_view, served_view.sync())
    assert view.table.loader.version(view.snapshot, "p").runs
    served = ServedTable("/t", view, lambda _: b"")
    files = table.model.latest("p")
    for name, params, many in (
        ("slices", {"all": False}, len(files)),
        ("slices", {"all": True}, len(files) + 6),
        ("files", {}, len(files) + 6),
    ):
        found = served.listing(name, {"partition": "p", **params})
        read = [[*block] for block in found.blocks_of("p", 0)]
        whole = [row for block in read for row in block]
        assert len(whole) == many
        assert [row["file_id"] for row in whole] == sorted(row["file_id"] for row in whole)
        assert len(read) > 3
        assert max(map(len, read)) < 400
        assert [[*block] for block in found.blocks_of("p", 2)] == read[2:]
        wanted = [row for row in whole if row["file_id"] != "f7"]
        for limit in (500, 10_000):
            rows = [*pages(found, limit)]
            assert all(len(each) == limit for each in rows[:-1])
            assert [row for each in rows for row in each] == wanted, (name, limit)


def test_a_page_ends_after_many_rows_that_dont_fit(monkeypatch) -> None:
    monkeypatch.setattr(listing, "PAGE_ROWS", 5)
    asked: list[tuple[str, int]] = []

    def blocks_of(unit: str, begin: int) -> Iterator[list[Row]]:
        for block in range(begin, 3):
            asked.append((unit, block))
            yield [{"file_id": "f7"}, {"file_id": f"{unit}{block}"}]

    found = Listing({}, ["a", "b"], blocks_of)
    rows = [*pages(found, 1_000)]
    assert [[row["file_id"] for row in each] for each in rows] == [
        ["a0", "a1", "a2"],
        ["b0", "b1", "b2"],
        [],
    ]
    assert asked == [(unit, block) for unit in "ab" for block in range(3)]
    assert [*islice(pages(found, 1), 2)] == [[{"file_id": "a0"}], [{"file_id": "a1"}]]


def test_a_file_that_a_clean_under_way_deleted_has_no_size() -> None:
    table = SmallTable(MemoryStorage("/t"))
    for _ in range(3):
        table.write(("p", "f"))
    _, (gone, *_) = table.begin_clean(table.to_clean())
    parts = parts_of("/t", opener=lambda *_: table.storage)
    client = AppClient(parts)
    for name, params in (("files", {}), ("slices", {"all": "true"})):
        answered = client.request("GET", f"/v2/{name}", {"table": "/t", **params})
        rows = checked(answered, f"/v2/{name}")["rows"]
        assert {row["path"] for row in rows if row["size"] is None} == {gone.path}
        assert len(rows) == 3
    parts.close()


def test_a_clean_isnt_shown_while_a_rollback_isnt_finished() -> None:
    table = ModelTable(9, "COPY_ON_WRITE")
    group = table.group("a", 0)
    for _ in range(3):
        writes.complete(table, writes.begin(table, [(group, "base")]))
    undoing.begin_rollback(table, writes.begin(table, [(group, "base")]))
    path = table.storage.base_path
    parts = parts_of(path, opener=lambda *_: table.storage)
    answered = AppClient(parts).request("GET", "/v2/clean", {"table": path, "retain": "1"})
    error = checked(answered, "/v2/clean")
    assert (error["status"], error["code"]) == (503, "removal_pending")
    assert int(answered.headers["retry-after"]) > 0
    parts.close()


def test_pages_are_of_the_state_of_the_first() -> None:
    table = SmallTable(MemoryStorage("/t"))
    table.write(("p", "f1"), ("p", "f2"))
    parts = parts_of("/t", opener=lambda *_: table.storage)
    client, params = AppClient(parts), {"table": "/t", "limit": "1"}
    first = checked(client.request("GET", "/v2/files", params), "/v2/files")
    table.write(("p", "f2"), ("p", "f3"))
    parts.views.lease("/t").table.sync()
    again = {**params, "limit": "9", "cursor": first["next"]}
    second = checked(client.request("GET", "/v2/files", again), "/v2/files")
    assert second["state"] == first["state"]
    assert [row["file_id"] for row in (*first["rows"], *second["rows"])] == ["f1", "f2"]
    now = checked(client.request("GET", "/v2/files", {**params, "limit": "9"}), "/v2/files")
    assert [row["file_id"] for row in now["rows"]] == ["f1", "f2", "f2", "f3"]
    parts.close()


def test_the_first_tables_are_those_of_an_order_which_a_cursor_keeps() -> None:
    tables = {name: SmallTable(MemoryStorage(f"/lake/{name}")) for name in "abc"}
    parts = parts_of("/lake", opener=lambda path, _: tables[path[-1]].storage)
    client = AppClient(parts)

    def look_up(name: str, times: int) -> None:
        asked = {"basepath": f"/lake/{name}", "partition": "p"}
        assert {client.request("GET", LATEST, asked).status for _ in range(times)} == {200}

    def names(**params: str) -> tuple[str, str | None]:
        value = checked(client.request("GET", "/v2/tables", params), "/v2/tables")
        return "".join(row["table"][-1] for row in value["rows"]), value["next"]

    for number, (name, table) in enumerate(tables.items()):
        table.write(*(("p", f"f{n}") for n in range(10 * (3 - number))))
        look_up(name, (2, 1, 3)[number])
    assert names() == names(order="name") == ("abc", None)
    assert names(order="bytes")[0] == "abc"
    first, cursor = names(order="requests", limit="2")
    look_up("b", 9)
    assert first + names(cursor=cursor or "")[0] == "cab"
    assert names(order="requests", once="true")[0] == "bca"
    answered = client.request("GET", "/v2/tables", {"order": "age"})
    assert checked(answered, "/v2/tables")["allowed"] == "name, requests, bytes"
    parts.close()


@pytest.mark.property
def test_details_read_the_archive_once_for_all_pages() -> None:
    tables = GoldenTables()
    parts = parts_of("/golden", opener=tables)
    client, step = AppClient(parts), golden.steps(ARCHIVED)[-1]
    params = {
        "table": tables.base_path(ARCHIVED, step),
        "limit": "1",
        "details": "",
        "archived": "",
    }
    first = checked(client.request("GET", "/v2/timeline", params), "/v2/timeline")
    assert first["rows"][0]["archived"]
    calls = tables.opened[params["table"]].calls
    before = calls.snapshot()
    params["cursor"] = first["next"]
    second = checked(client.request("GET", "/v2/timeline", params), "/v2/timeline")
    assert second["rows"][0]["archived"]
    # The row groups are held.
    assert calls.snapshot() == before
    parts.close()
