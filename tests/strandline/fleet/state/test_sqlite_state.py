"""The state store in an SQLite file."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from strandline.fleet.state.base import Put, Versioned
from strandline.fleet.state.sqlite import SqliteState
from tests.conformance.state_lease_suite import ClockLeaseSuite, LeaseSuite
from tests.conformance.state_machine import StateMachine
from tests.conformance.state_subject import children
from tests.conformance.state_suite import StateSuite
from tests.conformance.state_watch_suite import WatchSuite
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.concurrency.patience import PATIENCE_S
from timeline.clock import Clock
from timeline.errors import ConfigError, StateUnavailableError


@dataclass(frozen=True)
class Subject:
    path: Path

    def open(self, clock: Clock | None = None) -> SqliteState:
        # Shorter pauses than by default: tests wait for what another client has changed.
        return SqliteState(self.path, clock, poll_s=0.01)


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    return Subject(tmp_path / "fleet.db")


class TestSqliteState(StateSuite):
    pass


class TestSqliteLeases(LeaseSuite, ClockLeaseSuite):
    pass


class TestSqliteWatches(WatchSuite):
    pass


@pytest.mark.property
def test_random_steps_of_two_clients() -> None:
    with TemporaryDirectory() as directory:
        numbers = iter(range(10_000_000))

        def machine() -> StateMachine:
            path, clock = Path(directory) / f"{next(numbers)}.db", ManualClock(0)
            return StateMachine(lambda: SqliteState(path, clock), clock)

        run_state_machine_as_test(machine, settings=settings(max_examples=40))


def test_versions_go_on_when_the_file_is_opened_again(subject: Subject) -> None:
    with closing(subject.open()) as state:
        before = state.write(Put("a", b"1"))
    with closing(subject.open()) as state:
        assert state.get("a") == Versioned(b"1", before)
        assert state.write(Put("b", b"2")) > before


def test_a_restart_of_the_machine_ends_all_leases(subject: Subject) -> None:
    """Its monotonic clock begins anew, below what the file has."""
    before = ManualClock(0)
    before.advance(1_000_000)
    killed = subject.open(before)
    killed.hold("members/a", b"1", 10.0)
    with closing(subject.open(ManualClock(0))) as state:
        assert children(state, "members") == ()
        lease = state.hold("members/a", b"2", 10.0)
        assert lease.renew()
    killed.close()


def test_leases_that_ended_leave_no_rows(subject: Subject) -> None:
    clock = ManualClock(0)
    with closing(subject.open(clock)) as state:
        for number in range(10):
            state.hold(f"members/{number}", b"x", 10.0)
            clock.advance(10_000)
        with closing(sqlite3.connect(subject.path)) as file:
            assert file.execute("SELECT count(*) FROM state").fetchone() == (1,)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def test_a_locked_file_is_read_but_not_written(subject: Subject) -> None:
    with closing(SqliteState(subject.path, busy_s=0.01)) as state:
        version = state.write(Put("a", b"1"))
        with locked(subject.path):
            assert state.get("a") == Versioned(b"1", version)
            with pytest.raises(StateUnavailableError, match=r"fleet\.db: database is locked"):
                state.write(Put("b", b"2"))
            with closing(SqliteState(subject.path, busy_s=0.01)) as other:
                assert other.get("a") == Versioned(b"1", version)
        assert state.get("b") is None
        state.write(Put("b", b"2"))


def test_a_file_that_was_replaced_is_not_used_any_more(
    subject: Subject, caplog: pytest.LogCaptureFixture
) -> None:
    """Servers started since are in the new file: the old one would be a second fleet."""
    state = subject.open()
    lease = state.hold("a", b"1", 10.0)
    for file in subject.path.parent.glob("fleet.db*"):
        file.unlink()
    for use in (lambda: state.get("a"), lease.renew, lambda: state.write(Put("b", b""))):
        with pytest.raises(StateUnavailableError, match="was deleted or replaced"):
            use()
    with closing(subject.open()) as other:
        other.write(Put("a", b"2"))
        with pytest.raises(StateUnavailableError, match="was deleted or replaced"):
            state.get("a")
    state.close()
    assert "leases end by themselves" in caplog.text


WRITING = """
import sqlite3, sys
file = sqlite3.connect(sys.argv[1])
file.execute("INSERT INTO state (key, value, version) VALUES (?, x'00', 100)", [sys.argv[2]])
file.commit()
file.close()
"""


def test_another_process_that_closes_the_file_leaves_it_to_its_users(subject: Subject) -> None:
    """It would take itself for the last one, and delete the log, if their locks had ended."""
    called = threading.Event()
    with closing(subject.open()) as state, closing(subject.open()) as again:
        cancel = state.watch("", lambda *_: called.set())
        state.write(Put("a", b"1"))
        for number in range(2):
            called.clear()
            written = [sys.executable, "-c", WRITING, subject.path, f"from{number}"]
            subprocess.run(written, check=True)
            assert subject.path.with_name("fleet.db-wal").exists()
            for each in (state, again):
                assert each.get(f"from{number}") == Versioned(b"\0", 100)
            assert called.wait(PATIENCE_S)
        cancel()


def test_a_file_without_its_counter_is_damaged(subject: Subject) -> None:
    with closing(subject.open()) as state:
        with closing(sqlite3.connect(subject.path)) as file:
            file.execute("DELETE FROM last_version")
            file.commit()
        with pytest.raises(StateUnavailableError, match=r"fleet\.db: .*last_version is empty"):
            state.write(Put("a", b"1"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"not a database, but long enough to look at, 0123456789" * 40, "file is not a database"),
        (None, "is no file; allowed: a file"),
    ],
)
def test_what_is_no_file_of_ours_is_refused(
    subject: Subject, content: bytes | None, said: str
) -> None:
    if content is None:
        subject.path.mkdir()
    else:
        subject.path.write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        subject.open()


def test_a_database_of_something_else_is_refused_and_left_alone(subject: Subject) -> None:
    with closing(sqlite3.connect(subject.path)) as file:
        file.execute("CREATE TABLE theirs (x)")
    before = subject.path.read_bytes()
    with pytest.raises(ConfigError, match="is a database of another program"):
        subject.open()
    assert subject.path.read_bytes() == before


def test_another_schema_is_refused(subject: Subject) -> None:
    subject.open().close()
    with closing(sqlite3.connect(subject.path)) as file:
        file.execute("PRAGMA user_version = 2")
    with pytest.raises(ConfigError, match="has tables of version 2, this is for 1"):
        subject.open()
