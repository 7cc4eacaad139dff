"""A write and its table's lock: held around requesting and completing, waited for, lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.commit.lock.base import TableLock
from strandline.commit.lock.file_system import FileSystemLock
from strandline.commit.lock.open import InProcessLock
from strandline.commit.others_heartbeats import HeartbeatSettings
from strandline.commit.own_heartbeat import Heartbeat
from strandline.commit.transaction import Transaction
from strandline.records.commit_history import CommitHistory
from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from strandline.write.options.client_options import parse_options
from strandline.write.target import open_target
from tests.kit.concurrency.running_calls import running_calls
from tests.kit.storage.hooked_storage import Hook, HookedStorage, failing
from tests.kit.tables import reader
from tests.strandline.write.tables import SCHEMA, client, row, stored, table
from timeline.clock import SystemClock
from timeline.errors import (
    ConcurrentWriteError,
    InputError,
    LockError,
    StorageUnavailableError,
    WriteConflictError,
)
from timeline.instant import COMMIT
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage

PACKAGE = "org.apache.hudi.client.transaction.lock."
ONE_ATTEMPT = {"write__lock__client__num_retries": "0", "write__lock__wait_time_ms": "0"}


def locked(base: Path, provider: str, before: Hook | None = None) -> WriteClient:
    storage = HookedStorage(base, before=before)
    named = {"write__lock__provider": PACKAGE + provider, **ONE_ATTEMPT}
    return client(base, storage, **named)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return stored(tmp_path / "t", table(row("a")))


def test_instants_are_requested_and_completed_under_the_lock(base: Path) -> None:
    seen: dict[str, bool] = {}

    def look(kind: str, path: str) -> None:
        if kind == "create":
            seen[path.rpartition(".")[2]] = (base / ".hoodie/lock").exists()

    with locked(base, "FileSystemBasedLockProvider", look) as c:
        c.upsert(table(row("b")))
    assert (seen["requested"], seen["inflight"], seen["commit"]) == (True, False, True)
    assert not (base / ".hoodie/lock").exists()


@pytest.mark.parametrize("provider", ["FileSystemBasedLockProvider", "InProcessLockProvider"])
def test_lock_of_another_writer_is_waited_for_and_named(base: Path, provider: str) -> None:
    theirs = FileSystemLock(f"{base}/.hoodie") if provider[0] == "F" else InProcessLock(str(base))
    before = sorted(path.name for path in (base / ".hoodie/timeline").iterdir())
    with closing(theirs), locked(base, provider) as c:
        assert theirs.try_lock(0)
        with pytest.raises(LockError, match=f"{provider} at {base}.*wasn't acquired") as raised:
            c.upsert(table(row("b")))
        assert raised.value.retryable
        assert sorted(path.name for path in (base / ".hoodie/timeline").iterdir()) == before
        theirs.unlock()
        c.upsert(table(row("b")))
    assert [each["id"] for each in reader.rows(base)] == ["a", "b"]


def test_write_whose_lock_is_lost_before_it_completes_is_not_committed(base: Path) -> None:
    """As by a writer of Hudi's that gives up waiting, which deletes the file."""
    lost: list[str] = []

    def lose(kind: str, path: str) -> None:
        inflights = len(list((base / ".hoodie/timeline").glob("*.inflight")))
        lock = base / ".hoodie/lock"
        if kind == "list" and inflights == 2 and lock.exists() and not lost:
            lock.unlink()
            lost.append(path)

    with locked(base, "FileSystemBasedLockProvider", lose) as c:
        with pytest.raises(LockError, match="was lost during commit"):
            c.insert(table(row("b")))
        assert len(lost) == 1
        assert [each["id"] for each in reader.rows(base)] == ["a"]
        c.insert(table(row("b")))
    assert [each["id"] for each in reader.rows(base)] == ["a", "b"]


