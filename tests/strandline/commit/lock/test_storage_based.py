"""The lock by a lease, on an S3 server: conformance, renewal, expiry, lost answers, Hudi's form."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from strandline.commit.lock.base import LockRetries, TableLock, Wait
from strandline.commit.lock.open import open_lock
from strandline.commit.lock.storage_based import LOCK_PATH, LockData, StorageBasedLock
from strandline.write.options.client_options import parse_options
from tests.conformance.lock_suite import ExpiringLockSuite
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.concurrency.running_calls import running_calls
from tests.kit.servers.s3_server import S3Endpoint
from timeline.clock import Clock, SystemClock
from timeline.errors import AlreadyExistsError, ConfigError, LockError, StorageUnavailableError
from timeline.storage.conditional_file import ConditionalFile
from timeline.storage.fsspec_storage import FsspecStorage
from timeline.storage.local import LocalStorage

pytestmark = [pytest.mark.property, pytest.mark.s3]

VALIDITY_S = 600.0


@dataclass(frozen=True)
class Subject:
    base_path: str
    options: dict[str, Any] = field(hash=False)
    opened: list[StorageBasedLock] = field(default_factory=list, hash=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Subject, (self.base_path, self.options)

    @property
    def storage(self) -> FsspecStorage:
        return FsspecStorage(self.base_path, self.options)

    @property
    def file(self) -> ConditionalFile:
        return self.storage.conditional_file(LOCK_PATH)

    def open(self, clock: Clock | None = None, wait: Wait = time.sleep) -> StorageBasedLock:
        lock = StorageBasedLock(self.file, VALIDITY_S, 60.0, 0.01, clock, wait)
        self.opened.append(lock)
        return lock


@pytest.fixture
def subject(s3: S3Endpoint) -> Iterator[Subject]:
    subject = Subject(s3.storage().base_path, s3.options)
    yield subject
    for lock in subject.opened:
        # Else its thread renews the lease, and logs, long after the server has ended.
        with contextlib.suppress(LockError):
            lock.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(SystemClock().now_ms())


class Troubled(ConditionalFile):
    """A file whose next writes fail: before they are carried out, after, or both by a retry.

    Late ones are carried out by ``carry_out``.
    """

    def __init__(self, file: ConditionalFile, *troubles: str) -> None:
        self.url = file.url
        self.troubles = list(troubles)
        self.written = threading.Event()
        self._file = file
        self._late: list[tuple[bytes, str | None]] = []

    def read(self) -> tuple[bytes, str] | None:
        return self._file.read()

    def carry_out(self) -> None:
        for data, version in self._late:
            with contextlib.suppress(AlreadyExistsError):
                self._file.write(data, version)

    def write(self, data: bytes, version: str | None) -> str:
        trouble = self.troubles.pop(0) if self.troubles else ""
        if trouble == "not sent":
            raise StorageUnavailableError(trouble)
        if trouble == "unmapped":
            raise RuntimeError(trouble)
        if trouble == "late":
            self._late.append((data, version))
            raise StorageUnavailableError(trouble)
        written = self._file.write(data, version)
        self.written.set()
        if trouble == "no answer":
            raise StorageUnavailableError(trouble)
        if trouble == "repeated":  # as the client of S3 does after a lost answer
            with pytest.raises(AlreadyExistsError):
                self._file.write(data, version)
            raise AlreadyExistsError(trouble)
        return written


class TestStorageBasedLock(ExpiringLockSuite):
    life_ms = round(VALIDITY_S * 1000)

    def losing_an_answer(self, subject: Subject) -> StorageBasedLock:
        return StorageBasedLock(Troubled(subject.file, "no answer"), VALIDITY_S)


def stored(subject: Subject) -> LockData:
    found = subject.file.read()
    assert found is not None
    return LockData.parse(found[0], "the lock")


def test_content_is_that_of_hudi(subject: Subject) -> None:
    clock = ManualClock(1_700_000_000_000)
    provider = subject.open(clock)
    assert provider.try_lock(0)
    owner = stored(subject).owner
    text = f'{{"expired":false,"validUntil":1700000600000,"owner":"{owner}"}}'
    assert subject.storage.read(".hoodie/.locks/table_lock.json") == text.encode()
    provider.unlock()
    assert stored(subject) == LockData(True, 1_700_000_600_000, owner)


def test_foreign_lease_is_taken_when_it_is_over_for_certain(
    subject: Subject, clock: ManualClock
) -> None:
    until_ms = clock.now_ms() + 5_000
    content = f'{{"owner": "hudi", "expired": false, "validUntil": {until_ms}, "added": 1}}'
    subject.file.write(content.encode(), None)
    provider = subject.open(clock)
    assert not provider.try_lock(0)
    assert provider.holder() == "hudi, for another 5 s unless extended"
    clock.advance(5_500)  # the clocks may differ by 500 ms
    assert not provider.try_lock(0)
    clock.advance(1)
    assert provider.try_lock(0)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"expired":0,"validUntil":1,"owner":"x"}', b"[" * 100_000]
)
def test_object_that_is_no_lock_is_left_alone(subject: Subject, content: bytes) -> None:
    subject.file.write(content, None)
    with pytest.raises(LockError, match=r"table_lock\.json isn't the content of a lock"):
        subject.open().try_lock(0)
    assert subject.storage.read(LOCK_PATH) == content


def test_a_lease_that_has_ended_is_not_extended(subject: Subject, clock: ManualClock) -> None:
    with contextlib.closing(subject.open(clock)) as other:
        provider = subject.open(clock)
        assert provider.try_lock(0)
        clock.advance(600_000)
        assert not provider.renew()
        clock.advance(1_000)
        assert other.try_lock(0)
        with pytest.raises(LockError, match="ended, or was taken by another client"):
            provider.close()


def test_wall_clock_set_back_does_not_lengthen_a_lease(
    subject: Subject, clock: ManualClock
) -> None:
    provider = subject.open(clock)
    assert provider.try_lock(0)
    clock.advance(590_000)
    clock.advance(-580_000)
    clock.advance(10_000)
    assert not provider.is_held()


def test_renewal_extends_the_lease(subject: Subject, clock: ManualClock) -> None:
    provider = subject.open(clock)
    assert provider.try_lock(0)
    until_ms = stored(subject).valid_until_ms
    clock.advance(500_000)
    assert provider.renew()
    assert stored(subject).valid_until_ms == until_ms + 500_000
    clock.advance(500_000)
    assert provider.is_held()
    provider.close()


@pytest.mark.parametrize("troubles", [(), ("", "not sent", "unmapped")])
def test_thread_renews_until_the_release(subject: Subject, troubles: tuple[str, ...]) -> None:
    file = Troubled(subject.file, *troubles)
    before = renewing()
    provider = StorageBasedLock(file, VALIDITY_S, renew_s=0.005)
    assert provider.try_lock(0)
    for _ in range(3):
        file.written.clear()
        assert file.written.wait(PATIENCE_S)
    provider.unlock()
    assert stored(subject).expired
    assert renewing() <= before


def renewing() -> set[threading.Thread]:
    return running_calls("table-lock-renewal")


@pytest.mark.parametrize("trouble", ["not sent", "no answer", "repeated"])
@pytest.mark.parametrize("at", ["acquire", "renew", "release"])
def test_a_lock_is_held_and_released_though_requests_or_answers_are_lost(
    subject: Subject, clock: ManualClock, trouble: str, at: str
) -> None:
    before = {"acquire": 0, "renew": 1, "release": 2}[at]
    file = Troubled(subject.file, *[""] * before, trouble)
    provider = StorageBasedLock(file, VALIDITY_S, 60.0, clock=clock)
    waited: list[float] = []
    lock = TableLock(provider, LockRetries(2, 0, 5), waited.append)
    with lock.held("the test"):
        clock.advance(1_000)
        assert provider.renew()
        lock.check()
        clock.advance(1_000)
        assert provider.renew()
        lock.check()
        assert stored(subject).owner == provider._owner
    assert waited == ([5] if (at, trouble) in LOST_ATTEMPTS else [])
    other = subject.open(clock)
    provider.close()  # repeats a release that failed
    assert stored(subject).expired
    assert other.try_lock(0)


LOST_ATTEMPTS = {("acquire", "not sent"), ("acquire", "no answer")}


def test_a_release_that_comes_late_does_not_end_the_next_lease(
    subject: Subject, clock: ManualClock
) -> None:
    """Two clients would hold the lock. (#32)"""
    file = Troubled(subject.file, "", "late")
    ours = StorageBasedLock(file, VALIDITY_S, 60.0, 0.01, clock)
    subject.opened.append(ours)
    assert ours.try_lock(0)
    with pytest.raises(StorageUnavailableError):
        ours.unlock()
    clock.advance(1)
    assert ours.try_lock(0)
    file.carry_out()
    assert not subject.open(clock).try_lock(0)
    assert ours.is_held()
    ours.unlock()
    assert subject.open(clock).try_lock(0)


@pytest.mark.parametrize("trouble", ["not sent", "unmapped"])
def test_failed_release_is_logged_and_repeated_by_close(
    subject: Subject, caplog: pytest.LogCaptureFixture, trouble: str
) -> None:
    provider = StorageBasedLock(Troubled(subject.file, "", trouble), VALIDITY_S)
    with TableLock(provider, LockRetries(1, 0)).held("commit 7"):
        pass
    assert "wasn't released after commit 7" in caplog.text
    assert not stored(subject).expired
    provider.close()
    assert stored(subject).expired


def test_lease_taken_by_another_is_not_released(subject: Subject, clock: ManualClock) -> None:
    provider = subject.open(clock)
    assert provider.try_lock(0)
    found = subject.file.read()
    assert found is not None
    theirs = LockData(False, clock.now_ms() + 10**6, "hudi")
    subject.file.write(theirs.to_bytes(), found[1])
    assert not provider.renew()
    assert not provider.is_held()
    with pytest.raises(LockError, match="taken by another client"):
        provider.unlock()
    provider.close()
    assert stored(subject) == theirs


def opened(storage: FsspecStorage | LocalStorage, **options: str) -> TableLock:
    named = {f"hoodie.write.lock.storage.{k.replace('__', '.')}": v for k, v in options.items()}
    provider = "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"
    return open_lock(parse_options({"hoodie.write.lock.provider": provider, **named}), storage)


def test_requests_are_counted(subject: Subject) -> None:
    storage = subject.storage
    lock = opened(storage)
    with contextlib.closing(lock), lock.held("the test"):
        lock.check()
    assert storage.calls.snapshot() == {("read", "lock"): 1, ("replace", "lock"): 2}


def test_the_options_set_how_long_a_lock_is_valid(subject: Subject) -> None:
    options = {"validity__timeout__secs": "40", "heartbeat__poll__secs": "4"}
    lock = opened(subject.storage, **options)
    with contextlib.closing(lock), lock.held("the test"):
        left_ms = stored(subject).valid_until_ms - SystemClock().now_ms()
        assert 0 < left_ms <= 40_000
    place = f"{subject.base_path}/.hoodie/.locks/table_lock.json"
    assert lock.describe() == f"StorageBasedLockProvider at {place}"


def test_options_that_are_refused(subject: Subject) -> None:
    with pytest.raises(ConfigError, match=r"validity\.timeout\.secs is 299; allowed: 300 or more"):
        opened(subject.storage, validity__timeout__secs="299")
    with pytest.raises(ConfigError, match="can't lock /t; allowed: a table on s3 or gs"):
        opened(LocalStorage("/t"))
    with pytest.raises(ConfigError, match=r"is on memory.*allowed: s3, gs"):
        opened(FsspecStorage("memory://t"))
