"""The lock by a file: conformance, Hudi's habits, expiry, lost answers."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest

from strandline.commit.lock.base import LockRetries, TableLock, Wait
from strandline.commit.lock.file_system import FileSystemLock
from strandline.commit.lock.open import open_lock
from strandline.write.options.client_options import parse_options
from tests.conformance.lock_suite import ExpiringLockSuite, SharedLockSuite
from tests.kit.concurrency.manual_clock import ManualClock
from timeline.clock import Clock
from timeline.errors import ConfigError, LockError, StorageUnavailableError
from timeline.storage.fsspec_storage import FsspecStorage
from timeline.storage.local import LocalStorage

EXPIRE_S = 60.0


@dataclass(frozen=True)
class Subject:
    folder: str
    expire_s: float = EXPIRE_S

    def open(self, clock: Clock | None = None, wait: Wait = time.sleep) -> FileSystemLock:
        return FileSystemLock(self.folder, self.expire_s, 0.002, clock, wait)


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    return Subject(str(tmp_path / "t" / ".hoodie"))


class LostAnswers(LocalStorage):
    """A local storage whose answers are lost after the call, as the fields say."""

    lost: set[str]

    def create(self, path: str, data: bytes = b"") -> None:
        super().create(path, data)
        self._lose("create")

    def delete(self, path: str) -> bool:
        deleted = super().delete(path)
        self._lose("delete")
        return deleted

    def _lose(self, kind: str) -> None:
        if kind in self.lost:
            self.lost.remove(kind)
            raise StorageUnavailableError(f"{kind}: no answer")


class TestExpiringFileSystemLock(ExpiringLockSuite):
    life_ms = round(EXPIRE_S * 1000)

    def losing_an_answer(self, subject: Subject) -> FileSystemLock:
        storage = LostAnswers(subject.folder)
        storage.lost = {"create"}
        return FileSystemLock(subject.folder, subject.expire_s, storage=storage)


class TestFileSystemLock(SharedLockSuite):
    """Without an expiry a killed holder's file stays until it is deleted by hand."""

    @pytest.fixture
    def subject(self, tmp_path: Path) -> Subject:
        self.file = tmp_path / "t" / ".hoodie" / "lock"
        return Subject(str(self.file.parent), 0.0)

    def expire(self, clock: ManualClock) -> None:
        clock.advance(10**12)
        self.file.unlink()


def lock_file(subject: Subject) -> Path:
    return Path(subject.folder, "lock")


def test_content_is_that_of_hudi_s_lock_info(subject: Subject) -> None:
    with contextlib.closing(subject.open()) as provider:
        assert provider.try_lock(0)
        text = lock_file(subject).read_text()
        info = json.loads(text)
        assert list(info) == ["lockCreateTime", "lockThreadName", "lockStacksInfo"]
        assert text.startswith('{\n  "lockCreateTime" : "20')
        other = subject.open()
        assert not other.try_lock(0)
        assert other.holder() == f"{info['lockThreadName']} since {info['lockCreateTime']}"
        assert f"{os.getpid()}" in other.holder()


def test_hudi_s_empty_file_is_a_lock(subject: Subject) -> None:
    lock_file(subject).parent.mkdir(parents=True)
    lock_file(subject).touch()
    os.utime(lock_file(subject), (1_700_000_000, 1_700_000_000))
    provider = Subject(subject.folder, 0.0).open()
    assert not provider.try_lock(0)
    since = datetime.fromtimestamp(1_700_000_000).isoformat(" ", "milliseconds")
    assert provider.holder() == f"a writer that the file doesn't name, since {since}"
    provider.close()
    assert lock_file(subject).exists()
    lock_file(subject).unlink()
    assert provider.holder() == ""


def test_giving_up_tells_how_to_remove_the_file_of_a_killed_writer(subject: Subject) -> None:
    with contextlib.closing(subject.open()) as holder:
        assert holder.try_lock(0)
        for expire_s, advice in (
            (0.0, "delete it if no writer of the table is running"),
            (60.0, "older than hoodie.write.lock.filesystem.expire, 1 min"),
        ):
            other = TableLock(Subject(subject.folder, expire_s).open(), LockRetries(2, 0, 0))
            with pytest.raises(LockError) as raised, other.held("the test"):
                pass
            for part in (str(lock_file(subject)), "held by MainThread of", "since 20", advice):
                assert part in str(raised.value)


@pytest.mark.parametrize(
    "happens",
    [
        lambda file: file.unlink(),  # a Hudi writer that gives up waiting closes its provider
        lambda file: file.write_bytes(b""),  # Java looked before ours was created, and overwrote it
    ],
)
def test_deleted_or_overwritten_file_is_a_lost_lock(
    subject: Subject, happens: Callable[[Path], None]
) -> None:
    provider = subject.open()
    assert provider.try_lock(0)
    happens(lock_file(subject))
    assert not provider.is_held()
    with pytest.raises(LockError, match="deleted or replaced while it was held"):
        provider.unlock()
    provider.unlock()


