"""Asynchronous cleans: beside the next write, waited for, stopped, failing, racing."""

from __future__ import annotations

import logging
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from strandline.commit.lock.base import LockProvider, TableLock
from strandline.table_api.table import Table
from strandline.write.async_cleaner import AsyncCleaner, CleanStoppedError
from strandline.write.client import WriteClient
from tests.kit.concurrency.interleaving import Interleaving, TurnLock
from tests.kit.concurrency.manual_clock import LaterClock
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.concurrency.running_calls import running_calls
from tests.kit.storage.faulty_storage import Crash, Effect, Fault, FaultyStorage, distinct_calls
from tests.kit.storage.hooked_storage import HookedStorage, failing
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables import reader
from tests.strandline.write.tables import client, row, stored, table
from timeline.clock import SystemClock
from timeline.storage.local import LocalStorage

THREAD = "strandline-async-clean"
OPTIONS = {
    "clean__automatic": "true",
    "clean__async__enabled": "true",
    "clean__commits__retained": "1",
    "archive__automatic": "false",
}


def batch(ts: int) -> pa.Table:
    return table(row("a", ts=ts), row("b", "us", ts=ts))


def upsert(c: WriteClient, ts: int) -> Any:
    return c.upsert(batch(ts))


def is_clean() -> bool:
    return threading.current_thread().name == THREAD


