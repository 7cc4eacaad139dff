"""The lock by a lease beside Hudi's provider, on an S3 server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from strandline.commit.lock.base import LockRetries, TableLock
from strandline.commit.lock.storage_based import LOCK_PATH, LockData, StorageBasedLock
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.servers.s3_server import s3_server
from tests.oracle.hudi import Hudi
from tests.oracle.locks.lease_client import HudiLease
from timeline.clock import SystemClock
from timeline.storage.conditional_file import ConditionalFile
from timeline.storage.fsspec_storage import FsspecStorage

pytestmark = pytest.mark.oracle


@pytest.fixture
def storage() -> Iterator[FsspecStorage]:
    with s3_server() as server:
        yield server.storage()


@pytest.fixture
def file(storage: FsspecStorage) -> ConditionalFile:
    return storage.conditional_file(LOCK_PATH)


def stored(file: ConditionalFile) -> tuple[bytes, LockData]:
    found = file.read()
    assert found is not None
    return found[0], LockData.parse(found[0], "the lock")


def test_both_wait_for_each_other(
    hudi: Hudi, storage: FsspecStorage, file: ConditionalFile
) -> None:
    theirs = HudiLease(hudi, storage.base_path, file)
    ours = StorageBasedLock(file)
    with contextlib.closing(ours), contextlib.closing(theirs):
        for _ in range(3):
            assert ours.try_lock(0)
            assert not theirs.try_lock(1)
            ours.unlock()
            assert theirs.try_lock(10_000)
            assert not ours.try_lock(0)
            assert ours.holder().startswith(stored(file)[1].owner)
            theirs.unlock()


def test_both_write_the_same_form(
    hudi: Hudi, storage: FsspecStorage, file: ConditionalFile
) -> None:
    theirs = HudiLease(hudi, storage.base_path, file)
    assert theirs.try_lock(10_000)
    text, data = stored(file)
    assert text == data.to_bytes()
    theirs.unlock()
    text, data = stored(file)
    assert data.expired
    assert text == data.to_bytes()
    theirs.close()


def test_lease_that_ended_is_taken_over(
    hudi: Hudi, storage: FsspecStorage, file: ConditionalFile
) -> None:
    """Hudi takes ours over once it is over; ours takes Hudi's over by a clock ahead of it."""
    past = ManualClock(SystemClock().now_ms() - 301_000)
    ours = StorageBasedLock(file, clock=past)
    theirs = HudiLease(hudi, storage.base_path, file)
    lock = TableLock(ours, LockRetries(1, 0))
    with contextlib.closing(theirs), lock.held("commit 1"):
        assert theirs.try_lock(10_000)
        assert not ours.renew()
    future = ManualClock(SystemClock().now_ms() + 301_000)
    with contextlib.closing(StorageBasedLock(file, clock=future)) as late:
        theirs = HudiLease(hudi, storage.base_path, file)
        assert theirs.try_lock(10_000)
        assert late.try_lock(0)
        theirs.close()
        assert late.is_held()
        assert stored(file)[1].owner == late._owner
