"""Real Hudi beside a reader's lease: it ignores the lease, and our reader notices its clean."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline import Table
from strandline.read.state.reader_lease import LEASE_FOLDER
from tests.oracle.hudi import Hudi, merged, rows_of
from tests.oracle.tables import ours, rides, theirs, writer
from timeline.errors import LeaseError


@pytest.mark.oracle
@pytest.mark.parametrize("version", [6, 9])
def test_hudi_writes_cleans_and_reads_beside_a_lease(
    hudi: Hudi, tmp_path: Path, version: int
) -> None:
    path = tmp_path / "rides"
    with writer(path, ours(version)) as client:
        client.insert(rides(range(20), ts=1))
    expected = rows_of(rides(range(20), ts=1))
    with Table(path).pin() as pinned:
        for ts in (2, 3, 4):
            hudi.write(
                rides(range(20), ts=ts),
                path,
                theirs(
                    version,
                    "upsert",
                    hoodie_index_type="SIMPLE",
                    hoodie_clean_automatic="true",
                    hoodie_clean_commits_retained="1",
                    hoodie_clean_async_enabled="false",
                ),
            )
            expected = merged(expected, rows_of(rides(range(20), ts=ts)))
        assert (path / LEASE_FOLDER / pinned.id).is_file()
        assert hudi.read(path) == expected
        with pytest.raises(LeaseError, match="retains only what readers at"):
            pinned.scan()
    assert Table(path).scan().count() == len(expected)
