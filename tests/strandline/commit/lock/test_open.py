"""Opening a lock by Hudi's options, and what ``TableLock`` makes of a provider's failures."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.commit.lock.base import LockRetries, TableLock
from strandline.commit.lock.open import InProcessLock, open_lock
from strandline.write.options.client_options import parse_options
from timeline.errors import ConfigError, LockError, StorageUnavailableError
from timeline.storage.local import LocalStorage

PACKAGE = "org.apache.hudi.client.transaction.lock."


def opened(base: Path, **options: str) -> TableLock:
    named = {f"hoodie.write.lock.{name.replace('__', '.')}": v for name, v in options.items()}
    return open_lock(parse_options(named), LocalStorage(str(base)), table_name="trips")


def test_without_a_provider_nothing_is_locked(tmp_path: Path) -> None:
    lock = opened(tmp_path)
    assert not lock.is_shared
    with lock.held("one"):
        lock.check()
        with opened(tmp_path).held("two"):
            pass
    lock.close()


def test_in_process_lock_is_not_shared(tmp_path: Path) -> None:
    lock = opened(tmp_path, provider=PACKAGE + "InProcessLockProvider")
    assert not lock.is_shared
    assert lock.describe() == f"InProcessLockProvider at {tmp_path}"


@pytest.mark.parametrize(
    "name",
    [
        "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider",
        "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider",
        PACKAGE + "NoopLockProvider",
        "InProcessLockProvider",
    ],
)
def test_other_providers_are_refused_by_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError) as raised:
        opened(tmp_path, provider=name)
    for part in ("hoodie.write.lock.provider", name, "allowed: InProcessLockProvider"):
        assert part in str(raised.value)


@pytest.mark.parametrize(
    "name", ["FileSystemBasedLockProvider", "org.apache.hudi.lock.FileSystemBasedLockProvider"]
)
def test_a_provider_by_another_name_is_refused_with_the_right_one(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(ConfigError, match=rf"did you mean {PACKAGE}FileSystemBasedLockProvider\?"):
        opened(tmp_path, provider=name)


def test_retries_are_those_of_the_options(tmp_path: Path) -> None:
    waited: list[float] = []
    held = InProcessLock(str(tmp_path))
    assert held.try_lock(0)
    options = {
        "hoodie.write.lock.provider": PACKAGE + "InProcessLockProvider",
        "hoodie.write.lock.wait_time_ms": "0",
        "hoodie.write.lock.client.num_retries": "2",
        "hoodie.write.lock.client.wait_time_ms_between_retry": "1500",
    }
    lock = open_lock(parse_options(options), LocalStorage(str(tmp_path)), wait=waited.append)
    with pytest.raises(LockError, match="3 attempts"), lock.held("the test"):
        pass
    held.close()
    assert waited == [1.5, 1.5]


class Failing(InProcessLock):
    """A lock whose requests fail after they were carried out, as often as ``errors`` has errors."""

    def __init__(self, base_path: str, *errors: Exception) -> None:
        super().__init__(base_path)
        self.errors = list(errors)

    def try_lock(self, timeout_s: float) -> bool:
        acquired = super().try_lock(timeout_s)
        if self.errors:
            raise self.errors.pop(0)
        return acquired


def test_lost_answer_of_an_attempt_is_followed_by_the_next(tmp_path: Path) -> None:
    provider = Failing(str(tmp_path), StorageUnavailableError("lost"), LockError("lost"))
    waited: list[float] = []
    with TableLock(provider, LockRetries(3, 0, 4), waited.append).held("the test"):
        assert provider.is_held()
    assert waited == [4, 4]
    assert not provider.is_held()


def test_who_gives_up_after_a_lost_answer_leaves_no_lock(tmp_path: Path) -> None:
    provider = Failing(str(tmp_path), *[StorageUnavailableError("lost")] * 2)
    lock = TableLock(provider, LockRetries(2, 0, 4), lambda _: None)
    with pytest.raises(LockError, match="last error: lost"), lock.held("the test"):
        pass
    with TableLock(InProcessLock(str(tmp_path)), LockRetries(1, 0)).held("another"):
        pass


def test_errors_of_configuration_are_not_retried(tmp_path: Path) -> None:
    lock = TableLock(
        Failing(str(tmp_path), ConfigError("wrong")), wait=lambda _: pytest.fail("it waited")
    )
    with pytest.raises(ConfigError), lock.held("the test"):
        pass


def test_lock_is_not_reentrant(tmp_path: Path) -> None:
    lock = TableLock(InProcessLock(str(tmp_path)))
    with lock.held("one"):
        with pytest.raises(RuntimeError, match="held for one, not for two"), lock.held("two"):
            pass
        lock.check()


def test_failed_block_releases(tmp_path: Path) -> None:
    lock = TableLock(InProcessLock(str(tmp_path)), LockRetries(1, 0))
    with pytest.raises(KeyError), lock.held("one"):
        raise KeyError
    with lock.held("two"):
        pass


def test_lock_is_released_for_a_block_and_acquired_again(tmp_path: Path) -> None:
    waited: list[float] = []
    other = InProcessLock(str(tmp_path))

    def end_other(seconds: float) -> None:
        waited.append(seconds)
        other.unlock()

    lock = TableLock(InProcessLock(str(tmp_path)), LockRetries(2, 0, 4), end_other)
    with lock.held("one"):
        with lock.released():
            assert other.try_lock(0)
            with pytest.raises(LockError, match="was lost during one"):
                lock.check()
            with pytest.raises(RuntimeError, match="held for one"), lock.held("two"):
                pass
        assert waited == [4]
        lock.check()
    assert other.try_lock(0)
    with pytest.raises(RuntimeError, match="isn't held"), lock.released():
        pass


@pytest.mark.parametrize("is_taken", [False, True])
def test_block_without_the_lock_that_fails_leaves_it_released(
    tmp_path: Path, is_taken: bool
) -> None:
    """It isn't acquired again if another writer doesn't release it."""
    lock = TableLock(InProcessLock(str(tmp_path)), LockRetries(1, 0))
    other = InProcessLock(str(tmp_path))
    error = LockError if is_taken else KeyError

    def use() -> None:
        with lock.held("one"), lock.released():
            if not is_taken:
                raise KeyError
            assert other.try_lock(0)

    with pytest.raises(error):
        use()
    other.unlock()
    with lock.held("two"):
        pass


def test_threads_of_a_process_need_a_lock_even_if_none_is_named(tmp_path: Path) -> None:
    values, storage = parse_options({}), LocalStorage(str(tmp_path))
    lock = open_lock(values, storage, among_threads=True)
    assert lock.describe() == f"InProcessLockProvider at {tmp_path}"
    assert not open_lock(values, storage).has_provider


def test_without_a_provider_nothing_is_released(tmp_path: Path) -> None:
    lock = TableLock()
    with lock.held("one"), lock.released():
        lock.check()


class Losing(InProcessLock):
    """A lock that is lost at once, which its release reports."""

    def is_held(self) -> bool:
        return False

    def unlock(self) -> None:
        super().unlock()
        raise LockError("lost meanwhile")


def test_loss_is_raised_by_check_and_logged_by_the_release(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lock = TableLock(Losing(str(tmp_path)))
    with lock.held("commit 5"), pytest.raises(LockError, match=r"lost during commit 5"):
        lock.check()
    (logged,) = caplog.messages
    assert "wasn't released after commit 5: lost meanwhile" in logged
