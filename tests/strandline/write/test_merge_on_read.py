"""Delta commits: what goes to logs, which row then wins, what undoes them, what is refused."""

from __future__ import annotations

import random
import shutil
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from fsview.local_view import open_view
from fsview.model.file_system_view import FileSystemView
from strandline import Table
from strandline.records.meta_fields import IS_DELETED
from strandline.write.engine.local import LocalEngine
from tests.kit.concurrency.manual_clock import LaterClock
from tests.kit.short_runs import quick_runs
from tests.kit.storage.faulty_storage import Effect, Fault, FaultyStorage
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import reader
from tests.strandline.write.faults.fault_scenarios import LOCK
from tests.strandline.write.logged_table import dead_write
from tests.strandline.write.refusals import refused
from tests.strandline.write.tables import change_properties, client, row, stored, table
from timeline.encoding.log_block import (
    AVRO_DATA,
    DELETE,
    INSTANT_TIME,
    PARQUET_DATA,
    TARGET_INSTANT_TIME,
    LogBlock,
    read_blocks,
    scan_blocks,
)
from timeline.errors import ConfigError, UnsupportedTableError, WriteConflictError
from timeline.instant import State
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CommitMetadata, WriteStat
from timeline.storage.local import LocalStorage

LOGS = {"datasource__write__table__type": "MERGE_ON_READ"}
VERSION_6 = {"write__table__version": 6}
BUCKETS = {**LOGS, "index__type": "BUCKET", "bucket__index__num__buckets": 1}
NO_FILLING = {**LOGS, "parquet__small__file__limit": 0}


@pytest.fixture(params=[{}, VERSION_6], ids=["v9", "v6"])
def version(request) -> dict:
    """Options that choose the table's version."""
    return request.param


@pytest.fixture
def base(tmp_path, version) -> Path:
    """A merge-on-read table with three rows in two partitions."""
    rows = table(row("a"), row("b"), row("c", "us"))
    return stored(tmp_path / "t", rows, **LOGS, **version)


def stats(base, instant: str) -> list[WriteStat]:
    """Return the statistics of a commit's files, base files first."""
    meta = TableMetaClient.open(LocalStorage(str(base)))
    found = meta.active_timeline().find(instant)
    assert found is not None
    assert (found.action, found.state) == ("deltacommit", State.COMPLETED)
    metadata = meta.read(found)
    assert isinstance(metadata, CommitMetadata)
    of_all = [s for each in metadata.partition_to_write_stats.values() for s in each]
    return sorted(of_all, key=lambda stat: stat.log_version or 0)


def blocks(base, stat: WriteStat) -> list[int]:
    """Return the kinds of the blocks of a log."""
    path = Path(base) / (stat.path or "")
    return [block.kind for block in read_blocks(path.read_bytes(), stat.path or "")]


def in_logs(base) -> set[str]:
    """Return the instants whose blocks in logs count, if they are committed."""
    found: list[tuple[str, str | None]] = []
    for partition, name, *_ in sorted(reader.logs(base), key=lambda log: log[3:]):
        for block in scan_blocks((base / partition / name).read_bytes()):
            if isinstance(block, LogBlock):
                found.append((block.header[INSTANT_TIME], block.header.get(TARGET_INSTANT_TIME)))
    undone = {target for _, target in found}
    return {time for time, target in found if target is None} - undone


def rows(base) -> list[dict]:
    """Return the rows as the naive reader and ours give them, which is the same."""
    found = reader.rows(base)
    ours = Table(base).to_arrow().drop_columns(list(reader.META)).to_pylist()
    assert sorted(ours, key=lambda each: (each["id"], each["region"])) == found
    return found


def test_updates_go_to_logs_and_inserts_to_new_groups(base, version):
    (stored,) = (name for partition, name, *_ in reader.base_files(base) if partition == "eu")
    with client(base, **NO_FILLING) as c:
        result = c.upsert(table(row("a", ts=2), row("new")))
    assert (result.rows_updated, result.rows_inserted, result.files) == (1, 1, 2)
    new, log = stats(base, result.instant)
    name = (log.path or "").rpartition("/")[2]
    named = stored[-25:-8] if version else result.instant
    assert name.startswith(f".{log.file_id}_{named}.log.1_")
    size = (base / (log.path or "")).stat().st_size
    assert log == WriteStat(
        file_id=log.file_id,
        path=log.path,
        prev_commit=named,
        num_writes=1,
        num_update_writes=1,
        total_write_bytes=size,
        partition_path="eu",
        file_size_in_bytes=size,
        log_version=1,
        log_offset=0,
        base_file=stored if version else "",
        log_files=(name,),
        total_upsert_time=log.total_upsert_time,
    )
    assert (new.prev_commit, new.num_inserts, new.log_files) == ("null", 1, None)
    assert blocks(base, log) == [AVRO_DATA]
    assert [each["ts"] for each in rows(base)] == [2, 1, 1, 1]


