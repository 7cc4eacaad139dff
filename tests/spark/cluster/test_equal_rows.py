"""Of equal rows with one key the last in the caller's frame is kept, wherever tasks run."""

from __future__ import annotations

import pytest

from tests.spark.cluster.driver import ROOT
from tests.spark.cluster.equal_rows_driver import KEYS, ROWS

pytestmark = pytest.mark.cluster

CASES = [
    ("SIMPLE", "COMMIT_TIME_ORDERING"),
    ("BUCKET", "EVENT_TIME_ORDERING"),
]


def test_the_last_of_equal_rows_is_kept_by_two_executors(run_driver, tmp_path):
    """An executor reads its own shuffled rows before the other's, so they arrive in no order."""
    spec = {
        "master": "local-cluster[2,1,1024]",
        "base": str(tmp_path),
        "cases": CASES,
        "settings": {
            "spark.executorEnv.PYTHONPATH": str(ROOT),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        },
    }
    found = run_driver("equal_rows_driver", spec)
    last = list(range(ROWS - KEYS, ROWS))
    assert found == {index: last for index, _ in CASES}
