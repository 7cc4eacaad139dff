"""Logs in a slice that nobody sees: its base file is one of a write that hasn't completed.

From table version 8 on a log belongs to the newest slice that began before the log's commit
completed. An insert that rewrites a small file begins one; when it is rolled back, the log shows.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kit.concurrency.manual_clock import LaterClock
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.storage.faulty_storage import Crash
from tests.kit.storage.hooked_storage import HookedStorage, failing
from tests.kit.tables import reader
from tests.strandline.write.tables import client, row, table
from timeline.errors import (
    ConcurrentWriteError,
    IllegalTransitionError,
    StorageUnavailableError,
    WriteConflictError,
)

OPTIONS = {
    "datasource__write__table__type": "MERGE_ON_READ",
    "write__concurrency__mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "clean__failed__writes__policy": "LAZY",
    "write__lock__provider": (
        "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
    ),
}


@pytest.fixture(params=[pytest.param(8, marks=pytest.mark.property), 9])
def base(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    base = tmp_path / "t"
    with client(base, **OPTIONS, write__table__version=request.param) as c:
        c.insert(table(row("old")))
    return base


def with_its_files_written(base: Path, act: Callable[[], None]) -> HookedStorage:
    """Return the storage of an insert beside which something happens, before it locks the table."""
    before = len(base_files(base))
    done: list[str] = []

    def hook(kind: str, path: str) -> None:
        if (
            (kind, path) == ("create", ".hoodie/lock")
            and len(base_files(base)) > before
            and not done
        ):
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


def insert_beside(base: Path, act: Callable[[], None], **options: str) -> None:
    """Insert a row for which there is a small file, while something happens that conflicts."""
    storage = with_its_files_written(base, act)
    with (
        client(base, storage, **OPTIONS, **options) as c,
        pytest.raises(WriteConflictError, match="UPSERT of deltacommit"),
    ):
        c.insert(table(row("small")))


def test_a_small_file_is_not_rewritten_without_a_log_that_a_running_write_hides(base: Path) -> None:
    insert_beside(base, lambda: update_and_insert(base))
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


def test_a_hidden_log_is_found_if_the_other_writes_markers_are_gone(base: Path) -> None:
    def act() -> None:
        shutil.rmtree(base / ".hoodie/.temp")
        update_and_insert(base)

    insert_beside(base, act)
    assert rows(base) == [("new", 1), ("old", 5)]


def test_a_hidden_log_is_found_if_the_other_writes_file_appears_at_the_look_up(base: Path) -> None:
    paused, looked_up, written, done = (threading.Event() for _ in range(4))

    def pause(kind: str, path: str) -> None:
        if kind == "create" and path.endswith(".deltacommit.inflight"):
            paused.set()
            assert looked_up.wait(PATIENCE_S)
        if (kind, path) == ("create", ".hoodie/lock") and len(base_files(base)) > 1:
            written.set()
            assert done.wait(PATIENCE_S)

    def insert_small() -> None:
        with (
            client(base, HookedStorage(base, before=pause), **OPTIONS) as c,
            pytest.raises(WriteConflictError, match="UPSERT of deltacommit"),
        ):
            c.insert(table(row("small")))

    def let_it_write(kind: str, path: str) -> None:
        if (kind, path) == ("list", "eu"):
            looked_up.set()
            assert written.wait(PATIENCE_S)

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(insert_small)
        assert paused.wait(PATIENCE_S)
        with client(base, **OPTIONS) as c:
            c.upsert(table(row("old", ts=5)))
        with client(base, HookedStorage(base, before=let_it_write), **OPTIONS) as c:
            c.insert(table(row("new")))
        done.set()
        other.result()
    assert rows(base) == [("new", 1), ("old", 5)]


GLOBAL = {"index__type": "GLOBAL_SIMPLE"}


@pytest.mark.parametrize(
    ("hidden", "following", "expected"),
    [
        # It has moved the key, which the base file still has.
        (row("old", "us", 5), row("old", "eu", 3), ("us", 5)),
        # Its row is newer than one that would move the key.
        (row("old", "eu", 9), row("old", "us", 5), ("eu", 9)),
    ],
)
def test_a_global_index_knows_hidden_logs(
    base: Path, hidden: dict, following: dict, expected: tuple[str, int]
) -> None:
    def act() -> None:
        for each in (hidden, following):
            with client(base, **OPTIONS, **GLOBAL) as c:
                c.upsert(table(each))

    insert_beside(base, act, **GLOBAL)
    found = [(each["id"], each["region"], each["ts"]) for each in reader.rows(base)]
    assert found == [("old", *expected)]


def test_a_key_that_only_a_hidden_log_has_is_not_inserted_twice(base: Path) -> None:
    """The log's writer found it in the base file before a compaction, which drops it."""
    done: list[str] = []

    def die() -> None:
        raise Crash

    def hook(kind: str, path: str) -> None:
        if kind == "create" and path.endswith(".deltacommit.inflight") and not done:
            done.append(path)
            with client(base, **OPTIONS) as c:
                assert c.compact() is not None
            with (
                pytest.raises(Crash),
                client(base, with_its_files_written(base, die), **OPTIONS) as c,
            ):
                c.insert(table(row("small")))

    with client(base, **OPTIONS) as c:
        c.insert(table(row("kept"), row("gone")))
        c.delete(table(row("gone")))
    with client(base, HookedStorage(base, before=hook), **OPTIONS) as c:
        assert c.upsert(table(row("gone", ts=5))).rows_updated == 1
    with client(base, **OPTIONS) as c:
        assert c.upsert(table(row("gone", ts=9))).rows_updated == 1
    with client(base, **OPTIONS, clock=LaterClock()) as c:
        c.clean()
        c.insert(table(row("z", "us")))
    assert rows(base) == [("gone", 9), ("kept", 1), ("old", 1), ("z", 1)]


