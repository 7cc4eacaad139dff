"""The benchmark of the stores: our side of it on tiny tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.command import Bench, measured
from benchmarks.results.figures import Figure
from benchmarks.servers.big_table import BigTable, Shape
from benchmarks.stores import PARTS
from fsview.local_view import open_view
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.property


def figures_of(folder: Path, part: str) -> dict[str, Figure]:
    bench = Bench(folder, hudi=None, scale=0.002, rounds=1)
    return {figure.what: figure for figure in measured(bench, PARTS, [part])}


def test_followers_see_partitions_without_files(tmp_path: Path) -> None:
    big = BigTable.create(tmp_path / "big", Shape(partitions=3, groups=4, slices=2))
    view = open_view(LocalStorage(str(big.path)))
    view.load_all_partitions()
    big.extend(2)
    assert big.shape == Shape(partitions=5, groups=4, slices=2)
    view.sync()
    assert [len(view.all_base_files(partition)) for partition in big.partitions] == [8] * 5
    assert not list((tmp_path / "big" / big.partitions[-1]).glob("*.parquet"))


@pytest.mark.property  # it starts several services
@pytest.mark.parametrize("part", ["restart", "cold", "commits"])
def test_a_part_is_measured_without_java(tmp_path: Path, part: str) -> None:
    found = figures_of(tmp_path, part)
    assert found
    assert all(figure.ours and not figure.java for figure in found.values())
    lists = [figure for what, figure in found.items() if "list calls" in what]
    assert all(list(figure.ours) == [0] for figure in lists)
