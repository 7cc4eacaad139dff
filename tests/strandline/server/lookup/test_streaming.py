"""Answers about whole tables that are too long for the budget are sent while they are made."""

from __future__ import annotations

import gzip
import http.client
import json
from collections.abc import Iterator

import pytest

from fsview.local_view import LocalView
from fsview.store.stores import StoreOptions
from fsview.wire.json_form import PathForms
from fsview.wire.routes import BY_NAME, ROUTES
from strandline.server.http.reply import Accepted, streamed
from strandline.server.http.server import ServiceServer
from strandline.server.http.server_options import ServerOptions
from strandline.server.lookup.answer import Question
from strandline.server.process.composition_root import Parts
from strandline.server.process.options import PartsOptions
from tests.kit.servers.live_service import HttpClient, running
from tests.kit.tables.small_table import SmallTable
from timeline.errors import InputError, StorageUnavailableError

PARTITIONS = 60
WHOLE = [route.name for route in ROUTES if route.part_form is not None]
LITTLE = 64 << 10
"""A budget of which an eighth is less than a whole table's answer."""


@pytest.fixture
def table() -> SmallTable:
    table = SmallTable()
    table.write(*((f"p{n:02d}", f"f{n}") for n in range(PARTITIONS)))
    return table


@pytest.fixture
def server(table: SmallTable) -> Iterator[ServiceServer]:
    base = table.storage.base_path
    options = PartsOptions((base,), store=StoreOptions(budget_bytes=LITTLE))
    parts = Parts(options, opener=lambda path, more: table.storage)
    with running(ServiceServer(parts, ServerOptions())) as server:
        yield server


def params(table: SmallTable, **more: str) -> dict[str, str]:
    return {"basepath": table.storage.base_path, "refreshoff": "true", **more}


ARGUMENTS = {"max_instant": "9" * 17, "instants": ("20231114221321000",)}


@pytest.mark.parametrize("name", WHOLE)
def test_in_parts_it_says_the_same(table: SmallTable, server: ServiceServer, name: str) -> None:
    route = BY_NAME[name]
    view = LocalView.newest(server.parts.views.view(table.storage.base_path))
    view.load_all_partitions()
    arguments = {p.argument: ARGUMENTS[p.argument] for p in route.params}
    paths = PathForms.of(table.storage.base_path)
    whole = route.encode(getattr(view, name)(**arguments), paths)
    parts = list(route.encode_parts(view.in_parts(name, **arguments), paths))
    assert b"".join(parts) == whole
    assert len(parts) == PARTITIONS + 1
    for empty in ((), [("p", ())]):
        said = b"".join(route.encode_parts(empty, paths))
        assert json.loads(said) == ({p: [] for p, _ in empty} if route.by_partition else [])


@pytest.mark.parametrize("zipped", [False, True])
def test_a_long_answer_comes_in_chunks(
    table: SmallTable, server: ServiceServer, zipped: bool
) -> None:
    path = BY_NAME["all_latest_file_slices_before_or_on"].path
    headers = {"Accept-Encoding": "gzip" if zipped else "identity"}
    with HttpClient(server.port, token=None) as client:
        answered = client.request("GET", path, params(table, maxinstant="9" * 17), headers)
        # The connection is good for more, and short answers have their length.
        short = client.request("GET", BY_NAME["timeline"].path, params(table))
    assert "content-length" in short.headers
    assert answered.status == 200
    assert answered.headers["transfer-encoding"] == "chunked"
    assert "content-length" not in answered.headers
    assert answered.headers.get("content-encoding") == ("gzip" if zipped else None)
    assert len(answered.body) > LITTLE // 8
    assert len(json.loads(answered.body)) == PARTITIONS


def test_an_error_in_the_middle_breaks_the_connection_off(
    table: SmallTable, server: ServiceServer
) -> None:
    view = server.parts.views.view(table.storage.base_path)
    LocalView.newest(view).load_all_partitions()
    asked = view.loader.version
    last, fails = f"p{PARTITIONS - 1}", iter((False, True))

    def version(snapshot, partition):
        if partition == last and next(fails):  # not when all are loaded, before the answer begins
            raise StorageUnavailableError("gone")
        return asked(snapshot, partition)

    view.loader.version = version
    path = BY_NAME["all_latest_file_slices_before_or_on"].path
    broken_off = pytest.raises(http.client.IncompleteRead)
    with HttpClient(server.port, token=None) as client, broken_off:
        client.request("GET", path, params(table, maxinstant="9" * 17))
    with HttpClient(server.port, token=None) as client:
        assert client.request("GET", BY_NAME["timeline"].path, params(table)).status == 200


def test_a_reply_is_whole_up_to_a_length() -> None:
    whole = streamed([b"ab", b"c"], 3)
    assert (whole.body, whole.rest) == (b"abc", None)
    parts = streamed([b"ab", b"cd"], 3)
    assert parts.rest is not None
    assert b"".join(parts.rest) == b"abcd"
    zipped = streamed([b"ab", b"cd"], 3, zipped=True)
    assert zipped.rest is not None
    assert gzip.decompress(b"".join(zipped.rest)) == b"abcd"

    def fails() -> Iterator[bytes]:
        yield b"a"
        raise StorageUnavailableError("gone")

    with pytest.raises(StorageUnavailableError):
        streamed(fails(), 3)


def test_work_for_a_disconnected_client_ends(table: SmallTable, server: ServiceServer) -> None:
    route = BY_NAME["all_latest_file_slices_before_or_on"]
    asked: list[bool] = []

    def has_left() -> bool:
        asked.append(len(asked) == 3)
        return asked[-1]

    asking = Question.of(route, params(table, maxinstant="9" * 17), Accepted())
    with pytest.raises(InputError, match="the client has left"):
        server.parts.answers.reply(asking, has_left=has_left)
    assert asked == [False, False, False, True]
