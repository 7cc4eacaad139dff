"""A running client whose last timeline is outdated fails no write, its own or another writer's."""

from __future__ import annotations

import threading
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import reader
from tests.strandline.write.faults.test_others_in_doubt import Request
from tests.strandline.write.tables import client, row, table
from timeline.clock import SystemClock
from timeline.errors import InputError
from timeline.storage.local import LocalStorage

KEYS_IN_FOOTERS = {
    "write__table__version": 8,
    "datasource__write__keygenerator__class": "org.apache.hudi.keygen.ComplexKeyGenerator",
}
IN_PROCESS = {
    "write__lock__provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider"
}


SERVICES = {
    "clean": lambda c, _: c.clean(),
    "rollback": lambda c, newest: c.rollback(newest),
}


class AheadClock(SystemClock):
    """A clock three seconds ahead."""

    def now_ms(self):
        return super().now_ms() + 3000


@pytest.fixture
def new_table(tmp_path):
    return tmp_path / "t"


def names(base):
    return {each["name"] for each in reader.rows(base)}


@pytest.mark.parametrize("cleans", [False, True], ids=["rollback", "clean"])
def test_deleted_files_are_not_read(new_table, cleans):
    with client(new_table, **KEYS_IN_FOOTERS) as running:
        running.upsert(table(row("a", ts=1)))
        last = running.upsert(table(row("a", ts=2)))
        with client(new_table, **KEYS_IN_FOOTERS, clean__commits__retained=1) as other:
            if cleans:
                for ts in range(3, 6):
                    other.upsert(table(row("a", ts=ts)))
                assert other.clean().files_deleted
            else:
                other.rollback(last.instant)
        running.upsert(table(row("a", ts=9)))
    assert names(new_table) == {"a@9"}


def test_a_schema_that_was_rolled_back_refuses_no_rows(new_table):
    def rows(value):
        return table(row("a", ts=3)).append_column("extra", pa.array([value]))

    with client(new_table) as running:
        running.upsert(table(row("a", ts=1)))
        mistake = running.upsert(rows(["x"]))
        with client(new_table) as other:
            other.rollback(mistake.instant)
        running.upsert(rows("x"))
        with pytest.raises(InputError):
            running.upsert(rows(["x"]))
    assert [each["extra"] for each in reader.rows(new_table)] == ["x"]


@pytest.mark.parametrize("options", [{}, IN_PROCESS], ids=["no lock", "lock"])
@pytest.mark.parametrize("clock", [SystemClock, AheadClock])
def test_rows_that_another_writers_schema_refuses_leave_no_instant(new_table, clock, options):
    """The instant was requested before that schema was seen. (#16)"""

    def rows(value):
        return table(row("a", ts=3)).append_column("extra", pa.array([value]))

    with client(new_table, **options) as running:
        running.upsert(table(row("a", ts=1)))
        with client(new_table, clock=clock(), **options) as other:
            other.upsert(rows("x"))
        with pytest.raises(InputError):
            running.upsert(rows(["x"]))
        assert not reader.pending(new_table)
        assert list((new_table / ".hoodie" / ".heartbeat").iterdir()) == []
        assert running.upsert(rows("y")).rolled_back == ()
    assert reader.leftovers(new_table) == []


@pytest.mark.parametrize("service", SERVICES)
def test_a_clients_own_services_are_no_other_writers(new_table, service):
    with client(new_table, clean__automatic="false", clean__commits__retained=1) as c:
        for ts in range(3):
            newest = c.upsert(table(row("a", ts=ts))).instant
        assert SERVICES[service](c, newest) is not None
        result = c.upsert(table(row("a", ts=9)))
        assert result.rolled_back == ()
        rollbacks = [name for name in reader.timeline_names(new_table) if "rollback" in name]
        assert len(rollbacks) == (3 if service == "rollback" else 0)
    assert reader.leftovers(new_table) == []


@pytest.mark.property
def test_writers_in_turn_whose_clocks_differ(new_table):
    with client(new_table) as behind, client(new_table, clock=AheadClock()) as ahead:
        behind.upsert(table(row("a", ts=1)))
        for ts in range(2, 6):
            ahead.upsert(table(row("b", ts=ts)))
            assert behind.upsert(table(row("a", ts=ts))).rolled_back == ()
    assert names(new_table) == {"a@5", "b@5"}
    assert not reader.pending(new_table)