def test_inserts_rewrite_the_smallest_file_without_logs(base):
    with client(base, **LOGS) as c:
        first = c.upsert(table(row("a", ts=2), row("new")))
        (stat,) = stats(base, first.instant)
        assert stat.prev_base_file is not None
        assert (stat.num_update_writes, stat.num_inserts, stat.log_files) == (1, 1, None)
        c.upsert(table(row("a", ts=3)))
        new, log = stats(base, c.upsert(table(row("a", ts=4), row("next"))).instant)
        assert (new.prev_commit, log.num_writes) == ("null", 1)
    assert [each["ts"] for each in rows(base)] == [4, 1, 1, 1, 1]
    with client(base, **LOGS, merge__small__file__group__candidates__limit=0) as c:
        (new,) = stats(base, c.insert(table(row("d", "us"))).instant)
        assert new.prev_commit == "null"


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_inserts_are_delta_commits_without_logs(base, operation):
    with client(base, **NO_FILLING) as c:
        (stat,) = stats(base, getattr(c, operation)(table(row("new"))).instant)
    assert stat.log_files is None


def test_deletes_are_blocks_with_their_ordering_values(base):
    flagged = table(row("a", ts=2), row("b", ts=0), row("nobody")).append_column(
        IS_DELETED, [[True, True, True]]
    )
    with client(base, **LOGS) as c:
        result = c.upsert(flagged)
        (stat,) = stats(base, result.instant)
        assert (result.rows_deleted, stat.num_deletes, stat.num_writes) == (2, 2, 0)
        assert blocks(base, stat) == [DELETE]
        assert [each["id"] for each in rows(base)] == ["b", "c"]
        # A delete operation wins whatever the ordering values.
        result = c.delete(table(row("b", ts=0), row("nobody", "us")))
        assert result.rows_deleted == 1
        assert [each["id"] for each in rows(base)] == ["c"]


def test_a_log_that_is_full_is_followed_by_another(base, version):
    flagged = table(row("a", ts=2), row("b", ts=2)).append_column(IS_DELETED, [[True, False]])
    options = {"logfile__max__size": 1, "logfile__data__block__format": "parquet"}
    with client(base, **LOGS, **options) as c:
        result = c.upsert(flagged)
    one, two = stats(base, result.instant)
    assert (one.log_version, two.log_version) == (1, 2)
    assert (blocks(base, one), blocks(base, two)) == ([PARQUET_DATA], [DELETE])
    names = [each.path.rpartition("/")[2] for each in (one, two)]
    assert one.log_files == (names[0],)
    # In version 6 they are those of the slice.
    assert two.log_files == tuple(names if version else names[1:])
    assert (one.num_writes, two.num_deletes) == (1, 1)
    assert (result.rows_updated, result.rows_deleted, result.files) == (1, 1, 2)
    assert [each["id"] for each in rows(base)] == ["b", "c"]
    assert reader.leftovers(base) == []


def test_each_log_has_a_marker_before_it_exists(base, version):
    made = []
    hooked = HookedStorage(base, lambda kind, path: made.append(path) if kind == "create" else None)
    with client(base, hooked, **LOGS, logfile__max__size=1) as c:
        result = c.upsert(table(row("a", ts=2)))
    (stat,) = stats(base, result.instant)
    kind = "APPEND" if version else "CREATE"
    assert f".hoodie/.temp/{result.instant}/{stat.path}.marker.{kind}" in made


