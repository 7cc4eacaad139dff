"""Logs in a slice that nobody sees: its base file is one of a write that hasn't completed.

From table version 8 on a log belongs to the newest slice that began before the log's commit
completed. An insert that rewrites a small file begins one; when it is rolled back, the log shows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.commit.concurrent_operations import groups_with_hidden_logs
from tests.kit.concurrency.manual_clock import LaterClock
from tests.kit.storage.faulty_storage import Crash
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import reader
from tests.strandline.write.tables import client, row, table
from timeline.errors import WriteConflictError
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage

OPTIONS = {
    "datasource__write__table__type": "MERGE_ON_READ",
    "write__concurrency__mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "clean__failed__writes__policy": "LAZY",
    "write__lock__provider": (
        "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
    ),
}


@pytest.fixture(params=[8, 9])
def base(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    base = tmp_path / "t"
    with client(base, **OPTIONS, write__table__version=request.param) as c:
        c.insert(table(row("old")))
    return base


def with_its_files_written(base: Path, act: Callable[[], None]) -> HookedStorage:
    """Return the storage of an insert beside which something happens, before it locks the table."""
    done: list[str] = []

    def hook(kind: str, path: str) -> None:
        if (kind, path) == ("create", ".hoodie/lock") and len(base_files(base)) > 1 and not done:
            done.append(path)
            act()

    return HookedStorage(base, before=hook)


def base_files(base: Path) -> list[Path]:
    return list(base.glob("eu/*.parquet"))


def update_and_insert(base: Path) -> None:
    """Write a log that is hidden, then insert a row for which there is a small file."""
    with client(base, **OPTIONS) as c:
        assert c.upsert(table(row("old", ts=5))).rows_updated == 1
    with client(base, **OPTIONS) as c:
        c.insert(table(row("new")))


def rows(base: Path) -> list[tuple[str, int]]:
    return [(each["id"], each["ts"]) for each in reader.rows(base)]


def test_a_small_file_is_not_rewritten_without_a_log_that_a_running_write_hides(base: Path) -> None:
    storage = with_its_files_written(base, lambda: update_and_insert(base))
    with (
        client(base, storage, **OPTIONS) as c,
        pytest.raises(WriteConflictError, match="UPSERT of deltacommit"),
    ):
        c.insert(table(row("small")))
    assert rows(base) == [("new", 1), ("old", 5)]


def test_a_small_file_is_not_rewritten_without_a_log_that_a_dead_write_hides(base: Path) -> None:
    def die() -> None:
        update_and_insert(base)
        raise Crash

    with (
        pytest.raises(Crash),
        client(base, with_its_files_written(base, die), **OPTIONS) as c,
    ):
        c.insert(table(row("small")))
    with client(base, **OPTIONS, clock=LaterClock()) as c:
        c.clean()
        c.insert(table(row("newer")))
    assert rows(base) == [("new", 1), ("newer", 1), ("old", 5)]
    assert reader.leftovers(base) == []


def test_groups_are_known_until_the_write_has_ended(base: Path) -> None:
    meta = TableMetaClient.open(LocalStorage(str(base)))
    before, seen = meta.active_timeline(), []

    def look() -> None:
        seen.append(meta.active_timeline())
        (group,) = {("eu", path.name.partition("_")[0]) for path in base_files(base)}
        assert groups_with_hidden_logs(meta, seen[0], "") == {group}
        own = seen[0].pending().instants[0].requested_time
        assert groups_with_hidden_logs(meta, seen[0], own) == frozenset()

    with client(base, with_its_files_written(base, look), **OPTIONS) as c:
        c.insert(table(row("small")))
    assert groups_with_hidden_logs(meta, before, "") == frozenset()
    assert groups_with_hidden_logs(meta, seen[0], "") is None
