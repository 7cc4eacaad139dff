"""Real Hudi at random, our view following: always as Hudi's own, nothing listed twice."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.oracle.hudi import HUDI, HUDI_0, Hudi
from tests.oracle.view.walk import Walk
from tests.oracle.view.walks import ANSWERED, MOVING, WALKS

if TYPE_CHECKING:
    from tests.oracle.view.watcher import Watcher

Take = Callable[[Hudi, Walk, Path], tuple["Watcher", Counter[str]]]

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.oracle

EVERYTHING = {
    *("upsert", "insert", "bulk_insert", "delete", "upsert_with_services"),
    *("insert_overwrite", "insert_overwrite_table", "delete_partition"),
    *("schedule_compaction", "run_compaction", "schedule_log_compaction", "run_log_compaction"),
    *("schedule_clustering", "run_clustering", "clean", "archive"),
    *("fail_at_commit", "fail_midway", "fail_clustering", "fail_compaction"),
    *("write_beside_failed", "rollback_failed", "rollback"),
    *("savepoint", "restore", "delete_savepoint"),
}
"""What Hudi must have done on one walk or another."""


def test_there_are_steps_enough() -> None:
    assert sum(walk.steps for walks in WALKS.values() for walk in walks) >= 200


@pytest.fixture(scope="module")
def done() -> dict[str, Counter[str]]:
    """Counts of Hudi's actions on each walk."""
    return {}


@pytest.fixture(scope="module")
def take() -> Take:
    """The function that takes a walk, imported late as it needs PySpark."""
    from tests.oracle.view.taking import take

    return take


@pytest.mark.parametrize("walk", WALKS[HUDI], ids=lambda walk: walk.name)
def test_we_follow_hudi_wherever_it_walks(
    hudi: Hudi, take: Take, tmp_path: Path, walk: Walk, done: dict[str, Counter[str]]
) -> None:
    watcher, done[walk.name] = take(hudi, walk, tmp_path / "walked")
    assert not watcher.reloads
    assert watcher.share > ANSWERED, watcher.outcome


def test_the_walks_did_everything(done: dict[str, Counter[str]]) -> None:
    if len(done) < len(WALKS[HUDI]):
        pytest.skip("not all walks were taken")
    assert EVERYTHING - set().union(*done.values()) == set()


def test_we_follow_a_table_that_is_moved_to_other_versions(
    hudi: Hudi, take: Take, tmp_path: Path
) -> None:
    watcher, _ = take(hudi, MOVING, tmp_path / "walked")
    assert watcher.reloads == {"table-upgraded": len(MOVING.moves)}


def test_we_follow_an_older_release(tmp_path: Path) -> None:
    """One process has one release."""
    walks = subprocess.run(
        [sys.executable, "-m", "tests.oracle.view.taking", HUDI_0, tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert walks.returncode == 0, walks.stdout + walks.stderr[-8000:]
    sys.stdout.write(walks.stdout)
