"""Changes that can't be followed: how much is reloaded, and which clients are still answered."""

from __future__ import annotations

import pytest

from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.table_view import TableView
from tests.kit.tables.small_table import SmallTable
from timeline.errors import StorageUnavailableError, ViewBehindError
from timeline.table.config_file import read_table_config, write_table_config


def pin(view: LocalView) -> tuple[str, str]:
    """Return the last instant and hash that a client at a view's timeline sends."""
    last = view.last_instant()
    assert last is not None
    return last.requested_time, view.timeline.hash


def names(view: LocalView, partition: str) -> list[str]:
    return [file.name for file in view.latest_base_files(partition)]


def truth(table: SmallTable, partition: str) -> list[str]:
    return [name for name, _ in table.model.latest(partition).values()]


def a_table(version: int = 9) -> tuple[SmallTable, TableView, Metrics]:
    """Return a table with one commit in partitions a and b, and a view that has both loaded."""
    table = SmallTable(version=version)
    table.write(("a", "f1-0"), ("b", "f2-0"))
    metrics = Metrics()
    view = TableView(table.storage, metrics=metrics)
    LocalView.newest(view).load_partitions(["a", "b"])
    return table, view, metrics


def test_a_write_that_is_gone_costs_a_listing_of_what_it_had_written() -> None:
    table, view, metrics = a_table()
    before = LocalView.newest(view)
    kept = names(before, "a")
    table.write(("a", "f1-0"))
    after = LocalView.synced(view)
    gone = pin(after)
    last = table.model.committed.popitem()[1]
    for path in [path for path in table.storage.files if last.instant.requested_time in path]:
        del table.storage.files[path]
    view.sync()
    assert metrics.get("partition_reloads", cause="instant-vanished") == 1
    assert metrics.get("reloads") == 0
    assert names(LocalView.newest(view), "a") == kept
    assert names(LocalView.newest(view), "b") == truth(table, "b")
    assert table.storage.calls.snapshot()["list", "lookup"] == 3  # a, b, a again
    assert names(LocalView.at(view, *pin(before)), "a") == kept
    with pytest.raises(ViewBehindError):
        view.at(*gone)


def test_a_table_that_lost_a_write_from_before_the_view_is_loaded_anew() -> None:
    table, _, metrics = a_table()
    gone = table.write(("a", "f1-0"))
    table.write(("b", "f2-0"))
    view = TableView(table.storage, metrics=metrics)
    before = LocalView.newest(view)
    before.load_partitions(["a"])
    for path in [path for path in table.storage.files if f"/{gone}" in path]:
        del table.storage.files[path]
    view.sync()
    assert metrics.get("reloads", cause="instant-vanished") == 1
    rebuilt = LocalView.newest(TableView(table.storage))
    for partition in "ab":
        assert names(LocalView.newest(view), partition) == names(rebuilt, partition)
    with pytest.raises(ViewBehindError, match="Last known instant from client was"):
        view.at(*pin(before))


def test_a_reloaded_table_still_answers_older_clients() -> None:
    table, view, metrics = a_table()
    before = LocalView.newest(view)
    kept = names(before, "a")
    write = table.begin([("a", "f1-0")])
    table.complete(write)
    (path,) = [
        path
        for path in table.storage.files
        if path.startswith(f".hoodie/timeline/{write.instant.requested_time}_")
    ]
    table.storage.files[path] = b"", table.storage.files[path][1]
    view.sync()
    assert metrics.get("reloads", cause="empty-metadata") == 1
    assert names(LocalView.newest(view), "a") == truth(table, "a")
    assert names(LocalView.at(view, *pin(before)), "a") == kept


