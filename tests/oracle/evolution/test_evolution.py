"""Random walks over indexes and schemas: rows equal a model's, whoever of both writes."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.oracle.evolution.walks import OURS, STEPS, THEIRS, WALKS
from tests.oracle.hudi import HUDI, HUDI_0, Hudi
from tests.strandline.write.concurrent.rounds import TIMES
from tests.strandline.write.evolution.column_changes import Evolution
from tests.strandline.write.evolution.walk import OPERATIONS

if TYPE_CHECKING:
    from tests.oracle.evolution.walks import EvolvingWalk

Report = Callable[[str], None]

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.oracle


def test_there_are_steps_enough() -> None:
    walks = [walk for walks in WALKS.values() for walk in walks]
    assert sum(walk.steps for walk in walks) == STEPS
    indexes = {"SIMPLE", "BLOOM", "BUCKET", "GLOBAL_SIMPLE", "GLOBAL_BLOOM"}
    assert {walk.rules.index for walk in walks} == indexes
    assert {walk.version for walk in walks} == {6, 8, 9}


def test_both_writers_do_everything() -> None:
    """What a walk draws depends on its seed alone."""
    drawn: set[str] = set()
    for evolving in itertools.chain(*WALKS.values()):
        walk = evolving.begun()
        for who, write in evolving.steps_of(walk):
            drawn |= {f"{who} {write.operation}", f"{who} {write.evolution}"}
            walk.follow(write)
    expected = {f"{who} {what}" for who in (OURS, THEIRS) for what in (*OPERATIONS, *Evolution)}
    assert expected <= drawn


@pytest.mark.parametrize("walk", WALKS[HUDI], ids=str)
def test_rows_are_those_of_the_model(
    hudi: Hudi, tmp_path: Path, walk: EvolvingWalk, report: Report
) -> None:
    from tests.oracle.evolution.taking import take_all  # needs PySpark

    take_all(hudi, [walk], tmp_path, TIMES, report)


def test_beside_an_older_release(tmp_path: Path, report: Report) -> None:
    """One process has one release."""
    module = "tests.oracle.evolution.taking"
    command = [sys.executable, "-m", module, HUDI_0, str(tmp_path), str(TIMES)]
    walks = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert walks.returncode == 0, walks.stdout + walks.stderr[-8000:]
    for line in walks.stdout.splitlines():
        if not line.startswith("#"):  # warnings of Hudi's
            report(line)
