"""Compactions of merge-on-read tables: real Hudi and our writer plan, execute and resume in turns.

After each step rows equal a plain model's, as Hudi, hudi-rs and ``Table`` read them (``Shared``).
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from strandline.table_services.rollback.policy import FOREIGN
from tests.kit.storage.faulty_storage import Crash, Effect, Fault, FaultyStorage
from tests.oracle.hudi import Hudi
from tests.oracle.tables import rides, writer
from tests.oracle.test_merge_on_read import FORMS, Shared, flagged
from timeline.instant import State
from timeline.meta_client import TableMetaClient
from timeline.storage.open import open_storage

pytestmark = pytest.mark.oracle


def compact(table: Shared, **options: str) -> str | None:
    """Have our client compact; return the instant."""
    with writer(table.path, {**table.ours, **options}) as client:
        done = client.compact()
    table.check()
    return None if done is None else done.instant


def schedule(table: Shared) -> str | None:
    with writer(table.path, table.ours) as client:
        found = client.schedule_compaction()
    table.check()
    return found


def hudi_compacts(hudi: Hudi, table: Shared, operation: str) -> None:
    """Have Hudi schedule a compaction, or run the planned ones."""
    hudi.call(
        f"call run_compaction(op => '{operation}', path => '{table.path}',"
        " options => 'hoodie.metadata.enable=false,hoodie.compact.inline.max.delta.commits=1"
        f",hoodie.write.auto.upgrade=false,hoodie.write.table.version={table.version}')"
    )
    table.check()


def compactions(path: Path) -> list[tuple[str, State]]:
    """Return the requested time and state of each compaction on the timeline."""
    meta = TableMetaClient.open(open_storage(str(path)))
    times = {i.requested_time for i in meta.instant_files() if i.action == "compaction"}
    return [
        (i.requested_time, i.state) for i in meta.active_timeline() if i.requested_time in times
    ]


SOME = [
    form
    for form in FORMS
    if form.id in ("6, event time", "8, event time", "9, Parquet", "9, commit time")
]
SOME += [form for form in FORMS if form.id in ("6, buckets", "8, buckets", "9, small logs")]


@pytest.mark.parametrize(("version", "more"), SOME)
def test_taking_turns(hudi: Hudi, tmp_path: Path, version: int, more: dict[str, str]) -> None:
    table = Shared(hudi, tmp_path / "rides", version, more)
    table.we("insert", rides(range(30), ts=5))
    table.they("upsert", rides(range(0, 30, 2), ts=6))
    table.we("delete", rides(range(0, 30, 10), ts=1))
    assert compact(table)
    table.they("upsert", rides(range(5, 45, 4), ts=7))
    data = rides(range(6, 26), ts=7)
    table.we("upsert", flagged(data, (number % 3 == 0 for number in range(20))))
    assert compact(table)
    table.they("delete", rides(range(3, 40, 9), ts=1))
    table.we("upsert", rides(range(0, 60, 5), ts=8, note="again"))
    assert schedule(table)
    table.they("upsert", rides(range(0, 60, 7), ts=9))
    table.we("upsert", rides(range(0, 60, 6), ts=10))
    assert compact(table)
    table.they("upsert", rides(range(0, 60, 11), ts=11))
    assert hudi.rows(hudi.frame(table.path)) == table.expected


@pytest.mark.parametrize("version", [6, 8, 9])
def test_each_executes_the_others_plan(hudi: Hudi, tmp_path: Path, version: int) -> None:
    table = Shared(hudi, tmp_path / "rides", version)
    table.we("insert", rides(range(20), ts=1))
    table.they("upsert", rides(range(0, 20, 2), ts=2))
    planned = schedule(table)
    table.they("upsert", rides(range(0, 20, 3), ts=3))
    table.we("upsert", rides(range(0, 20, 4), ts=4))
    hudi_compacts(hudi, table, "run")
    assert compactions(table.path) == [(planned, State.COMPLETED)]
    hudi_compacts(hudi, table, "schedule")
    theirs = compactions(table.path)[-1]
    assert theirs[1] is State.REQUESTED
    table.we("delete", rides(range(0, 20, 5), ts=0))
    table.they("upsert", rides(range(1, 20, 3), ts=5))
    with writer(table.path, table.ours) as client:
        done = client.compact()
    table.check()
    assert done is not None
    assert done.finished == (theirs[0],)
    table.they("upsert", rides(range(0, 25, 2), ts=6))


def die_compacting(table: Shared) -> None:
    """Compact, and die before the instant completes."""
    trial = table.path.with_name("trial")
    shutil.copytree(table.path, trial)
    watched = FaultyStorage(open_storage(str(trial)))
    with writer(trial, table.ours, storage=watched) as client:
        client.compact()
    shutil.rmtree(trial)
    calls = enumerate(watched.log, 1)
    at = next(n for n, (kind, name) in calls if kind == "create" and name.endswith(".commit"))
    doomed = FaultyStorage(open_storage(str(table.path)), [Fault(at, Effect.CRASH_BEFORE)])
    with pytest.raises(Crash), writer(table.path, table.ours, storage=doomed) as client:
        client.compact()


@pytest.mark.parametrize("version", [6, 8, 9])
def test_each_resumes_what_the_other_left_inflight(
    hudi: Hudi, tmp_path: Path, version: int
) -> None:
    table = Shared(hudi, tmp_path / "rides", version)
    table.we("insert", rides(range(20), ts=1))
    table.they("upsert", rides(range(0, 20, 2), ts=2))
    die_compacting(table)
    table.check()
    ((ours, state),) = compactions(table.path)
    assert state is State.INFLIGHT
    table.they("upsert", rides(range(0, 20, 3), ts=3))
    hudi_compacts(hudi, table, "run")
    assert compactions(table.path) == [(ours, State.COMPLETED)]
    hudi_compacts(hudi, table, "schedule")
    theirs, _ = compactions(table.path)[-1]
    # As if Hudi had died: its inflight file, and a base file that no commit names, with a marker.
    folder = table.path / ".hoodie" / ("timeline" if version > 6 else "")
    (folder / f"{theirs}.compaction.inflight").touch()
    (stored,) = (table.path / "city=amsterdam").glob(f"*_{ours}.parquet")
    left = stored.with_name(stored.name.replace(ours, theirs))
    left.write_bytes(stored.read_bytes()[:100])
    marker = table.path / ".hoodie" / ".temp" / theirs / left.relative_to(table.path)
    marker.parent.mkdir(parents=True)
    marker.with_name(marker.name + ".marker.MERGE").touch()
    table.check()
    table.we("upsert", rides(range(0, 20, 4), ts=4))
    assert compact(table, **{FOREIGN.name: "true"}) is not None
    assert not left.exists()
    assert {state for _, state in compactions(table.path)} == {State.COMPLETED}
    table.they("upsert", rides(range(0, 20, 5), ts=5))
    table.we("upsert", rides(range(0, 20, 6), ts=6))
    compact(table)


@pytest.mark.parametrize("version", [6, 8, 9])
def test_hudi_finds_keys_in_our_base_files(hudi: Hudi, tmp_path: Path, version: int) -> None:
    table = Shared(hudi, tmp_path / "rides", version, {"hoodie.index.type": "BLOOM"})
    table.we("insert", rides(range(40), ts=1))
    table.we("upsert", rides(range(0, 40, 2), ts=2))
    table.we("delete", rides(range(0, 40, 8), ts=2))
    assert compact(table)
    table.they("upsert", rides(range(0, 44, 2), ts=3))
    table.they("delete", rides(range(1, 44, 6), ts=3))
    # A key that isn't found would be inserted into another group.
    found = hudi.read(table.path, hoodie_datasource_query_type="read_optimized")
    keys = [row["id"] for row in found]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("index", ["SIMPLE", "BLOOM"])
def test_a_key_that_came_back_is_found_in_the_log(hudi: Hudi, tmp_path: Path, index: str) -> None:
    """Where Hudi's own next write would store it a second time."""
    table = Shared(hudi, tmp_path / "rides", 9, {"hoodie.index.type": index})
    table.we("insert", rides(range(12), ts=1))
    table.they("delete", rides(range(0, 12, 3), ts=1))
    assert schedule(table)
    table.they("upsert", rides(range(0, 12, 6), ts=2))
    hudi_compacts(hudi, table, "run")
    table.we("upsert", rides(range(0, 12, 2), ts=3))
    table.we("delete", rides([6], ts=3))
    compact(table)
