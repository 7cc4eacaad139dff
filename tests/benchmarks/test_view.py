"""The benchmark of the view: its tables, its figures, and our side of a run on a tiny table."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.command import Bench, measured
from benchmarks.results.figures import NO_TARGET, Figure, Target, table
from benchmarks.servers.big_table import BigTable, Shape
from benchmarks.view import PARTS
from fsview.local_view import open_view
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.property


@pytest.fixture
def big(tmp_path: Path) -> BigTable:
    return BigTable.create(tmp_path / "big", Shape(partitions=3, groups=4, slices=2))


def test_a_table_has_the_files_of_its_shape(big: BigTable) -> None:
    view = open_view(LocalStorage(str(big.path)))
    for partition in big.partitions:
        assert len(view.all_base_files(partition)) == 4 * 2
        assert {file.file_id for file in view.latest_base_files(partition)} == set(
            big.file_ids(partition)
        )


def test_an_update_is_seen_where_it_was_made(big: BigTable) -> None:
    before = big.state()
    big.update(big.partitions[:2], 3)
    after = big.state()
    view = open_view(LocalStorage(str(big.path)))
    new = {
        partition: sum(
            file.instant == after.last_instant for file in view.latest_base_files(partition)
        )
        for partition in big.partitions
    }
    assert list(new.values()) == [3, 3, 0]
    assert before.timeline_hash != after.timeline_hash == view.timeline.hash


def test_an_insert_makes_a_group(big: BigTable) -> None:
    added = big.insert(big.partitions[1])
    view = open_view(LocalStorage(str(big.path)))
    file = view.latest_base_file(big.partitions[1], added)
    assert file is not None
    assert file.instant == big.state().last_instant
    assert added not in big.file_ids(big.partitions[1])


def test_our_side_is_measured_without_java(tmp_path: Path) -> None:
    bench = Bench(tmp_path, hudi=None, scale=0.0001, rounds=1)
    found = {figure.what: figure for figure in measured(bench, PARTS, ["load"])}
    assert len(found) == 6
    lists = next(figure for what, figure in found.items() if "by listing: list calls" in what)
    assert list(lists.ours) == [2]  # the root and the partition
    assert lists.met
    assert all(figure.ours and not figure.java for figure in found.values())


def test_the_ratio_is_taken_round_by_round() -> None:
    figure = Figure("f", ours=[1, 2, 4], java=[3, 4, 40], target=Target(times=3))
    assert figure.ratios == [3, 2, 10]
    assert figure.met
    assert figure.row() == ("f", "2 (1-4)", "4 (3-40)", "3 (2-10)", ">= 3 times", "yes")


@pytest.mark.parametrize(
    ("figure", "met"),
    [
        (Figure("at most", [5], target=Target(at_most=5)), True),
        (Figure("above", [5.1], target=Target(at_most=5)), False),
        (Figure("no Java", [1], target=Target(times=3)), None),
        (Figure("both", [5], [20], Target(at_most=5, times=5)), False),
        (Figure("no target", [1], [2], NO_TARGET), None),
        (Figure("not measured", [], target=Target(at_most=0)), None),
    ],
    ids=lambda value: value.what if isinstance(value, Figure) else "",
)
def test_a_figure_meets_all_of_its_target(figure: Figure, met: bool | None) -> None:
    assert figure.met is met


def test_figures_become_a_table() -> None:
    lines = table([Figure("what", [1000], [2500.4])]).splitlines()
    assert lines == [
        "| figure | ours  | Java  | ratio | target | met |",
        "| ------ | ----- | ----- | ----- | ------ | --- |",
        "| what   | 1,000 | 2,500 | 2.5   | -      | -   |",
    ]