def test_a_hidden_log_is_found_if_a_rollback_has_deleted_the_other_writes_file(base: Path) -> None:
    """The view refuses to name the file, so the partition is listed."""
    with client(base, **OPTIONS) as c:
        second = c.insert(table(row("small")))
    with (
        client(base, HookedStorage(base, failing("create", ".rollback")), **OPTIONS) as c,
        pytest.raises(StorageUnavailableError),
    ):
        c.rollback(second.instant)
    forget_who_undoes(base)
    update_and_insert(base)
    with (
        client(base, **OPTIONS) as c,
        pytest.raises(ConcurrentWriteError, match="a compaction planned now"),
    ):
        c.compact()
    with client(base, **OPTIONS) as c:
        c.clean()
    assert rows(base) == [("new", 1), ("old", 5)]
    with client(base, **OPTIONS) as c:
        assert c.compact() is not None
    assert rows(base) == [("new", 1), ("old", 5)]


def dead_insert(base: Path) -> None:
    """Leave an insert that has rewritten a small file, and whose process has died."""

    def die() -> None:
        raise Crash

    with pytest.raises(Crash), client(base, with_its_files_written(base, die), **OPTIONS) as c:
        c.insert(table(row("small")))


def test_a_rollback_that_a_dead_clean_has_only_requested_forbids_no_compaction(base: Path) -> None:
    """It did until the next clean."""
    with client(base, **OPTIONS) as c:
        c.insert(table(row("b", "us")))
        c.upsert(table(row("b", "us", 4)))
    dead_insert(base)

    def die(kind: str, path: str) -> None:
        if kind == "create" and path.endswith(".rollback.inflight"):
            raise Crash

    with (
        pytest.raises(Crash),
        client(base, HookedStorage(base, before=die), **OPTIONS, clock=LaterClock()) as c,
    ):
        c.clean()
    with client(base, **OPTIONS, clock=LaterClock(2)) as c:
        assert c.compact() is not None
    assert rows(base) == [("b", 4), ("old", 1)]


def test_a_rollback_undoes_dead_newer_writes_first_with_a_lazy_policy_too(base: Path) -> None:
    """It was refused, as the commit isn't the newest write then."""
    with client(base, **OPTIONS) as c:
        newest = c.insert(table(row("b", "us"))).instant
    dead_insert(base)
    with client(base, **OPTIONS, clock=LaterClock()) as c:
        c.rollback(newest)
    assert rows(base) == [("old", 1)]
    assert reader.leftovers(base) == []


def test_a_rollback_beside_a_live_newer_write_is_refused_with_a_lazy_policy(base: Path) -> None:
    with client(base, **OPTIONS) as c:
        newest = c.insert(table(row("b", "us"))).instant

    def roll_back() -> None:
        with (
            client(base, **OPTIONS) as c,
            pytest.raises(IllegalTransitionError, match="isn't the newest write"),
        ):
            c.rollback(newest)

    with client(base, with_its_files_written(base, roll_back), **OPTIONS) as c:
        c.insert(table(row("small")))
    assert rows(base) == [("b", 1), ("old", 1), ("small", 1)]


def forget_who_undoes(base: Path) -> None:
    """Delete the heartbeats: the rollback then counts as one of Hudi, which the clean finishes."""
    for path in (base / ".hoodie/.heartbeat").iterdir():
        path.unlink()
