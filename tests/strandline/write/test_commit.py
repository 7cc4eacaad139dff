"""What a write reports about its commit: lost answers, other writers, errors afterwards."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from strandline.commit.conflict import BUCKET_INDEX
from strandline.commit.others_heartbeats import instants_with_heartbeat, read_beat
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.storage.hooked_storage import HookedStorage, failing
from tests.kit.tables import reader
from tests.strandline.write.tables import change_properties, client, row, stored, table
from timeline.clock import parse_instant_time
from timeline.errors import (
    CommitOutcomeUnknownError,
    ConcurrentWriteError,
    ConfigError,
    StorageUnavailableError,
    WriteConflictError,
)
from timeline.instant import COMMIT
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CommitMetadata, WriteStat
from timeline.storage.local import LocalStorage

BY_NAME = {"table__precombine__field": "name", "table__ordering__fields": "name"}
OPERATIONS = ("insert", "upsert", "bulk_insert", "delete")
LATER = "20990101{:09d}"


@pytest.fixture
def clock_ahead():
    """Later than the instants that these tests make for another writer."""
    return ManualClock(parse_instant_time(LATER.format(0), "UTC") - 1000)


@pytest.fixture(params=[6, 9])
def base(request, tmp_path):
    rows = table(row("a"), row("b", "us"))
    return stored(tmp_path / "t", rows, write__table__version=request.param)


def ids(base):
    return [each["id"] for each in reader.rows(base)]


def heartbeats(base):
    return instants_with_heartbeat(LocalStorage(str(base)))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_commit_whose_answer_was_lost_counts_once(base, operation):
    storage = HookedStorage(base, after=failing("create", ".commit"))
    rows = table(row("b", "us")) if operation == "delete" else table(row("new"))
    result = getattr(client(base, storage), operation)(rows)
    assert ids(base) == (["a"] if operation == "delete" else ["a", "b", "new"])
    assert result.warnings == ()
    assert result.instant in reader.committed(base)
    assert reader.leftovers(base) == []
    assert heartbeats(base) == ()


def test_a_commit_in_doubt_is_not_for_repeating_and_lives_until_it_expires(base):
    storage = HookedStorage(base, before=failing("create", ".commit"))
    with pytest.raises(CommitOutcomeUnknownError) as info:
        client(base, storage).insert(table(row("new")))
    assert not info.value.retryable
    beat = read_beat(LocalStorage(str(base)), info.value.instant)
    assert beat is not None
    assert not beat.ended


class ChangedTable(LocalStorage):
    """A table whose properties change during a write, and that then takes no announcement."""

    def __init__(self, base_path):
        super().__init__(base_path)
        self.changed = threading.Event()  # also of its copies (``for_cause``)

    def create(self, path, data=b""):
        super().create(path, data)
        if path.endswith(".inflight"):
            change_properties(Path(self.base_path), **BY_NAME)
            self.changed.set()

    def replace(self, path, data):
        if self.changed.is_set() and path.endswith(".completing"):
            raise StorageUnavailableError("no answer")
        super().replace(path, data)


@pytest.mark.parametrize("is_remote", [False, True])
def test_a_changed_table_is_told_although_the_announcement_failed_as_well(base, is_remote):
    """It tells more than the storage's error. (#16)"""
    storage = ChangedTable(str(base))
    storage.is_remote = is_remote
    with client(base, storage) as c, pytest.raises(WriteConflictError, match="properties"):
        c.upsert(table(row("a", ts=2)))


def test_a_failed_write_says_in_its_heartbeat_that_it_failed(base):
    storage = HookedStorage(base, before=failing("create", ".inflight"))
    with pytest.raises(StorageUnavailableError):
        client(base, storage).insert(table(row("new")))
    (instant,) = heartbeats(base)
    assert read_beat(LocalStorage(str(base)), instant).ended


def test_what_fails_after_the_commit_is_a_warning(base, monkeypatch, caplog):
    """A RuntimeError of the cleaner reached the caller as if the write had failed."""
    c = client(base, clean__automatic="true", clean__commits__retained="1")
    c.upsert(table(row("a", ts=2)))

    # Patched, because no storage call of a clean raises an error that isn't Strandline's.
    def broken(*args: object) -> None:
        raise RuntimeError("a fault in the cleaner")

    monkeypatch.setattr("strandline.write.context.Cleaner.run", broken)
    result = c.upsert(table(row("new")))
    assert result.warnings == ("cleaning failed: RuntimeError: a fault in the cleaner",)
    assert ids(base) == ["a", "b", "new"]
    assert "the commit completed, but cleaning failed" in caplog.text


class Meanwhile:
    """Acts once, when the write creates its inflight file: its look-ups are made by then."""

    def __init__(self, act):
        self.act = act
        self.done = False

    def __call__(self, kind, path):
        if kind == "create" and path.endswith(".inflight") and not self.done:
            self.done = True
            self.act()


