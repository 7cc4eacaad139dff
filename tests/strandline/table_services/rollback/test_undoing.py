"""Rollbacks of completed commits, and the writes that would build on them."""

from __future__ import annotations

import json

import pytest

from strandline.commit.others_heartbeats import heartbeat_path
from strandline.table_services.rollback.plan import plan_rollback, reported_files
from tests.kit.storage.hooked_storage import HookedStorage, failing
from tests.kit.tables import reader
from tests.strandline.write.tables import client, row, stored, table
from timeline.clock import SystemClock, TimeGenerator
from timeline.errors import (
    ConcurrentWriteError,
    IllegalTransitionError,
    StorageUnavailableError,
    WriteConflictError,
)
from timeline.instant import COMMIT, ROLLBACK
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage

LOCKED = {
    "write__lock__provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
}
POLICIES = pytest.mark.parametrize("policy", ["EAGER", "LAZY"])


class Died(BaseException):
    """The process ended."""


@pytest.fixture(params=[6, 9], ids=["v6", "v9"])
def base(request, tmp_path):
    batches = [table(row(f"a{n}"), row(f"b{n}", "us")) for n in (1, 2)]
    return stored(tmp_path / "t", *batches, write__table__version=request.param, **LOCKED)


def ids(base):
    return [each["id"] for each in reader.rows(base)]


def die_undoing(base, ending=".rollback.inflight", **options):
    """Leave the rollback of the newest commit as a process of another machine does that dies."""
    newest = max(reader.committed(base))

    def die(kind, path):
        if kind == "create" and path.endswith(ending):
            raise Died

    with client(base, HookedStorage(base, after=die), **options) as c, pytest.raises(Died):
        c.rollback(newest)
    beat_elsewhere(base)
    return newest


def beat_elsewhere(base):
    """Make the heartbeat of a pending rollback that of a process of another machine."""
    meta = TableMetaClient.open(LocalStorage(str(base)))
    (rollback,) = meta.active_timeline().filter(lambda i: i.action == ROLLBACK)
    beat = {"host": "h", "namespace": "", "pid": 7, "started": 1, "token": "t"}
    (base / heartbeat_path(rollback.requested_time)).write_text(json.dumps(beat))


@POLICIES
def test_the_next_write_finishes_it_before_it_begins(base, policy):
    newest = die_undoing(base, **LOCKED)
    with client(base, clean__failed__writes__policy=policy, **LOCKED) as c:
        assert c.upsert(table(row("a1", ts=5))).rolled_back == (newest,)
        assert ids(base) == ["a1", "b1"]
        c.clean()
        c.upsert(table(row("c", "asia")))
    assert ids(base) == ["a1", "b1", "c"]
    assert reader.leftovers(base) == []


@POLICIES
def test_a_rollback_that_deleted_nothing_is_withdrawn(base, policy):
    die_undoing(base, ending=".rollback.requested", **LOCKED)
    with client(base, clean__failed__writes__policy=policy, **LOCKED) as c:
        assert c.upsert(table(row("a1", ts=5))).rolled_back == ()
    assert ids(base) == ["a1", "a2", "b1", "b2"]


def test_without_a_lock_a_write_does_not_begin_beside_it(base):
    newest = die_undoing(base)
    writer = client(base, clean__failed__writes__policy="LAZY")
    with writer, pytest.raises(ConcurrentWriteError, match=f"is undoing commit {newest}"):
        writer.upsert(table(row("a1", ts=5)))
    assert ids(base) == ["a1", "a2", "b1", "b2"]


def test_a_commit_whose_basis_was_rolled_back_is_not_completed(base):
    """By a writer that doesn't look for pending writes, or that took this one for dead."""
    newest = max(reader.committed(base))
    done = []

    def undo(kind, path):
        if kind == "create" and path.endswith(".inflight") and not done:
            meta = TableMetaClient.open(LocalStorage(str(base)))
            target = meta.active_timeline().find(newest)
            plan = plan_rollback(target, reported_files(meta.read(target)), str(base))
            time = TimeGenerator(SystemClock(), meta.config.timezone).next()
            done.append(meta.create_requested(ROLLBACK, time, plan))
            meta.transition_to_inflight(done[0])
            meta.delete_instant_file(target)

    with client(base, HookedStorage(base, after=undo), **LOCKED) as c:
        with pytest.raises(WriteConflictError, match=f"builds on {newest}"):
            c.upsert(table(row("a1", ts=5)))
        assert c.upsert(table(row("a1", ts=6))).rolled_back == (newest,)
    assert ids(base) == ["a1", "b1"]
    assert reader.leftovers(base) == []


def test_a_rollback_sees_a_write_that_began_before_it_was_requested(base):
    newest = max(reader.committed(base))
    began = []

    def begin(kind, path):
        if kind == "create" and path.endswith(".rollback.requested") and not began:
            meta = TableMetaClient.open(LocalStorage(str(base)))
            began.append(meta.create_requested(COMMIT, f"{int(newest) + 1}"))

    writer = client(base, HookedStorage(base, before=begin))
    with writer, pytest.raises(IllegalTransitionError, match="isn't the newest write"):
        writer.rollback(newest)
    assert len(began) == 1
    assert ids(base) == ["a1", "a2", "b1", "b2"]
    meta = TableMetaClient.open(LocalStorage(str(base)))
    assert len(meta.active_timeline().filter(lambda i: i.action == ROLLBACK)) == 0


def failing_when_done(base, error):
    """Return a storage whose calls fail once a rollback has completed."""
    done = []

    def note(kind, path):
        if kind == "create" and path.endswith(".rollback"):
            done.append(path)

    def fail(kind, path):
        if done:
            raise error

    return HookedStorage(base, fail, note)


def test_one_that_is_done_is_no_failure(base, caplog):
    """Its caller would repeat it, and be told that there is no such instant."""
    newest = max(reader.committed(base))
    with client(base, failing_when_done(base, StorageUnavailableError("no connection"))) as c:
        rollback = c.rollback(newest)
    assert ids(base) == ["a1", "b1"]
    meta = TableMetaClient.open(LocalStorage(str(base)))
    assert meta.active_timeline().find(rollback, ROLLBACK).is_completed
    assert f"markers or heartbeat of {newest} stay: no connection" in caplog.text
    assert f"the heartbeat of rollback {rollback} stays: no connection" in caplog.text
    with client(base) as c:
        c.upsert(table(row("a1", ts=5)))
    assert ids(base) == ["a1", "b1"]


def test_a_bug_in_tidying_up_after_one_is_not_hidden(base):
    newest = max(reader.committed(base))
    with (
        client(base, failing_when_done(base, KeyError("a bug"))) as c,
        pytest.raises(KeyError, match="a bug"),
    ):
        c.rollback(newest)


def test_one_that_completed_is_no_failure_although_the_answer_was_lost(base):
    newest = max(reader.committed(base))
    storage = HookedStorage(base, after=failing("create", ".rollback"))
    with client(base, storage) as c:
        rollback = c.rollback(newest)
    found = TableMetaClient.open(LocalStorage(str(base))).active_timeline().find(rollback, ROLLBACK)
    assert found.is_completed
    assert ids(base) == ["a1", "b1"]


def test_one_whose_completion_fails_is_a_failure(base):
    """Readers don't see the commit any more, and the next writer finishes the rollback."""
    newest = max(reader.committed(base))
    storage = HookedStorage(base, failing("create", ".rollback"))
    with client(base, storage) as c, pytest.raises(StorageUnavailableError, match="injected"):
        c.rollback(newest)
    with client(base) as c:
        assert c.upsert(table(row("a1", ts=5))).rolled_back == (newest,)
