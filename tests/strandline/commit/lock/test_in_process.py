from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from strandline.commit.lock.base import Wait
from strandline.commit.lock.in_process import InProcessLock
from tests.conformance.lock_suite import LockSuite
from timeline.clock import Clock


@dataclass(frozen=True)
class Subject:
    base_path: str

    def open(self, clock: Clock | None = None, wait: Wait = time.sleep) -> InProcessLock:
        return InProcessLock(self.base_path)


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
