"""The benchmark of archival: its table is archived down to the instants that are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.archive import KEPT, VERSIONS, generate, measure, ours
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.property


@pytest.mark.parametrize("version", VERSIONS)
def test_each_round_archives_a_copy(tmp_path: Path, version: int) -> None:
    generate(tmp_path / "t", version, KEPT + 30, 2)
    found, cold = measure(tmp_path / "t", "archival", 2, ours)
    assert [len(each.values) for each in found] == [2, 2]
    assert cold is not None
    timeline = TableMetaClient.open(LocalStorage(str(tmp_path / "t"))).active_timeline()
    assert len(timeline) == KEPT + 30
