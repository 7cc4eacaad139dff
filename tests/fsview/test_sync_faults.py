"""Faults on storage: the view that was stays, the error names the file, the next try works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.table_view import TableView
from tests.kit.faulty_storage import Effect, Fault, FaultyStorage
from tests.kit.memory_storage import MemoryStorage
from tests.kit.small_table import SmallTable
from timeline.errors import (
    CorruptMetadataError,
    InstantNotFoundError,
    StorageUnavailableError,
    TableNotFoundError,
    ViewBehindError,
)
from timeline.instant import Instant


def a_table(version: int = 9) -> SmallTable:
    """Return a table with one commit in two partitions."""
    table = SmallTable(version=version)
    table.complete(table.begin([("a", "f1-0"), ("b", "f2-0")]))
    return table


def names(table: TableView, partition: str = "a") -> list[str]:
    """Return the newest base files of the newest view."""
    return [file.name for file in LocalView.newest(table).latest_base_files(partition)]


def completed_path(table: SmallTable, nth: int = -1) -> str:
    """Return the path of the file of the nth completed instant."""
    return table.meta.path_of(table.meta.active_timeline().completed()[nth])


@contextmanager
def failing(storage: MemoryStorage, fail: Callable[[str, str], None]) -> Iterator[None]:
    """Have every call of a storage checked by ``fail``."""
    storage.fail.append(fail)
    try:
        yield
    finally:
        storage.fail.remove(fail)


@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b"\x00junk"])
def test_metadata_that_cannot_be_read_leaves_the_view_as_it_was(
    version: int, damage: Callable[[bytes], bytes]
) -> None:
    table = a_table(version)
    view = TableView(table.storage)
    before = names(view)
    table.complete(table.begin([("a", "f1-0")]))
    path = completed_path(table)
    good = table.storage.files[path]
    table.storage.files[path] = (damage(good[0]), good[1])
    for _ in range(2):
        with pytest.raises(CorruptMetadataError, match=path.rpartition("/")[2]):
            view.sync()
        assert names(view) == before
    table.storage.files[path] = good
    view.sync()
    assert names(view) != before


def test_an_empty_commit_says_nothing_so_the_table_is_loaded_anew() -> None:
    table = a_table()
    metrics = Metrics()
    view = TableView(table.storage, metrics=metrics)
    before = names(view)
    table.complete(table.begin([("a", "f1-0")]))
    path = completed_path(table)
    table.storage.files[path] = (b"", table.storage.files[path][1])
    view.sync()
    assert names(view) != before
    assert metrics.get("reloads", cause="empty-metadata") == 1


def test_every_call_of_a_sync_may_fail_and_the_next_one_catches_up() -> None:
    table = a_table()
    faulty = FaultyStorage(table.storage)
    view = TableView(faulty)
    assert names(view)
    table.complete(table.begin([("a", "f1-0")]))
    table.finish_clean(*table.begin_clean(table.to_clean()))
    calls = len(faulty.log)
    view.sync()
    needed = len(faulty.log) - calls
    assert needed >= 3
    for nth in range(1, needed + 1):
        for effect in (Effect.ERROR_BEFORE, Effect.ERROR_AFTER):
            table.complete(table.begin([("a", "f1-0")]))
            table.finish_clean(*table.begin_clean(table.to_clean()))
            expected = table.model.latest("a")
            before = view.newest()
            broken = TableView(FaultyStorage(table.storage, [Fault(nth, effect)]))
            with pytest.raises(StorageUnavailableError, match="injected"):
                _everything(broken)
            assert _everything(broken) == _everything(TableView(table.storage))
            assert view.newest() is before
            view.sync()
            assert {name for name, _ in expected.values()} == set(names(view))


def _everything(table: TableView) -> list[list[str]]:
    return [names(table, partition) for partition in ("a", "b")]


def test_a_sync_that_fails_in_the_middle_shows_nothing_of_what_it_read() -> None:
    table = a_table()
    view = TableView(table.storage)
    before = names(view)
    snapshot = view.newest()
    table.complete(table.begin([("a", "f1-0")]))
    table.complete(table.begin([("a", "f1-0")]))
    second = completed_path(table)

    def fail(kind: str, path: str) -> None:
        if (kind, path) == ("read", second):
            raise StorageUnavailableError(f"injected: {path}")

    with failing(table.storage, fail):
        with pytest.raises(StorageUnavailableError, match="injected"):
            view.sync()
        assert view.newest() is snapshot
        assert names(view) == before
    view.sync()
    assert names(view) == [name for name, _ in table.model.latest("a").values()]


def test_an_instant_that_vanishes_after_the_listing_is_looked_for_anew() -> None:
    table = a_table()
    view = TableView(table.storage)
    names(view)
    write = table.begin([("a", "f1-0")])
    table.complete(write)
    path = completed_path(table)

    def vanish(kind: str, asked: str) -> None:
        if kind == "read" and asked == path and path in table.storage.files:
            table.uncomplete(write)
            table.roll_back(write)

    with failing(table.storage, vanish):
        view.sync()
    assert names(view) == [name for name, _ in table.model.latest("a").values()]


def test_an_instant_that_stays_unreadable_is_named() -> None:
    table = a_table()
    view = TableView(table.storage)
    table.complete(table.begin([("a", "f1-0")]))
    names(view)
    table.complete(table.begin([("a", "f1-0")]))
    path = completed_path(table)

    def hide(kind: str, asked: str) -> None:
        if kind == "read" and asked == path:
            raise InstantNotFoundError(f"no file {path}")

    with failing(table.storage, hide), pytest.raises(InstantNotFoundError, match="no file"):
        view.sync()


def test_a_listing_that_fails_is_tried_again_by_the_next_request() -> None:
    table = a_table()
    view = TableView(table.storage)
    view.sync()

    def fail(kind: str, path: str) -> None:
        if (kind, path) == ("list", "a"):
            raise StorageUnavailableError("injected: list a")

    with failing(table.storage, fail):
        with pytest.raises(StorageUnavailableError, match="list a"):
            names(view)
        assert names(view, "b")
    assert names(view)


def test_a_writer_that_commits_between_the_listings_is_seen() -> None:
    table = a_table()
    view = TableView(table.storage)
    view.sync()
    raced: list[str] = []

    def race(kind: str, path: str) -> None:
        if (kind, path) == ("list", "a") and not raced:
            raced.append(path)
            # What the listing returns is made after this: it has the new file.
            table.complete(table.begin([("a", "f1-0")]))

    pinned = LocalView.newest(view)
    with failing(table.storage, race):
        held = pinned.latest_base_files("a")
    assert [file.instant for file in held] == [pinned.timeline[0].requested_time]
    assert names(view) == [name for name, _ in table.model.latest("a").values()]
    assert names(view) != [file.name for file in held]


def cleaned_since() -> tuple[SmallTable, LocalView]:
    """Return a table that was cleaned, and its view of before, with nothing loaded."""
    table = a_table()
    for _ in range(3):
        table.complete(table.begin([("a", "f1-0")]))
    pinned = LocalView.synced(TableView(table.storage))
    table.finish_clean(*table.begin_clean(table.to_clean()))
    return table, pinned


def test_a_cleaner_that_deletes_between_the_listings_leaves_no_wrong_answer() -> None:
    table, pinned = cleaned_since()
    table.complete(table.begin([("b", "f2-0")]))
    assert [file.instant for file in pinned.latest_base_files("a")] == [
        pinned.snapshot.write_timeline[-1].requested_time
    ]
    with pytest.raises(ViewBehindError, match="was removed since"):
        pinned.all_base_files("a")


def test_when_only_cleans_came_since_the_newest_answers() -> None:
    table, pinned = cleaned_since()
    assert [file.name for file in pinned.all_base_files("a")] == table.model.all_names("a")


def test_no_table_is_said_so() -> None:
    with pytest.raises(TableNotFoundError, match="/memory/t"):
        TableView(MemoryStorage()).newest()


def emptied(table: SmallTable) -> None:
    """Delete every instant."""
    for path in [path for path in table.storage.files if path.startswith(".hoodie/timeline")]:
        del table.storage.files[path]


def without_an_instant(table: SmallTable) -> None:
    """Delete a completed write by hand."""
    first, second = (table.meta.active_timeline()[n] for n in (0, 1))
    assert first.requested_time < second.requested_time
    time = second.requested_time
    for path in [path for path in table.storage.files if f"/{time}" in path]:
        del table.storage.files[path]


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (emptied, "timeline-emptied"),
        (without_an_instant, "instant-vanished"),
    ],
)
def test_what_cannot_be_followed_is_loaded_anew_and_counted(
    change: Callable[[SmallTable], None], cause: str
) -> None:
    table = a_table()
    table.complete(table.begin([("a", "f1-0")]))
    table.complete(table.begin([("b", "f2-0")]))
    metrics = Metrics()
    view = TableView(table.storage, metrics=metrics)
    pinned = LocalView.newest(view)
    names(view)
    change(table)
    view.sync()
    assert metrics.get("reloads", cause=cause) == 1
    assert _everything(view) == _everything(TableView(table.storage))
    last: Instant | None = pinned.last_instant()
    assert last is not None
    with pytest.raises(ViewBehindError, match="Last known instant from client was"):
        view.at(last.requested_time, pinned.timeline.hash)


def test_a_table_written_anew_at_its_path_is_loaded_anew() -> None:
    table = a_table()
    metrics = Metrics()
    view = TableView(table.storage, metrics=metrics)
    names(view)
    table.clock.advance(86_400_000)
    other = SmallTable()
    other.clock.advance(86_400_000)
    other.complete(other.begin([("a", "g1-0")]))
    table.storage.files.clear()
    table.storage.files.update(other.storage.files)
    view.sync()
    assert names(view) == [name for name, _ in other.model.latest("a").values()]
    assert metrics.get("reloads", cause="table-replaced") == 1


def test_while_a_clean_runs_what_it_may_have_deleted_is_not_answered() -> None:
    """The newest view itself refuses; nobody newer could answer for it."""
    table = a_table()
    for _ in range(3):
        table.complete(table.begin([("a", "f1-0")]))
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