def test_a_bucket_begins_with_a_base_file_and_then_all_rows_go_to_its_log(tmp_path, version):
    base = tmp_path / "t"
    with client(base, **BUCKETS, **version) as c:
        (first,) = stats(base, c.upsert(table(row("a"))).instant)
        assert first.log_files is None
        for operation, key in (("upsert", "b"), ("insert", "d"), ("bulk_insert", "e")):
            (log,) = stats(base, getattr(c, operation)(table(row(key))).instant)
            assert log.log_files is not None
            assert log.file_id == first.file_id
        c.delete(table(row("b")))
    assert [each["id"] for each in rows(base)] == ["a", "d", "e"]


def only_logs(base: Path) -> None:
    """Leave the one group of a table only its logs, as Flink's writers make it."""
    (file,) = (base / "eu").glob("*.parquet")
    file.unlink()
    for instant in reader.timeline_folder(base).glob(f"{file.stem[-17:]}*"):
        instant.unlink()


def test_groups_that_have_only_logs_are_written_by_bucket_number(tmp_path, version):
    base = tmp_path / "t"
    with client(base, **BUCKETS, **version) as c:
        first = c.upsert(table(row("a")))
        (group,) = stats(base, first.instant)
        c.upsert(table(row("a", ts=2), row("b")))
    only_logs(base)
    with client(base, **BUCKETS) as c:
        (log,) = stats(base, c.upsert(table(row("b", ts=3))).instant)
        assert (log.file_id, log.log_version) == (group.file_id, 2 if version else 1)
        found = Table(base).to_arrow().select(["id", "ts"]).to_pylist()
        assert found == [{"id": "a", "ts": 2}, {"id": "b", "ts": 3}]
        c.insert_overwrite(table(row("z")))
    assert Table(base).to_arrow()["id"].to_pylist() == ["z"]


def test_groups_that_have_only_logs_are_refused_where_keys_are_looked_up(base):
    shutil.rmtree(base / "us")
    with client(base, **LOGS) as c:
        c.upsert(table(row("a", ts=2)))
    only_logs(base)
    with client(base, **LOGS) as c:
        with pytest.raises(UnsupportedTableError, match=r"has only logs.*BUCKET"):
            c.upsert(table(row("a", ts=3)))
        c.insert(table(row("new")))
    assert sorted(Table(base).to_arrow()["id"].to_pylist()) == ["a", "new"]


BY_TIME, LATER_WINS = "EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"
BLOOM = {"index__type": "BLOOM"}


GLOBAL = {"index__type": "GLOBAL_SIMPLE"}
GLOBAL_NEW = {"index__type": "GLOBAL_BLOOM", **NO_FILLING}
IN_PLACE = {**GLOBAL, "simple__index__update__partition__path": "false"}


@pytest.mark.property
@pytest.mark.parametrize(
    ("mode", "more"),
    [
        # Each option and mode on every change; the other pairs in `tox -e all`.
        pytest.param(BY_TIME, {}, id="time"),
        pytest.param(LATER_WINS, NO_FILLING, id="later-new"),
        pytest.param(LATER_WINS, BLOOM, id="later-bloom"),
        pytest.param(BY_TIME, BUCKETS, id="time-buckets"),
        pytest.param(BY_TIME, GLOBAL, id="time-global"),
        pytest.param(LATER_WINS, GLOBAL_NEW, id="later-global-new"),
        pytest.param(BY_TIME, IN_PLACE, id="time-global-in-place"),
        pytest.param(BY_TIME, VERSION_6, id="time-v6"),
        pytest.param(LATER_WINS, {**BUCKETS, **VERSION_6}, id="later-buckets-v6"),
        pytest.param(LATER_WINS, {**GLOBAL_NEW, **VERSION_6}, id="later-global-new-v6"),
        pytest.param(LATER_WINS, {}, id="later", marks=pytest.mark.product),
        pytest.param(BY_TIME, NO_FILLING, id="time-new", marks=pytest.mark.product),
        pytest.param(BY_TIME, BLOOM, id="time-bloom", marks=pytest.mark.product),
        pytest.param(LATER_WINS, BUCKETS, id="later-buckets", marks=pytest.mark.product),
        pytest.param(LATER_WINS, GLOBAL, id="later-global", marks=pytest.mark.product),
        pytest.param(BY_TIME, GLOBAL_NEW, id="time-global-new", marks=pytest.mark.product),
        pytest.param(LATER_WINS, IN_PLACE, id="later-in-place", marks=pytest.mark.product),
    ],
)
def test_a_walk_gives_the_rows_of_a_copy_on_write_table(tmp_path, mode, more):
    """Ordering values grow after deletes, which logs keep while a copy-on-write table forgets them:
    a row that is older than a delete stays deleted there.
    """
    rng = random.Random(f"{mode} {sorted(more)}")
    options = {**more, "record__merge__mode": mode}
    plain = {**options, "datasource__write__table__type": None}
    with (
        client(tmp_path / "logs", **{**options, **LOGS}) as logs,
        client(tmp_path / "plain", **plain) as files,
    ):
        least = 0
        for step in range(25):
            keys = rng.sample("abcdefghijkl", rng.randint(1, 6))
            found = []
            for key in keys:
                region = "eu" if key < "g" else "us"
                if "GLOBAL" in more.get("index__type", ""):
                    region = rng.choice(["eu", "us", "asia"])
                found.append(row(key, region, least + rng.randint(1, 5), f"{step}"))
            batch, operation = table(*found), "upsert"
            if step % 5 == 4:
                operation = "delete"
            elif step % 3 == 2:
                batch = batch.append_column(
                    IS_DELETED, pa.array([rng.random() < 0.5 for _ in keys])
                )
            for each in (logs, files):
                getattr(each, operation)(batch)
            if operation == "delete" or IS_DELETED in batch.schema.names:
                least += 5
            assert read(tmp_path / "logs") == read(tmp_path / "plain"), step
    assert list(reader.logs(tmp_path / "logs"))


