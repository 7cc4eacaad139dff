"""Locks whose client is interrupted at any step: giving up releases what it may have acquired."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.commit.lock import base, file_system, storage_based
from strandline.commit.lock.base import LockProvider
from strandline.commit.lock.file_system import FileSystemLock
from strandline.commit.lock.storage_based import StorageBasedLock
from tests.kit.concurrency.interrupts import interrupted
from timeline.errors import AlreadyExistsError, LockError
from timeline.storage.conditional_file import ConditionalFile


class InMemory(ConditionalFile):
    """An object in memory."""

    url = "memory:lock"

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def read(self) -> tuple[bytes, str] | None:
        return (self._written[-1], str(len(self._written))) if self._written else None

    def write(self, data: bytes, version: str | None) -> str:
        if version != (str(len(self._written)) if self._written else None):
            raise AlreadyExistsError(self.url)
        self._written.append(data)
        return str(len(self._written))


@pytest.fixture(params=["file", "lease"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], LockProvider]:
    """Opens clients of one lock."""
    file = InMemory()
    if request.param == "file":
        return lambda: FileSystemLock(str(tmp_path))
    return lambda: StorageBasedLock(file)


@pytest.mark.property
@pytest.mark.parametrize("step", ["try_lock", "unlock"])
def test_an_interrupt_at_any_step_leaves_no_lock_behind(
    opened: Callable[[], LockProvider], step: str
) -> None:
    modules = (base, file_system, storage_based)
    for at in itertools.count(1):
        lock = opened()
        if step == "try_lock":
            was_interrupted = interrupted(lambda lock=lock: lock.try_lock(0), at, modules)
        else:
            assert lock.try_lock(0)
            was_interrupted = interrupted(lock.unlock, at, modules)
        # A file that the interrupted release had deleted is missing now.
        with contextlib.suppress(LockError):
            lock.close()
        other = opened()
        assert other.try_lock(0), f"locked after an interrupt at opcode {at} of {step}"
        other.close()
        if not was_interrupted:
            break
    assert at > 50
