"""The promises of stores and of shared databases, kept by a server of PostgreSQL."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from fsview.local_view import LocalView
from fsview.record.shared import kept_in
from fsview.store.base import Blob
from fsview.store.sql.database import SCHEMA_VERSION
from fsview.store.sql.database_ring import DatabaseRing, Databases
from fsview.store.sql.postgres.database import PAUSE_S, PostgresDatabase
from fsview.store.sql.store import SharedStore
from fsview.store.stores import StoreOptions, Stores
from fsview.table_view import TableView
from tests.conformance.lasting_store_suite import LastingStoreSuite
from tests.conformance.shared_store_suite import TABLE, OpenDatabase, SharedStoreSuite, change
from tests.conformance.store_machine import OpenStore
from tests.fleet.postgres_place import new_database
from tests.fsview.store.stored_views import check, small
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.free_port import free_port
from tests.kit.servers.postgres_server import PostgresServer, postgres_server
from tests.kit.servers.stores import blobs_of
from tests.kit.storage.memory_storage import MemoryStorage
from timeline.errors import ConfigError, StoreError, StoreLockedError, StoreUnavailableError
from timeline.storage.table_id import TableId

pytestmark = pytest.mark.fleet

IDLE_S = 1.0
"""Of a server that stops in a test: longer than a busy machine's pauses between statements."""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


@pytest.fixture
def url(server: PostgresServer) -> str:
    return new_database(server)


@pytest.fixture
def open_database(server: PostgresServer) -> Iterator[OpenDatabase]:
    opened: list[PostgresDatabase] = []
    urls: dict[Path, str] = {}

    def open_at(directory: Path) -> PostgresDatabase:
        if directory not in urls:
            urls[directory] = new_database(server)
        opened.append(PostgresDatabase(urls[directory], turn_s=PATIENCE_S))
        return opened[-1]

    yield open_at
    for database in opened:
        database.close()


class TestPostgresStore(LastingStoreSuite):
    """A store that is the only one on its table."""

    examples = 3
    steps = 12

    @pytest.fixture
    def open_store(self, open_database: OpenDatabase) -> OpenStore:
        return lambda directory: SharedStore(open_database(directory), TABLE)


class TestSharedPostgresStore(SharedStoreSuite):
    """Two servers' stores of one table."""


def test_a_head_that_others_keep_locked(url: str) -> None:
    database = PostgresDatabase(url, lock_timeout_s=0.05)
    store = SharedStore(database, TABLE)
    change(store, a=b"1")
    with psycopg.connect(url) as holder:
        holder.execute("SELECT FROM strandline.head FOR NO KEY UPDATE")
        with pytest.raises(StoreLockedError, match=r"127\.0\.0\.1.* locked for 0\.05 s"):
            change(store, a=b"2")
        assert store.rows() == {"a": b"1"}
    change(store, a=b"2")
    database.close()


def test_a_transaction_whose_server_has_stopped_is_ended(url: str) -> None:
    """The next one waits for that, not for the server; the one that stopped gets an error."""
    other = PostgresDatabase(url, lock_timeout_s=60.0)
    stopped = PostgresDatabase(url, idle_timeout_s=IDLE_S)
    store = SharedStore(stopped, TABLE)

    def stop_in_the_middle() -> None:
        with stopped.writing(TABLE) as session:
            session.change_rows({"a": b"never"})
            change(SharedStore(other, TABLE), a=b"1")
            session.change_rows({"b": b"never"})

    with pytest.raises(StoreError, match=r"127\.0\.0\.1"):
        stop_in_the_middle()
    assert store.rows() == {"a": b"1"}
    stopped.close()
    other.close()


def test_a_turn_whose_server_has_stopped_holds_others_up_for_a_moment(url: str) -> None:
    """Then they go on without it."""
    stopped = PostgresDatabase(url, idle_timeout_s=PATIENCE_S)
    other = PostgresDatabase(url, turn_s=0.05)
    with stopped.turn(TABLE) as is_had:
        assert is_had
        for _ in range(2):
            with other.turn(TABLE) as others:
                assert not others
        change(SharedStore(other, TABLE), a=b"1")
    with other.turn(TABLE) as others:
        assert others
    stopped.close()
    other.close()


