"""The first request of a kind is as fast as later ones, as a ready service imports nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.tables import golden

pytestmark = pytest.mark.property

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("scenario", "first", "after"),
    [
        ("archival_mor_v9", 5, 20),  # what was archived between is read from Parquet files,
        ("archival_cow_v6", 5, 20),  # or from log files
        ("mdt_mor_v9", 5, 8),
        ("mdt_mor_v6", 5, 8),
    ],
)
def test_a_ready_service_imports_nothing_to_answer(
    scenario: str, first: int, after: int, tmp_path: Path
) -> None:
    """To read an archive it imported Arrow's datasets, and pandas: up to 1.4 s. (#12)"""
    base = golden.build(scenario, first, tmp_path / "t")
    newer = golden.build(scenario, after, tmp_path / "after")
    child = [sys.executable, "-m", "tests.strandline.server.process.first_questions", base, newer]
    ended = subprocess.run(child, capture_output=True, text=True, check=False, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == []
