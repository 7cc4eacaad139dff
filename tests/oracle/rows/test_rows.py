"""Random walks of real Hudi over merge-on-read tables: our rows equal those that Spark reads."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.oracle.hudi import HUDI, HUDI_0, Hudi
from tests.oracle.rows.walks import WALKS

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.oracle

EVERYTHING = {
    *("upsert", "insert", "delete", "delete_partition", "insert_overwrite"),
    *("schedule_compaction", "run_compaction", "schedule_log_compaction", "run_log_compaction"),
    *("schedule_clustering", "run_clustering", "clean", "archive", "rollback"),
    *("savepoint", "restore", "fail_at_commit", "partial_update"),
}
"""What Hudi must have done on one walk or another."""


def test_there_are_steps_enough() -> None:
    assert sum(walk.steps for walks in WALKS.values() for walk in walks) >= 200


def test_rows_are_those_that_spark_reads(hudi: Hudi, tmp_path: Path) -> None:
    from tests.oracle.rows.taking import take_all  # needs PySpark

    done: Counter[str] = take_all(hudi, WALKS[HUDI], tmp_path)
    assert EVERYTHING - done.keys() == set()


def test_rows_of_an_older_release_are_those_that_spark_reads(tmp_path: Path) -> None:
    """One process has one release."""
    walks = subprocess.run(
        [sys.executable, "-m", "tests.oracle.rows.taking", HUDI_0, tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert walks.returncode == 0, walks.stdout + walks.stderr[-8000:]
    sys.stdout.write(walks.stdout)
