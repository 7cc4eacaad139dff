"""Faults on storage: the view that was stays, the error names the file, the next try works."""

from __future__ import annotations

import pytest

from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.table_view import TableView
from tests.kit.memory_storage import MemoryStorage
from tests.kit.small_table import SmallTable
from timeline.errors import (
    TableNotFoundError,
    ViewBehindError,
)
from timeline.instant import Instant


def a_table(version: int = 9) -> SmallTable:
    """Return a table with one commit in two partitions."""
    table = SmallTable(version=version)
    table.write(("a", "f1-0"), ("b", "f2-0"))
    return table


def names(table: TableView, partition: str = "a") -> list[str]:
    """Return the newest base files of the newest view."""
    return [file.name for file in LocalView.newest(table).latest_base_files(partition)]


def completed_path(table: SmallTable, nth: int = -1) -> str:
    """Return the path of the file of the nth completed instant."""
    return table.meta.path_of(table.meta.active_timeline().completed()[nth])


def _everything(table: TableView) -> list[list[str]]:
    return [names(table, partition) for partition in ("a", "b")]


def cleaned_since() -> tuple[SmallTable, LocalView]:
    """Return a table that was cleaned, and its view of before, with nothing loaded."""
    table = a_table()
    for _ in range(3):
        table.write(("a", "f1-0"))
    pinned = LocalView.synced(TableView(table.storage))
    table.finish_clean(*table.begin_clean(table.to_clean()))
    return table, pinned


def test_a_cleaner_that_deletes_between_the_listings_leaves_no_wrong_answer() -> None:
    table, pinned = cleaned_since()
    table.write(("b", "f2-0"))
    assert [file.instant for file in pinned.latest_base_files("a")] == [
        pinned.snapshot.write_timeline[-1].requested_time
    ]
    with pytest.raises(ViewBehindError, match="was removed since"):
        pinned.all_base_files("a")


def test_when_only_cleans_came_since_the_newest_answers() -> None:
    table, pinned = cleaned_since()
    assert [file.name for file in pinned.all_base_files("a")] == table.model.all_names("a")


def test_a_missing_table_is_named() -> None:
    with pytest.raises(TableNotFoundError, match="/memory/t"):
        TableView(MemoryStorage()).newest()


def without_an_instant(table: SmallTable) -> None:
    """Delete a completed write by hand."""
    first, second = (table.meta.active_timeline()[n] for n in (0, 1))
    assert first.requested_time < second.requested_time
    time = second.requested_time
    for path in [path for path in table.storage.files if f"/{time}" in path]:
        del table.storage.files[path]


def test_what_cannot_be_followed_is_loaded_anew_and_counted() -> None:
    table = a_table()
    table.write(("a", "f1-0"))
    table.write(("b", "f2-0"))
    metrics = Metrics()
    view = TableView(table.storage, metrics=metrics)
    pinned = LocalView.newest(view)
    names(view)
    without_an_instant(table)
    view.sync()
    assert metrics.get("reloads", cause="instant-vanished") == 1
    assert _everything(view) == _everything(TableView(table.storage))
    last: Instant | None = pinned.last_instant()
    assert last is not None
    with pytest.raises(ViewBehindError, match="Last known instant from client was"):
        view.at(last.requested_time, pinned.timeline.hash)


def test_while_a_clean_runs_what_it_may_have_deleted_is_not_answered() -> None:
    """The newest view itself refuses; nobody newer could answer for it."""
    table = a_table()
    for _ in range(3):
        table.write(("a", "f1-0"))
    clean = table.begin_clean(table.to_clean())
    view = LocalView.newest(TableView(table.storage))
    assert [name for name, _ in table.model.latest("a").values()] == [
        file.name for file in view.latest_base_files("a")
    ]
    with pytest.raises(ViewBehindError, match="was removed since"):
        view.all_base_files("a")
    table.finish_clean(*clean)
    view.sync()
    assert [file.name for file in view.all_base_files("a")] == table.model.all_names("a")
    assert view.table.storage.calls.snapshot()["list", "lookup"] == 1
