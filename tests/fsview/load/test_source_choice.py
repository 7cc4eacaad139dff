"""Whole tables read from their commits' metadata: the files of a listing, or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest

from tests.fsview.load.wide_table import (
    archived,
    cleaned,
    delete_partition,
    listed,
    read,
    sizes,
    small_table,
)
from tests.kit.tables import golden
from tests.kit.tables.small_table import SmallTable
from timeline.instant import CLEAN, COMMIT, DELTA_COMMIT, REPLACE_COMMIT
from timeline.metadata import codec
from timeline.metadata.instant_metadata import CleanMetadata, CommitMetadata, WriteStat
from timeline.storage.base import Storage
from timeline.table.config_file import write_table_config

READ_IN_PART = {
    "archival_cow_v6": 5,
    "archival_cow_v9": 5,
    "archival_mor_v9": 4,
    "rollback_cow_v6": 2,
    "rollback_cow_v9": 2,
    "rollback_mor_v9": 2,
    "savepoint_cow_v6": 5,
    "savepoint_cow_v9": 5,
}
"""Golden tables of which only the first steps can be read: then something was archived, or a write
failed, or one was restored away."""


def steps_said(scenario: str) -> tuple[int, ...]:
    """Return the steps at which metadata names all files of a golden table."""
    steps, info = golden.steps(scenario), golden.info(scenario)
    if info["table_version"] == 6 and info["table_type"] == "mor":
        return ()  # Its logs don't say who wrote them.
    return steps[: READ_IN_PART.get(scenario, len(steps))]


@pytest.mark.parametrize("scenario", golden.scenarios())
def test_metadata_says_what_a_listing_says_until_something_is_missing(scenario: str) -> None:
    said = steps_said(scenario)
    for step in golden.steps(scenario):
        storage = golden.GoldenStorage(scenario, step)
        assert is_as_listed(storage) if step in said else read(storage) is None, step


# Which tables may be read.


def is_as_listed(storage: Storage) -> bool:
    """Whether a metadata table can be read, and agrees with a listing."""
    loaded = read(storage)
    if loaded is None:
        return False
    there = listed(storage)
    found = {p: sizes(version) for p, version in loaded.versions.items()}
    return found == there and loaded.known == there.keys()


def rewritten(table: SmallTable, change: Callable[[WriteStat], WriteStat]) -> None:
    """Change the stats of the last completed commit."""
    instant = table.meta.active_timeline().completed()[-1]
    path = table.meta.path_of(instant)
    said = codec.decode(CommitMetadata, table.storage.files[path][0])
    stats = {p: tuple(map(change, each)) for p, each in said.partition_to_write_stats.items()}
    data = codec.encode(replace(said, partition_to_write_stats=stats), table.meta.config.version)
    table.storage.files[path] = data, table.storage.files[path][1]


def requested(table: SmallTable, action: str) -> None:
    """Put a requested instant on the timeline, without a plan."""
    table.meta.create_requested(action, table.tick())


COMPLETE = {
    "nothing else": lambda table: None,
    "cleaned": cleaned,
    "a write is requested": lambda table: requested(table, COMMIT),
    "a replace is requested": lambda table: requested(table, REPLACE_COMMIT),
    "replaced": lambda table: table.complete(table.begin([("a", "f3-0")], [("a", "f1-0")])),
}


def test_tables_with_complete_metadata_can_be_read(subtests: pytest.Subtests) -> None:
    for version, what in product([6, 9], COMPLETE):
        with subtests.test(version=version, what=what):
            table = small_table(version)
            COMPLETE[what](table)
            assert is_as_listed(table.storage)


def rolled_back(table: SmallTable) -> None:
    table.roll_back(table.begin([("a", "f1-0")]))


def bootstrapped(table: SmallTable) -> None:
    found = {**table.meta.config.properties, "hoodie.bootstrap.base.path": "/elsewhere"}
    write_table_config(table.storage, replace(table.meta.config, properties=found), create=False)


def began_as_a_bootstrap(table: SmallTable) -> None:
    time = "00000000000002"
    asked = table.meta.create_requested(COMMIT, time)
    running = table.meta.transition_to_inflight(asked)
    table.meta.complete(running, CommitMetadata(), table.tick())


def emptied(table: SmallTable) -> None:
    path = table.meta.path_of(table.meta.active_timeline().completed()[-1])
    table.storage.files[path] = b"", table.storage.files[path][1]


def cut_off(table: SmallTable) -> None:
    path = table.meta.path_of(table.meta.active_timeline().completed()[-1])
    data, time = table.storage.files[path]
    table.storage.files[path] = data[:-30], time


def cleaned_in_part(table: SmallTable) -> None:
    cleaned(table)
    path = table.meta.path_of(table.meta.active_timeline().completed()[-1])
    done = codec.decode(CleanMetadata, table.storage.files[path][0])
    failed = {
        p: replace(each, failed_delete_files=("f",)) for p, each in done.partition_metadata.items()
    }
    data = codec.encode(replace(done, partition_metadata=failed), table.meta.config.version)
    table.storage.files[path] = data, table.storage.files[path][1]


INCOMPLETE = {
    "archived": archived,
    "rolled back": rolled_back,
    "bootstrapped": bootstrapped,
    "began as a bootstrap": began_as_a_bootstrap,
    "emptied": emptied,
    "cut off": cut_off,
    "cleaned in part": cleaned_in_part,
    "a write is under way": lambda table: table.begin([("a", "f1-0")]),
    "a clean is under way": lambda table: table.begin_clean(table.to_clean()),
    "a clean is requested": lambda table: requested(table, CLEAN),
    "no path": lambda table: rewritten(table, lambda stat: replace(stat, path=None)),
    "no size": lambda table: rewritten(table, lambda stat: replace(stat, file_size_in_bytes=0)),
    "files of an instant that isn't there were superseded": lambda table: rewritten(
        table, lambda stat: replace(stat, prev_commit="20200101000000000")
    ),
    "another instant's file": lambda table: rewritten(
        table, lambda stat: replace(stat, path="a/f1-0_0-1-1_20200101000000000.parquet")
    ),
}


def test_tables_with_incomplete_metadata_are_listed(subtests: pytest.Subtests) -> None:
    for version, what in product([6, 9], INCOMPLETE):
        with subtests.test(version=version, what=what):
            table = small_table(version)
            INCOMPLETE[what](table)
            assert read(table.storage) is None


def test_a_table_without_any_write_is_listed() -> None:
    assert read(SmallTable().storage) is None


def test_a_partition_of_which_no_file_is_named_may_not_be_there() -> None:
    table = small_table()
    path = table.meta.path_of(table.meta.active_timeline().completed()[-1])
    said = codec.decode(CommitMetadata, table.storage.files[path][0])
    stats = {**said.partition_to_write_stats, "c": ()}
    data = codec.encode(replace(said, partition_to_write_stats=stats), 9)
    table.storage.files[path] = data, table.storage.files[path][1]
    assert read(table.storage) is None


def test_a_log_of_an_older_table_version_is_not_trusted() -> None:
    """After an upgrade some logs bear the time of their slice, not that of their writer."""
    table = small_table()
    time = table.tick()
    running = table.meta.transition_to_inflight(table.meta.create_requested(DELTA_COMMIT, time))
    slice_time = table.meta.active_timeline().completed()[-1].requested_time
    log = f"a/.f1-0_{slice_time}.log.1_0-1-1"
    stat = WriteStat(file_id="f1-0", path=log, partition_path="a", file_size_in_bytes=7)
    table.meta.complete(running, CommitMetadata({"a": (stat,)}), table.tick())
    assert read(table.storage) is None


def test_a_partition_that_was_deleted_is_not_known_until_it_is_written_again() -> None:
    table = small_table()
    table.complete(table.begin([], [("b", "f2-0")]))
    gone = [path for path in table.storage.files if path.startswith("b/")]
    files = {path.rpartition("/")[2] for path in gone if path.endswith(".parquet")}
    for path in gone:
        del table.storage.files[path]
    delete_partition(table, "b", tuple(files))
    loaded = read(table.storage)
    assert loaded is not None
    assert loaded.known == {"a"} == loaded.versions.keys()
    table.write(("b", "f9-0"))
    assert is_as_listed(table.storage)