@pytest.mark.parametrize(("before", "after"), [(8, 9), (9, 8)])
def test_an_upgrade_or_downgrade_is_noticed_with_the_next_instant(before: int, after: int) -> None:
    """The timeline's folder stays where it is; only the properties change."""
    table, view, metrics = a_table(before)
    client = pin(LocalView.newest(view))
    changed = read_table_config(table.storage).with_properties({"hoodie.table.version": str(after)})
    write_table_config(table.storage, changed, create=False)
    table.write(("a", "f1-0"))
    assert view.sync().config.version == after
    assert metrics.get("reloads", cause="table-upgraded") == 1
    assert names(LocalView.newest(view), "a") == truth(table, "a")
    # What a log's name says, and when an instant completed, may mean something else now.
    with pytest.raises(ViewBehindError):
        view.at(*client)


def test_properties_written_anew_for_another_reason_change_nothing() -> None:
    table, view, metrics = a_table()
    client = LocalView.newest(view)
    changed = read_table_config(table.storage).with_properties(
        {"hoodie.table.metadata.partitions": "files"}
    )
    write_table_config(table.storage, changed, create=False)
    table.write(("a", "f1-0"))
    assert view.sync().config.metadata_partitions == ("files",)
    assert metrics.get("reloads") == 0
    assert names(LocalView.at(view, *pin(client)), "a") == names(client, "a")


def test_a_client_of_a_first_write_that_was_rolled_back_is_refused() -> None:
    """It is older than all that is left, as archived writes are."""
    table, view, metrics = a_table()
    client = pin(LocalView.newest(view))
    (write,) = table.model.committed.values()
    table.uncomplete(write)
    table.roll_back(table.pending[0])
    table.write(("a", "f1-0"))
    view.sync()
    assert metrics.get("reloads") == 0
    assert names(LocalView.newest(view), "a") == truth(table, "a")
    with pytest.raises(ViewBehindError):
        view.at(*client)


def test_a_reload_is_counted_once_it_is_done() -> None:
    table = SmallTable()
    table.write(("a", "f1"))
    metrics = Metrics()
    view = TableView(table.storage, metrics=metrics)
    view.newest()

    def fails(kind: str, path: str) -> None:
        raise StorageUnavailableError(f"no {kind} of {path}")

    table.storage.fail.append(fails)
    with pytest.raises(StorageUnavailableError):
        view.reload("check-failed")
    with pytest.raises(StorageUnavailableError):
        view.sync()
    assert metrics.get("reloads") == 0
    table.storage.fail.clear()
    view.sync()
    assert metrics.get("reloads", cause="check-failed") == 1


def test_of_a_table_written_anew_nothing_counts_as_loaded() -> None:
    table = SmallTable()
    table.write(("a", "f1"), ("b", "f2"))
    metrics = Metrics()
    view = TableView(table.storage, metrics=metrics)
    LocalView.newest(view).load_partitions(["a", "b"])
    assert view.loaded.in_order() == ["a", "b"]
    table.storage.files.clear()
    other = SmallTable(table.storage)
    other.clock.advance(10**7)
    other.write(("a", "z1"))
    view.sync()
    assert metrics.get("reloads", cause="table-replaced") == 1
    assert view.loaded.in_order() == []
    assert names(LocalView.newest(view), "a") == truth(other, "a")


def test_a_long_way_to_catch_up_makes_the_snapshots_that_are_kept() -> None:
    table, _, _ = a_table()
    view = TableView(table.storage, retained_snapshots=3)
    LocalView.newest(view).load_partitions(["a", "b"])
    for _ in range(9):
        table.write(("a", "f1-0"))
    assert names(LocalView.synced(view), "a") == truth(table, "a")
    assert view.status()["snapshots"] == 3
    last = LocalView.newest(view)
    table.write(("b", "f2-0"))
    assert names(LocalView.synced(view), "b") == truth(table, "b")
    assert view.held(*pin(last)) is last.snapshot


def test_what_is_no_partition_does_not_count_as_one() -> None:
    """A data file may lie in a directory that leads to partitions."""
    table = SmallTable()
    table.write(("a", "f1"), ("b/c", "f2"))
    table.storage.create("f3_0-0-0_20231114221321000.parquet", b"stray")
    view = LocalView.newest(TableView(table.storage))
    view.latest_base_files("")
    view.latest_base_files("b")
    view.load_all_partitions()
    assert view.snapshot.files.known == {"a", "b/c"}
