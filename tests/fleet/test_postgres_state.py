"""The state store in a real PostgreSQL."""

from __future__ import annotations

import os
import signal
import traceback
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from strandline.fleet.roster import Roster
from strandline.fleet.state.base import ABSENT, Check, Delete, Put, StateStore, Versioned
from strandline.fleet.state.postgres import NAMESPACE, PostgresRows, PostgresState
from strandline.fleet.state.url import open_state
from tests.conformance.state_lease_suite import LeaseSuite, holding_process
from tests.conformance.state_machine import StateMachine
from tests.conformance.state_subject import children
from tests.conformance.state_suite import StateSuite
from tests.conformance.state_watch_suite import Told, WatchSuite
from tests.kit.servers.postgres_server import PostgresServer, postgres_server
from tests.strandline.fleet.serve_fleet import check_a_fleet_of_servers
from timeline.clock import Clock
from timeline.errors import (
    ConfigError,
    InputError,
    StateConflictError,
    StateUnavailableError,
)

pytestmark = pytest.mark.fleet


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


@dataclass(frozen=True)
class Subject:
    url: str
    fleet: str
    answer_s: float = 60.0

    def open(self, clock: Clock | None = None) -> PostgresState:
        # Looks often: what no message tells of is seen soon.
        return PostgresState(self.url, self.fleet, look_s=0.05, answer_s=self.answer_s)


@pytest.fixture
def subject(server: PostgresServer) -> Subject:
    return Subject(server.url(), uuid.uuid4().hex)


class TestPostgresState(StateSuite):
    pass


class TestPostgresLeases(LeaseSuite):
    pass


class TestPostgresWatches(WatchSuite):
    pass


