"""Roots that are removed: their tables are refused and closed, those of other roots stay."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.store.base import MemoryStore, Store
from fsview.store.stores import Stores
from fsview.table_view import TableView
from fsview.view_manager import ViewManager
from tests.fsview.shared_work import wait_until, waits_in
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.stores import ALL_KINDS, options_of, stores_of
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import golden
from tests.kit.tables.small_table import SmallTable
from timeline.errors import RootNotAllowedError, StrandlineError, TableNotFoundError
from timeline.storage.local import LocalStorage
from timeline.storage.table_id import TableId

PARTITION = "2024-01-01"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Return a directory with the tables ``a/t`` and ``b/t``."""
    for name in ("a", "b"):
        golden.build("cow_basic_v9", 0, tmp_path / "lake" / name / "t")
    return tmp_path / "lake"


def small(base: Path, group: str, *, after_s: int = 0) -> SmallTable:
    """Make a table with one file group in partition ``p=1``, some seconds after the first ones."""
    table = SmallTable(LocalStorage(str(base)))
    table.clock.advance(after_s * 1000)
    table.write(("p=1", group))
    return table


def groups(views: ViewManager, base: Path) -> set[str]:
    found = LocalView.synced(views.view(str(base))).latest_base_files("p=1")
    return {file.file_id for file in found}


def test_a_table_is_refused_and_closed_once_its_root_is_removed(lake: Path) -> None:
    views = ViewManager([f"{lake}/a", f"{lake}/b"])
    removed, other = views.view(f"{lake}/a/t"), views.view(f"{lake}/b/t")
    views.remove_root(f"file://{lake}/a/")
    assert (removed.is_closed, other.is_closed) == (True, False)
    assert views.roots() == (f"{lake}/b",)
    assert [str(table.table_id) for table in views.open_tables()] == [str(other.table_id)]
    for ask in (views.view, views.storage_of):
        with pytest.raises(RootNotAllowedError, match="outside the roots"):
            ask(f"{lake}/a/t")
    assert views.view(f"{lake}/b/t") is other


def test_a_root_that_is_none_is_removed_without_effect(lake: Path) -> None:
    views = ViewManager([str(lake)])
    table = views.view(f"{lake}/a/t")
    views.remove_root(f"{lake}/a")
    assert views.view(f"{lake}/a/t") is table


@pytest.mark.parametrize("removed", ["outer", "inner"])
def test_a_table_below_two_roots_is_served_until_both_are_removed(lake: Path, removed: str) -> None:
    roots = {"outer": str(lake), "inner": f"{lake}/a/t"}
    views = ViewManager(roots.values())
    table = views.view(f"{lake}/a/t")
    views.remove_root(roots.pop(removed))
    assert views.view(f"{lake}/a/t") is table
    views.remove_root(roots.popitem()[1])
    assert table.is_closed
    assert views.open_tables() == ()


def test_a_table_behind_a_link_is_closed_with_the_root_that_leads_there(lake: Path) -> None:
    (lake / "link").symlink_to(lake / "a")
    views = ViewManager([f"{lake}/link"])
    table = views.view(f"{lake}/link/t")
    assert views.serves(table.table_id)
    views.remove_root(f"{lake}/link")
    assert table.is_closed
    assert not views.serves(table.table_id)


def test_a_table_that_is_removed_while_it_is_opened_does_not_stay_open(lake: Path) -> None:
    opened = []

    def opener(base_path: str, _: object) -> HookedStorage:
        def remove(kind: str, path: str) -> None:
            if kind == "list":
                views.remove_root(str(lake))

        opened.append(HookedStorage(base_path, before=remove))
        return opened[-1]

    views = ViewManager([str(lake)], opener=opener)
    with pytest.raises(StrandlineError):
        views.view(f"{lake}/a/t")
    assert opened
    assert views.open_tables() == ()


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_table_that_is_being_opened_when_all_are_closed_does_not_stay_open(
    lake: Path, tmp_path: Path, kind: str
) -> None:
    opening: list[TableView] = []

    def close(table: TableView) -> None:
        opening.append(table)
        views.close()

    views = ViewManager([str(lake)], stores=Stores(options_of(kind, tmp_path)))
    with pytest.raises(StrandlineError):
        views.view(f"{lake}/a/t", close)
    assert opening[0].is_closed
    assert views.open_tables() == ()


class HeldOpening(Stores):
    """Holds the first opening until a second caller waits for it; then something changes.

    Args:
        change: Called then, gives the first opening's store.
    """

    def __init__(self, change: Callable[[], Store]) -> None:
        super().__init__()
        self.change = change
        self.began = threading.Event()
        self.opened = 0

    def open(self, table_id: TableId) -> Store:
        self.opened += 1
        if self.opened > 1:
            return super().open(table_id)
        self.began.set()
        wait_until(lambda: waits_in("run") == 2)
        return self.change()

    def ask_twice(self, views: ViewManager, base: str) -> tuple[Future[TableView], TableView]:
        """Return the outcomes of the opening, and of the caller that waited for it."""
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(views.view, base)
            assert self.began.wait(PATIENCE_S)
            return first, pool.submit(views.view, base).result(PATIENCE_S)


