"""Overwriting partitions and tables: what readers see, conflicts, repair, rollback, clean."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from pathlib import Path

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsview.local_view import LocalView
from fsview.table_view import TableView
from strandline import Table, WriteClient
from strandline.records.meta_fields import IS_DELETED
from tests.kit.concurrency.manual_clock import LaterClock
from tests.kit.short_runs import quick_runs
from tests.kit.storage.faulty_storage import Crash, Effect, Fault, FaultyStorage
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import golden, reader
from tests.strandline.write.tables import client, row, table
from timeline.clock import SystemClock, TimeGenerator
from timeline.errors import IllegalTransitionError, UnsupportedTableError, WriteConflictError
from timeline.instant import CLUSTERING, REPLACE_COMMIT, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import (
    ClusteringGroup,
    ClusteringPlan,
    CommitMetadata,
    RequestedReplaceMetadata,
    SliceInfo,
)
from timeline.storage.local import LocalStorage

OCC = {
    "write__concurrency__mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "write__lock__provider": (
        "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
    ),
    "time__generator__max_expected_clock_skew_ms": 0,
}


@pytest.fixture(scope="module", params=quick_runs([6, 9], [6, 8, 9]), ids="v{}".format)
def inserted(request, tmp_path_factory) -> Path:
    """A table with three rows; to be copied."""
    base = tmp_path_factory.mktemp("inserted") / "t"
    with client(base, write__table__version=request.param) as c:
        c.insert(table(row("a"), row("b", "us"), row("c", "us")))
    return base


@pytest.fixture
def base(inserted: Path, tmp_path: Path) -> Path:
    return shutil.copytree(inserted, tmp_path / "t")


def ids(base: Path) -> list[str]:
    """Return the keys that a naive reader sees, which are those that ``Table`` reads."""
    found = sorted(each["id"] for each in reader.rows(base))
    assert sorted(Table(str(base)).to_arrow()["id"].to_pylist()) == found
    return found


def test_the_partitions_of_the_rows_are_replaced(base: Path) -> None:
    view = TableView(LocalStorage(str(base)))
    LocalView.newest(view).load_all_partitions()
    before = reader.newest_files(base)
    with client(base) as c:
        result = c.insert_overwrite(table(row("d", "us"), row("e", "asia")))
    assert (result.operation, result.rows_inserted) == ("INSERT_OVERWRITE", 2)
    assert ids(base) == ["a", "d", "e"]
    commit = Table(str(base)).commit_metadata()
    (old,) = (file_id for partition, file_id in before if partition == "us")
    assert (commit.action, commit.operation) == (REPLACE_COMMIT, "INSERT_OVERWRITE")
    assert commit.replaced_file_ids == {"us": (old,), "asia": ()}
    synced = LocalView.synced(view)
    synced.load_all_partitions()
    followed = {file.path for file in synced.all_latest_base_files()}
    assert followed == {f"{p}/{name}" for (p, _), name in reader.newest_files(base).items()}


def test_the_table_is_replaced_even_by_no_rows(base: Path) -> None:
    with client(base) as c:
        c.insert_overwrite_table(table(row("d", "us")))
        assert ids(base) == ["d"]
        c.insert_overwrite(table())
        assert ids(base) == ["d"]
        c.insert_overwrite_table(table())
        assert ids(base) == []
        c.upsert(table(row("b", "us", ts=0)))
    assert [each["ts"] for each in reader.rows(base)] == [0]  # not compared with replaced rows


INDEXES = {
    "SIMPLE": {},
    "BLOOM": {"index__type": "BLOOM"},
    "GLOBAL_SIMPLE": {"index__type": "GLOBAL_SIMPLE"},
    "BUCKET": {"index__type": "BUCKET", "bucket__index__num__buckets": 2},
}


@pytest.mark.property
@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("version", quick_runs([9], [6, 9]))
def test_rows_of_replaced_keys_are_in_new_groups_with_every_index(
    index: str, version: int, tmp_path: Path
) -> None:
    base = tmp_path / "t"
    with client(base, write__table__version=version, **INDEXES[index]) as c:
        c.upsert(table(row("a"), row("b", "us"), row("c", "us")))
        for ts in (9, 10):
            before = set(reader.newest_files(base))
            flagged = table(row("b", "us", ts=ts), row("e", "us"), row("gone", "us"))
            c.insert_overwrite(flagged.append_column(IS_DELETED, [[False, False, True]]))
            assert ids(base) == ["a", "b", "e"]
            assert not {at for at in reader.newest_files(base) if at[0] == "us"} & before
        c.upsert(table(row("b", "us", ts=11), row("f", "us")))
        assert ids(base) == ["a", "b", "e", "f"]
        c.insert_overwrite_table(table(row("b", "us", ts=12)))
        c.upsert(table(row("b", "us", ts=13), row("c", "us")))
    assert ids(base) == ["b", "c"]


@pytest.mark.property
def test_the_service_finds_what_is_replaced(base: Path) -> None:
    with client(base, embed__timeline__server="true", clean__automatic="true") as c:
        for overwrite in (c.insert_overwrite, c.insert_overwrite_table):
            result = overwrite(table(row("d", "us")))
            assert (result.fallbacks, result.warnings) == ((), ())
            assert ("list", "lookup") not in result.storage_calls
    assert ids(base) == ["d"]


def test_a_table_without_partitions(tmp_path: Path) -> None:
    base = tmp_path / "t"
    with client(base, datasource__write__partitionpath__field=None) as c:
        c.insert_overwrite(table(row("a")))
        c.insert_overwrite(table(row("b"), row("c")))
    assert ids(base) == ["b", "c"]


@pytest.mark.parametrize("name", ["replace_cow_v6", "replace_cow_v9"])
def test_the_instants_files_are_those_that_hudi_writes(name: str, tmp_path: Path) -> None:
    theirs = golden.build(name, golden.steps(name)[-1], tmp_path / "golden")
    version = int(name[-1])
    with client(tmp_path / "t", write__table__version=version) as c:
        c.insert(table(row("a")))
        c.insert_overwrite(table(row("a")))
    ours_meta, meta = (
        TableMetaClient.open(LocalStorage(str(base))) for base in (tmp_path / "t", theirs)
    )
    ours = ours_meta.active_timeline()[-1]
    found = next(
        each
        for each in meta.active_timeline()
        if each.action == REPLACE_COMMIT
        and each.is_completed
        and meta.read(each).operation_type == "INSERT_OVERWRITE"
    )
    assert ours_meta.read_plan(ours) == meta.read_plan(found) == RequestedReplaceMetadata()
    inflight = Instant(ours.requested_time, REPLACE_COMMIT, State.INFLIGHT)
    assert ours_meta.read(inflight) == CommitMetadata(operation_type="INSERT_OVERWRITE")
    for state in State:
        at = [Instant(i.requested_time, i.action, state, i.completion_time) for i in (ours, found)]
        files = [each.read_bytes(i) for each, i in zip((ours_meta, meta), at, strict=True)]
        if version == 9 or state is State.REQUESTED:
            schemas = [fastavro.reader(io.BytesIO(data)).writer_schema for data in files]
            assert schemas[0]["name"] == schemas[1]["name"]
        else:
            assert all(data.startswith(b"{") for data in files)


def test_a_failed_overwrite_replaces_nothing(base: Path) -> None:
    learned = FaultyStorage(LocalStorage(str(base)))
    trial = base.with_name("trial")
    shutil.copytree(base, trial)
    with client(base, learned) as c:
        c.insert_overwrite_table(table(row("d", "us")))
    at = next(n for n, (_, path) in enumerate(learned.log, 1) if path.endswith(".replacecommit"))
    dying = FaultyStorage(LocalStorage(str(trial)), [Fault(at, Effect.CRASH_BEFORE)])
    with pytest.raises(Crash), client(trial, dying) as c:
        c.insert_overwrite_table(table(row("d", "us")))
    assert ids(trial) == ["a", "b", "c"]
    with client(trial, clock=LaterClock()) as c:
        assert len(c.upsert(table(row("e"))).rolled_back) == 1
    assert ids(trial) == ["a", "b", "c", "e"]
    assert reader.leftovers(trial) == []


def test_its_rollback_brings_the_rows_back(base: Path) -> None:
    with client(base) as c:
        first = c.insert_overwrite(table(row("d", "us")))
        second = c.insert_overwrite_table(table())
        for undone, left in ((second, ["a", "d"]), (first, ["a", "b", "c"])):
            c.rollback(undone.instant)
            assert ids(base) == left
        c.upsert(table(row("b", "us", ts=5)))
    assert ids(base) == ["a", "b", "c"]
    assert reader.leftovers(base) == []


def test_a_clean_deletes_what_was_replaced_and_then_there_is_no_way_back(base: Path) -> None:
    with client(base, clean__commits__retained=1) as c:
        replaced = set(reader.newest_files(base).values())
        overwrite = c.insert_overwrite_table(table(row("d", "us")))
        assert c.clean() is None
        newer = [c.insert(table(row(f"n{n}", f"new{n}"))) for n in range(2)]
        cleaned = c.clean()
        assert cleaned.files_deleted == len(replaced)
        assert not replaced & {name for _, name, _, _ in reader.base_files(base)}
        assert ids(base) == ["d", "n0", "n1"]
        for each in reversed(newer):
            c.rollback(each.instant)
        with pytest.raises(IllegalTransitionError, match=f"clean {cleaned.instant} deleted"):
            c.rollback(overwrite.instant)
    assert ids(base) == ["d"]


class During:
    """A table on which another writer writes while the first write is inflight."""

    def __init__(self, base: Path, write: Callable[[WriteClient], object]) -> None:
        self._base, self._write, self._done = base, write, False
        self.storage = HookedStorage(base, after=self._meanwhile)

    def _meanwhile(self, kind: str, path: str) -> None:
        if kind == "create" and path.endswith(".inflight") and not self._done:
            self._done = True
            with client(self._base, **OCC) as other:
                self._write(other)


@pytest.mark.parametrize("first", ["overwrite", "upsert"])
def test_an_update_of_a_replaced_group_conflicts_whoever_completes_first(
    base: Path, first: str
) -> None:
    operations = {
        "overwrite": lambda c: c.insert_overwrite(table(row("d", "us"))),
        "upsert": lambda c: c.upsert(table(row("b", "us", ts=2))),
    }
    (second,) = operations.keys() - {first}
    done: list[str] = []

    def meanwhile(kind: str, path: str) -> None:
        if kind == "create" and path.endswith(".inflight") and not done:
            with client(base, **OCC) as other:
                done.append(operations[first](other).instant)

    storage = HookedStorage(base, after=meanwhile)
    with client(base, storage, **OCC) as c:
        with pytest.raises(WriteConflictError, match=f"{done or ''}.*changed file group"):
            operations[second](c)
        expected = ["a", "d"] if first == "overwrite" else ["a", "b", "c"]
        assert ids(base) == expected
    assert reader.leftovers(base) == []


OVERWRITES = {
    "a partition": lambda c: c.insert_overwrite(table(row("one", "us"))),
    "an empty partition": lambda c: c.insert_overwrite(table(row("one", "asia"))),
    "the table": lambda c: c.insert_overwrite_table(table(row("one", "asia"))),
    "the table by nothing": lambda c: c.insert_overwrite_table(table()),
}
CONCERNED = {
    "overwrites it": lambda c: c.insert_overwrite(table(row("2us", "us"), row("2asia", "asia"))),
    "overwrites the table": lambda c: c.insert_overwrite_table(table(row("2", "us"))),
    "looks up new keys": lambda c: c.upsert(table(row("2us", "us"), row("2asia", "asia"))),
}


@pytest.mark.property
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "second"])
@pytest.mark.parametrize("other", CONCERNED)
@pytest.mark.parametrize("overwrite", OVERWRITES)
def test_what_overlaps_an_overwrite_conflicts_whoever_completes_first(
    base: Path, overwrite: str, other: str, *, is_first: bool
) -> None:
    """Neither of both would replace the other's groups, or find its keys (#32)."""
    order = [OVERWRITES[overwrite], CONCERNED[other]]
    first, second = order if is_first else reversed(order)
    first_alone = base.with_name("alone")
    shutil.copytree(base, first_alone)
    with client(first_alone, **OCC) as c:
        first(c)
    done = During(base, first)
    with client(base, done.storage, **OCC) as c:
        with pytest.raises(
            WriteConflictError, match=r"overwrote|looked up keys|changed file group"
        ):
            second(c)
        assert ids(base) == ids(first_alone)
        second(c)  # repeated, it sees the first one's rows
    assert reader.leftovers(base) == []