def test_a_turn_whose_server_has_stopped_is_ended(url: str) -> None:
    """By the database; the server goes on when it runs again, and needs no turn to record."""
    other = PostgresDatabase(url, turn_s=PATIENCE_S)
    stopped = PostgresDatabase(url, idle_timeout_s=IDLE_S)
    with stopped.turn(TABLE) as is_had:
        assert is_had
        with other.turn(TABLE) as others:
            assert others
        change(SharedStore(stopped, TABLE), a=b"1")
    with stopped.turn(TABLE) as is_had:
        assert is_had
    stopped.close()
    other.close()


def test_a_server_that_is_gone_and_comes_back(server: PostgresServer, url: str) -> None:
    database = PostgresDatabase(url)
    store = SharedStore(database, TABLE)
    (chunk,) = store.commit(blobs_of([b"blob"]), lambda _: {"a": b"1"})
    server.stop()
    try:
        for refused in (chunk.read, store.rows, lambda: change(store, a=b"2")):
            with pytest.raises(StoreError, match=r"postgresql://127\.0\.0\.1"):
                refused()
        assert store.status()["blobs"] == 0
        with pytest.raises(StoreError, match="refused"):
            PostgresDatabase(url)
    finally:
        server.start()
    change(store, a=b"2")
    assert chunk.read() == b"blob"
    database.close()


def test_tables_of_another_version(url: str) -> None:
    PostgresDatabase(url).close()
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE strandline.schema_version SET version = 77")
    with pytest.raises(StoreError, match=f"tables of version 77; allowed: {SCHEMA_VERSION}"):
        PostgresDatabase(url)


def test_tables_that_are_not_to_be_made(url: str) -> None:
    for _ in range(2):
        with pytest.raises(StoreError, match="no schema strandline"):
            PostgresDatabase(url, make=False)
    PostgresDatabase(url).close()
    PostgresDatabase(url, make=False).close()


def test_a_schema_of_another_program(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE SCHEMA strandline")
    with pytest.raises(StoreError, match="the schema strandline is another program's"):
        PostgresDatabase(url)


def test_a_url_of_another_kind() -> None:
    with pytest.raises(ConfigError, match="isn't one of PostgreSQL"):
        PostgresDatabase("mysql://somewhere")


def test_errors_have_no_password(server: PostgresServer) -> None:
    with pytest.raises(StoreError, match="no_such_database") as refused:
        PostgresDatabase(f"postgresql://postgres:secret@127.0.0.1:{server.port}/no_such_database")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        (  # a row by its key
            "AS SELECT content FROM row WHERE table_id = $1 AND generation = $3 AND near = $2",
            r"'\x01', '\x03', 1",
        ),
        (  # the blobs near it
            "AS SELECT handle, content FROM blob WHERE table_id = $1 AND near = $2"
            " AND handle = ANY($3)",
            r"'\x01', '\x03', ARRAY['\x02'::bytea]",
        ),
    ],
)
def test_queries_by_row_use_one_part_of_sixteen(url: str, statement: str, values: str) -> None:
    """As the database plans them for any values, and by an index."""
    PostgresDatabase(url).close()
    third = "integer" if "generation" in statement else "bytea[]"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET search_path = strandline")
        connection.execute("SET plan_cache_mode = force_generic_plan")
        connection.execute("SET enable_seqscan = off")
        connection.execute(f"PREPARE of_row(bytea, bytea, {third}) {statement}")
        plan = connection.execute(f"EXPLAIN (ANALYZE) EXECUTE of_row({values})").fetchall()
        text = "\n".join(line for (line,) in plan)
        storage = connection.execute(
            "SELECT DISTINCT attstorage FROM pg_attribute JOIN pg_class ON attrelid = oid"
            " WHERE relname ~ '^blob_[0-9]+$' AND attname = 'content'"
        ).fetchall()
    assert "Subplans Removed: 15" in text
    assert "Index" in text
    assert storage == [("e",)]


