"""A write and its table's lock: held around requesting and completing, waited for, lost."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from strandline.commit.lock.file_system import FileSystemLock
from strandline.commit.lock.in_process import InProcessLock
from strandline.write.client import WriteClient
from tests.kit import reader
from tests.kit.hooked_storage import Hook, HookedStorage
from tests.strandline.write.tables import client, row, table
from timeline.errors import LockError

PACKAGE = "org.apache.hudi.client.transaction.lock."
ONE_ATTEMPT = {"write__lock__client__num_retries": "0", "write__lock__wait_time_ms": "0"}


def locked(base: Path, provider: str, before: Hook | None = None) -> WriteClient:
    storage = HookedStorage(base, before=before)
    named = {"write__lock__provider": PACKAGE + provider, **ONE_ATTEMPT}
    return client(base, storage, **named)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    with client(tmp_path / "t") as c:
        c.upsert(table(row("a")))
    return tmp_path / "t"


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
