"""Dropping a metadata table: what may be dropped when, and a fault at each storage call."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from fsview.load.metadata_table import FOLDER
from fsview.local_view import LocalView
from fsview.table_view import TableView
from strandline.commit.lock.base import TableLock
from strandline.commit.lock.file_system import FileSystemLock
from strandline.commit.own_heartbeat import Heartbeat
from strandline.table_services.metadata_table import INDEX_DEFINITIONS_FOLDER, drop_metadata_table
from strandline.table_services.rollback.policy import RollbackPolicy
from tests.fsview.load.metadata_table import MetadataTable
from tests.fsview.load.wide_table import small_table
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.storage.faulty_storage import Crash, Effect, Fault, FaultyStorage, distinct_calls
from tests.kit.tables import golden
from timeline.errors import StrandlineError, UnsupportedTableError
from timeline.instant import COMMIT
from timeline.meta_client import TableMetaClient
from timeline.storage.base import Storage
from timeline.storage.local import LocalStorage
from timeline.table.config import CONFIG_PATH
from timeline.table.config_file import BACKUP_PATH, read_table_config, write_table_config
from timeline.table.property_name import INDEX_DEFINITIONS, METADATA_PARTITIONS

INDEX_DEFINITIONS_FILE = f"{INDEX_DEFINITIONS_FOLDER}/index.json"
POLICY = RollbackPolicy()
TABLES = sorted(
    [name for name in golden.scenarios() if golden.info(name).get("metadata_table")]
    + [f"metadata_tables/{p.stem}" for p in (golden.FOLDER / "metadata_tables").glob("*.zip")]
)


def drop(
    storage: Storage, lock: TableLock | None = None, policy: RollbackPolicy = POLICY
) -> TableMetaClient:
    meta = TableMetaClient.open(storage)
    return drop_metadata_table(meta, lock or TableLock(None), policy, ManualClock(0))


def seen(storage: Storage) -> dict[str, set[str]]:
    """Return partition → names of the newest base files, by a view that has just been opened."""
    view = LocalView.newest(TableView(storage))
    view.load_all_partitions()
    files = view.all_latest_base_files()
    found: dict[str, set[str]] = {}
    for file in files:
        found.setdefault(file.partition, set()).add(file.name)
    return found


def with_index_definitions(storage: Storage) -> None:
    """Give a table index definitions if Hudi gave it none."""
    if storage.stat(INDEX_DEFINITIONS_FILE):
        return
    storage.create(INDEX_DEFINITIONS_FILE, b'{"indexDefinitions": {}}')
    config = read_table_config(storage)
    named = config.with_properties({INDEX_DEFINITIONS: INDEX_DEFINITIONS_FILE})
    write_table_config(storage, named, create=False)


def is_dropped(storage: Storage) -> bool:
    config = read_table_config(storage)
    left = (FOLDER, INDEX_DEFINITIONS_FOLDER, BACKUP_PATH)
    return (
        not config.named_metadata_partitions
        and INDEX_DEFINITIONS not in config.properties
        and not any(storage.stat(path) for path in left)
    )


def last_step(scenario: str, directory: Path) -> LocalStorage:
    return LocalStorage(str(golden.build(scenario, golden.steps(scenario)[-1], directory)))


# Real tables.


@pytest.mark.parametrize("scenario", TABLES)
def test_a_table_of_hudis_keeps_its_files_and_its_other_properties(scenario, tmp_path):
    storage = last_step(scenario, tmp_path / "t")
    before, files = read_table_config(storage), seen(storage)
    assert METADATA_PARTITIONS in before.properties
    assert files
    result = drop(storage)
    assert is_dropped(storage)
    assert result.config == read_table_config(storage)
    assert seen(storage) == files
    changed = {METADATA_PARTITIONS, f"{METADATA_PARTITIONS}.inflight", INDEX_DEFINITIONS}
    kept = {k: v for k, v in before.properties.items() if k not in changed}
    assert {k: v for k, v in result.config.properties.items() if k not in changed} == kept


def test_the_indexes_that_go_with_it_are_logged(tmp_path, caplog):
    storage = last_step("metadata_tables/mor_v8", tmp_path / "t")
    indexes = set(read_table_config(storage).metadata_partitions) - {"files"}
    assert "column_stats" in indexes
    with caplog.at_level(logging.WARNING):
        drop(storage)
    (record,) = caplog.records
    assert set(record.getMessage().partition("with it: ")[2].split(", ")) == indexes


def test_partitions_that_an_indexer_is_building_are_dropped_as_well(tmp_path):
    storage = last_step("metadata_tables/nonpart_cow_v9", tmp_path / "t")
    building = {METADATA_PARTITIONS: None, f"{METADATA_PARTITIONS}.inflight": "files,record_index"}
    config = read_table_config(storage).with_properties(building)
    write_table_config(storage, config, create=False)
    drop(storage)
    assert is_dropped(storage)


def test_a_table_without_one_costs_no_call(tmp_path):
    storage = last_step("cow_basic_v9", tmp_path / "t")
    meta = TableMetaClient.open(storage)
    counts = storage.calls.snapshot()
    assert drop_metadata_table(meta, TableLock(None), POLICY, ManualClock(0)) is meta
    assert storage.calls.snapshot() == counts


# Faults.


def local_table(base: Path) -> Storage:
    return last_step("metadata_tables/nonpart_cow_v9", base)


def memory_table(base: Path) -> Storage:
    table = small_table(9)
    metadata = MetadataTable(table)
    table.write(("a", "f1-0"), ("c", "f3-0"))
    metadata.follow()
    return table.storage


@pytest.mark.property
@pytest.mark.parametrize("effect", Effect)
@pytest.mark.parametrize("make", [local_table, memory_table])
def test_a_fault_at_each_call_leaves_a_right_table_and_the_next_write_goes_on(
    make, effect, tmp_path
):
    whole = make(tmp_path / "whole")
    with_index_definitions(whole)
    learned = FaultyStorage(whole)
    drop(learned)
    calls = list(distinct_calls(learned.log, effect))
    assert calls
    for at in calls:
        base = tmp_path / str(at)
        storage = make(base)
        with_index_definitions(storage)
        whole_table = {info.name for info in storage.list_tree(FOLDER)}
        files = seen(storage)
        where = f"{effect.value} call {at}, {' '.join(learned.log[at - 1])}"
        with pytest.raises((Crash, StrandlineError)):
            drop(FaultyStorage(storage, [Fault(at, effect)]))
        if read_table_config(storage).named_metadata_partitions:
            assert {info.name for info in storage.list_tree(FOLDER)} == whole_table, where
            assert storage.stat(INDEX_DEFINITIONS_FILE), where
        assert seen(storage) == files, where
        drop(storage)
        assert seen(storage) == files, where
        # After the last deletion nothing tells that something was left, and nothing was.
        assert is_dropped(storage), where
        shutil.rmtree(base, ignore_errors=True)


# Other writers.


def begin(storage: Storage, time: str) -> None:
    meta = TableMetaClient.open(storage)
    meta.transition_to_inflight(meta.create_requested(COMMIT, time))


def test_without_a_lock_it_is_refused_while_another_writer_is_at_work(tmp_path):
    storage = last_step("metadata_tables/nonpart_cow_v9", tmp_path / "t")
    begin(storage, "20300101000000000")
    before = storage.read(CONFIG_PATH)
    tree = storage.list_tree(FOLDER)
    with pytest.raises(UnsupportedTableError, match="20300101000000000") as caught:
        drop(storage)
    assert "hoodie.write.lock.provider" in str(caught.value)
    assert (storage.read(CONFIG_PATH), storage.list_tree(FOLDER)) == (before, tree)
    # Set by those who know that no other writer runs.
    drop(storage, policy=RollbackPolicy(foreign=True))
    assert is_dropped(storage)


def test_without_a_lock_a_live_writer_of_ours_counts_and_a_failed_one_does_not(tmp_path):
    storage = last_step("metadata_tables/nonpart_cow_v9", tmp_path / "t")
    heartbeat = Heartbeat(storage, POLICY.heartbeats, ManualClock(0))
    heartbeat.start("20300101000000000")
    try:
        begin(storage, "20300101000000000")
        with pytest.raises(UnsupportedTableError, match="20300101000000000"):
            drop(storage)
    finally:
        heartbeat.abandon()
    drop(storage)
    assert is_dropped(storage)


def test_with_a_shared_lock_it_is_dropped_beside_other_writers(tmp_path):
    storage = last_step("metadata_tables/nonpart_cow_v9", tmp_path / "t")
    begin(storage, "20300101000000000")
    lock = TableLock(FileSystemLock(str(tmp_path), clock=ManualClock(0)))
    drop(storage, lock)
    lock.close()
    assert is_dropped(storage)


def test_what_a_crash_left_is_kept_while_another_writer_may_be_building_a_new_one(tmp_path):
    storage = last_step("metadata_tables/nonpart_cow_v9", tmp_path / "t")
    dropped = read_table_config(storage).without_metadata_table()
    write_table_config(storage, dropped, create=False)
    begin(storage, "20300101000000000")
    tree = storage.list_tree(FOLDER)
    assert drop(storage).config == dropped
    assert storage.list_tree(FOLDER) == tree
