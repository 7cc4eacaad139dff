"""Our plan of a clean is Hudi's, after any history of a table, by every policy."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from strandline.table_services.clean.policy import POLICIES
from tests.oracle.clean.histories import histories
from tests.oracle.hudi import Hudi
from tests.oracle.view.walk import Walk

pytestmark = pytest.mark.oracle

HISTORIES: Final = histories()
EVERYTHING: Final = {
    *("upsert", "insert", "bulk_insert", "delete", "upsert_with_services"),
    *("insert_overwrite", "insert_overwrite_table", "delete_partition"),
    *("schedule_compaction", "run_compaction", "schedule_log_compaction"),
    *("schedule_clustering", "run_clustering", "clean", "plan_clean", "ours_cleans", "archive"),
    *("fail_at_commit", "fail_midway", "fail_compaction", "write_beside_failed"),
    *("rollback_failed", "rollback", "savepoint", "restore", "delete_savepoint"),
    *(*POLICIES, "plans with files", "empty cleans"),
    *("capped by a pending write", "partitions to delete", "files of pending compactions"),
}
"""What must happen on one history or another, intended differences included."""


def test_there_are_histories_enough() -> None:
    assert len({history.seed for history in HISTORIES}) == len(HISTORIES) >= 100


@pytest.fixture(scope="module")
def done() -> dict[str, Counter[str]]:
    """What was done and compared, by history."""
    return {}


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)
def test_our_plan_is_hudis(
    hudi: Hudi, tmp_path: Path, history: Walk, done: dict[str, Counter[str]]
) -> None:
    from tests.oracle.clean.taking import take  # needs PySpark

    done[history.name] = take(hudi, history, tmp_path / "t")


def test_everything_was_done(done: dict[str, Counter[str]]) -> None:
    if len(done) < len(HISTORIES):
        return  # only some histories were made by this process
    assert EVERYTHING - set(+sum(done.values(), Counter[str]())) == set()