def test_random_steps_of_two_clients(server: PostgresServer) -> None:
    def machine() -> StateMachine:
        return StateMachine(Subject(server.url(), uuid.uuid4().hex).open)

    few = settings(max_examples=25, stateful_step_count=25, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(machine, settings=few)


def wait_until_absent(state: StateStore, key: str) -> None:
    told = Told()
    cancel = state.watch(key, told)
    while state.get(key) is not None:
        told.wait()
    cancel()


def test_the_lease_of_a_silent_holder_ends_and_that_is_told(subject: Subject) -> None:
    with closing(subject.open()) as one, closing(subject.open()) as two:
        lease = one.hold("members/a", b"1", 1.0)
        wait_until_absent(two, "members/a")
        with pytest.raises(StateConflictError, match="'members/a' is absent"):
            two.write(Check("members/a", lease.version), Put("seats/1", b""))
        assert not lease.renew()
        held = two.hold("members/a", b"2", 60.0)
        assert not lease.renew(b"still me")
        lease.release()
        assert one.get("members/a") == Versioned(b"2", held.version)


def test_a_key_can_be_put_where_a_lease_has_ended(subject: Subject) -> None:
    with closing(subject.open()) as state:
        lease = state.hold("a", b"1", 1.0)
        wait_until_absent(state, "a")
        version = state.write(Put("a", b"2"))
        assert version > lease.version
        assert not lease.renew()
        assert state.get("a") == Versioned(b"2", version)


@contextmanager
def transaction(url: str) -> Iterator[psycopg.Cursor]:
    """A transaction that is committed at the end of the block."""
    with psycopg.connect(url) as connection:
        connection.execute(f"SET search_path TO {NAMESPACE}")
        yield connection.cursor(binary=True)


def wait_for_lock(url: str, call: Future[Any]) -> None:
    """Return when a transaction waits for a lock, or the call has ended."""
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    with psycopg.connect(url, autocommit=True) as admin:
        while not call.done() and admin.execute(waiting).fetchone() == (0,):
            pass


def move_renewals(url: str, key: str, hours: int) -> None:
    with transaction(url) as cursor:
        changed = "UPDATE state SET renewed = renewed + make_interval(hours => %s) WHERE key = %s"
        cursor.execute(changed, (hours, key))


def test_a_renewal_that_is_not_committed_yet_is_awaited(subject: Subject) -> None:
    """Until then its lease seems to have ended, and what it has could be given to another."""
    with closing(subject.open()) as state, ThreadPoolExecutor(1) as pool:
        lease = state.hold("a", b"1", 60.0)
        move_renewals(subject.url, "a", -1)
        with transaction(subject.url) as renewal:
            renewal.execute("UPDATE state SET renewed = clock_timestamp() WHERE key = 'a'")
            assert state.get("a") is None
            writing = pool.submit(state.write, Check("a", ABSENT), Put("b", b"mine"))
            wait_for_lock(subject.url, writing)
        with pytest.raises(StateConflictError, match=f"'a' is at version {lease.version}"):
            writing.result()
        assert lease.renew()


def test_a_renewal_that_waits_has_locked_nothing_else(subject: Subject) -> None:
    """Not the leases that it deletes, either: the writer that it waits for may need these."""
    with closing(subject.open()) as state, ThreadPoolExecutor(1) as pool:
        lease = state.hold("renewed", b"1", 60.0)
        state.hold("ended", b"2", 60.0)
        move_renewals(subject.url, "ended", -1)
        with transaction(subject.url) as cursor:
            rows = PostgresRows(cursor, subject.fleet)
            assert rows.find("renewed")
            renewing = pool.submit(lease.renew)
            wait_for_lock(subject.url, renewing)
            assert not renewing.done()
            assert not rows.find("ended")
        assert renewing.result()


@pytest.mark.property
def test_the_lease_of_a_killed_process_ends(subject: Subject) -> None:
    with holding_process(subject) as process, closing(subject.open()) as state:
        assert children(state, "members") == ("killed",)
        process.kill()
        process.join()
        wait_until_absent(state, "members/killed")


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_was_set_ends_leases(subject: Subject, hours: int) -> None:
    """What is left of one: a renewal an hour from now, or an hour ago."""
    with closing(subject.open()) as state:
        lease = state.hold("a", b"1", 60.0)
        move_renewals(subject.url, "a", hours)
        assert state.get("a") is None
        assert not lease.renew()
        assert state.hold("a", b"2", 60.0).version > lease.version


def test_versions_do_not_come_again_from_a_database_that_fell_back(subject: Subject) -> None:
    """As after a standby has taken over that lacks the newest commits."""
    with closing(subject.open()) as state, psycopg.connect(subject.url, autocommit=True) as admin:
        state.write(Put("a", b"1"))
        kept = admin.execute("SELECT * FROM strandline_fleet.last_version").fetchall()
        lost = state.write(Put("b", b"1"))
        (version,) = (version for fleet, version in kept if fleet == subject.fleet)
        admin.execute(
            "UPDATE strandline_fleet.last_version SET version = %s WHERE fleet = %s",
            (version, subject.fleet),
        )
        assert state.write(Put("c", b"1")) > lost


def test_a_change_is_told_without_looking(subject: Subject) -> None:
    """Two clients that would look only in an hour."""
    with (
        closing(PostgresState(subject.url, subject.fleet, look_s=3600.0)) as one,
        closing(PostgresState(subject.url, subject.fleet, look_s=3600.0)) as two,
    ):
        told = Told()
        two.watch("a", told)
        version = one.write(Put("a", b"1"))
        told.wait()
        one.write(Put("a", b"2", version))
        told.wait()


def test_who_renews_a_lease_ends_silent_ones_and_has_that_told(subject: Subject) -> None:
    """So that no client has to look often."""
    with (
        closing(PostgresState(subject.url, subject.fleet, look_s=3600.0)) as one,
        closing(PostgresState(subject.url, subject.fleet, look_s=3600.0)) as two,
        closing(PostgresState(subject.url, "other", look_s=3600.0)) as other,
        psycopg.connect(subject.url, autocommit=True) as admin,
    ):
        silent, kept = one.hold("members/a", b"", 60.0), two.hold("members/b", b"", 60.0)
        apart = other.hold("members/a", b"", 60.0)
        told = Told()
        one.watch("members/a", told)
        admin.execute(
            "UPDATE strandline_fleet.state SET renewed = renewed - interval '1 hour'"
            " WHERE fleet = %s AND key = 'members/a'",
            (subject.fleet,),
        )
        assert kept.renew()
        told.wait()
        rows = admin.execute(
            "SELECT key FROM strandline_fleet.state WHERE fleet = %s", (subject.fleet,)
        )
        assert rows.fetchall() == [("members/b",)]
        assert not silent.renew()
        assert apart.renew()


def test_a_change_is_found_without_being_told(subject: Subject) -> None:
    """As behind a proxy that passes no messages on."""
    with closing(subject.open()) as state, psycopg.connect(subject.url) as admin:
        told = Told()
        state.watch("a", told)
        admin.execute(
            "INSERT INTO strandline_fleet.state VALUES (%s, 'a', 'x', 1)", (subject.fleet,)
        )
        admin.commit()
        told.wait()


def test_a_server_that_is_away_for_a_while(server: PostgresServer, subject: Subject) -> None:
    with closing(subject.open()) as state:
        version = state.write(Put("a", b"1"))
        lease = state.hold("members/a", b"", 3600.0)
        told = Told()
        state.watch("a", told)
        server.stop()
        try:
            for use in (
                lambda: state.get("a"),
                lambda: children(state, ""),
                lambda: state.write(Put("a", b"2", version)),
                lambda: state.hold("b", b"", 10.0),
                lease.renew,
                subject.open,
            ):
                with pytest.raises(StateUnavailableError, match=r"postgresql://127\.0\.0\.1"):
                    use()
        finally:
            server.start()
        assert state.get("a") == Versioned(b"1", version)
        assert lease.renew()
        state.write(Put("a", b"3", version))
        told.wait()


def test_a_fleet_lives_through_a_restart_of_its_database(
    server: PostgresServer, subject: Subject
) -> None:
    with closing(subject.open()) as one, closing(subject.open()) as two:
        a, b = (
            Roster(state, f"http://{name}:1", dead_s=3600.0)
            for name, state in (("a", one), ("b", two))
        )
        a.join()
        b.join()
        a.step()
        before = b.step()
        server.stop()
        server.start()
        for roster in (a, b):
            assert roster.step() == before  # on another connection: the one before has ended


def test_a_database_that_was_stopped_is_away(server: PostgresServer, subject: Subject) -> None:
    """Its machine answers, its process doesn't."""
    with (
        closing(Subject(subject.url, subject.fleet, answer_s=0.5).open()) as state,
        psycopg.connect(subject.url, autocommit=True) as admin,
    ):
        state.write(Put("a", b"1"))
        pids = [
            pid
            for (pid,) in admin.execute(
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'strandline'"
            )
        ]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(StateUnavailableError):
                state.get("a")
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        assert state.get("a") is not None


def test_a_client_that_stops_while_it_writes_holds_nobody_up(subject: Subject) -> None:
    """The others get an error after a time, and the database ends its transaction."""
    with closing(Subject(subject.url, subject.fleet, answer_s=0.5).open()) as state:
        version = state.write(Put("a", b"1"))
        with psycopg.connect(subject.url) as stopped:
            stopped.execute("SELECT FROM strandline_fleet.last_version FOR UPDATE")
            with pytest.raises(StateUnavailableError, match="timeout"):
                state.write(Put("a", b"2", version))
            assert state.get("a") == Versioned(b"1", version)
        state.write(Put("a", b"2", version))


def test_a_conflict_costs_no_connection(subject: Subject) -> None:
    with closing(subject.open()) as state, psycopg.connect(subject.url) as admin:
        state.write(Put("a", b"1"))
        asked = (
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'strandline' ORDER BY pid"
        )
        before = admin.execute(asked).fetchall()
        for _ in range(3):
            with pytest.raises(StateConflictError):
                state.write(Put("a", b"2"))
        assert admin.execute(asked).fetchall() == before


def test_fleets_are_apart(subject: Subject) -> None:
    with (
        closing(subject.open()) as one,
        closing(Subject(subject.url, f"{subject.fleet}-b").open()) as other,
    ):
        one.write(Put("a", b"1"))
        one.hold("b", b"1", 10.0)
        assert other.get("a") is None
        assert children(other, "") == ()
        other.hold("b", b"1", 10.0)


def test_a_url_with_a_fleets_name_opens_it(subject: Subject) -> None:
    named = f"{subject.url}?connect_timeout=60&fleet={subject.fleet}"
    with closing(subject.open()) as one, closing(open_state(named)) as same:
        one.write(Put("a", b"1"))
        assert children(same, "") == ("a",)


@pytest.mark.parametrize("fleet", ["", "../etc", "a b", "'; DROP SCHEMA strandline_fleet; --"])
def test_a_fleet_has_a_name(server: PostgresServer, fleet: str) -> None:
    with pytest.raises(InputError, match="is no key of a state store"):
        PostgresState(server.url(), fleet)


@pytest.fixture
def url(server: PostgresServer) -> str:
    name = f"d{uuid.uuid4().hex}"
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return server.url(name)


def test_schemas_of_others_are_refused_by_name(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        with pytest.raises(ConfigError, match="there is no schema strandline_fleet"):
            PostgresState(url, "f", make=False)
        connection.execute("CREATE SCHEMA strandline_fleet")
        with pytest.raises(ConfigError, match="the schema strandline_fleet is another program's"):
            PostgresState(url, "f")
        connection.execute("DROP SCHEMA strandline_fleet")
        PostgresState(url, "f").close()
        PostgresState(url, "f", make=False).close()
        role = f"r{uuid.uuid4().hex}"
        connection.execute(f"CREATE ROLE {role} LOGIN")
        with pytest.raises(ConfigError, match=f"the role '{role}' may not use the schema"):
            PostgresState(url.replace("postgres@", f"{role}@"), "f")
        connection.execute("UPDATE strandline_fleet.schema_version SET version = 77")
        with pytest.raises(ConfigError, match="has tables of version 77; allowed: 1"):
            PostgresState(url, "f")


def test_a_role_with_the_rights_that_are_documented_can_do_all(url: str) -> None:
    PostgresState(url, "f").close()
    role, schema = f"r{uuid.uuid4().hex}", "strandline_fleet"
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN")
        admin.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
        rights = "SELECT, INSERT, UPDATE, DELETE"
        admin.execute(f"GRANT {rights} ON ALL TABLES IN SCHEMA {schema} TO {role}")
        with closing(PostgresState(url.replace("postgres@", f"{role}@"), "f")) as state:
            version = state.write(Put("seats/1", b""))
            silent, kept = state.hold("members/a", b"", 60.0), state.hold("members/b", b"", 60.0)
            admin.execute(
                f"UPDATE {schema}.state SET renewed = renewed - interval '1 hour'"
                " WHERE key = 'members/a'"
            )
            assert kept.renew()
            assert not silent.renew()
            assert children(state, "members") == ("b",)
            kept.release()
            state.write(Delete("seats/1", version))
            assert children(state, "") == ()


def test_urls_of_others_are_refused_and_passwords_are_not_shown(server: PostgresServer) -> None:
    with pytest.raises(ConfigError, match="isn't one of PostgreSQL"):
        PostgresState("mysql://somewhere", "f")
    password = "my%secret%pw"
    with pytest.raises(ConfigError, match="or has a bad escape") as refused_url:
        PostgresState(f"postgresql://strandline:{password}@127.0.0.1/db", "f")
    assert "secret" not in "".join(traceback.format_exception(refused_url.value))
    with pytest.raises(StateUnavailableError, match="no_such_database") as refused:
        PostgresState(f"postgresql://postgres:secret@127.0.0.1:{server.port}/no_such_database", "f")
    assert "secret" not in str(refused.value)


def test_servers_with_their_state_here(subject: Subject, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    check_a_fleet_of_servers(tmp_path, f"{subject.url}?fleet={subject.fleet}")
