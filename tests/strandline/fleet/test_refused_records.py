"""What a neighbour tells or sends that is of no use costs a server that takes a seat only time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fsview.record.rows import SNAPSHOT
from fsview.store.stores import Stores
from fsview.table_view import TableView
from strandline.fleet.moving.neighbours import MAX_TABLES_BYTES, RECORD, TABLES, Neighbours
from tests.executor_proxy.scripted_server import Hang, Raw, Reply, Request, Script, ScriptedServer
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.live_service import TOKEN
from tests.kit.servers.stores import options_of
from tests.kit.tables.small_table import SmallTable
from tests.strandline.fleet.fixed_fleet import FixedFleet
from tests.strandline.fleet.joining import joined, loaded_fleet, small_table, stream_of
from timeline.errors import BadAnswerError
from timeline.storage.base import Storage
from timeline.storage.local import LocalStorage
from timeline.storage.open import open_storage


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    return small_table(tmp_path / "t")


@pytest.fixture
def fleet(table: SmallTable) -> Iterator[FixedFleet]:
    with loaded_fleet(table) as servers:
        yield servers


def tables_then(table: SmallTable, record: object) -> Script:
    """Return a neighbour that has the table, and answers so when its record is asked for."""

    def script(request: Request) -> Reply | Raw | Hang:
        headers = {name.lower(): value for name, value in request.headers.items()}
        assert headers["authorization"] == f"Bearer {TOKEN}"
        if request.path == TABLES:
            return Reply(json.dumps([f"file://{table.storage.base_path}"]).encode())
        assert request.path == RECORD
        assert request.params == {"basepath": f"file://{table.storage.base_path}"}
        return record  # type: ignore[return-value]

    return script


def hanging(server: ScriptedServer, code: str, path: str) -> tuple[str, str] | None:
    return (server.url, path) if code == "service_timeout" else None


def chunked(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"%x\r\n%b\r\n" % (
        len(body),
        body,
    )


def other_table(table: SmallTable) -> bytes:
    path = f"{table.storage.base_path}-other"
    other = SmallTable(LocalStorage(path))
    other.write(("p=0", "0-0"))
    return stream_of(other)


BAD: dict[str, tuple[Callable[[SmallTable], object], str]] = {
    "killed in mid-stream": (
        lambda table: Raw(chunked(stream_of(table)[:1000])),
        "service_unreachable",
    ),
    "killed in a chunk": (
        lambda table: Raw(chunked(stream_of(table))[:1000]),
        "service_unreachable",
    ),
    "killed before the length": (
        lambda table: Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n" + stream_of(table)),
        "service_unreachable",
    ),
    "gone": (lambda _: Raw(), "service_unreachable"),
    "hangs": (lambda _: Hang(), "service_timeout"),
    "without its end": (lambda table: Reply(stream_of(table)[:-50]), "bad_answer"),
    "damaged": (
        lambda table: Reply(stream_of(table).replace(b'"format"', b'"famort"')),
        "bad_answer",
    ),
    "of another table": (lambda table: Reply(other_table(table)), "bad_answer"),
    "goes on": (lambda table: Reply(stream_of(table) + b"x"), "bad_answer"),
    "a huge frame": (
        lambda _: Reply(b"strandline record 1\n\1\0\0\0\0\xff\xff\xff\xff"),
        "bad_answer",
    ),
    "no HTTP": (lambda _: Raw(b"\0" * 100), "bad_answer"),
    "a bad chunk": (
        lambda _: Raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-1\r\n"),
        "service_unreachable",
    ),
    "closed meanwhile": (lambda _: Reply(b"no view is open", status=404), "remote_failure"),
    "another token": (lambda _: Reply(b"no", status=401), "remote_failure"),
}


@pytest.mark.property
@pytest.mark.parametrize(("record", "code"), BAD.values(), ids=BAD)
def test_a_record_that_can_not_be_taken_is_the_next_neighbours(fleet, table, record, code):
    with (
        ScriptedServer(tables_then(table, record(table))) as bad,
        joined(table.storage.base_path, hanging=hanging(bad, code, RECORD)) as server,
    ):
        counts = server.fetch(bad.url, fleet.urls[0])
        # Which of the two comes first, the ring says.
        assert counts in ({code: 1, "taken": 1}, {"taken": 1})
        server.check(table)


@pytest.mark.property
@pytest.mark.parametrize(("record", "code"), BAD.values(), ids=BAD)
def test_without_another_neighbour_the_table_is_loaded_as_before(table, record, code):
    with (
        ScriptedServer(tables_then(table, record(table))) as bad,
        joined(table.storage.base_path, hanging=hanging(bad, code, RECORD)) as server,
    ):
        assert server.fetch(bad.url) == {code: 1, "loaded": 1}
        server.check(table, is_taken=False)


def test_a_record_that_is_too_long_is_not_taken(fleet, table, tmp_path):
    stores = Stores(options_of("memory", tmp_path, 4 * 100))
    with joined(table.storage.base_path, stores=stores) as server:
        assert server.fetch(fleet.urls[0]) == {"bad_answer": 1, "loaded": 1}


@pytest.mark.property
@pytest.mark.parametrize(
    ("told", "code"),
    [
        (Reply(b"{}"), "bad_answer"),
        (Reply(b"[1]"), "bad_answer"),
        (Reply(b"\xff"), "bad_answer"),
        (Reply(b"[" * 200_000), "bad_answer"),
        (Reply(b'["file:///t/\\ud800"]'), "bad_answer"),
        (Reply(b'["' + b"x" * 20_000 + b'"]'), "bad_answer"),
        (Reply(b"[" + b'"x",' * (MAX_TABLES_BYTES // 2) + b'""]'), "bad_answer"),
        (Reply(b"no", status=401), "remote_failure"),
        (Raw(), "service_unreachable"),
        (Hang(), "service_timeout"),
        (Reply(b'["file:///t", ""]'), "bad_answer"),
        (Reply(b'["relative"]'), "bad_answer"),
        (Reply(b'["file:///t/../u"]'), "bad_answer"),
        (Reply(b'["s3://elsewhere/t"]'), ""),
    ],
)
def test_a_neighbour_that_tells_nothing_of_use_keeps_nobody_waiting(fleet, table, told, code):
    with (
        ScriptedServer(lambda _: told) as bad,
        joined(table.storage.base_path, hanging=hanging(bad, code, TABLES)) as server,
    ):
        counts = server.fetch(bad.url, fleet.urls[0])
        assert counts.pop("taken") == 1
        assert counts == ({code: 1} if code else {"root_not_allowed": 1})
        server.check(table)


def test_a_neighbour_with_an_address_that_is_none_is_left_out(fleet, table):
    with joined(table.storage.base_path) as server:
        assert server.fetch("ftp://a", fleet.urls[0]) == {"config": 1, "taken": 1}


def test_a_stream_longer_than_asked_for_is_broken_off(fleet, table):
    """The socket counts, too: a length isn't believed."""
    with ScriptedServer(lambda _: Reply(b"x" * (8 << 20))) as long:
        stream = Neighbours(TOKEN).record(long.url, "/t", 10, PATIENCE_S)
        with pytest.raises(BadAnswerError, match="longer than"):
            list(stream)