@pytest.mark.property
@pytest.mark.parametrize("index", ["SIMPLE", "GLOBAL_SIMPLE", "BUCKET"])
def test_a_key_that_was_looked_up_before_it_was_overwritten_conflicts(
    index: str, tmp_path: Path
) -> None:
    """By a delete that finds nothing, and by a global index in another partition (#32)."""
    base = tmp_path / "t"
    with client(base, **INDEXES[index]) as c:
        c.upsert(table(row("a")))
    region = "eu" if index == "GLOBAL_SIMPLE" else "asia"
    for write in (
        lambda c: c.delete(table(row("new", region))),
        lambda c: c.upsert(table(row("new", region))),
    ):
        done = During(base, lambda c: c.insert_overwrite(table(row("new", "asia"))))
        with client(base, done.storage, **OCC, **INDEXES[index]) as c:
            where = "of partition 'asia'|overwrote partition 'asia'|overwrote the table"
            with pytest.raises(WriteConflictError, match=where):
                write(c)
            assert ids(base) == ["a", "new"]
            c.insert_overwrite_table(table(row("a")))


def test_what_does_not_overlap_an_overwrite_completes(base: Path) -> None:
    """Other partitions, and rows that are inserted without a look-up."""
    done = During(base, lambda c: c.insert_overwrite(table(row("d", "us"))))
    with client(base, done.storage, **OCC) as c:
        c.insert_overwrite(table(row("e", "eu")))
    assert ids(base) == ["d", "e"]
    done = During(base, lambda c: c.insert_overwrite_table(table(row("d", "us"))))
    with client(base, done.storage, **OCC) as c:
        c.bulk_insert(table(row("e", "us")))
    assert ids(base) == ["d", "e"]