def test_a_table_is_even_over_the_parts(url: str) -> None:
    """A large one makes no part hot, though its rows' names are much alike."""
    database = PostgresDatabase(url)
    store = SharedStore(database, TABLE)
    names = [f"p 2026/{day:03}/{hour:02}" for day in range(100) for hour in range(24)]
    chunks = [chunk for name in names for chunk in store.commit([Blob(b"1", name)])]
    store.commit([], lambda _: dict.fromkeys(names, b"1"))
    with psycopg.connect(url) as connection:
        for table in ("row", "blob"):
            found = connection.execute(
                f"SELECT count(*) FROM strandline.{table} GROUP BY tableoid"  # type: ignore[arg-type]
            ).fetchall()
            counts = [count for (count,) in found]
            assert len(counts) == 16
            assert sum(counts) == len(names) == len(chunks)
            assert max(counts) < 1.4 * len(names) / 16
            assert min(counts) > 0.6 * len(names) / 16
    database.close()


def test_of_two_databases_one_is_away(tmp_path: Path) -> None:
    """Its tables are followed in memory, those of the other are recorded."""
    here = f"sqlite://{tmp_path}/here.db"
    away = f"postgresql://me:s3cr3t@127.0.0.1:{free_port()}/views"
    stores = Stores(StoreOptions("sql", urls=(here, away)))
    ring = DatabaseRing([here, away])
    seen = set()
    for n in range(12):
        table = small(MemoryStorage(f"/memory/{n}"))
        table_id = TableId.of(table.storage.base_path)
        store = stores.open(table_id)
        assert isinstance(store, SharedStore)
        view = TableView(table.storage, record=kept_in(store))
        check(LocalView.synced(view), table.storage)
        table.write(("a", "new"))
        check(LocalView.synced(view), table.storage)
        seen.add(ring.url_of(table_id))
        assert (store.status()["blobs"] > 0) == (ring.url_of(table_id) == here)
        view.close()
    assert seen == {here, away}
    assert "s3cr3t" not in str(stores.status())
    stores.close()


def test_a_database_that_is_away_at_the_start_is_used_once_it_is_there(
    server: PostgresServer, url: str
) -> None:
    """A new table is followed in memory until then, and recorded after it, with what was loaded."""
    table = small(MemoryStorage())
    table_id = TableId.of(table.storage.base_path)
    server.stop()
    try:
        stores = Stores(StoreOptions("sql", urls=(url,)))
        store = stores.open(table_id)
        view = TableView(table.storage, record=kept_in(store))
        for _ in range(2):
            check(LocalView.synced(view), table.storage)
            table.write(("a", "new"))
        with pytest.raises(StoreUnavailableError, match="refused"):
            store.rows()
    finally:
        server.start()
    check(LocalView.synced(view), table.storage)
    assert store.rows()
    other = Stores(StoreOptions("sql", urls=(url,)))
    joined = TableView(table.storage, record=kept_in(other.open(table_id)))
    assert joined.state.recorded() is not None
    check(LocalView.synced(joined), table.storage)
    for closed in (view, joined, stores, other):
        closed.close()


def test_servers_with_other_databases_are_refused(server: PostgresServer, url: str) -> None:
    other = new_database(server)
    ring = DatabaseRing([url, other])
    for _ in range(2):
        Databases(ring).close()
    with pytest.raises(StoreError, match="is for servers with the databases"):
        Databases(DatabaseRing([url]))
    database = PostgresDatabase(other)
    database.spread("")
    database.close()
    Databases(DatabaseRing([other])).close()
    with pytest.raises(StoreError, match="is for servers with one database"):
        Databases(ring)


