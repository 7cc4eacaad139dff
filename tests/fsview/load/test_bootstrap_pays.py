"""When a table is read from its commits' metadata, what may happen meanwhile, and the metrics."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from fsview.load.source_choice import (
    LEAST_CALLS,
    MOST_AT_ONCE,
    SourceChoice,
    listing_cost,
    reading_cost,
)
from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.sync.metadata_reader import snapshot_of
from fsview.table_view import TableView
from tests.fsview.load.wide_table import (
    WIDE,
    archived,
    assert_as_listed,
    assert_every_call_of_a_load_may_fail,
    cleaned,
    data_lists,
    listed,
    loads,
    sizes,
    small_table,
    wide_table,
)
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables.small_table import SmallTable
from timeline.meta_client import TableMetaClient
from timeline.storage.base import FileInfo


def test_a_megabyte_costs_a_call_as_do_a_thousand_entries() -> None:
    assert listing_cost(0) == 1
    assert listing_cost(1000) == 2
    assert reading_cost(3, 0) == 5
    assert reading_cost(3, 10 << 20) == 15


def test_all_partitions_are_read_once_their_number_is_known_to_be_large() -> None:
    table, metrics = wide_table(), Metrics()
    view = TableView(table.storage, metrics=metrics)
    LocalView.newest(view).load_all_partitions()
    assert loads(metrics) == (0, len(WIDE))
    assert data_lists(table.storage) == 1  # the base path
    calls = table.storage.calls.snapshot()
    assert (calls["list", "bootstrap"], calls["read", "bootstrap"]) == (2, 2)
    assert view.status()["counters"]["partition_loads{source=metadata}"] == len(WIDE)
    assert {p: sizes(view.newest().files.versions[p]) for p in WIDE} == listed(table.storage)


def test_partitions_asked_for_one_by_one_are_listed_until_that_would_have_paid() -> None:
    table, metrics = wide_table(), Metrics()
    view = LocalView.newest(TableView(table.storage, metrics=metrics))
    for number, partition in enumerate(WIDE):
        assert len(view.latest_base_files(partition)) == 1
        if number < LEAST_CALLS - 1:  # the call ahead counts
            assert loads(metrics) == (number + 1, 0)
        else:
            assert loads(metrics) == (LEAST_CALLS - 1, len(WIDE) - LEAST_CALLS + 1)
    assert data_lists(table.storage) == LEAST_CALLS - 1


def test_some_partitions_asked_for_together_are_read_if_they_are_many() -> None:
    for count, expected in ((LEAST_CALLS - 1, 0), (LEAST_CALLS, len(WIDE))):
        table, metrics = wide_table(), Metrics()
        LocalView.newest(TableView(table.storage, metrics=metrics)).load_partitions(WIDE[:count])
        assert loads(metrics)[1] == expected


def test_partitions_are_listed_for_a_caller_who_asks_for_no_others() -> None:
    table, metrics = wide_table(), Metrics()
    view = LocalView.newest(TableView(table.storage, metrics=metrics))
    view.load_partitions(WIDE, by_listing=True)
    assert loads(metrics) == (len(WIDE), 0)
    assert data_lists(table.storage) == len(WIDE)


def test_a_table_of_few_partitions_is_listed() -> None:
    table, metrics = small_table(), Metrics()
    LocalView.newest(TableView(table.storage, metrics=metrics)).load_all_partitions()
    assert loads(metrics) == (2, 0)
    assert ("list", "bootstrap") not in table.storage.calls.snapshot()


def test_more_instants_than_partitions_are_not_read() -> None:
    table, metrics = wide_table(), Metrics()
    for _ in range(len(WIDE)):
        table.write(("p00", "p00-0"))
    LocalView.newest(TableView(table.storage, metrics=metrics)).load_all_partitions()
    assert loads(metrics) == (len(WIDE), 0)
    assert ("list", "bootstrap") not in table.storage.calls.snapshot()


class Large(MemoryStorage):
    """A storage whose commits' files have another size than they seem."""

    size = 0

    def list(self, path: str) -> tuple[FileInfo, ...]:
        found = super().list(path)
        return tuple(replace(e, size=self.size) if ".commit" in e.name else e for e in found)

    def for_cause(self, cause: str) -> Large:
        other = object.__new__(Large)
        other.__dict__.update(self.__dict__)
        other._cause = cause
        return other


@pytest.mark.parametrize(
    ("size", "is_read"), [(1, True), (1 << 20, True), (64 << 20, False), (MOST_AT_ONCE + 1, False)]
)
def test_how_large_the_metadata_is_counts(size: int, is_read: bool) -> None:
    table = wide_table()
    storage = Large()
    storage.files, storage.size = table.storage.files, size
    snapshot = snapshot_of(TableMetaClient.open(storage))
    bootstrap = SourceChoice()
    client = TableMetaClient.open(storage)
    assert bootstrap.read(client, snapshot, LEAST_CALLS - 1) is None
    assert ("list", "bootstrap") not in storage.calls.snapshot()
    found = bootstrap.read(client, snapshot, len(WIDE))
    assert (found is not None) == is_read
    huge = bootstrap.read(client, snapshot, 1_000_000)
    assert (huge is not None) == (size <= MOST_AT_ONCE)


