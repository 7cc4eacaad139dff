"""Our archive of a table is Hudi's, and each goes on from the other's."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from strandline import Table
from tests.oracle.hudi import Hudi, rows_of
from tests.oracle.tables import FIRST, ours, rides, services, theirs, writer
from timeline.instant import CLEAN, Instant
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.oracle

KEPT = {
    "hoodie.clean.automatic": "true",
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "3",
    "hoodie.keep.max.commits": "5",
    "hoodie.timeline.compaction.batch.size": "2",
}


def archive_of(path: Path) -> dict[Instant, tuple[Any, Any]]:
    """Return the archived instants, each with its content and plan."""
    archive = TableMetaClient.open(LocalStorage(str(path))).archived_timeline()
    found: dict[Instant, tuple[Any, Any]] = {}
    for instant in archive.timeline.completed():
        plan = archive.read_plan(instant) if instant.action == CLEAN else None
        found[instant] = archive.read(instant), plan
    return found


def active_of(path: Path) -> set[str]:
    meta = TableMetaClient.open(LocalStorage(str(path)))
    return {meta.path_of(instant) for instant in meta.instant_files()}


@pytest.mark.parametrize("version", [6, 8, 9])
def test_our_archive_is_hudis(hudi: Hudi, tmp_path: Path, version: int) -> None:
    path, copy = tmp_path / "t", tmp_path / "copy"
    options = ours(version) | KEPT | {"hoodie.archive.automatic": "false"}
    kept = {name.replace(".", "_"): value for name, value in KEPT.items()}
    with writer(path, options) as client:
        client.insert(FIRST)
        for rounds in range(2):
            for ts in range(6, 15):
                client.upsert(rides(range(20), ts=100 * rounds + ts))
            shutil.copytree(path, copy, copy_function=shutil.copy2)
            done = client.archive()
            assert done is not None
            assert len(done.instants) > 10
            services(hudi, copy, version, **kept).archive()
            assert active_of(path) == active_of(copy)
            mine, others = archive_of(path), archive_of(copy)
            assert mine.keys() == others.keys()
            assert mine == others
            shutil.rmtree(copy)


@pytest.mark.parametrize("version", [6, 8, 9])
def test_each_goes_on_from_the_others_archive(hudi: Hudi, tmp_path: Path, version: int) -> None:
    path = tmp_path / "t"
    archived: set[Instant] = set()
    with writer(path, ours(version) | KEPT) as client:
        client.insert(FIRST)
    ts = 5
    for turn in range(4):
        for _ in range(6):
            ts += 1
            if turn % 2 == 0:
                with writer(path, ours(version) | KEPT) as client:
                    client.upsert(rides(range(20), ts=ts))
            else:
                hudi.write(rides(range(20), ts=ts), path, theirs(version, "upsert") | KEPT)
        expected = rows_of(rides(range(20), ts=ts))
        assert hudi.read(path) == expected
        assert rows_of(Table(path).to_arrow()) == expected
        now = set(archive_of(path))
        assert archived < now, f"turn {turn} archived nothing"
        archived = now
        assert _hudis(hudi, path) == {(i.requested_time, i.action) for i in now}
        earliest = Table(path).earliest_instant()
        assert rows_of(Table(path).scan(as_of=earliest).to_arrow())


def _hudis(hudi: Hudi, path: Path) -> set[tuple[str, str]]:
    """Return the archived instants that Hudi reads."""
    builder = hudi.jvm.org.apache.hudi.common.table.HoodieTableMetaClient.builder()
    meta = builder.setConf(hudi.storage_conf).setBasePath(str(path)).build()
    found = meta.getArchivedTimeline().getInstants()
    return {(i.requestedTime(), i.getAction()) for i in found if i.isCompleted()}