@pytest.mark.parametrize("content", [b"[" * 100_000, b"[1]", b"{}", b"\xff"])
def test_a_file_of_any_content_is_a_lock_until_it_expires(subject: Subject, content: bytes) -> None:
    lock_file(subject).parent.mkdir(parents=True)
    lock_file(subject).write_bytes(content)
    table = LocalStorage(str(Path(subject.folder).parent))
    folder = Path(subject.folder).name
    with contextlib.closing(
        FileSystemLock(subject.folder, EXPIRE_S, 0.002, storage=table, within=folder)
    ) as provider:
        assert not provider.try_lock(0)
        assert provider.holder().startswith("a writer that the file doesn't name, since ")
        os.utime(lock_file(subject), (1, 1))
        assert provider.try_lock(0)


@pytest.mark.property
def test_one_of_many_takes_an_expired_lock_over(subject: Subject) -> None:
    """Each looks at the same old file; none deletes another's new one."""
    for _ in range(20):
        lock_file(subject).parent.mkdir(parents=True, exist_ok=True)
        lock_file(subject).write_bytes(b"")
        os.utime(lock_file(subject), (1, 1))
        providers = [subject.open() for _ in range(8)]
        start = threading.Barrier(8)
        won: list[FileSystemLock] = []

        def take(provider: FileSystemLock, start: threading.Barrier, won: list) -> None:
            start.wait()
            if provider.try_lock(0.05):
                won.append(provider)

        threads = [threading.Thread(target=take, args=(p, start, won)) for p in providers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (holder,) = won
        assert holder.is_held()
        for provider in providers:
            provider.close()


@pytest.mark.parametrize("expire_s", [0.0, EXPIRE_S])
def test_created_file_whose_answer_was_lost_is_ours(subject: Subject, expire_s: float) -> None:
    storage = LostAnswers(subject.folder)
    storage.lost = {"create", "delete"}
    provider = FileSystemLock(subject.folder, expire_s, storage=storage)
    waited: list[float] = []
    lock = TableLock(provider, LockRetries(2, 0, 5), waited.append)
    with lock.held("the test"):
        lock.check()
    assert waited == [5]
    assert storage.lost == set()
    assert not lock_file(subject).exists()


class Repeating(LocalStorage):
    """A storage whose client repeats a create after its own success, as NFS's does."""

    def create(self, path: str, data: bytes = b"") -> None:
        super().create(path, data)
        super().create(path, data)


@pytest.mark.parametrize("expire_s", [0.0, EXPIRE_S])
def test_a_repeated_create_finds_its_own_file(subject: Subject, expire_s: float) -> None:
    """Otherwise nobody would ever delete the file. (#15)"""
    provider = FileSystemLock(subject.folder, expire_s, storage=Repeating(subject.folder))
    assert provider.try_lock(0)
    assert provider.is_held()
    other = FileSystemLock(subject.folder, expire_s, storage=Repeating(subject.folder))
    assert not other.try_lock(0)
    other.close()
    assert provider.is_held()
    provider.close()
    assert not lock_file(subject).exists()


class GivenFolder(LocalStorage):
    """A storage that doesn't make its folder again."""

    def make_dir(self, path: str) -> None:
        pass


def test_a_folder_that_can_not_be_opened_is_an_error_of_the_lock(subject: Subject) -> None:
    """It was an ``OSError``, which failed a write that had committed. (#15)"""
    folder, away = Path(subject.folder), Path(f"{subject.folder}-away")
    folder.mkdir(parents=True)
    provider = FileSystemLock(subject.folder, EXPIRE_S, storage=GivenFolder(subject.folder))
    assert provider.try_lock(0)
    folder.rename(away)
    with pytest.raises(LockError, match="can't be opened: No such file or directory"):
        provider.unlock()
    away.rename(folder)
    provider.unlock()
    assert not lock_file(subject).exists()
    folder.rename(away)
    with pytest.raises(LockError, match="can't be opened"):
        provider.try_lock(0)


def opened(base: str, **options: str) -> TableLock:
    named = {f"hoodie.write.lock.filesystem.{name}": value for name, value in options.items()}
    provider = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
    named["hoodie.write.lock.provider"] = provider
    storage = LocalStorage(base) if base.startswith("/") else FsspecStorage(base)
    return open_lock(parse_options(named), storage)


def test_options_say_where_the_file_is(tmp_path: Path) -> None:
    default, elsewhere = opened(f"{tmp_path}/t"), opened(f"{tmp_path}/t", path=f"file:{tmp_path}/x")
    assert default.is_shared
    with default.held("one"), elsewhere.held("two"):
        assert (tmp_path / "t/.hoodie/lock").exists()
        assert (tmp_path / "x/lock").exists()
    assert default.describe() == f"FileSystemBasedLockProvider at {tmp_path}/t/.hoodie/lock"


@pytest.mark.parametrize(
    ("base", "options", "named"),
    [
        ("memory://t", {}, "the table's base path is memory://t"),
        ("/t", {"path": "s3://b/locks"}, "filesystem.path is s3://b/locks"),
        ("/t", {"path": "hdfs://n/locks"}, "filesystem.path is hdfs://n/locks"),
    ],
)
def test_other_file_systems_are_refused(base: str, options: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError) as raised:
        opened(base, **options)
    assert named in str(raised.value)
    assert "allowed: a local path" in str(raised.value)