def read(base) -> list[dict]:
    names = ["id", "region", "ts", "name", "_hoodie_partition_path"]
    found = Table(base).to_arrow().select(names).to_pylist()
    return sorted(found, key=lambda each: each["id"])


@pytest.fixture
def moved(tmp_path) -> Path:
    """A table with a global index, in which "a" has moved from "eu" to "us"."""
    rows = table(row("a"), row("b"), row("c", "us"))
    return stored(tmp_path / "t", rows, table(row("a", "us", ts=2)), **MOVING)


MOVING = {**NO_FILLING, **GLOBAL}


def test_a_row_moves_to_another_partition_by_a_delete_in_its_log(moved):
    ((partition, log, *_),) = reader.logs(moved)
    (block,) = read_blocks((moved / partition / log).read_bytes(), log)
    assert block.kind == DELETE
    assert [(each["id"], each["region"]) for each in rows(moved)] == [
        ("a", "us"),
        ("b", "eu"),
        ("c", "us"),
    ]


@pytest.mark.property
def test_a_place_from_which_a_row_has_moved_counts_no_more(moved):
    """Its base file still has the key."""
    with client(moved, **MOVING) as c:
        result = c.upsert(table(row("a", "eu", ts=1), row("b", "us", ts=1)))
        # "a" is late, so it stays; "b" moves.
        assert (result.rows_inserted, result.rows_updated, result.rows_deleted) == (1, 1, 1)
        assert c.delete(table(row("a", "asia"))).rows_deleted == 1
    assert [(each["id"], each["region"]) for each in rows(moved)] == [("b", "us"), ("c", "us")]
    with client(moved, **MOVING, simple__index__update__partition__path="false") as c:
        # It is in no partition any more, so it isn't updated in place.
        assert c.upsert(table(row("a", "asia"), row("b", "eu", ts=9))).rows_inserted == 1
    found = [(each["id"], each["_hoodie_partition_path"]) for each in read(moved)]
    assert found == [("a", "asia"), ("b", "us"), ("c", "us")]


@pytest.mark.property
def test_the_merged_row_decides_whether_a_row_is_late(moved):
    with client(moved, **MOVING) as c:
        c.upsert(table(row("c", "us", ts=7)))
        c.upsert(table(row("c", "eu", ts=6)))
        assert [each["ts"] for each in rows(moved)] == [2, 1, 7]
        c.upsert(table(row("c", "eu", ts=8)))
    assert [(each["region"], each["ts"]) for each in rows(moved)][-1] == ("eu", 8)


