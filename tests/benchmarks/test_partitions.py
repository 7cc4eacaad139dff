"""The benchmark of scans of some partitions: what it measures finds those partitions."""

from __future__ import annotations

import pytest

from benchmarks.partitions import day, figures, generate, name_of, scanned, written

pytestmark = pytest.mark.property


def test_scans_are_of_the_partitions_asked_for(tmp_path):
    base = tmp_path / "table"
    generate(base, 200, 3)
    one, calls = scanned(base, day == name_of(1))
    assert {found.partition for found in one.slices} == {name_of(1)}
    assert len(one.slices) == 3
    assert calls["list"] == 3
    two, _ = scanned(base, day < name_of(2))
    assert {found.partition for found in two.slices} == {name_of(0), name_of(1)}
    assert len(figures(base, 200, 2)) == 4


def test_the_upsert_leaves_no_table(tmp_path):
    """Its figure is for each partition (#32)."""
    found = written(tmp_path, 20, 2)
    assert "20 new partitions" in found.what
    assert all(0 < value < 1 for value in found.values)
    assert list(tmp_path.iterdir()) == []