def test_a_table_that_fails_in_an_unforeseen_way_costs_the_others_nothing(table):
    base, odd = f"file://{table.storage.base_path}", f"file://{table.storage.base_path}-0"

    def opener(base_path: str, options: Mapping[str, Any] | None) -> Storage:
        if base_path.endswith("-0"):
            raise RuntimeError("odd")
        return open_storage(base_path, options)

    def script(request: Request) -> Reply:
        is_list = request.path == TABLES
        return Reply(json.dumps([odd, base]).encode() if is_list else stream_of(table))

    root = str(Path(table.storage.base_path).parent)
    with ScriptedServer(script) as neighbour, joined(root, opener=opener) as server:
        assert server.fetch(neighbour.url) == {"taken": 1, "unforeseen": 1}
        server.check(table)


@pytest.mark.parametrize("kind", ["rocksdb", "sql"])
def test_instead_of_an_own_record_that_can_not_be_read_a_neighbour_s_is_taken(
    fleet, table, tmp_path, kind
):
    base_path = table.storage.base_path
    with joined(base_path, stores=Stores(options_of(kind, tmp_path))) as server:
        assert server.fetch(fleet.urls[0]) == {"taken": 1}
    with (
        closing(Stores(options_of(kind, tmp_path))) as stores,
        closing(stores.open(TableView(table.storage).table_id)) as store,
    ):
        store.rows()
        store.commit([], lambda _: {SNAPSHOT: b"{}"})
    with joined(base_path, stores=Stores(options_of(kind, tmp_path))) as server:
        assert server.fetch(fleet.urls[0]) == {"record_lost": 1, "taken": 1}
        server.check(table)