def is_file(path: str) -> bool:
    return path.endswith(".parquet")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A table with two commits and no clean."""
    return stored(tmp_path / "t", batch(0), batch(1))


def names(base: Path) -> set[str]:
    return {each["name"] for each in reader.rows(base)}


def cleans(base: Path) -> Counter[str]:
    """Return for each clean the number of its completed files."""
    found = Table(base).history().to_pylist()
    assert all(each["state"] == "COMPLETED" for each in found if each["action"] == "clean")
    files = reader.timeline_names(base)
    return Counter(name.partition("_")[0] for name in files if name.endswith(".clean"))


def is_clean_now(base: Path) -> bool:
    """Return whether each of two groups has the slice of the retained commit, and that before."""
    return len(list(base.rglob("*.parquet"))) == 4


# One after the other, and beside each other.


def test_it_runs_beside_the_next_write_which_waits_for_it_and_reports_it(base: Path) -> None:
    """It deletes nothing before the next write has created its files; that write ends after it."""
    written, events = threading.Event(), list[str]()

    def before(kind: str, path: str) -> None:
        if is_clean() and kind == "delete" and is_file(path):
            assert written.wait(PATIENCE_S)
            events.append("deleted")
        elif kind == "create" and path.endswith(".commit"):
            events.append("committed")
            if len(events) == 2:
                written.set()

    # From the start, as the clean may delete before the first write has returned.
    storage = HookedStorage(base, before)
    with client(base, storage, **OPTIONS) as c:
        first = upsert(c, 2)
        assert (first.clean, first.warnings) == (None, ())
        second = upsert(c, 3)
        assert events[:4] == ["committed", "committed", "deleted", "deleted"]
        assert second.clean.files_deleted == second.storage_calls["delete", "clean"] == 2
        assert second.warnings == ()
    # The last clean ended before the client was closed.
    assert sorted(cleans(base).values()) == [1, 1]
    assert is_clean_now(base)
    assert names(base) == {"a@3", "b@3"}
    assert not (base / ".hoodie/lock").exists()


def test_without_a_clean_that_is_due_none_is_started_and_the_timeline_is_kept(base: Path) -> None:
    with client(base, **{**OPTIONS, "clean__commits__retained": "9"}) as c:
        upsert(c, 2)
        result = upsert(c, 3)
        assert not [key for key in result.storage_calls if key[1] in ("clean", "rollback")]


@pytest.mark.parametrize("name", ["clean__async", "clean__async__enabled"])
@pytest.mark.parametrize("automatic", ["true", "false"])
def test_it_needs_automatic_cleans(base: Path, name: str, automatic: str) -> None:
    options = {"clean__automatic": automatic, name: "true"}
    with client(base, clean__commits__retained="1", **options) as c:
        results = [upsert(c, n) for n in (2, 3)]
    assert [each.clean is not None for each in results] == [False, automatic == "true"]


@pytest.mark.property
def test_other_calls_wait_for_it(base: Path) -> None:
    """The clean deletes its first file when the call is made, or later; the call begins then."""
    called, events = threading.Event(), list[str]()

    def before(kind: str, path: str) -> None:
        if is_clean() and kind == "delete" and is_file(path):
            assert called.wait(PATIENCE_S)
            events.append("clean")
        elif not is_clean() and kind in ("create", "list"):
            events.append("call")

    with client(base, HookedStorage(base, before), **OPTIONS) as c:

        def run(call: Callable[[str], Any]) -> Any:
            called.clear()
            written = upsert(c, 9)
            events.clear()
            called.set()
            result = call(written.instant)
            assert "clean" in events
            last = len(events) - events[::-1].index("clean")
            assert "call" not in events[:last]
            return result

        assert run(lambda _: c.clean()).files_deleted == 2
        assert run(lambda _: c.clean(dry_run=True)).files.num_rows == 0
        run(lambda _: c.archive())
        run(c.rollback)
        upsert(c, 9)
        c.clean()
        run(lambda _: c.close())
    assert is_clean_now(base)


@pytest.mark.property
def test_writes_that_are_faster_than_a_clean_wait_for_one_after_the_other(base: Path) -> None:
    running = list[int]()

    def before(kind: str, path: str) -> None:
        if kind == "list":
            running.append(len(running_calls(THREAD)))

    with client(base, HookedStorage(base, before), **OPTIONS) as c:
        results = [upsert(c, n) for n in range(2, 9)]
    assert max(running) == 1
    assert [each.clean is not None for each in results] == [False] + [True] * 6
    assert is_clean_now(base)


# Failures.


@pytest.mark.property
def test_a_failure_does_not_fail_a_write_and_is_told_and_made_good(
    base: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = HookedStorage(base)
    with client(base, storage, **OPTIONS) as c:
        storage.hooks[0] = failing("create", ".clean", times=1)
        upsert(c, 2)
        second = upsert(c, 3)
        assert second.clean is None
        assert [w[:43] for w in second.warnings] == ["cleaning failed: StorageUnavailableError: i"]
        assert "an asynchronous clean failed" in caplog.text
        third = upsert(c, 4)
        assert len(third.clean.finished) == 1
        assert third.warnings == ()
    assert set(cleans(base).values()) == {1}
    assert names(base) == {"a@4", "b@4"}
    assert is_clean_now(base)


def test_a_failure_while_the_client_closes_is_logged(
    base: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with client(base, HookedStorage(base, failing("create", ".clean")), **OPTIONS) as c:
        upsert(c, 2)
    assert "an asynchronous clean failed" in caplog.text
    assert names(base) == {"a@2", "b@2"}
    with client(base, **OPTIONS) as c:
        assert c.clean() is not None
    assert is_clean_now(base)


def faulty(base: Path, faults: list[Fault]) -> FaultyStorage:
    """Write twice; calls of the clean beside the second write go wrong."""
    storage = FaultyStorage(LocalStorage(str(base)))
    with suppress(Crash), client(base, clock=LaterClock(), **OPTIONS) as c:
        own = FaultyStorage(LocalStorage(str(base)), faults)
        c._context.async_cleaner.storage = own
        upsert(c, 2)
        upsert(c, 3)
        storage = own
    return storage


EFFECTS = (Effect.ERROR_BEFORE, Effect.ERROR_AFTER, Effect.CRASH_BEFORE, Effect.CRASH_AFTER)


@pytest.mark.property
@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("effect", EFFECTS)
def test_whatever_call_goes_wrong_the_write_stays_and_the_next_clean_ends_it(
    tmp_path: Path, version: int, effect: Effect
) -> None:
    base, saved = tmp_path / "t", tmp_path / "saved"
    with client(base, write__table__version=version) as c:
        upsert(c, 0)
        upsert(c, 1)
    shutil.copytree(base, saved)
    log = faulty(base, []).log
    calls = list(distinct_calls(log, effect))
    assert calls
    for at in calls:
        shutil.rmtree(base)
        shutil.copytree(saved, base)
        faulty(base, [Fault(at, effect)])
        assert names(base) == {"a@3", "b@3"}, log[at - 1]
        with client(base, clock=LaterClock(2), **OPTIONS) as c:
            assert not upsert(c, 4).warnings
        assert names(base) == {"a@4", "b@4"}
        assert set(cleans(base).values()) == {1}
        assert is_clean_now(base), log[at - 1]


# The end of the client.


class Watched(LockProvider):
    """A lock that is free; remembers how it was used."""

    name = "Watched"

    def __init__(self) -> None:
        self.is_closed = False

    def try_lock(self, timeout_s: float) -> bool:
        return True

    def unlock(self) -> None:
        pass

    def is_held(self) -> bool:
        return True

    def describe(self) -> str:
        return "here"

    def close(self) -> None:
        self.is_closed = True


def test_closing_stops_a_clean_that_takes_too_long_which_releases_its_lock(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    provider, begun = Watched(), threading.Event()
    cleaner = AsyncCleaner(LocalStorage(str(tmp_path)), lambda _: TableLock(provider), close_s=0)

    def clean() -> None:
        begun.set()
        cleaner.wait(PATIENCE_S)  # as for the lock

    cleaner.start(clean, lambda call: call)
    assert begun.wait(PATIENCE_S)
    cleaner.close()
    assert "stopping a clean that hasn't ended in 0 s" in caplog.text
    assert isinstance(cleaner.settle().error, CleanStoppedError)
    cleaner.close()
    assert provider.is_closed


def test_a_clean_that_never_ends_does_not_hold_up_the_end_nor_lose_its_lock(tmp_path: Path) -> None:
    provider, unanswered = Watched(), threading.Event()
    cleaner = AsyncCleaner(LocalStorage(str(tmp_path)), lambda _: TableLock(provider), close_s=0)
    cleaner.start(lambda: unanswered.wait(PATIENCE_S) and None, lambda call: call)
    cleaner.close()
    assert not provider.is_closed  # the thread uses it
    unanswered.set()
    assert cleaner.settle().error is None
    assert provider.is_closed


def test_a_clean_that_is_stopped_between_two_deletions_is_finished_by_the_next(base: Path) -> None:
    storage = HookedStorage(base)
    with client(base, storage, **OPTIONS) as c:
        cleaner = c._context.async_cleaner

        def stop(kind: str, path: str) -> None:
            if kind == "create" and path.endswith("clean.inflight"):
                cleaner._stopped.set()

        storage.hooks[1] = stop
        upsert(c, 2)
        assert isinstance(cleaner.settle().error, CleanStoppedError)
    assert len(list(base.rglob("*.parquet"))) == 6
    assert [name for name in reader.timeline_names(base) if name.endswith("clean.inflight")]
    with client(base, **OPTIONS) as c:
        upsert(c, 3)
    assert is_clean_now(base)
    assert set(cleans(base).values()) == {1}


# Others.


@pytest.mark.parametrize("version", [6, 9])
def test_another_cleaner_that_finishes_it_meanwhile_completes_it_once(
    tmp_path: Path, version: int
) -> None:
    base = tmp_path / "t"
    with client(base, write__table__version=version) as c:
        upsert(c, 0)
        upsert(c, 1)
    finished, deleting = threading.Event(), threading.Event()

    def before(kind: str, path: str) -> None:
        if is_clean() and kind == "delete" and is_file(path):
            deleting.set()
            assert finished.wait(PATIENCE_S)

    in_process = "org.apache.hudi.client.transaction.lock.InProcessLockProvider"
    with (
        client(base, HookedStorage(base, before), **OPTIONS) as c,
        client(base, clean__commits__retained="1", write__lock__provider=in_process) as other,
    ):
        upsert(c, 2)
        assert deleting.wait(PATIENCE_S)
        theirs = other.clean()  # gets the lock, which is released while files are deleted
        finished.set()
        result = upsert(c, 3)
        assert result.warnings == ()
        assert result.clean.instant == theirs.instant
    assert set(cleans(base).values()) == {1}
    assert is_clean_now(base)


class Captured(AsyncCleaner):
    """Leaves it to the test to run the clean."""

    clean: Callable[[], object] | None = None

    def start(self, clean: Callable[[], Any], beside: object) -> None:
        self.clean = clean


@contextmanager
def cleaning(files: dict[str, Any], schedule: list[int]) -> Iterator[tuple[Any, ...]]:
    """Yield a client that has started a clean, and what interleaves it with another call."""
    storage = MemoryStorage(now_ms=SystemClock().now_ms)
    storage.files = dict(files)
    interleaving, holders = Interleaving(storage, schedule), list[object]()

    def lock(_: object = None) -> TableLock:
        return TableLock(TurnLock(interleaving, holders))

    with client("/memory/t", storage, **OPTIONS) as c:
        cleaner = Captured(storage, lock)
        c._context = replace(c._context, lock=lock(), async_cleaner=cleaner)
        upsert(c, 2)
        yield c, cleaner, storage, interleaving


@pytest.mark.property
@pytest.mark.parametrize("version", [6, 9])
def test_a_write_and_a_clean_in_every_order_of_two_turns(tmp_path: Path, version: int) -> None:
    storage = MemoryStorage(now_ms=SystemClock().now_ms)
    with client("/memory/t", storage, write__table__version=version) as c:
        upsert(c, 0)
        upsert(c, 1)

    def run(schedule: list[int]) -> list[int]:
        with cleaning(storage.files, schedule) as (c, cleaner, table_storage, interleaving):
            written, cleaned = interleaving.run(lambda: upsert(c, 3), cleaner.clean)
            assert written.warnings == (), (schedule, written)
            made = list(interleaving.calls)
            # What it left is deleted by the next clean, and nothing else.
            rest = c.clean()
            deleted = [each.files_deleted for each in (cleaned, rest) if each is not None]
            assert deleted in ([2, 2], [4]), (schedule, deleted)
            paths = [path for path in table_storage.files if is_file(path)]
            assert len(paths) == 4, (schedule, paths)
            done = Counter(
                path.rpartition("/")[2][:17]
                for path in table_storage.files
                if path.endswith(".clean")
            )
            assert [*done.values()] == [1] * len(deleted)
        return made

    writes, cleans_ = run([10**6])
    assert writes > 20
    assert cleans_ > 10
    for first in range(0, writes + 1, 3):
        for second in range(1, cleans_ + 1, 4):
            run([first, second])


def test_its_thread_runs_no_job_without_the_engine(
    base: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a Spark session that was stopped: an error before the clean begins is one of it."""
    caplog.set_level(logging.WARNING)
    cleaner = AsyncCleaner(LocalStorage(str(base)), lambda _: TableLock())

    def stopped(call: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            raise RuntimeError("no session")

        return run

    cleaner.start(lambda: None, stopped)
    ended = cleaner.take()
    assert (ended.result, str(ended.error)) == (None, "no session")
    assert cleaner.take() is None
    cleaner.close()
