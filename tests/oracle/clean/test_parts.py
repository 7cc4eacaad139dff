"""Hudi finishes the parts of our cleans, whatever of them is done, and we finish Hudi's clean."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest

from fsview.local_view import LocalView
from strandline import Table
from strandline.table_services.clean.parts import PART
from strandline.table_services.clean.policy import RETAINED, CleanSettings
from strandline.table_services.clean.run import Cleaner
from tests.kit.storage.faulty_storage import Crash, Effect, Fault, FaultyStorage
from tests.oracle.hudi import Hudi, rows_of
from tests.oracle.tables import FIRST, ours, rides, services, view_of, writer
from tests.oracle.turns.checks import Follower
from timeline.clock import SystemClock, TimeGenerator
from timeline.instant import CLEAN, Instant
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CleanMetadata
from timeline.storage.base import Storage
from timeline.storage.open import open_storage

pytestmark = pytest.mark.oracle

KEPT: Final = {RETAINED.name: "1"}
THEIRS: Final = {"hoodie_clean_commits_retained": "1"}
LIMITED: Final = CleanSettings(retained=1, parallelism=1, part_files=4)
NEWEST: Final = 10


def cleaner(storage: Storage) -> Cleaner:
    """Return our cleaner of a table, which divides a clean into parts of four files."""
    meta = TableMetaClient.open(storage)
    view = LocalView.newest(view_of(Path(storage.base_path)))
    return Cleaner(meta, view, TimeGenerator(SystemClock()), LIMITED)


def cleans(path: Path) -> list[Instant]:
    timeline = TableMetaClient.open(open_storage(str(path))).active_timeline()
    return [instant for instant in timeline if instant.action == CLEAN]


def data_files(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*.parquet")}


def written(path: Path, version: int) -> None:
    """Make a table in which a clean can delete files of all partitions."""
    with writer(path, ours(version)) as client:
        client.insert(FIRST)
        for ts in range(6, NEWEST + 1):
            client.upsert(rides(range(20), ts=ts))


def crashed_at(log: list[tuple[str, str]], parts: int) -> int:
    """Return the number of the call with which a cleaner is in the midst of a part.

    Args:
        log: The calls of the whole clean.
        parts: Number of parts that are complete.
    """
    done = [n for n, (kind, path) in enumerate(log) if kind == "create" and path.endswith(".clean")]
    deletes = [n for n, (kind, path) in enumerate(log, 1) if path.endswith(".parquet")]
    since = [n for n in deletes if parts == 0 or n > done[parts - 1] + 1]
    return since[0] if parts == 0 else since[1]


@pytest.mark.parametrize("parts", [0, 1, 2])
@pytest.mark.parametrize("version", [6, 8, 9])
def test_hudi_finishes_our_parts(hudi: Hudi, tmp_path: Path, version: int, parts: int) -> None:
    path, trial = tmp_path / "t", tmp_path / "trial"
    written(path, version)
    follower = Follower(path)
    shutil.copytree(path, trial)
    watched = FaultyStorage(open_storage(str(trial)))
    whole = cleaner(watched).run()
    assert whole is not None
    assert len(whole.parts) > 2
    at = crashed_at(watched.log, parts)
    doomed = FaultyStorage(open_storage(str(path)), [Fault(at, Effect.CRASH_BEFORE)])
    with pytest.raises(Crash):
        cleaner(doomed).run()
    requested = cleans(path)
    assert [each.is_completed for each in requested] == [
        number < parts for number in range(len(whole.parts))
    ]
    assert data_files(trial) < data_files(path)

    services(hudi, path, version, **THEIRS).clean()

    done = cleans(path)
    assert [each.requested_time for each in done] == [each.requested_time for each in requested]
    assert all(each.is_completed for each in done)
    assert data_files(path) == data_files(trial)
    assert list(follower.differing()) == []
    expected = rows_of(rides(range(20), ts=NEWEST))
    assert hudi.read(path) == expected
    assert rows_of(Table(path).to_arrow()) == expected
    # The next clean continues from the last part, although Hudi completed it.
    meta = TableMetaClient.open(open_storage(str(path)))
    last = meta.read(done[-1])
    assert isinstance(last, CleanMetadata)
    assert last.earliest_commit_to_retain == whole.earliest_commit_to_retain
    assert last.extra_metadata[PART].endswith("/last")
    assert cleaner(open_storage(str(path))).run() is None
    with writer(path, ours(version)) as client:
        client.upsert(rides(range(20), ts=NEWEST + 1))
    assert cleaner(open_storage(str(path))).run() is not None
    assert hudi.read(path) == rows_of(rides(range(20), ts=NEWEST + 1))


@pytest.mark.parametrize("version", [6, 8, 9])
def test_we_finish_hudis_clean(hudi: Hudi, tmp_path: Path, version: int) -> None:
    path, copy = tmp_path / "t", tmp_path / "copy"
    written(path, version)
    follower = Follower(path)
    nothing = hudi.jvm.org.apache.hudi.common.util.Option.empty()
    service = hudi.jvm.org.apache.hudi.common.model.TableServiceType.CLEAN
    assert (
        services(hudi, path, version, **THEIRS).scheduleTableService(nothing, service).isPresent()
    )
    shutil.copytree(path, copy)
    (planned,) = cleans(path)
    with writer(path, ours(version) | KEPT) as client:
        done = client.clean()
    assert done is not None
    assert done.instant == planned.requested_time
    assert list(follower.differing()) == []
    expected = rows_of(rides(range(20), ts=NEWEST))
    assert hudi.read(path) == expected
    assert rows_of(Table(path).to_arrow()) == expected
    assert done.files_deleted == len(data_files(copy)) - len(data_files(path))
    with writer(path, ours(version) | KEPT) as client:
        assert client.clean() is None
