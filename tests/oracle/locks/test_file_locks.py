"""The lock by a file beside Hudi's provider, in both directions."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

import pytest

from strandline.commit.lock.base import LockRetries, TableLock
from strandline.commit.lock.file_system import FileSystemLock
from tests.oracle.hudi import Hudi
from tests.oracle.locks.lock_providers import HudiLock, hudi_lock
from timeline.errors import LockError

pytestmark = pytest.mark.oracle

NAME = "FileSystemBasedLockProvider"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "t" / ".hoodie"


def options(folder: Path, expire_minutes: int = 0) -> dict[str, str]:
    return {
        "hoodie.base.path": str(folder.parent),
        "hoodie.write.lock.filesystem.expire": str(expire_minutes),
    }


def test_hudi_waits_for_us(hudi: Hudi, folder: Path) -> None:
    ours = FileSystemLock(str(folder))
    theirs = HudiLock(hudi, NAME, options(folder))
    assert ours.try_lock(0)
    assert not theirs.try_lock()
    # The form that Hudi means to write: it shows the file's text in its own messages.
    assert f":{os.getpid()} (" in theirs.current_owner
    assert ours.is_held()
    ours.unlock()
    assert theirs.try_lock()
    assert not ours.try_lock(0)
    theirs.unlock()
    assert ours.try_lock(0)
    ours.close()


def test_we_wait_for_hudi(hudi: Hudi, folder: Path) -> None:
    ours = FileSystemLock(str(folder))
    with hudi_lock(hudi, NAME, options(folder)) as theirs:
        assert theirs.try_lock()
        assert (folder / "lock").read_bytes() == b""
        assert not ours.try_lock(0)
        theirs.unlock()
        assert ours.try_lock(0)
        ours.unlock()
        assert theirs.try_lock()
    assert ours.try_lock(0)  # Hudi's checksum file isn't in the way
    ours.close()
    assert list(folder.iterdir()) == []


def test_hudi_that_gives_up_deletes_our_lock_which_we_notice(hudi: Hudi, folder: Path) -> None:
    """Its provider deletes the file when it is closed, whoever holds it."""
    lock = TableLock(FileSystemLock(str(folder)), LockRetries(1, 0))
    with lock.held("commit 1"):
        with hudi_lock(hudi, NAME, options(folder)) as theirs:
            assert not theirs.try_lock()
            lock.check()
        with pytest.raises(LockError, match="lost during commit 1"):
            lock.check()


@pytest.mark.parametrize("ours_expires", [True, False])
def test_expired_lock_is_taken_over(hudi: Hudi, folder: Path, *, ours_expires: bool) -> None:
    ours = FileSystemLock(str(folder), expire_s=60)
    theirs = HudiLock(hudi, NAME, options(folder, 1))
    first, second = (ours, theirs) if ours_expires else (theirs, ours)
    assert first.try_lock(0)
    assert not second.try_lock(0)
    old = time.time() - 61
    os.utime(folder / "lock", (old, old))
    assert second.try_lock(0)
    assert ours.is_held() is not ours_expires
    second.unlock()


def test_both_count_under_the_lock(hudi: Hudi, folder: Path, tmp_path: Path) -> None:
    """Threads of both sides add to one file in two steps, 20 rounds each."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    rounds, failed = 20, []

    def add() -> None:
        counter.write_text(str(int(counter.read_text()) + 1))

    def ours() -> None:
        with contextlib.closing(FileSystemLock(str(folder), interval_s=0.01)) as provider:
            lock = TableLock(provider, LockRetries(10_000, 1, 0.01))
            for _ in range(rounds):
                with lock.held("adding"):
                    add()
                    lock.check()

    def theirs() -> None:
        lock = HudiLock(hudi, NAME, options(folder))
        for _ in range(rounds):
            while not lock.try_lock():
                pass
            add()
            lock.unlock()

    def run(work: object) -> None:
        try:
            work()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in (ours, theirs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert counter.read_text() == str(2 * rounds)
