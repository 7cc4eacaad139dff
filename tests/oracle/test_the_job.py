"""Real Hudi reads the main job's tables: the service on and off, a batch that was killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from demo.feed import KEY, SCHEMA, arrow, batches, flights
from demo.replay import replay
from tests.oracle.hudi import Hudi, Rows, rows_of

ROOT = Path(__file__).parents[2]
DAYS = 3


def by_key(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: tuple(row[name] for name in KEY))


@pytest.mark.oracle
@pytest.mark.parametrize("version", [6, 9])
def test_hudi_reads_what_the_job_wrote(hudi: Hudi, tmp_path: Path, version: int) -> None:
    arguments = ["--storage=local", f"--days={DAYS}", f"--table-version={version}"]
    job = subprocess.run(
        [
            sys.executable,
            "-m",
            "demo",
            *arguments,
            "--path",
            tmp_path,
            "--report",
            tmp_path / "report",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert job.returncode == 0, job.stdout + job.stderr
    expected = by_key(rows_of(arrow(replay(batches(flights(), DAYS)).rows), by="flight"))

    for name in ("service-on", "service-off"):
        frame = hudi.frame(tmp_path / name).select(*SCHEMA.names)
        assert by_key(hudi.rows(frame, by="flight")) == expected