def test_a_table_whose_root_is_added_again_while_its_opening_fails_is_opened(lake: Path) -> None:
    """A new client's request may join the opening that a request of a closed client began."""

    class ReturningRoot(MemoryStore):
        def close(self) -> None:
            views.add_root(str(lake))
            super().close()

    def removed() -> Store:
        views.remove_root(str(lake))
        return ReturningRoot()

    stores = HeldOpening(removed)
    views = ViewManager([str(lake)], stores=stores)
    first, table = stores.ask_twice(views, f"{lake}/a/t")
    with pytest.raises(RootNotAllowedError):
        first.result()
    assert (views.open_tables(), stores.opened) == ((table,), 2)


def test_a_table_that_is_there_before_a_request_is_found_by_it(lake: Path) -> None:
    """It joins the opening of a request that came before the table."""
    base = lake / "a/t"

    class ReturningTable(MemoryStore):
        def close(self) -> None:
            base.with_name("away").rename(base)
            super().close()

    def away() -> Store:
        base.rename(base.with_name("away"))
        return ReturningTable()

    stores = HeldOpening(away)
    views = ViewManager([str(lake)], stores=stores)
    first, table = stores.ask_twice(views, str(base))
    with pytest.raises(TableNotFoundError):
        first.result()
    assert (views.open_tables(), stores.opened) == ((table,), 2)


def read_once(kind: str, folder: Path) -> tuple[ViewManager, Path]:
    """Return a manager that has read the table at its root, and the table's path."""
    base = folder / "t"
    views = ViewManager([str(base)], stores=stores_of(kind, folder / "stores"))
    small(base, "old-0")
    assert groups(views, base) == {"old-0"}
    return views, base


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_deleted_and_created_table_is_read_anew_when_its_root_is_added_again(
    kind: str, tmp_path: Path
) -> None:
    """With RocksDB, the new view opens the store that the removed one has closed."""
    views, base = read_once(kind, tmp_path)
    removed = views.view(str(base))
    views.remove_root(str(base))
    shutil.rmtree(base)
    small(base, "new-0", after_s=60)
    views.add_root(str(base))
    assert groups(views, base) == {"new-0"}
    assert views.view(str(base)) is not removed
    views.close()


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_table_created_anew_below_a_root_that_stays_is_read_anew(
    kind: str, tmp_path: Path
) -> None:
    """As of a client whose service lingers: the view finds that it isn't the same table."""
    views, base = read_once(kind, tmp_path)
    shutil.rmtree(base)
    small(base, "new-0", after_s=60).write(("p=1", "new-1"))
    assert groups(views, base) == {"new-0", "new-1"}
    views.close()


@pytest.mark.property
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_tables_that_come_and_go_leave_neither_memory_nor_descriptors(
    kind: str, tmp_path: Path
) -> None:
    stores = stores_of(kind, tmp_path / "stores")
    views = ViewManager([f"{tmp_path}/kept"], stores=stores, metrics=Metrics())
    small(tmp_path / "kept", "a-0")
    groups(views, tmp_path / "kept")
    held, descriptors = [], []
    for turn in range(8):
        base = tmp_path / f"t{turn}"
        small(base, "a-0")
        views.add_root(str(base))
        groups(views, base)
        views.remove_root(str(base))
        held.append(stores.budget.used)
        descriptors.append(len(os.listdir("/proc/self/fd")))
    assert held[-1] == held[1], held
    # Other threads may have some open for a moment, or close some.
    assert min(descriptors[4:]) <= descriptors[1], descriptors
    assert views.roots() == (f"{tmp_path}/kept",)
    assert len(views.open_tables()) == 1
    views.close()


def test_counters_of_values_that_are_not_kept_are_added_up_without_the_label() -> None:
    metrics = Metrics()
    for table, count in (("a", 1), ("b", 2), ("c", 4)):
        metrics.add("requests", count, table=table, route="r")
    metrics.add("requests", 8, route="r")
    metrics.merge({"c"}.__contains__)
    assert metrics.counts() == {
        ("requests", (("route", "r"), ("table", "c"))): 4,
        ("requests", (("route", "r"),)): 11,
    }
    assert metrics.get("requests") == 15


def test_counters_that_two_threads_merge_at_once_are_added_up_once() -> None:
    """The second call comes after the first has chosen its counters."""
    metrics = Metrics()
    metrics.add("requests", 3, table="a")

    def is_kept(_: str) -> bool:
        metrics.merge(lambda _: False)
        return False

    metrics.merge(is_kept)
    assert metrics.counts() == {("requests", ()): 3}
