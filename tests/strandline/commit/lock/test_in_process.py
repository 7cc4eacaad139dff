from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from strandline.commit.lock import base
from strandline.commit.lock import open as open_module
from strandline.commit.lock.base import Wait
from strandline.commit.lock.open import InProcessLock
from tests.conformance.lock_suite import LockSuite
from tests.kit.concurrency.interrupts import interrupted
from timeline.clock import Clock


@dataclass(frozen=True)
class Subject:
    base_path: str

    def open(self, clock: Clock | None = None, wait: Wait = time.sleep) -> InProcessLock:
        return InProcessLock(self.base_path, clock, wait)


class TestInProcessLock(LockSuite):
    @pytest.fixture
    def subject(self, tmp_path: Path) -> Subject:
        return Subject(str(tmp_path))


def test_spellings_of_one_base_path_share_a_lock(tmp_path: Path) -> None:
    one, two = InProcessLock(f"{tmp_path}/t"), InProcessLock(f"file://{tmp_path}/x/../t/")
    other = InProcessLock(f"{tmp_path}/u")
    assert one.try_lock(0)
    assert not two.try_lock(0)
    assert other.try_lock(0)
    one.close()
    other.close()


def test_an_interrupt_at_any_step_leaves_no_lock_behind(tmp_path: Path) -> None:
    """Interrupted anywhere in ``try_lock``, a client that gives up has released the lock."""
    other = InProcessLock(str(tmp_path))
    for at in itertools.count(1):
        lock = InProcessLock(str(tmp_path))
        was_interrupted = interrupted(lambda lock=lock: lock.try_lock(0), at, (open_module, base))
        lock.close()
        assert other.try_lock(0), f"locked after an interrupt at opcode {at}"
        other.unlock()
        if not was_interrupted:
            break
    assert at > 10


def test_a_release_that_was_interrupted_can_be_repeated(tmp_path: Path) -> None:
    other = InProcessLock(str(tmp_path))
    for at in itertools.count(1):
        lock = InProcessLock(str(tmp_path))
        assert lock.try_lock(0)
        was_interrupted = interrupted(lock.unlock, at, (open_module,))
        lock.unlock()
        assert other.try_lock(0), f"locked after an interrupt at opcode {at}"
        other.unlock()
        if not was_interrupted:
            break
    assert at > 5
