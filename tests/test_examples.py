"""The jobs in `examples/` run as their README says. Those on Spark are in tests/spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from strandline import LocalEngine, Table, WriteClient
from tests.kit.example_commands import JOBS, run_example

SCREEN = 60
"""Maximum lines of an example."""


@pytest.mark.parametrize("name", JOBS)
def test_an_example_fits_on_a_screen(name: str) -> None:
    assert len(JOBS[name].read_text("utf-8").splitlines()) <= SCREEN


@pytest.mark.property
def test_without_an_argument_the_job_says_which_it_needs() -> None:
    ran = subprocess.run(
        [sys.executable, JOBS["without_spark"]],
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == "usage: python examples/without_spark.py BASE_PATH\n"


@pytest.mark.property
def test_the_job_without_spark(tmp_path: Path) -> None:
    printed = run_example("without_spark", tmp_path)
    assert "second commit: 1 updated, 1 inserted" in printed
    rows = Table(tmp_path / "prices").to_arrow(["symbol", "at"]).sort_by("symbol").to_pylist()
    assert rows == [
        {"symbol": "xetr:SAP", "at": 2},
        {"symbol": "xnas:AAPL", "at": 1},
        {"symbol": "xnas:MSFT", "at": 2},
    ]


@pytest.mark.property
def test_queries_of_the_table_of_the_job_without_spark(tmp_path: Path) -> None:
    run_example("without_spark", tmp_path)
    printed = run_example("read_rows", tmp_path)
    polars, duckdb = printed.split("market", 1)
    assert "xnas:MSFT" in polars
    assert "xetr:SAP" not in polars
    assert "xetr" in duckdb
    assert printed.endswith(": 3 rows, now 3\n")
    options = {"hoodie.clean.commits.retained": 1}
    with WriteClient(LocalEngine(), tmp_path / "prices", options) as client:
        client.delete(pa.table({"symbol": ["xnas:AAPL"], "market": ["xnas"], "at": [4]}))
    assert "clean" in Table(tmp_path / "prices").history()["action"].to_pylist()
    assert run_example("read_rows", tmp_path).endswith(": 2 rows, now 2\n")