def test_lock_that_is_never_released_does_not_make_a_committed_write_fail(
    base: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An error of ``close`` would leave the client's block, and invite to repeat the insert."""
    with locked(base, "FileSystemBasedLockProvider", failing("delete", "/lock")) as c:
        c.insert(table(row("b")))
    assert [each["id"] for each in reader.rows(base)] == ["a", "b"]
    assert "wasn't released when its client closed" in caplog.text
    assert (base / ".hoodie/lock").exists()


def heartbeats() -> set[threading.Thread]:
    return running_calls("heartbeat-")


class InterruptedRelease(InProcessLock):
    """A lock whose first release is interrupted."""

    interrupted = False

    def unlock(self) -> None:
        super().unlock()
        if not self.interrupted:
            self.interrupted = True
            raise KeyboardInterrupt


def test_heartbeat_ends_if_the_release_after_the_request_is_interrupted(base: Path) -> None:
    with client(base) as c:
        lock = TableLock(InterruptedRelease(str(base)))
        c._context = replace(c._context, lock=lock)
        with pytest.raises(KeyboardInterrupt):
            c.upsert(table(row("b")))
        assert heartbeats() == set()
        assert len(c.upsert(table(row("c"))).rolled_back) == 1
    assert [each["id"] for each in reader.rows(base)] == ["a", "c"]


def test_heartbeat_ends_if_the_rollback_of_a_conflict_is_interrupted(base: Path) -> None:
    other = locked(base, "FileSystemBasedLockProvider")
    done: list[str] = []

    def conflict_then_interrupt(kind: str, path: str) -> None:
        if kind == "create" and path.endswith(".inflight") and not done:
            done.append(other.upsert(table(row("a", ts=2))).instant)
        if kind == "create" and path.endswith(".rollback.requested"):
            raise KeyboardInterrupt

    with other, locked(base, "FileSystemBasedLockProvider", conflict_then_interrupt) as c:
        with pytest.raises(KeyboardInterrupt):
            c.upsert(table(row("a", ts=3)))
        assert heartbeats() == set()
        assert len(other.upsert(table(row("b"))).rolled_back) == 1
    assert [(each["id"], each["ts"]) for each in reader.rows(base)] == [("a", 2), ("b", 1)]


class Interrupted(LocalEngine):
    """An engine that runs another write after the table was opened, before the instant is made."""

    def __init__(self, other: Callable[[], object]) -> None:
        super().__init__()
        self._others = [other]

    def collect(self, data: pa.Table) -> pa.Table:
        if self._others:
            self._others.pop()()
        return super().collect(data)


def without_commits(base: Path, **options: object) -> dict[str, object]:
    """Make a table whose first write fails; return the options of its writers."""
    chosen = {"write__lock__provider": PACKAGE + "FileSystemBasedLockProvider", **options}
    storage = HookedStorage(base, before=failing("create", ".requested"))
    with client(base, storage, **chosen) as c, pytest.raises(StorageUnavailableError):
        c.upsert(table(row("z")))
    return chosen


def test_columns_of_a_commit_before_the_request_are_kept(tmp_path: Path) -> None:
    base = tmp_path / "t"
    options = without_commits(base)
    schema = SCHEMA.append(pa.field("extra", pa.string()))
    with client(base, **options) as other:
        engine = Interrupted(
            lambda: other.upsert(table({**row("b"), "extra": "kept"}, schema=schema))
        )
        with client(base, engine=engine, **options) as c:
            with pytest.raises(WriteConflictError, match="another writer changed the schema"):
                c.upsert(table(row("a")))
            assert reader.leftovers(base) == []
            with pytest.raises(InputError, match="extra"):
                c.upsert(table(row("a")))
            c.upsert(table({**row("a"), "extra": "new"}, schema=schema))
    assert [each["extra"] for each in reader.rows(base)] == ["new", "kept"]


def test_a_form_of_keys_that_a_commit_before_the_request_has_is_not_mixed(tmp_path: Path) -> None:
    base = tmp_path / "t"
    options = without_commits(
        base, write__table__version=8, datasource__write__keygenerator__type="COMPLEX"
    )
    target = open_target(LocalStorage(str(base)), parse_options({}), CommitHistory(), create=False)
    with client(base, **options) as other:
        other.upsert(table(row("a")))
    # As if this writer's release wrote the keys of an empty table in the other form.
    target = replace(target, generator=target.generator.matching("a"))
    target, _ = target.columns_of(SCHEMA, CommitHistory())
    with pytest.raises(WriteConflictError, match="another writer changed the form of record keys"):
        target.check_pinned(target.meta.active_timeline(), CommitHistory())


def test_properties_changed_before_the_commit_are_seen(base: Path) -> None:
    def change(kind: str, path: str) -> None:
        if kind == "create" and path.endswith(".inflight"):
            properties = base / ".hoodie/hoodie.properties"
            text = properties.read_text().replace("EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING")
            properties.write_text(text)

    writer = locked(base, "FileSystemBasedLockProvider", change)
    with writer, pytest.raises(WriteConflictError, match="changed the properties"):
        writer.upsert(table(row("a", ts=2)))
    assert [each["ts"] for each in reader.rows(base)] == [1]


def test_a_conflict_is_told_although_the_heartbeat_stays(
    base: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The write is rolled back, and its rows are to be made anew."""

    def conflict(*_: object, **__: object) -> None:
        raise WriteConflictError("another write changed the file")

    undone: list[str] = []

    def note(kind: str, path: str) -> None:
        if kind == "create" and path.endswith(".rollback"):
            undone.append(path)

    def fail(kind: str, path: str) -> None:
        if kind == "delete" and ".heartbeat/" in path and undone:
            raise StorageUnavailableError("no connection")

    monkeypatch.setattr(Transaction, "complete", conflict)
    with client(base, HookedStorage(base, fail, note)) as c:
        with pytest.raises(WriteConflictError, match="another write changed the file"):
            c.upsert(table(row("a", ts=2)))
        monkeypatch.undo()
        assert heartbeats() == set()
        assert c.upsert(table(row("a", ts=3))).rolled_back == ()
    assert len(undone) == 1
    assert "commit__INFLIGHT] stays: no connection" in caplog.text
    assert [each["ts"] for each in reader.rows(base)] == [3]


def test_a_writer_that_began_before_the_request_is_refused_without_a_lock(base: Path) -> None:
    """Both would compare before the other completes, and one of two updates would be lost."""
    storage = LocalStorage(str(base))
    heartbeat = Heartbeat(storage, HeartbeatSettings(), SystemClock())
    other = "20260101000000000"

    def begin() -> None:
        heartbeat.start(other)
        TableMetaClient.open(storage).create_requested(COMMIT, other)

    with client(base, engine=Interrupted(begin)) as c:
        with pytest.raises(ConcurrentWriteError, match=f"{other}.*is being written by process"):
            c.upsert(table(row("a", ts=2)))
        heartbeat.abandon()
        assert len(c.upsert(table(row("a", ts=3))).rolled_back) == 2
    assert [each["ts"] for each in reader.rows(base)] == [3]
