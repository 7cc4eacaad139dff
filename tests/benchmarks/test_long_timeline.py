"""The benchmark of long timelines: its tables have the instants, and it counts lists and pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.long_timeline import generate, local, remote
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.property


@pytest.mark.parametrize("version", [6, 9])
def test_a_commit_lists_three_times_whatever_the_instants(tmp_path: Path, version: int) -> None:
    generate(tmp_path / "t", version, 40)
    timeline = TableMetaClient.open(LocalStorage(str(tmp_path / "t"))).active_timeline()
    assert len(timeline.completed().write_timeline()) == 40 + 15
    found = local(tmp_path, version, 40, 2)
    assert "40 instants, which lists 3 times" in found.what
    assert len(found.values) == len(found.partners) == 2


def test_on_s3_its_pages_are_counted(tmp_path: Path) -> None:
    """Of 1,000 names each, three of which are an instant's."""
    (found,) = remote(tmp_path, 9, 400, 2)
    assert "6 pages a commit beside 400 instants" in found.what