def test_a_task_that_runs_again_leaves_one_log_a_group(base, version):
    """The first attempt's log has a marker but no status, so the commit takes it back."""
    trial = base.with_name("trial")
    shutil.copytree(base, trial)
    learned = FaultyStorage(LocalStorage(str(trial)))
    changes = table(row("a", ts=2), row("c", "us", ts=2))
    with client(trial, learned, **LOGS) as c:
        c.upsert(changes)
    at = max(n for n, (kind, _) in enumerate(learned.log, 1) if kind == "close")
    storage = FaultyStorage(LocalStorage(str(base)), [Fault(at, Effect.ERROR_AFTER)])
    with client(base, storage, LocalEngine(task_retries=1), **LOGS) as c:
        result = c.upsert(changes)
    assert len([call for call in storage.log if call[0] == "close"]) > result.files == 2
    assert rows(base) == rows(trial)
    assert reader.leftovers(base) == []
    sizes = [(base / partition / name).stat().st_size for partition, name, *_ in reader.logs(base)]
    assert len([size for size in sizes if size]) == result.files
    # In version 6 a view may have seen it, so it is emptied.
    assert len(sizes) == result.files + bool(version)


def test_two_writers_of_one_group_conflict(base):
    done = []

    def write_between(kind, path):
        if kind == "create" and path.endswith(".deltacommit.inflight") and not done:
            done.append(path)
            with client(base, **LOGS, **lock) as other:
                other.upsert(table(row("b", ts=5)))

    lock = {**LOCK, "clean__failed__writes__policy": "LAZY"}
    hooked = HookedStorage(base, write_between)
    with client(base, hooked, **LOGS, **lock) as c, pytest.raises(WriteConflictError):
        c.upsert(table(row("a", ts=4)))
    assert [each["ts"] for each in rows(base)] == [1, 5, 1]
    assert reader.leftovers(base) == []


@pytest.mark.parametrize("keep_markers", quick_runs([True], [True, False]))
def test_a_dead_write_is_rolled_back_by_markers_or_by_listing(base, keep_markers, version):
    with client(base, **LOGS) as c:
        kept = c.upsert(table(row("a", ts=2)))
    before = rows(base)
    dead = dead_write(base, keep_markers=keep_markers)
    assert in_logs(base) == {kept.instant, dead}
    logs = list(reader.logs(base))
    assert rows(base) == before
    with client(base, **LOGS, clock=LaterClock()) as c:
        result = c.upsert(table(row("b", ts=2)))
    assert result.rolled_back == (dead,)
    assert in_logs(base) == {kept.instant, result.instant}
    # In version 6 the log stays, and another one with the command is added.
    assert len(list(reader.logs(base))) == len(logs) + (2 if version else 0)
    assert reader.leftovers(base) == []


@pytest.mark.property
def test_a_view_follows_rollbacks_of_delta_commits(base):
    """One that was synced before the dead write knows its logs from the rollback."""
    with client(base, **LOGS) as c:
        c.upsert(table(row("a", ts=2)))
    with closing(open_view(LocalStorage(str(base)))) as view:
        view.load_all_partitions()
        dead_write(base)
        with client(base, **LOGS, clock=LaterClock()) as c:
            c.upsert(table(row("b", ts=2), row("c", "us", ts=2)))
            c.rollback(c.upsert(table(row("a", ts=3), row("new", "us"))).instant)
        view.sync()
        with closing(open_view(LocalStorage(str(base)))) as fresh:
            fresh.load_all_partitions()
            assert slices_of(view) == slices_of(fresh)


def slices_of(view: FileSystemView) -> list[tuple]:
    """Return what the slices of a view are made of."""
    return [
        (s.base_instant, s.base_file and s.base_file.name, [(f.name, f.size) for f in s.log_files])
        for partition in ("eu", "us")
        for s in sorted(view.all_file_slices(partition), key=lambda s: (s.file_id, s.base_instant))
    ]


@pytest.mark.parametrize("version", [VERSION_6], indirect=True, ids=["v6"])
def test_a_slice_of_emptied_logs_is_none(base):
    """In version 6 a clean may leave such logs, as no instant names them."""
    with client(base, **LOGS) as c:
        c.upsert(table(row("c", "us", ts=2)))
    (file,) = (base / "us").glob("*.parquet")
    (log,) = (base / "us").glob(".*.log.*")
    file.unlink()
    log.write_bytes(b"")
    log.rename(log.with_name(log.name.replace(".log.1_", ".log.2_")))
    with client(base, **LOGS) as c:
        assert c.schedule_compaction() is None
        assert c.upsert(table(row("c", "us", ts=3))).rows_inserted == 1
    assert [each["id"] for each in rows(base)] == ["a", "b", "c"]