def commit_of_another(base, partition, file_id, *, schema=None):
    """Complete a commit of a writer that this process knows nothing about."""
    time = LATER.format(1)
    meta = TableMetaClient.open(LocalStorage(str(base)))
    newest = meta.read(meta.active_timeline().completed().last)
    stat = WriteStat(file_id=file_id, path=f"{partition}/{file_id}.parquet")
    instant = meta.transition_to_inflight(meta.create_requested(COMMIT, time))
    extra = {"schema": schema or newest.extra_metadata["schema"]}
    metadata = CommitMetadata({partition: (stat,)}, extra, "UPSERT")
    meta.complete(instant, metadata, f"{int(time) + 1}")


def file_id_of(base, partition):
    return next(file_id for where, file_id in reader.newest_files(base) if where == partition)


def test_a_commit_of_the_same_file_group_conflicts_and_leaves_nothing(base, clock_ahead):
    group = file_id_of(base, "eu")
    names = {name for _, name, _, _ in reader.base_files(base)}
    time = LATER.format(1)
    storage = HookedStorage(base, Meanwhile(lambda: commit_of_another(base, "eu", group)))
    with pytest.raises(WriteConflictError) as info:
        client(base, storage, clock=clock_ahead).upsert(table(row("a", ts=2)))
    assert info.value.retryable
    assert isinstance(info.value, ConcurrentWriteError)
    assert f"UPSERT of commit {time} changed file group {group} of partition 'eu'" in str(
        info.value
    )
    assert {name for _, name, _, _ in reader.base_files(base)} == names
    assert reader.pending(base) == set()
    assert reader.leftovers(base) == []
    assert heartbeats(base) == ()


def test_a_commit_of_another_file_group_is_reported(base, clock_ahead):
    group = file_id_of(base, "us")
    storage = HookedStorage(base, Meanwhile(lambda: commit_of_another(base, "us", group)))
    result = client(base, storage, clock=clock_ahead).upsert(table(row("a", ts=2)))
    assert result.concurrent == (LATER.format(1),)
    assert result.conflicts == ()
    assert result.instant in reader.committed(base)


def test_a_change_of_the_schema_conflicts(base, clock_ahead):
    def evolve():
        meta = TableMetaClient.open(LocalStorage(str(base)))
        schema = json.loads(
            meta.read(meta.active_timeline().completed().last).extra_metadata["schema"]
        )
        schema["fields"].append({"name": "more", "type": ["null", "string"], "default": None})
        commit_of_another(base, "us", "other-0", schema=json.dumps(schema))

    storage = HookedStorage(base, Meanwhile(evolve))
    with pytest.raises(WriteConflictError, match="another schema than commit 2099"):
        client(base, storage, clock=clock_ahead).insert(table(row("new")))
    assert reader.leftovers(base) == []


def test_a_metadata_table_made_meanwhile_refuses_the_commit(base):
    properties = base / ".hoodie" / "hoodie.properties"

    def enable():
        properties.write_text(properties.read_text() + "hoodie.table.metadata.partitions=files\n")

    storage = HookedStorage(base, Meanwhile(enable))
    with pytest.raises(ConcurrentWriteError, match="a metadata table during this write"):
        client(base, storage).insert(table(row("new")))
    assert ids(base) == ["a", "b"]


def test_other_conflict_strategies_are_refused_by_name(tmp_path):
    message = "strategy=com.example.Strategy; allowed: Simple"
    options = {"write__lock__conflict__resolution__strategy": "com.example.Strategy"}
    with pytest.raises(ConfigError, match=message):
        client(tmp_path / "t", **options)


def test_the_strategy_of_a_bucket_index_is_refused_for_other_tables(tmp_path):
    options = {"write__lock__conflict__resolution__strategy": BUCKET_INDEX.class_name}
    message = "BucketIndex.* needs a bucket index; allowed: Simple"
    with client(tmp_path / "t", **options) as c, pytest.raises(ConfigError, match=message):
        c.upsert(table(row("a")))
    assert not (tmp_path / "t").exists()
    with client(tmp_path / "b", **options, index__type="BUCKET") as c:
        c.upsert(table(row("a")))


def test_several_writers_need_a_lock_provider(tmp_path):
    mode = {"write__concurrency__mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
    message = "OPTIMISTIC_CONCURRENCY_CONTROL, and hoodie.write.lock.provider is empty; allowed"
    with pytest.raises(ConfigError, match=message):
        client(tmp_path / "t", **mode)
    provider = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
    with client(tmp_path / "t", **mode, write__lock__provider=provider) as c:
        c.upsert(table(row("a")))
    assert ids(tmp_path / "t") == ["a"]