def test_rows_that_another_writer_adds_meanwhile_stay(base: Path) -> None:
    done: list[str] = []

    def meanwhile(kind: str, path: str) -> None:
        if kind == "create" and path.endswith(".inflight") and not done:
            with client(base, **OCC) as other:
                done.append(other.bulk_insert(table(row("new", "us"))).instant)

    with client(base, HookedStorage(base, after=meanwhile), **OCC) as c:
        assert c.insert_overwrite(table(row("d", "us"))).concurrent == tuple(done)
    assert ids(base) == ["a", "d", "new"]


def cluster(base: Path, state: State) -> str:
    """Leave a clustering of the partition "eu" in a state; return its requested time."""
    meta = TableMetaClient.open(LocalStorage(str(base)))
    (file_id,) = (file_id for partition, file_id in reader.newest_files(base) if partition == "eu")
    plan = ClusteringPlan((ClusteringGroup((SliceInfo(file_id, "eu"),)),))
    action = REPLACE_COMMIT if meta.config.version == 6 else CLUSTERING
    time = TimeGenerator(SystemClock(), meta.config.timezone).next()
    instant = meta.create_requested(action, time, RequestedReplaceMetadata("CLUSTER", plan))
    if state is State.COMPLETED:
        done = CommitMetadata(
            operation_type="CLUSTER", partition_to_replace_file_ids={"eu": (file_id,)}
        )
        later = TimeGenerator(SystemClock(), meta.config.timezone).next(time)
        meta.complete(meta.transition_to_inflight(instant), done, later)
    return time