@pytest.mark.property
def test_a_writer_that_waited_chooses_a_later_time(base):
    """The other's clock is ahead, and its commit appears while this writer waits for it."""
    clock = ManualClock(SystemClock().now_ms() - 5000)
    with client(base, clock=ManualClock(clock.now_ms() - 55000)) as first:
        first.upsert(table(row("a"), row("b", "us")))
    effects = [Request(base, {}).take_effect]

    def wait(seconds):
        if effects:
            effects.pop()()
        clock.advance(round(seconds * 1000))

    with client(base, clock=clock) as waiting:
        waiting._context = replace(waiting._context, wait=wait)
        waiting.upsert(table(row("a", ts=7)))
    assert not effects
    assert "a@7" in names(base)


class Meeting:
    """An outdated writer that is about to delete its request, and waits for a second writer."""

    def __init__(self, base, options):
        self.about, self.seen, self.gone, self.done = (threading.Event() for _ in range(4))
        self.armed = False
        self.running = client(base, HookedStorage(base, self.before, self.after), **options)
        for ts in (1, 2):
            self.running.upsert(table(row("a", ts=ts)))
        with client(base) as other:
            other.upsert(table(row("c", "asia", ts=2)))
        self.armed = True

    def before(self, kind, path):
        if self.armed and kind == "delete" and path.endswith("commit.requested"):
            self.about.set()
            assert self.seen.wait(PATIENCE_S)

    def after(self, kind, path):
        if self.armed and kind == "delete" and path.endswith("commit.requested"):
            self.armed = False
            self.gone.set()
            assert self.done.wait(PATIENCE_S)

    def see(self):
        self.seen.set()
        assert self.gone.wait(PATIENCE_S)


class PlanReader(LocalStorage):
    """Reads the plan of a replacecommit only when its request is gone."""

    meeting: Meeting

    def read(self, path, *args):
        if path.endswith("replacecommit.requested"):
            self.meeting.see()
        return super().read(path, *args)


def test_a_plan_that_is_gone_is_nobodys(base):
    meeting = Meeting(base, IN_PROCESS)
    meeting.done.set()
    thread = threading.Thread(
        target=meeting.running.insert_overwrite, args=(table(row("a", ts=3)),)
    )
    thread.start()
    assert meeting.about.wait(PATIENCE_S)
    storage = PlanReader(str(base))
    storage.meeting = meeting
    with client(base, storage, **IN_PROCESS) as second:
        second.upsert(table(row("b", "us", ts=3)))
    assert meeting.gone.is_set()
    thread.join()
    meeting.running.close()
    assert {"a@3", "b@3"} <= names(base)


class LateReader(LocalStorage):
    """Lists the other's request after its own, and then waits until that one is gone.

    The clients' copies of a storage (``for_cause``) share its attributes' values.
    """

    def __init__(self, base, meeting, thread):
        super().__init__(str(base))
        self.meeting = meeting
        self.thread = thread
        self.has_requested = threading.Event()

    def list(self, path):
        listed = super().list(path)
        if path.endswith("timeline") and not self.thread.ident:
            self.thread.start()
            assert self.meeting.about.wait(PATIENCE_S)
        return listed

    def create(self, path, data=b""):
        super().create(path, data)
        if path.endswith(".commit.requested"):
            self.has_requested.set()

    def read(self, path, *args):
        if self.has_requested.is_set() and ".heartbeat/" in path:
            self.meeting.see()
        return super().read(path, *args)


def test_a_request_that_is_being_rolled_back_conflicts_with_nothing(base):
    meeting = Meeting(base, {})
    thread = threading.Thread(target=meeting.running.upsert, args=(table(row("a", ts=3)),))
    with client(base, LateReader(base, meeting, thread)) as second:
        second.upsert(table(row("b", "us", ts=3)))
    assert meeting.gone.is_set()
    meeting.done.set()
    thread.join()
    meeting.running.close()
    assert {"a@3", "b@3"} <= names(base)