@contextmanager
def stopped(url: str) -> Iterator[None]:
    """Stop the processes of a database that serve Strandline: they take bytes, and don't answer."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT pid FROM pg_stat_activity"
            " WHERE application_name = 'strandline' AND datname = current_database()"
        ).fetchall()
    assert found
    for (pid,) in found:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for (pid,) in found:
            os.kill(pid, signal.SIGCONT)


def test_a_database_that_does_not_answer_is_away(url: str) -> None:
    """It isn't asked again for a while, and then over another connection."""
    clock = ManualClock(0)
    database = PostgresDatabase(url, answer_timeout_s=0.2, clock=clock)
    store = SharedStore(database, TABLE)
    change(store, a=b"1")
    with stopped(url):
        with pytest.raises(StoreUnavailableError, match=r"no answer for 0\.2 s"):
            store.rows()
        with pytest.raises(StoreUnavailableError, match="didn't answer a moment ago"):
            store.rows()
        clock.advance(int(PAUSE_S * 1000))
        assert store.rows() == {"a": b"1"}
    change(store, a=b"2")
    database.close()


def test_a_database_that_stops_while_it_is_sent_much(url: str) -> None:
    database = PostgresDatabase(url, answer_timeout_s=0.2, clock=ManualClock(0))
    store = SharedStore(database, TABLE)
    change(store, a=b"1")
    much = [(store._new_handle(), blob) for blob in blobs_of([b"x" * 1_000_000] * 30)]

    def send() -> None:
        with database.writing(TABLE) as session, stopped(url):
            session.add_blobs(much)

    with pytest.raises(StoreUnavailableError, match=r"no answer for 0\.2 s"):
        send()
    database.close()


def test_a_connection_that_is_refused_late_is_not_tried_again_at_once(url: str) -> None:
    clock, tried = ManualClock(0), []

    def connect(*_: object, **__: object) -> object:
        tried.append(1)
        clock.advance(5_000)
        raise psycopg.OperationalError("connection timeout expired")

    database = PostgresDatabase(url, is_needed=False, connect=connect, clock=clock)
    for _ in range(3):
        with pytest.raises(StoreUnavailableError, match="a moment ago"):
            SharedStore(database, TABLE).rows()
    assert len(tried) == 1
    clock.advance(int(PAUSE_S * 1000))
    with pytest.raises(StoreUnavailableError, match="timeout expired"), database.reading(TABLE):
        pass
    database.close()


def test_connections_are_bounded(url: str) -> None:
    database = PostgresDatabase(url, connections=2, connection_wait_s=0.05)
    with (
        database.reading(TABLE),
        database.reading(TABLE),
        pytest.raises(StoreUnavailableError, match=r"all 2 connections were in use for 0\.05 s"),
        database.reading(TABLE),
    ):
        pass
    with database.reading(TABLE) as session:
        assert session.head() is None
    database.close()


def test_turns_leave_connections_to_what_is_done_in_them(url: str) -> None:
    database = PostgresDatabase(url, connections=4, connection_wait_s=0.05, turn_s=0.05)
    others = [TableId.of(f"/warehouse/{n}") for n in range(3)]
    with database.turn(others[0]) as one, database.turn(others[1]) as two:
        assert (one, two) == (True, True)
        with database.turn(others[2]) as three:
            assert not three
            with database.writing(TABLE), database.reading(TABLE):
                pass
    with database.turn(others[2]) as three:
        assert three
    database.close()


def test_options_of_the_url_come_before_those_that_a_store_needs(url: str) -> None:
    options = "-c%20work_mem%3D1234kB%20-c%20search_path%3Dpublic%20-c%20lock_timeout%3D7"
    database = PostgresDatabase(f"{url}?options={options}&application_name=mine")
    store = SharedStore(database, TABLE)
    change(store, a=b"1")
    with database.reading(TABLE) as session:
        asked = "SELECT current_setting('work_mem'), current_setting('search_path')"
        assert session._cursor.execute(asked).fetchone() == ("1234kB", "strandline")  # type: ignore[attr-defined]
        asked = "SELECT current_setting('lock_timeout'), current_setting('application_name')"
        assert session._cursor.execute(asked).fetchone() == ("10s", "mine")  # type: ignore[attr-defined]
    database.close()