def test_what_cannot_be_read_is_tried_once() -> None:
    table, metrics = wide_table(), Metrics()
    archived(table)
    view = LocalView.newest(TableView(table.storage, metrics=metrics))
    for partition in WIDE:
        view.latest_base_files(partition)
    assert loads(metrics) == (len(WIDE), 0)
    calls = table.storage.calls.snapshot()
    assert calls["list", "bootstrap"] == 2
    assert ("read", "bootstrap") not in calls


def test_a_table_that_is_known_is_not_read() -> None:
    """Afterwards one partition that is asked for costs one listing."""
    table, metrics = wide_table(), Metrics()
    view = TableView(table.storage, metrics=metrics)
    LocalView.newest(view).load_all_partitions()
    reads = table.storage.calls.snapshot()["read", "bootstrap"]
    assert LocalView.newest(view).latest_base_files("nowhere") == ()
    assert table.storage.calls.snapshot()["read", "bootstrap"] == reads
    assert loads(metrics) == (1, len(WIDE))


def test_what_is_no_partition_is_listed_even_if_it_makes_the_table_be_read() -> None:
    table, metrics = wide_table(), Metrics()
    view = LocalView.newest(TableView(table.storage, metrics=metrics))
    view.load_partitions([*WIDE, "nowhere"])
    assert view.latest_base_files("nowhere") == ()
    assert loads(metrics) == (1, len(WIDE))


def test_partitions_loaded_before_are_not_listed_again_to_find_the_others() -> None:
    table = small_table()
    view = LocalView.newest(TableView(table.storage))
    view.latest_base_files("a")
    view.load_all_partitions()
    assert data_lists(table.storage) == 3  # a, the base path, b


def test_threads_that_come_together_share_one_reading() -> None:
    table = wide_table()
    view = TableView(table.storage)
    LocalView.newest(view).load_partitions(WIDE[: LEAST_CALLS - 1])
    rest = WIDE[LEAST_CALLS - 1 :]
    with ThreadPoolExecutor(len(rest)) as pool:
        found = list(pool.map(LocalView.newest(view).latest_base_files, rest))
    assert all(len(files) == 1 for files in found)
    # Who came when it was under way shares it, who came later finds it done.
    assert table.storage.calls.snapshot()["read", "bootstrap"] == 2


# What happens meanwhile, and afterwards.


@pytest.mark.parametrize("version", [6, 9])
def test_every_call_may_fail_and_the_next_request_works(version: int) -> None:
    table = wide_table(version)
    cleaned(table)
    assert_every_call_of_a_load_may_fail(table, lambda metrics: loads(metrics) == (0, len(WIDE)))


def meanwhile(table: SmallTable, event: Callable[[], object]) -> TableView:
    """Load a whole table; when its first commit is read, something happens."""
    happened: list[str] = []
    first = table.meta.path_of(table.meta.active_timeline()[0])

    def watch(kind: str, path: str) -> None:
        if (kind, path) == ("read", first) and not happened:
            happened.append(path)
            event()

    view = TableView(table.storage)
    view.newest()
    table.storage.fail.append(watch)
    LocalView.newest(view).load_all_partitions()
    table.storage.fail.remove(watch)
    assert happened
    return view


@pytest.mark.parametrize("version", [6, 9])
def test_a_commit_while_the_others_are_read_comes_in(version: int) -> None:
    table = wide_table(version)
    write = table.begin([("p02", "p02-0"), ("q", "q-0")])
    table.pending.remove(write)
    asked = [path for path in table.storage.files if write.instant.requested_time in path]
    hidden = {path: table.storage.files.pop(path) for path in asked}

    def complete() -> None:
        table.storage.files.update(hidden)
        table.pending.append(write)
        table.complete(write)

    assert_as_listed(meanwhile(table, complete), table)


def test_a_clean_while_the_commits_are_read_comes_in() -> None:
    table = wide_table()
    for _ in range(3):
        table.write(("p00", "p00-0"))
    assert_as_listed(meanwhile(table, lambda: cleaned(table)), table)


def test_an_instant_that_is_archived_while_it_is_read_makes_the_table_be_listed() -> None:
    table = wide_table()

    def archive() -> None:
        archived(table)
        first = table.meta.active_timeline()[0].requested_time
        for path in [p for p in table.storage.files if f"timeline/{first}" in p]:
            del table.storage.files[path]

    view = meanwhile(table, archive)
    assert view.status()["counters"]["partition_loads{source=listing}"] == len(WIDE)
    assert_as_listed(view, table)


def test_after_a_write_vanished_without_a_word_the_table_is_listed() -> None:
    table, metrics = wide_table(), Metrics()
    view = TableView(table.storage, metrics=metrics)
    view.newest()
    last = table.meta.active_timeline().completed()[-1]
    table.write(("p00", "p00-0"))
    view.sync()
    gone = table.meta.active_timeline().completed()[-1]
    assert gone != last
    for path in [p for p in table.storage.files if f"timeline/{gone.requested_time}" in p]:
        del table.storage.files[path]
    view.sync()
    LocalView.newest(view).load_all_partitions()
    assert loads(metrics) == (len(WIDE), 0)
