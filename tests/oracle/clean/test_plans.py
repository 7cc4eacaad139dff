"""Our plan of a clean is Hudi's, after any history of a table, by every policy."""

from __future__ import annotations

import json
import os
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
    *("schedule_compaction", "run_compaction"),
    *("schedule_clustering", "run_clustering", "clean", "plan_clean", "ours_cleans", "archive"),
    *("fail_at_commit", "fail_midway", "fail_compaction", "write_beside_failed"),
    *("rollback_failed", "rollback", "savepoint"),
    *(*POLICIES, "plans with files", "empty cleans"),
    *("capped by a pending write", "held by a pending plan"),
    *("partitions to delete", "files of pending plans"),
}
"""What must happen on one history or another, intended differences included."""
RARE: Final = ("restore", "delete_savepoint", "schedule_log_compaction", "run_log_compaction")
"""What needs something else to happen before, so that it must happen at least ``OFTEN``."""
OFTEN: Final = 8


def test_there_are_histories_enough() -> None:
    assert len({history.seed for history in HISTORIES}) == len(HISTORIES) >= 100


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file for each history that was made, which all processes of the run share."""
    base = tmp_path_factory.getbasetemp()
    # With xdist, the parent holds a folder for each process of this run.
    run = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = run / "histories"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)
def test_our_plan_is_hudis(hudi: Hudi, tmp_path: Path, history: Walk, made: Path) -> None:
    from tests.oracle.clean.taking import take  # needs PySpark

    done = take(hudi, history, tmp_path / "t")

    (tmp_path / "done").write_text(json.dumps(done))
    (tmp_path / "done").rename(made / history.name)
    # The last history to end, in whichever process, sees those of all.
    found = [Counter(json.loads(file.read_text())) for file in made.iterdir()]
    if len(found) == len(HISTORIES):
        everything = sum(found, Counter[str]())
        assert {name: everything[name] for name in RARE if everything[name] < OFTEN} == {}
        assert EVERYTHING - everything.keys() == set()
