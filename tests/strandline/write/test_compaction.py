"""Compactions: rows stay, logs go; plans are executed, resumed, left to others, undone."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline import Table
from strandline.records.meta_fields import COMMIT_SEQNO, COMMIT_TIME, IS_DELETED
from strandline.write.compaction import execute, plan
from tests.kit.concurrency.manual_clock import LaterClock
from tests.kit.short_runs import quick_runs
from tests.kit.storage.faulty_storage import Crash, Effect, Fault, FaultyStorage
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import reader
from tests.strandline.records.file.bloom_reader import BloomReader
from tests.strandline.write.faults.fault_scenarios import LOCK
from tests.strandline.write.logged_table import (
    BUCKETS,
    LOGS,
    VERSION_6,
    compactions,
    optimized,
    rows,
)
from tests.strandline.write.tables import SCHEMA, client, row, table
from timeline.errors import (
    ConcurrentWriteError,
    CorruptMetadataError,
    WriteConflictError,
)
from timeline.instant import COMMIT, COMPACTION, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CommitMetadata, CompactionPlan, WriteStat
from timeline.storage.local import LocalStorage


@pytest.fixture
def base(written, tmp_path) -> Path:
    """A copy of that table."""
    return Path(shutil.copytree(written, tmp_path / "t"))


def stats(base, instant: str) -> list[WriteStat]:
    meta = TableMetaClient.open(LocalStorage(str(base)))
    found = meta.active_timeline().find(instant)
    assert found is not None
    assert (found.action, found.state) == (COMMIT, State.COMPLETED)
    metadata = meta.read(found)
    assert isinstance(metadata, CommitMetadata)
    assert (metadata.operation_type, metadata.compacted) == ("COMPACT", True)
    assert '"t_record"' in metadata.extra_metadata["schema"]
    return [stat for each in metadata.partition_to_write_stats.values() for stat in each]


def plan_of(base, instant: str) -> CompactionPlan:
    meta = TableMetaClient.open(LocalStorage(str(base)))
    plan = meta.read_plan(Instant(instant, COMPACTION, State.REQUESTED))
    assert isinstance(plan, CompactionPlan)
    return plan


def test_rows_and_their_meta_columns_stay_and_logs_are_merged(base):
    before, meta_columns = rows(base), Table(base).to_arrow().select([COMMIT_TIME, COMMIT_SEQNO])
    assert optimized(base) != before
    with client(base, **LOGS) as c:
        done = c.compact()
    assert rows(base) == optimized(base) == before
    assert Table(base).to_arrow().select([COMMIT_TIME, COMMIT_SEQNO]).equals(meta_columns)
    assert (done.file_groups, done.logs, done.rows, done.finished) == (2, 3, 2, ())
    assert reader.leftovers(base) == []
    eu, us = stats(base, done.instant)
    assert us == WriteStat(
        file_id=us.file_id,
        path=us.path,
        prev_commit=us.prev_base_file[-25:-8],
        prev_base_file=us.prev_base_file,
        num_writes=1,
        num_update_writes=1,
        total_write_bytes=us.file_size_in_bytes,
        partition_path="us",
        file_size_in_bytes=(base / us.path).stat().st_size,
        total_log_records=1,
        total_updated_records_compacted=1,
        total_log_files=1,
        total_log_blocks=1,
        total_upsert_time=us.total_upsert_time,
    )
    assert (eu.num_writes, eu.num_update_writes, eu.num_deletes) == (1, 1, 1)
    assert (eu.total_log_files, eu.total_log_records, eu.total_log_blocks) == (2, 2, 2)


@pytest.mark.property
def test_base_files_have_what_an_index_looks_for(base):
    with client(base, **LOGS, index__type="BLOOM") as c:
        c.upsert(table(row("z", ts=2), row("d", ts=2)))
        c.upsert(table(row("z", ts=3)))
        done = c.compact()
        for stat in stats(base, done.instant):
            footer = pq.read_metadata(base / stat.path).metadata
            keys = pq.read_table(base / stat.path, partitioning=None)["_hoodie_record_key"]
            keys = sorted(keys.to_pylist())
            assert footer[b"hoodie_min_record_key"].decode() == keys[0]
            assert footer[b"hoodie_max_record_key"].decode() == keys[-1]
            text = footer[b"org.apache.hudi.bloomfilter"].decode()
            bloom = BloomReader(text, footer[b"hoodie_bloom_filter_type_code"].decode())
            assert all(key in bloom for key in keys)
        assert c.upsert(table(row("z", ts=4), row("a", ts=4))).rows_updated == 2


def test_without_logs_there_is_nothing_to_compact(base):
    with client(base, **LOGS) as c:
        assert c.compact() is not None
        assert c.compact() is None
        assert c.schedule_compaction() is None


@pytest.mark.property
def test_a_group_whose_rows_are_all_deleted_gets_an_empty_file(base):
    with client(base, **LOGS) as c:
        c.delete(table(row("a"), row("c", "us")))
        done = c.compact()
    assert rows(base) == optimized(base) == []
    assert [stat.num_writes for stat in stats(base, done.instant)] == [0, 0]
    with client(base, **LOGS) as c:
        c.upsert(table(row("a", ts=1), row("c", "us", ts=1)))
    assert [each["ts"] for each in rows(base)] == [1, 1]


def test_groups_that_have_only_logs_begin_with_their_file(tmp_path, version):
    base = tmp_path / "t"
    with client(base, **BUCKETS, **version) as c:
        c.upsert(table(row("a")))
        c.upsert(table(row("a", ts=2), row("b")))
    (file,) = (base / "eu").glob("*.parquet")
    file.unlink()
    for instant in reader.timeline_folder(base).glob(f"{file.stem[-17:]}*"):
        instant.unlink()
    found = Table(base).to_arrow().select(["id", "ts"])
    with client(base, **BUCKETS) as c:
        done = c.compact()
        (stat,) = stats(base, done.instant)
        assert (stat.prev_commit, stat.prev_base_file, stat.num_inserts) == ("null", None, 2)
        assert Table(base).to_arrow().select(["id", "ts"]).equals(found)
        c.upsert(table(row("b", ts=3)))
    assert [each["ts"] for each in rows(base)] == [2, 3]


@pytest.mark.property
def test_writes_go_on_top_of_a_planned_compaction(base):
    with client(base, **LOGS) as c:
        planned = c.schedule_compaction()
        assert c.schedule_compaction() is None
        c.upsert(table(row("a", ts=7), row("d", ts=1)))
        before = rows(base)
        assert compactions(base) == [State.REQUESTED]
        done = c.compact()
        assert done.finished == (planned,)
        assert rows(base) == optimized(base) == before
        assert [each["ts"] for each in before] == [7, 3, 1]
    assert compactions(base) == [State.COMPLETED] * 2


IN_VERSION_9 = pytest.mark.parametrize("version", [{}], indirect=True, ids=["v9"])
IN_VERSION_6 = pytest.mark.parametrize("version", [VERSION_6], indirect=True, ids=["v6"])


@pytest.mark.property
@IN_VERSION_9
def test_a_delta_commit_in_flight_is_left_to_the_next_compaction(base):
    """Its log completes after the compaction was requested, so readers put it on top."""
    planned = []

    def plan_between(kind, path):
        if kind == "create" and path.endswith(".deltacommit.inflight") and not planned:
            planned.append("")
            with client(base, **LOGS, **LOCK) as other:
                planned.append(other.schedule_compaction())

    hooked = HookedStorage(base, plan_between)
    with client(base, hooked, **LOGS, **LOCK) as c:
        in_flight = c.upsert(table(row("a", ts=9))).instant
    found = plan_of(base, planned[1])
    assert in_flight < planned[1]
    assert not any(in_flight in n for op in found.operations for n in op.delta_file_paths)
    before = rows(base)
    with client(base, **LOGS, **LOCK) as c:
        done = c.compact()
        assert done.finished == (planned[1],)
    assert rows(base) == optimized(base) == before
    assert [each["ts"] for each in before] == [9, 3]


@pytest.mark.property
@IN_VERSION_9
def test_a_delta_commit_may_complete_while_a_compaction_runs(base):
    done = []

    def compact_between(kind, path):
        if kind == "create" and path.endswith(".deltacommit.inflight") and not done:
            done.append("")
            with client(base, **LOGS, **LOCK) as other:
                done.append(other.compact())

    hooked = HookedStorage(base, compact_between)
    with client(base, hooked, **LOGS, **LOCK) as c:
        result = c.upsert(table(row("a", ts=9)).append_column("new", pa.array([5])))
    assert result.concurrent == (done[1].instant,)
    # The naive reader places logs by their requested times.
    found = Table(base).to_arrow().select(["id", "ts", "new"]).to_pylist()
    assert found == [{"id": "a", "ts": 9, "new": 5}, {"id": "c", "ts": 3, "new": None}]
    with client(base, **LOGS, **LOCK) as c:
        c.compact()
    assert [each["ts"] for each in optimized(base)] == [9, 3]


@IN_VERSION_6
def test_no_compaction_is_planned_while_a_delta_commit_is_in_flight(base):
    """Its log is named by the slice that would be compacted."""
    planned = []

    def plan_between(kind, path):
        if kind == "create" and path.endswith(".deltacommit.inflight") and not planned:
            planned.append("")
            with client(base, **LOGS, **LOCK) as other:
                with pytest.raises(ConcurrentWriteError, match=r"delta commit \d+ .* in flight"):
                    other.schedule_compaction()
                target = other._target()
                planned.append(plan(other._context, target, if_due=True))

    inline = {"compact__inline__max__delta__commits": 1}
    hooked = HookedStorage(base, plan_between)
    with client(base, hooked, **LOGS, **LOCK, **inline) as c:
        c.upsert(table(row("a", ts=9)))
    assert planned == ["", None]
    assert compactions(base) == []
    with client(base, **LOGS, **LOCK) as c:
        c.compact()
    assert [each["ts"] for each in optimized(base)] == [9, 3]


@IN_VERSION_6
@pytest.mark.parametrize("later", quick_runs([1], [1, -1]))
@pytest.mark.parametrize("strategy", quick_runs(["PreferWriter"], ["Simple", "PreferWriter"]))
def test_a_delta_commit_conflicts_with_a_compaction_that_was_planned_beside_it(
    base, strategy, later
):
    """Only a writer that doesn't look plans one: the delta commit's log wouldn't be read.

    Its time may be earlier than the delta commit's: it is chosen before the files are listed.
    """
    with client(base, **LOGS) as c:
        found = plan_of(base, c.schedule_compaction())
    (path,) = reader.timeline_folder(base).glob("*.compaction.requested")
    path.unlink()
    names = {"Simple": "SimpleConcurrentFileWrites", "PreferWriter": "PreferWriter"}
    name = f"org.apache.hudi.client.transaction.{names[strategy]}ConflictResolutionStrategy"
    made = []

    def plan_between(kind, path):
        if kind == "create" and path.endswith(".deltacommit.inflight") and not made:
            time = str(int(path.rpartition("/")[2][:17]) + later)
            meta = TableMetaClient.open(LocalStorage(str(base)))
            made.append(meta.create_requested(COMPACTION, time, found))

    options = {**LOCK, "write__lock__conflict__resolution__strategy": name}
    with client(base, HookedStorage(base, plan_between), **LOGS, **options) as c:
        with pytest.raises(WriteConflictError, match="COMPACT of compaction"):
            c.upsert(table(row("a", ts=9)))
        c.upsert(table(row("a", ts=8)))
        done = c.compact()
    assert done.finished == (made[0].requested_time,)
    assert rows(base) == optimized(base)
    assert [each["ts"] for each in rows(base)] == [8, 3]


def finish(c) -> None:
    """Execute what is planned, and plan nothing new, as another job does."""
    target = c._target()
    for instant in target.timeline.pending():
        assert execute(c._context, target, instant) is not None


@pytest.mark.property
@pytest.mark.parametrize("index", ["SIMPLE", "BLOOM", "GLOBAL_SIMPLE", "GLOBAL_BLOOM"])
@pytest.mark.parametrize("data_format", ["avro", "parquet"])
def test_a_key_that_came_back_beside_a_compaction_is_found(tmp_path, index, data_format, version):
    """Hudi 1.2.0 inserts it a second time.

    The compaction drops the deleted key from the base file, while a log on top, whose writer found
    it in the file before, has it again.
    """
    base = tmp_path / "t"
    more = {"index__type": index, "logfile__data__block__format": data_format}
    with client(base, **LOGS, **more, **version) as c:
        c.upsert(table(row("a"), row("b"), row("c")))
        c.delete(table(row("a"), row("b")))
        c.schedule_compaction()
        c.upsert(table(row("a", ts=2), row("b", ts=2)))
        finish(c)
        # A global index finds rows, not keys, so it has inserted them.
        is_global = index.startswith("GLOBAL")
        assert [each["id"] for each in optimized(base)] == (list("abc") if is_global else ["c"])
        result = c.upsert(table(row("a", ts=3), row("d", ts=3)))
        assert (result.rows_updated, result.rows_inserted) == (1, 1)
        assert c.delete(table(row("b"))).rows_deleted == 1
        assert [(each["id"], each["ts"]) for each in rows(base)] == [("a", 3), ("c", 1), ("d", 3)]
        assert c.compact() is not None
    assert optimized(base) == rows(base)


def test_columns_that_were_added_since_the_base_file(base):
    with client(base, **LOGS) as c:
        c.upsert(table(row("a", ts=4)).append_column("new", pa.array([1.5])))
        c.compact()
    assert [(each["id"], each["new"]) for each in optimized(base)] == [("a", 1.5), ("c", None)]


@contextmanager
def dying(base, ending: str) -> Iterator[FaultyStorage]:
    """Yield a storage on which a compaction dies before it creates a file of a name."""
    trial = base.with_name("trial")
    shutil.copytree(base, trial)
    learned = FaultyStorage(LocalStorage(str(trial)))
    with client(trial, learned, **LOGS) as c:
        c.compact()
    shutil.rmtree(trial)
    log = enumerate(learned.log, 1)
    at = next(n for n, (kind, path) in log if kind == "create" and path.endswith(ending))
    yield FaultyStorage(LocalStorage(str(base)), [Fault(at, Effect.CRASH_BEFORE)])


@pytest.mark.property
@pytest.mark.parametrize("ending", [".compaction.inflight", ".MERGE", ".commit"])
def test_writes_go_on_beside_a_dead_compaction_and_the_next_one_resumes_it(base, ending):
    before = rows(base)
    with dying(base, ending) as storage, pytest.raises(Crash), client(base, storage, **LOGS) as c:
        c.compact()
    assert rows(base) == before
    clock = LaterClock()
    with client(base, clock=clock, **LOGS) as c:
        assert c.upsert(table(row("d", ts=1), row("a", ts=5))).rolled_back == ()
        before = rows(base)
        done = c.compact()
    assert len(done.finished) == 1
    assert rows(base) == optimized(base) == before
    assert reader.leftovers(base) == []
    names = [name for name in reader.timeline_names(base) if name.endswith(".rollback")]
    assert len(names) == (ending != ".compaction.inflight")


def test_a_live_compaction_is_left_to_its_writer(base):
    """With a lock; the second one plans nothing either, as all groups with logs are taken."""
    seen = []

    def compact_between(kind, path):
        if kind == "create" and path.endswith(".MERGE") and not seen:
            seen.append(compactions(base))
            with client(base, **LOGS, **LOCK) as other:
                seen.append(other.compact())

    hooked = HookedStorage(base, compact_between)
    with client(base, hooked, **LOGS, **LOCK) as c:
        done = c.compact()
    assert done.file_groups == 2
    assert seen == [[State.INFLIGHT], None]
    assert optimized(base) == rows(base)
    assert reader.leftovers(base) == []


def test_of_two_writers_that_begin_one_plan_one_executes_it(base):
    with client(base, **LOGS, **LOCK) as c:
        c.schedule_compaction()
    seen = []

    def compact_between(kind, path):
        # The first one has the lock only later.
        if kind == "list" and path.endswith(("timeline", ".hoodie")) and len(seen) == 0:
            seen.append("")
            with client(base, **LOGS, **LOCK) as other:
                seen.append(other.compact())

    hooked = HookedStorage(base, compact_between)
    with client(base, hooked, **LOGS, **LOCK) as c:
        assert c.compact() is None
    assert seen[1].file_groups == 2
    assert compactions(base) == [State.COMPLETED]
    assert optimized(base) == rows(base)


def test_an_inflight_compaction_of_hudi_may_be_alive(base):
    with client(base, **LOGS) as c:
        planned = c.schedule_compaction()
        (reader.timeline_folder(base) / f"{planned}.compaction.inflight").touch()
        with pytest.raises(ConcurrentWriteError, match=planned):
            c.compact()
    with client(base, **LOGS, **{"strandline.write.rollback.foreign": "true"}) as c:
        assert c.compact().instant == planned
    assert optimized(base) == rows(base)


def test_groups_that_were_replaced_since_are_left_out(base):
    with client(base, **LOGS) as c:
        planned = c.schedule_compaction()
        c.insert_overwrite(table(row("z", "us", ts=1)))
        done = c.compact()
    assert (done.instant, done.file_groups) == (planned, 1)
    assert [stat.partition_path for stat in stats(base, planned)] == ["eu"]
    assert [each["id"] for each in rows(base)] == ["a", "z"]
    with client(base, **LOGS) as c:
        planned = c.schedule_compaction()
        assert planned is None


def test_a_plan_whose_groups_are_all_replaced_ends_empty(base):
    with client(base, **LOGS) as c:
        planned = c.schedule_compaction()
        c.insert_overwrite_table(table(row("z", "us", ts=1)))
        done = c.compact()
    assert (done.instant, done.file_groups) == (planned, 0)
    assert compactions(base) == [State.COMPLETED]
    assert [each["id"] for each in rows(base)] == ["z"]


def test_a_plan_that_names_a_group_twice_compacts_it_once(base):
    meta = TableMetaClient.open(LocalStorage(str(base)))
    with client(base, **LOGS) as c:
        planned = c.schedule_compaction()
        found = plan_of(base, planned)
        (reader.timeline_folder(base) / f"{planned}.compaction.requested").unlink()
        meta.create_requested(COMPACTION, planned, replace(found, operations=found.operations * 2))
        done = c.compact()
    assert done.file_groups == 2
    assert optimized(base) == rows(base)


def test_a_damaged_plan_is_named_and_leaves_the_table_as_it_is(base):
    before = rows(base)
    with client(base, **LOGS) as c:
        planned = c.schedule_compaction()
        path = reader.timeline_folder(base) / f"{planned}.compaction.requested"
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(CorruptMetadataError, match=f"{planned}.compaction.requested"):
            c.compact()
        path.write_bytes(whole)
        assert c.compact().instant == planned
    assert optimized(base) == rows(base) == before
    assert reader.leftovers(base) == []


@pytest.mark.property
def test_a_damaged_plan_may_be_deleted_as_its_error_says(base, version):
    with client(base, **LOGS) as c:
        planned = c.schedule_compaction()
        later = 0 if version else c.upsert(table(row("a", ts=7))).rows_updated
    before = rows(base)
    with dying(base, ".commit") as dead, pytest.raises(Crash), client(base, dead, **LOGS) as c:
        c.compact()
    (reader.timeline_folder(base) / f"{planned}.compaction.requested").write_bytes(b"damaged")
    match = rf"{planned}.compaction.requested .* \(restore the file; if .* you may delete it"
    with client(base, **LOGS, clock=LaterClock()) as c:
        for asks in (c.compact, Table(base).to_arrow, partial(c.upsert, table(row("a")))):
            with pytest.raises(CorruptMetadataError, match=match):
                asks()
    for path in reader.timeline_folder(base).glob(f"{planned}.compaction.*"):
        path.unlink()
    assert rows(base) == before
    with client(base, **LOGS, clock=LaterClock()) as c:
        assert c.upsert(table(row("a", ts=8))).rows_updated == 1
        assert c.compact().logs == 3 + later + 1
    assert optimized(base) == rows(base)
    assert reader.leftovers(base) == []


@pytest.mark.property
def test_a_plan_without_its_base_file_keeps_no_other_one_from_being_executed(base):
    meta = TableMetaClient.open(LocalStorage(str(base)))
    with client(base, **LOGS) as c:
        planned = c.schedule_compaction()
        whole = plan_of(base, planned)
        path = reader.timeline_folder(base) / f"{planned}.compaction.requested"
        for region in ("asia", "africa"):
            c.upsert(table(row("n", region)))
            c.upsert(table(row("n", region, ts=2)))
            if region == "asia":
                c.schedule_compaction()
        path.unlink()
        other = [replace(each, data_file_path="f_0-0-0_1.parquet") for each in whole.operations]
        meta.create_requested(COMPACTION, planned, replace(whole, operations=tuple(other)))
        with pytest.raises(CorruptMetadataError, match=f"{planned}.* names base file f_0-0-0_1"):
            c.compact()
        assert compactions(base) == [State.REQUESTED, State.COMPLETED, State.COMPLETED]
        path.unlink()
        meta.create_requested(COMPACTION, planned, whole)
        assert c.compact().instant == planned
    assert rows(base) == optimized(base)


@pytest.mark.property
def test_a_completed_compaction_is_rolled_back_with_its_plan(base):
    with client(base, **LOGS) as c:
        before, optimized_before = rows(base), optimized(base)
        c.rollback(c.compact().instant)
        assert (rows(base), optimized(base)) == (before, optimized_before)
        assert reader.leftovers(base) == []
        assert compactions(base) == []
        assert c.compact() is not None
    assert optimized(base) == rows(base)


@pytest.mark.property
def test_a_clean_keeps_what_a_planned_compaction_reads(base):
    options = {"clean__commits__retained": 1}
    with client(base, **LOGS, **options) as c:
        c.compact()
        c.upsert(table(row("a", ts=11)))
        c.schedule_compaction()
        for ts in range(12, 16):
            c.upsert(table(row("a", ts=ts)))
        c.clean()
        before = rows(base)
        c.compact()
        assert rows(base) == optimized(base) == before
        for ts in range(16, 20):
            c.upsert(table(row("a", ts=ts)))
        c.compact()
        assert c.clean() is not None
    assert [each["ts"] for each in rows(base)] == [19, 3]


@pytest.mark.property
@pytest.mark.parametrize(
    ("number", "mode"),
    [(6, "EVENT_TIME_ORDERING"), (8, "EVENT_TIME_ORDERING"), (9, "COMMIT_TIME_ORDERING")],
)
@pytest.mark.parametrize("more", [{}, BUCKETS], ids=["", "buckets"])
def test_a_walk_with_compactions_gives_the_rows_of_one_without(tmp_path, number, mode, more):
    """Ordering values grow after deletes, which a compaction forgets."""
    rng = random.Random(f"{number} {mode} {sorted(more)}")
    options = {**LOGS, **more, "record__merge__mode": mode, "write__table__version": number}
    with client(tmp_path / "one", **options) as one, client(tmp_path / "two", **options) as two:
        least = 0
        for step in range(20):
            keys = rng.sample("abcdefghijkl", rng.randint(1, 6))
            found = [
                row(key, "eu" if key < "g" else "us", least + rng.randint(1, 5), f"{step}")
                for key in keys
            ]
            batch, operation = table(*found), "upsert"
            if step % 5 == 4:
                operation = "delete"
            elif step % 3 == 2:
                flags = [rng.random() < 0.5 for _ in keys]
                batch = batch.append_column(IS_DELETED, pa.array(flags))
            for each in (one, two):
                getattr(each, operation)(batch)
            if operation == "delete" or IS_DELETED in batch.schema.names:
                least += 5
            action = rng.choice(["compact", "schedule_compaction", "finish", ""])
            if action == "finish":
                finish(two)
            elif action:
                getattr(two, action)()
            tables = (Table(tmp_path / name).to_arrow() for name in ("one", "two"))
            mine, others = (t.select(SCHEMA.names).sort_by("id").to_pylist() for t in tables)
            assert mine == others, (step, action)
        two.compact()
        assert optimized(tmp_path / "two") == rows(tmp_path / "two")
    assert len(compactions(tmp_path / "two")) > 3
