"""Which tables a `ViewManager` opens, keeps and refuses."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fsview.local_view import LocalView, open_view
from fsview.table_view import TableView
from fsview.view_manager import ViewManager
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.stores import ALL_KINDS, OTHER_KINDS, stores_of
from tests.kit.tables import golden
from tests.kit.tables.small_table import SmallTable
from timeline.errors import InputError, StorageUnavailableError, TableNotFoundError
from timeline.storage.base import Storage


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Return a directory with a table ``t`` in it, and one outside."""
    golden.build("cow_basic_v9", 0, tmp_path / "lake" / "t")
    golden.build("cow_basic_v9", 0, tmp_path / "outside" / "t")
    return tmp_path / "lake"


def test_every_spelling_of_a_base_path_is_one_table(lake: Path) -> None:
    views = ViewManager([str(lake)])
    table = views.view(f"{lake}/t")
    for spelling in (f"{lake}/t/", f"file:{lake}/t", f"file://{lake}/t", f"{lake}/x/../t"):
        assert views.view(spelling) is table
    (lake / "link").symlink_to(lake / "t")
    assert views.view(f"{lake}/link") is table
    assert [str(table.table_id) for table in views.open_tables()] == [f"file://{lake.resolve()}/t"]


@pytest.mark.parametrize("path", ["", "\0", "/t\0"])
def test_a_base_path_that_is_none_is_refused(lake: Path, path: str) -> None:
    with pytest.raises(InputError, match="base path"):
        ViewManager([str(lake)]).view(path)


def test_a_path_without_a_table_is_not_kept(lake: Path) -> None:
    views = ViewManager([str(lake)])
    for _ in range(2):
        with pytest.raises(TableNotFoundError):
            views.view(f"{lake}/nothing")
    with pytest.raises(InputError, match="empty"):
        views.view("")
    assert views.open_tables() == ()
    golden.build("cow_basic_v9", 0, lake / "nothing")
    assert views.view(f"{lake}/nothing")


def test_a_view_needs_no_manager(lake: Path) -> None:
    storage = golden.GoldenStorage("cow_basic_v9", 0)
    view = open_view(storage)
    assert len(view.latest_base_files("2024-01-01")) > 0
    status = view.table.status()
    assert status["partitions_loaded"] == 1
    assert status["snapshots"] == 1
    assert {(c["kind"], c["cause"]) for c in status["storage_calls"]} >= {
        ("list", "timeline"),
        ("list", "lookup"),
    }


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_what_is_no_table_leaves_nothing_in_the_store_directory(kind: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    manager = ViewManager([str(tmp_path)], stores=stores_of(kind, store))
    before = sorted(store.iterdir())
    with pytest.raises(TableNotFoundError):
        manager.view(str(tmp_path / "nothing"))
    assert sorted(store.iterdir()) == before
    manager.close()


@pytest.fixture
def many_switches() -> Iterator[None]:
    """Have threads take turns as often as they can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.property
@pytest.mark.usefixtures("many_switches")
def test_a_table_that_many_ask_for_first_is_opened_once() -> None:
    """A caller that looked before it was open, and leads after that, finds it open (#12)."""
    model = SmallTable()
    model.write(("a", "f1-0"))
    for _ in range(200):
        opened: list[str] = []
        begin = threading.Barrier(8, timeout=PATIENCE_S)

        def opener(path: str, _options: object, opened: list[str] = opened) -> Storage:
            opened.append(path)
            return model.storage

        manager = ViewManager(["/memory"], opener=opener)

        def ask(begin: threading.Barrier = begin, manager: ViewManager = manager) -> TableView:
            begin.wait()
            return manager.view("/memory/t")

        with ThreadPoolExecutor(8) as pool:
            found = {future.result(PATIENCE_S) for future in [pool.submit(ask) for _ in range(8)]}
        assert len(found) == len(opened) == 1


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_table_that_could_not_be_opened_can_be_tried_again(kind: str, tmp_path: Path) -> None:
    """Its store is closed, also RocksDB's, which can't be opened twice."""
    model = SmallTable()
    model.write(("a", "f1-0"))

    def fail(kind: str, path: str) -> None:
        if kind == "list":
            raise StorageUnavailableError(f"{path}: injected")

    stores = stores_of(kind, tmp_path)
    manager = ViewManager(["/memory"], opener=lambda *_: model.storage, stores=stores)
    model.storage.fail.append(fail)
    for _ in range(2):
        with pytest.raises(StorageUnavailableError, match="injected"):
            manager.view("/memory/t")
    model.storage.fail.clear()
    assert LocalView.newest(manager.view("/memory/t")).latest_base_files("a")
    manager.close()
