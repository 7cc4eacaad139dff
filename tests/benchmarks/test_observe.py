"""The benchmark of what a service shows, on tiny tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.command import Bench, measured
from benchmarks.observe import PARTS

pytestmark = pytest.mark.property


def test_every_part_is_measured(tmp_path: Path) -> None:
    bench = Bench(tmp_path, hudi=None, scale=0.005, rounds=1)
    found = [*measured(bench, PARTS, [*PARTS])]
    assert len(found) == 11
    assert all(len(figure.ours) == 1 and figure.ours[0] > 0 for figure in found)
