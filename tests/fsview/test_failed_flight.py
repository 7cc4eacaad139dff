"""A failed run keeps only its error in memory, as the files that it read may be large."""

from __future__ import annotations

import gc
import threading
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from fsview.single_flight import Shared, SharedLoads, SingleFlight
from fsview.table_view import TableView
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.garbage import collect_garbage
from tests.kit.tables.small_table import SmallTable
from timeline.errors import CorruptMetadataError, StorageUnavailableError
from timeline.storage.local import LocalStorage

CALLERS = 4
LARGE = 4 << 20


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    """Free by reference counts alone, as between two garbage collections."""
    collect_garbage()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Content:
    """An object that a call holds in memory."""


class Failing:
    """Work that fails with content in memory, once it may."""

    def __init__(self) -> None:
        self.may_fail = threading.Event()
        self.contents: list[weakref.ref[Content]] = []

    def __call__(self) -> None:
        content = Content()
        self.contents.append(weakref.ref(content))
        assert self.may_fail.wait(PATIENCE_S)
        try:
            int("damaged")
        except ValueError as exc:
            raise StorageUnavailableError("unreadable", hint="look at it") from exc

    def in_memory(self) -> int:
        return sum(content() is not None for content in self.contents)


Run = Callable[[Callable[[], None]], None]


@pytest.mark.parametrize(
    "run",
    [SingleFlight[None]().run, partial(Shared[None]().run, "key"), SharedLoads().run_all],
    ids=["SingleFlight", "Shared", "SharedLoads"],
)
def test_what_failed_work_held_is_freed_once_its_callers_have_let_go(run: Run) -> None:
    work, told, all_came = Failing(), list[tuple[str, str | None]](), threading.Barrier(CALLERS)

    def ask() -> None:
        all_came.wait(PATIENCE_S)
        try:
            run(work)
        except StorageUnavailableError as exc:
            told.append((exc.message, exc.hint))

    with ThreadPoolExecutor(CALLERS) as pool:
        asked = [pool.submit(ask) for _ in range(CALLERS)]
        work.may_fail.set()
        for each in asked:
            each.result(PATIENCE_S)
    assert told == [("unreadable", "look at it")] * CALLERS
    assert work.contents
    assert work.in_memory() == 0


class PickyError(Exception):
    """Takes other arguments than it keeps."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"{what} at {where}")


def test_waiters_get_an_error_that_cannot_be_copied() -> None:
    shared: Shared[None] = Shared()
    began, may_fail = threading.Event(), threading.Event()

    def fails() -> None:
        began.set()
        assert may_fail.wait(PATIENCE_S)
        raise PickyError("hole", "7")

    def joins() -> None:
        flight = shared._flights["key"]
        may_fail.set()
        flight.run(fails)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(shared.run, "key", fails)
        assert began.wait(PATIENCE_S)
        with pytest.raises(RuntimeError, match="PickyError: hole at 7"):
            joins()
        with pytest.raises(PickyError, match="hole at 7"):
            first.result(PATIENCE_S)


def test_a_damaged_file_is_not_kept_in_memory_after_each_failed_sync(tmp_path: Path) -> None:
    SmallTable(LocalStorage(str(tmp_path))).write(("a", "g0"))
    view = TableView(LocalStorage(str(tmp_path)))
    view.newest()
    timeline = tmp_path / ".hoodie" / "timeline"
    for name in ("20231114231321000.commit.requested", "20231114231321000.inflight"):
        (timeline / name).touch()
    with (timeline / "20231114231321000_20231114231322000.commit").open("wb") as file:
        file.truncate(LARGE)

    def fail() -> None:
        with pytest.raises(CorruptMetadataError):
            view.sync()

    fail()
    tracemalloc.start()
    try:
        for _ in range(3):
            fail()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < LARGE
