"""Our writer and real Hudi on one table: one is killed or fails, the other repairs the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.oracle.hudi import Hudi
from tests.strandline.write.concurrent.rounds import TIMES, with_lock

pytestmark = pytest.mark.oracle

Report = Callable[[str], None]
LOCKED = with_lock("FileSystemBasedLockProvider")


@pytest.fixture(scope="module")
def kills() -> ModuleType:
    """The module that plays the rounds, imported late as it needs PySpark."""
    from tests.oracle.concurrent import mixed_kills

    return mixed_kills


@pytest.mark.parametrize("seed", [7, 8])
def test_ours_is_killed_20_times(
    hudi: Hudi, kills: ModuleType, tmp_path: Path, report: Report, seed: int
) -> None:
    counts: Counter[str] = kills.play_ours_killed(hudi, tmp_path / "t", LOCKED, 10 * TIMES, seed)
    report(f"ours killed beside Hudi: {dict(counts)}")
    assert counts["rolled back"] >= TIMES


def test_hudi_fails_10_times_and_is_killed_3_times(
    hudi: Hudi, kills: ModuleType, tmp_path: Path, report: Report
) -> None:
    counts: Counter[str] = kills.play_hudi_killed(hudi, tmp_path / "t", LOCKED, 10 * TIMES, seed=8)
    report(f"Hudi failed or killed beside ours: {dict(counts)}")
    assert counts["rolled back"] >= 10 * TIMES
