"""Writes to tables that Hudi itself wrote: Hudi's rows stay, ours are added."""

from __future__ import annotations

import pytest

from strandline.commit.lock.base import TableLock
from strandline.records.meta_fields import META_FIELDS
from strandline.table_api.table import Table
from strandline.table_services.rollback.policy import RollbackPolicy
from strandline.table_services.rollback.run import Rollbacks
from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.tables import golden, reader
from timeline.clock import TimeGenerator
from timeline.errors import UnsupportedTableError
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage

OPTIONS = {"hoodie.embed.timeline.server": "false", "hoodie.clean.automatic": "false"}
LATER_MS = 1_900_000_000_000
"""In 2030: after the tables' instants, whenever the tests run."""

TABLES = [
    name
    for name in golden.scenarios()
    if golden.has_final_table(name)
    and golden.info(name)["table_type"] == "cow"
    and not name.startswith(("replace", "rollback"))  # those have a pending commit of Hudi's
]
TABLES += ["mor_basic_v6", "mor_basic_v6_h0150", "savepoint_mor_v6", "walkdev_mor_v6"]


@pytest.mark.parametrize("scenario", TABLES)
def test_an_upsert_changes_its_rows_and_no_others(scenario, tmp_path):
    base = golden.build_final(scenario, tmp_path)
    before = Table(str(base)).to_arrow()
    chosen = before.slice(0, 3)
    rows = chosen.drop_columns(list(META_FIELDS))
    changed = set(chosen["_hoodie_record_key"].to_pylist())
    with WriteClient(LocalEngine(), str(base), OPTIONS, clock=ManualClock(LATER_MS)) as client:
        result = client.upsert(rows)
        assert (result.rows_updated, result.rows_inserted) == (3, 0)
        after = {row["_hoodie_record_key"]: row for row in Table(str(base)).to_arrow().to_pylist()}
        for row in before.to_pylist():
            key = row["_hoodie_record_key"]
            times = {"_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name"}
            same = set(row) - (times if key in changed else {"_hoodie_file_name"})
            assert {n: row[n] for n in same} == {n: after[key][n] for n in same}
            assert (after[key]["_hoodie_commit_time"] == result.instant) == (key in changed)
        assert len(after) == before.num_rows
        assert client.delete(rows).rows_deleted == 3
    assert Table(str(base)).to_arrow().num_rows == before.num_rows - 3


FAILED = [(name, step) for name in ("rollback_cow_v6", "rollback_cow_v9") for step in (2, 7)]
"""Steps at which a commit is pending, with markers at the first and without at the second."""


def paths_deleted(base, rollback, meta):
    root = f"{base}/"
    return {
        path.rpartition(root)[2] if root in path else "/".join(path.split("/")[-2:])
        for each in meta.read(rollback).partition_metadata.values()
        for path in each.success_delete_files
    }


FAILED_DELTAS = [
    (name, step) for name in ("rollback_mor_v6", "rollback_mor_v6_h0150") for step in (2, 7)
]


def with_final_logs(base, name, folder):
    """Give logs, which are rebuilt without content, that of the table's last step."""
    final = golden.build_final(name, folder)
    for path in base.rglob(".*.log.*"):
        kept = final / path.relative_to(base)
        if kept.is_file() and path.stat().st_size == kept.stat().st_size:
            path.write_bytes(kept.read_bytes())


@pytest.mark.parametrize(("name", "step"), FAILED_DELTAS)
def test_commands_go_to_the_logs_to_which_hudi_appends_them(name, step, tmp_path):
    base = golden.build(name, step, tmp_path / "t")
    with_final_logs(base, name, tmp_path / "final")
    meta = TableMetaClient.open(LocalStorage(str(base)))
    (pending,) = meta.active_timeline().pending()
    undone = repair(meta)
    ours = meta.read(meta.active_timeline().find(undone[pending.requested_time]))
    later = TableMetaClient.open(golden.GoldenStorage(name, step + 1))
    (theirs,) = [
        metadata
        for instant in later.active_timeline()
        if instant.action == "rollback"
        and (metadata := later.read(instant)).commits_rollback == (pending.requested_time,)
    ]
    assert commanded(ours) == commanded(theirs)
    if step == 2:  # without markers Hudi doesn't name them
        assert left(ours) == left(theirs)
    # A second one finds nothing to do.
    assert repair(meta) == {}


def repair(meta):
    clock = ManualClock(LATER_MS)
    times = TimeGenerator(clock, meta.config.timezone)
    rollbacks = Rollbacks(meta, times, clock, TableLock(), RollbackPolicy(foreign=True))
    return rollbacks.repair(meta.active_timeline())


def commanded(metadata):
    """Return the slices and versions of the logs with a rollback's commands, by partition."""
    parts = metadata.partition_metadata.items()
    names = ((p, path.rpartition("/")[2]) for p, done in parts for path in done.rollback_log_files)
    return {(partition, name.rpartition("_")[0]) for partition, name in names}


def left(metadata):
    """Return the logs that a rollback left, by partition."""
    parts = metadata.partition_metadata.items()
    found = {p: done.log_files_from_failed_commit for p, done in parts}
    return {p: {path.rpartition("/")[2] for path in logs} for p, logs in found.items() if logs}


@pytest.mark.parametrize(("name", "step"), FAILED)
def test_what_hudi_left_unfinished_is_undone_as_hudi_does(name, step, tmp_path):
    base = golden.build(name, step, tmp_path / "t")
    meta = TableMetaClient.open(LocalStorage(str(base)))
    timeline = meta.active_timeline()
    (pending,) = timeline.pending()
    clock = ManualClock(LATER_MS)
    rollbacks = Rollbacks(
        meta,
        TimeGenerator(clock, meta.config.timezone),
        clock,
        TableLock(),
        RollbackPolicy(foreign=True),
    )
    undone = rollbacks.repair(timeline)
    assert list(undone) == [pending.requested_time]
    assert reader.leftovers(base) == []
    ours = meta.active_timeline().find(undone[pending.requested_time])
    # Hudi's next write undid it, too: the same files by its own account.
    later = golden.build(name, step + 1, tmp_path / "later")
    theirs_meta = TableMetaClient.open(LocalStorage(str(later)))
    (theirs,) = [
        instant
        for instant in theirs_meta.active_timeline()
        if instant.action == "rollback"
        and theirs_meta.read(instant).commits_rollback == (pending.requested_time,)
    ]
    assert paths_deleted(base, ours, meta) == paths_deleted(later, theirs, theirs_meta)


def test_a_group_in_a_pending_clustering_is_refused(tmp_path):
    base = golden.build_final("replace_cow_v9", tmp_path)
    rows = Table(str(base)).to_arrow().slice(0, 3).drop_columns(list(META_FIELDS))
    client = WriteClient(LocalEngine(), str(base), OPTIONS, clock=ManualClock(LATER_MS))
    with client, pytest.raises(UnsupportedTableError, match="pending clustering 20261121081649480"):
        client.upsert(rows)
