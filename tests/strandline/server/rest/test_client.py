"""``RestClient`` asks every operation, page by page, and checks parameters before it sends."""

from __future__ import annotations

import pytest

from executor_proxy.exchange import Timeouts
from strandline.client import RestClient
from strandline.server.rest.listing import plain
from strandline.server.rest.operation import OPERATIONS
from tests.kit.servers.live_service import TOKEN
from tests.strandline.server.rest.conftest import Asked
from timeline.errors import (
    BadAnswerError,
    InputError,
    RemoteFailureError,
    TableNotFoundError,
)

pytestmark = pytest.mark.property


@pytest.fixture
def client(asked: Asked) -> RestClient:
    return RestClient(f"http://127.0.0.1:{asked.client.connection.port}", TOKEN)


def test_rows_of_all_pages_equal_those_of_one(client: RestClient, asked: Asked) -> None:
    table = asked.table("mor_basic_v9")
    for operation in OPERATIONS:
        if not operation.columns or operation.name == "group":
            continue
        params = {"table": table} if operation.of_table else {}
        whole = client.get(operation.name, **params)
        assert whole["next"] is None
        if operation.name == "tables":
            assert [r["table"] for r in client.rows("tables", limit=1)] == [
                row["table"] for row in whole["rows"]
            ]
            continue
        assert [*client.rows(operation.name, **params, limit=1)] == whole["rows"]
        found = client.arrow(operation.name, **params, limit=2)
        assert [plain(row) for row in found.to_pylist()] == whole["rows"]
    first = client.get("slices", table=table)["rows"][0]
    params = {"partition": first["partition"], "file_id": first["file_id"]}
    assert client.get("group", table=table, **params)["rows"]
    assert client.get("partitions", table=table, summary=True)["marks"]["bytes"]
    assert client.get("status", names="strandline_build")["servers"]


def test_watching_follows_a_table(client: RestClient, asked: Asked) -> None:
    table = asked.table("mor_basic_v9")
    state = client.watch(table)["state"]
    hasty = RestClient(repr(client).split("'")[1], TOKEN, timeouts=Timeouts(0.2, 0.2, 0.2))
    assert hasty.watch(table, state) == {**client.watch(table), "changed": False}


def test_errors_have_the_service_s_classes(client: RestClient, asked: Asked) -> None:
    table = asked.table("mor_basic_v9")
    with pytest.raises(InputError, match="no operation"):
        client.get("tabels")
    with pytest.raises(InputError, match="'prefx'"):
        client.get("partitions", table=table, prefx="a")
    with pytest.raises(InputError, match="limit is '0'; allowed: 1 to 10000"):
        next(client.rows("partitions", table=table, limit=0))
    with pytest.raises(TableNotFoundError):
        client.get("partitions", table=f"{asked.folder}/none")
    with pytest.raises(RemoteFailureError, match="filter is 'size>1'") as refused:
        client.get("partitions", table=table, filter="size>1")
    assert refused.value.answered == 400
    with pytest.raises(RemoteFailureError) as gone:
        client.get("partitions", table=table, cursor=f"{'x' * 16}.0.0.0")
    assert gone.value.answered == 410
    with pytest.raises(RemoteFailureError) as stranger:
        RestClient(repr(client).split("'")[1]).get("tables")
    assert stranger.value.answered == 401
    with pytest.raises(BadAnswerError, match="no Arrow stream"):
        client.arrow("status")
