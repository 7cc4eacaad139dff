"""Random walks in which our writer and real Hudi take turns at one table: rows equal a model's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.oracle.hudi import HUDI, HUDI_0, Hudi
from tests.oracle.turns.walks import WALKS
from tests.strandline.write.concurrent.rounds import TIMES

if TYPE_CHECKING:
    from tests.oracle.turns.table_form import Walk

Report = Callable[[str], None]
Done = Callable[[str, Mapping[str, int]], None]

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.oracle


def test_there_are_steps_enough() -> None:
    steps: Counter[tuple[str, int, bool]] = Counter()
    for release, walks in WALKS.items():
        for walk in walks:
            steps[release, walk.form.version, walk.form.has_logs] += walk.steps
    written = [(HUDI_0, 6), (HUDI, 6), (HUDI, 8), (HUDI, 9)]
    assert {(*one, has_logs) for one in written for has_logs in (False, True)} == steps.keys()
    assert min(steps.values()) >= 60


@pytest.mark.parametrize("walk", WALKS[HUDI], ids=lambda walk: walk.name)
def test_rows_are_those_of_the_model(
    hudi: Hudi, tmp_path: Path, walk: Walk, done: Done, report: Report
) -> None:
    from tests.oracle.turns.taking import take_all  # needs PySpark

    done(walk.name, take_all(hudi, [walk], tmp_path, TIMES, report))


def test_beside_an_older_release(tmp_path: Path, done: Done, report: Report) -> None:
    """One process has one release."""
    command = [sys.executable, "-m", "tests.oracle.turns.taking", HUDI_0, str(tmp_path), str(TIMES)]
    walks = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert walks.returncode == 0, walks.stdout + walks.stderr[-8000:]
    *lines, counts = walks.stdout.splitlines()
    done(HUDI_0, json.loads(counts))
    for line in lines:
        report(line)
