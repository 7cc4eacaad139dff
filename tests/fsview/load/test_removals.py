"""Partitions that are first listed while, or after, a clean or a restore removes files."""

from __future__ import annotations

from functools import partial
from itertools import product

import pytest

from fsview.local_view import LocalView
from fsview.table_view import TableView
from tests.kit.tables.model import cleaning, undoing, writes
from tests.kit.tables.model.asking import Watcher, shape
from tests.kit.tables.model.cases import GROUP, VERSIONS, a_table, assert_as_rebuilt
from tests.kit.tables.small_table import SmallTable
from timeline.errors import ViewBehindError
from timeline.instant import State


@pytest.mark.property
@VERSIONS
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_load_succeeds_while_a_restore_undoes_one_instant_after_another(
    subtests: pytest.Subtests, version: int, table_type: str
) -> None:
    """The restore's next removal comes right after the listing, or some calls later."""
    for undone, calls in product(range(6), range(4)):
        with subtests.test(undone=undone, calls=calls):
            table = a_table(version, table_type)
            (time,) = table.done
            undoing.save(table, time)
            for _ in range(3):
                writes.complete(
                    table, writes.begin(table, [(GROUP, "log"), (("a", "a1-0"), "base")])
                )
            undoing.begin_restore(table, time)
            for _ in range(undone):
                undoing.restore_on(table)
            watcher = Watcher(table)
            before, right = LocalView.synced(watcher.view), table.truth.latest_base_files("a")
            watcher.storage.then["a"] = partial(undoing.restore_on, table)
            watcher.storage.calls_until_then = calls
            LocalView.newest(watcher.view).load_partitions(["a"])
            watcher.storage.nothing_more()
            assert shape(before.latest_base_files("a")) == right
            assert shape(
                LocalView.synced(watcher.view).latest_base_files("a")
            ) == table.truth.latest_base_files("a")
            undoing.finish_restore(table, time)
            assert_as_rebuilt(watcher.view, table)


@VERSIONS
def test_a_listing_during_the_end_of_a_clean_misses_no_file(version: int) -> None:
    """The clean's plan names files removed before the listing; it is gone before it is read."""
    table = a_table(version)
    for _ in range(3):
        writes.complete(table, writes.begin(table, [(GROUP, "base")]))
    cleaning.begin_clean(table, cleaning.to_clean(table))
    watcher = Watcher(table)
    before, right = LocalView.synced(watcher.view), table.truth.all_base_files("a")
    clean = table.under_way
    assert clean is not None

    def ends(kind: str, path: str) -> None:
        if kind == "read" and path.endswith("clean.requested"):
            watcher.storage.nothing_more()
            cleaning.finish_clean(table)
            table.remove(clean.instant, State.REQUESTED)

    watcher.storage.fail.append(ends)
    answer = shape(before.all_base_files("a"))
    assert table.under_way is None
    # Where only a clean came since, the newest may be said instead.
    assert answer in (right, table.truth.all_base_files("a"))
    assert_as_rebuilt(watcher.view, table)


def to_clean() -> tuple[SmallTable, LocalView]:
    """Return a table with files to clean, and a view of it with nothing loaded."""
    table = SmallTable()
    table.write(("a", "f1-0"), ("b", "f2-0"))
    for _ in range(3):
        table.write(("a", "f1-0"))
    return table, LocalView.synced(TableView(table.storage))


def test_files_cleaned_before_a_listing_are_not_missed_silently() -> None:
    table, pinned = to_clean()
    table.finish_clean(*table.begin_clean(table.to_clean()))
    table.write(("b", "f2-0"))
    (latest,) = pinned.latest_base_files("a")
    assert latest.instant == pinned.snapshot.write_timeline[-1].requested_time
    with pytest.raises(ViewBehindError, match="was removed since"):
        pinned.all_base_files("a")


def test_when_only_cleans_came_since_the_newest_answers() -> None:
    table, pinned = to_clean()
    table.finish_clean(*table.begin_clean(table.to_clean()))
    assert [file.name for file in pinned.all_base_files("a")] == table.model.all_names("a")


def test_while_a_clean_runs_what_it_may_have_deleted_is_not_answered() -> None:
    """The newest view refuses, as there is no newer one to answer in its place."""
    table, view = to_clean()
    clean = table.begin_clean(table.to_clean())
    view.sync()
    (latest,) = view.latest_base_files("a")
    assert [(latest.name, latest.size)] == list(table.model.latest("a").values())
    with pytest.raises(ViewBehindError, match="was removed since"):
        view.all_base_files("a")
    table.finish_clean(*clean)
    view.sync()
    assert [file.name for file in view.all_base_files("a")] == table.model.all_names("a")
    assert view.table.storage.calls.snapshot()["list", "lookup"] == 1