@pytest.mark.property
def test_a_log_that_a_dead_writer_cut_counts_for_nobody(base):
    with client(base, **LOGS) as c:
        kept = c.upsert(table(row("a", ts=2)))
    before = rows(base)
    dead = dead_write(base)
    log = max((base / "eu").glob(".*.log.*"), key=lambda path: path.stat().st_mtime_ns)
    whole = log.read_bytes()
    for size in (0, len(whole) // 2, len(whole) - 1):
        log.write_bytes(whole[:size])
        assert rows(base) == before, size
    # The next writer doesn't append to it, but undoes it, and writes to a log of its own.
    with client(base, **LOGS, clock=LaterClock()) as c:
        result = c.upsert(table(row("a", ts=3)))
    assert result.rolled_back == (dead,)
    assert in_logs(base) == {kept.instant, result.instant}
    assert [each["ts"] for each in rows(base)] == [3, *(each["ts"] for each in before[1:])]


def test_the_newest_delta_commit_is_rolled_back(base):
    before = rows(base)
    with client(base, **LOGS) as c:
        result = c.upsert(table(row("a", ts=9), row("new", "us")))
        assert rows(base) != before
        c.rollback(result.instant)
    assert rows(base) == before
    assert in_logs(base) == set()


def test_the_metadata_of_base_files_decides_keys_and_sizes(tmp_path):
    """A table's form of keys is that of a stored file; logs have no footer with keys."""
    base, options = tmp_path / "t", {**LOGS, "write__table__version": 8}
    complex_keys = {"datasource__write__keygenerator__type": "COMPLEX"}
    with client(base, **options, **complex_keys) as c:
        c.upsert(table(row("a")))
        c.upsert(table(row("a", ts=2)))
    with client(base, **options, **complex_keys) as c:
        assert c.upsert(table(row("a", ts=3))).rows_updated == 1
    assert [each["ts"] for each in rows(base)] == [3]


REFUSED = {
    "compacting and only planning": (
        {**LOGS, "compact__inline": "true", "compact__schedule__inline": "true"},
        "hoodie.compact.inline and hoodie.compact.schedule.inline ask",
    ),
    "another strategy": (
        {**LOGS, "compaction__strategy": "org.x.Mine"},
        "hoodie.compaction.strategy is 'org.x.Mine'; allowed: org.apache.*LogFileSizeBased",
    ),
    "another trigger": (
        {**LOGS, "compact__inline__trigger__strategy": "SOMETIMES"},
        "hoodie.compact.inline.trigger.strategy is 'SOMETIMES'; allowed: NUM_COMMITS",
    ),
    "log compaction": (
        {**LOGS, "log__compaction__inline": "true"},
        "hoodie.log.compaction.inline is true",
    ),
    "hfile": ({**LOGS, "logfile__data__block__format": "hfile"}, "allowed: avro, parquet"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_supported_is_refused_by_name(tmp_path, case):
    options, match = REFUSED[case]
    with pytest.raises(ConfigError, match=match), client(tmp_path / "t", **options) as c:
        c.upsert(table(row("a")))
    assert not (tmp_path / "t").exists()


def test_compaction_that_is_off_is_no_reason_to_refuse(tmp_path):
    options = {
        "compact__inline": "false",
        "datasource__compaction__async__enable": "false",
        "compact__inline__max__delta__commits": 3,
    }
    with client(tmp_path / "t", **LOGS, **options) as c:
        assert c.upsert(table(row("a"))).rows_inserted == 1


def test_the_type_of_a_table_is_its_own(base):
    match = "hoodie.datasource.write.table.type is 'COPY_ON_WRITE', but the table has 'MERGE_ON"
    refused(base, ConfigError, match, datasource__write__table__type="COPY_ON_WRITE")
    with client(base) as c:
        assert c.upsert(table(row("a", ts=2))).rows_updated == 1
    assert list(reader.logs(base))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"compaction__payload__class": "org.x.Mine"}, "payload.class=org.x.Mine"),
        ({"record__merge__strategy__id": "x"}, "record.merge.strategy.id=x"),
    ],
)
def test_tables_whose_logs_can_not_be_written_or_merged(base, changes, match):
    change_properties(base, **changes)
    refused(base, UnsupportedTableError, match)
