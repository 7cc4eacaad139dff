"""Hudi reads and restores a savepoint, whatever our cleaner has deleted beside it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from strandline.table_services.clean.policy import (
    KEEP_LATEST_COMMITS,
    KEEP_LATEST_FILE_VERSIONS,
    RETENTION_OF,
)
from tests.oracle.hudi import Hudi, rows_of
from tests.oracle.tables import FIRST, ours, rides, services, writer

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("policy", [KEEP_LATEST_COMMITS, KEEP_LATEST_FILE_VERSIONS])
@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_savepoint_outlives_our_cleans(
    hudi: Hudi, tmp_path: Path, version: int, policy: str
) -> None:
    path = tmp_path / "t"
    options = ours(version) | {
        "hoodie.clean.automatic": "true",
        "hoodie.clean.policy": policy,
        RETENTION_OF[policy].name: "1",
    }
    everyone = range(20)
    with writer(path, options) as client:
        client.insert(FIRST)
        saved = client.upsert(rides(everyone, ts=6)).instant
        then = hudi.read(path)
        services(hudi, path, version).savepoint(saved, "walker", "walk")
        cleans = [client.upsert(rides(everyone, ts=ts)).clean for ts in range(7, 12)]
        assert all(clean is not None and clean.files_deleted for clean in cleans[2:])
        assert then == rows_of(rides(everyone, ts=6))
        if policy == KEEP_LATEST_FILE_VERSIONS:
            # By commits, Hudi refuses times before the last clean's earliest instant itself.
            assert hudi.read(path, as_of_instant=saved) == then
        restored = tmp_path / "restored"
        shutil.copytree(path, restored)
        services(hudi, restored, version).restoreToSavepoint(saved)
        assert hudi.read(restored) == then
        assert hudi.read(path) == rows_of(rides(everyone, ts=11))
        kept = {file.name for file in path.rglob(f"*_{saved}.parquet")}
        assert kept
        services(hudi, path, version).deleteSavepoint(saved)
        client.upsert(rides(everyone, ts=12))
        assert not {file.name for file in path.rglob(f"*_{saved}.parquet")}
        assert hudi.read(path) == rows_of(rides(everyone, ts=12))
