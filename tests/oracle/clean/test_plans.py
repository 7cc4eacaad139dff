"""Our plan of a clean is Hudi's, after any history of a table, by every policy."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.oracle.clean.histories import histories
from tests.oracle.hudi import Hudi
from tests.oracle.view.walk import Walk

pytestmark = pytest.mark.oracle

HISTORIES = histories()


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
