"""The benchmark of slices with logs: what it measures has the same result on each side."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.read.memory import write_table
from benchmarks.read.slices import Bench
from benchmarks.read.spark import WARM, compared, write_tables
from benchmarks.read.table import TableBench
from strandline import Table

pytestmark = pytest.mark.property


def test_rows_are_those_of_hudi_rs(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), 300, 100)
    ours, theirs = bench.merged(), bench.by_hudi()
    assert ours.num_rows == 300
    assert ours.sort_by("id").to_pylist() == theirs.cast(ours.schema).sort_by("id").to_pylist()
    assert len(bench.figures(2)) == 6


def test_figures_of_a_table(tmp_path):
    figures = TableBench(str(tmp_path), 500).figures(1)
    assert len(figures) == 7
    assert all(min(figure.values) >= 0 for figure in figures)


def test_a_slice_with_large_logs(tmp_path: Path) -> None:
    write_table(str(tmp_path), 12, 10)
    scan = Table(tmp_path).scan()
    assert scan.count() == 60
    assert len(list(tmp_path.glob("p/.*.log.*"))) == 2


def test_tables_that_spark_reads(tmp_path: Path) -> None:
    generated, flown = write_tables(str(tmp_path), 300, 0.001)
    assert generated.name == "300 rows"
    assert Table(generated.path).scan().count() == 300
    assert Table(flown.path).scan().count() == 1000
    assert {generated.number, flown.number} == {"amount", "distance"}


def test_sides_are_compared_in_turns_and_must_agree() -> None:
    runs = []
    wall, cpu = compared("t", lambda: runs.append("ours"), lambda: runs.append("Hudi"), 2, 1)
    assert runs[2 * WARM :] == ["ours", "Hudi", "Hudi", "ours"]
    assert (wall.bound.ratio, cpu.bound) == (1, None)
    with pytest.raises(AssertionError, match="t is 1, by Hudi 2"):
        compared("t", lambda: 1, lambda: 2, 2)