def test_groups_of_a_pending_clustering_are_not_replaced(base: Path) -> None:
    time = cluster(base, State.REQUESTED)
    with client(base) as c:
        with pytest.raises(UnsupportedTableError, match=f"pending clustering {time}"):
            c.insert_overwrite_table(table(row("d", "us")))
        c.insert_overwrite(table(row("d", "us")))
    assert ids(base) == ["a", "d"]


def test_a_clustering_is_not_rolled_back(base: Path) -> None:
    time = cluster(base, State.COMPLETED)
    with client(base) as c, pytest.raises(IllegalTransitionError, match="it is a clustering"):
        c.rollback(time)


OPERATIONS = ("insert", "upsert", "delete", "insert_overwrite", "insert_overwrite_table")
WRITES = st.tuples(
    st.sampled_from(OPERATIONS),
    st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["eu", "us"]), max_size=3),
)


@pytest.mark.property
@settings(max_examples=25, deadline=None)
@given(st.sampled_from([6, 9]), st.lists(WRITES, min_size=2, max_size=6))
def test_rows_are_those_of_a_plain_model(tmp_path_factory, version, writes) -> None:
    base = tmp_path_factory.mktemp("model") / "t"
    model: dict[tuple[str, str], int] = {}
    with client(base, write__table__version=version) as c:
        c.upsert(table())
        for ts, (operation, keys) in enumerate(writes):
            given_rows = dict.fromkeys(keys.items(), ts)
            if operation == "insert":  # a stored key would come twice
                given_rows = {key: at for key, at in given_rows.items() if key not in model}
            regions = {region for _, region in given_rows}
            if operation == "insert_overwrite":
                model = {key: at for key, at in model.items() if key[1] not in regions}
            elif operation == "insert_overwrite_table":
                model = {}
            if operation == "delete":
                model = {key: at for key, at in model.items() if key not in given_rows}
            else:
                model |= given_rows
            rows = [row(key, region, ts=ts) for key, region in given_rows]
            getattr(c, operation)(table(*rows))
            found = {(each["id"], each["region"]): each["ts"] for each in reader.rows(base)}
            assert found == model
