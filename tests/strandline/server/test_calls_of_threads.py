"""Calls on the pool of threads: cancelled, failed, bounded in number, waiting at the end."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from strandline.server.table_threads import LEFT_FREE, TableThreads
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.garbage import collect_garbage
from tests.strandline.server.threads_in_use import THREADS, Calls, in_pool, settled


def test_cancelled_calls_leave_the_queue_and_running_ones_keep_their_thread() -> None:
    async def play(calls: Calls) -> None:
        calls.ask("a", 3)
        # A call that has a thread can be cancelled until it begins.
        while not calls.begun["a"]:
            await asyncio.sleep(0)
        assert (calls.running(), calls.waiting()) == ({"a": 1}, {"a": 2})
        for task in calls.tasks["a"]:
            task.cancel()
        await settled()
        assert (calls.running(), calls.waiting()) == ({"a": 1}, {})
        calls.ask("a", 1)
        await settled()
        assert (calls.running(), calls.waiting()) == ({"a": 1}, {"a": 1})

    in_pool(play, 1)


def test_a_thread_given_to_a_cancelled_call_is_passed_on() -> None:
    async def play(calls: Calls) -> None:
        calls.ask("a", 3)
        await settled()
        _, leaving, last = calls.tasks["a"]
        calls.release_all()
        while calls.waiting() == {"a": 2}:
            await asyncio.sleep(0)
        leaving.cancel()  # it hasn't been woken yet
        assert await last == "a"
        assert leaving.cancelled()
        assert calls.running() == {}

    in_pool(play, 1)


def test_errors_are_the_callers_and_free_the_thread() -> None:
    async def play(calls: Calls) -> None:
        for _ in range(3):
            with pytest.raises(ValueError, match="not a number"):
                await calls.pool.run("a", int, "not a number")
        assert calls.running() == {}

    in_pool(play, 1)


def test_an_error_of_a_cancelled_call_is_not_reported_as_unretrieved() -> None:
    async def play(calls: Calls) -> None:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: reported.append(context)
        )
        began, go = threading.Event(), threading.Event()

        def fail() -> None:
            began.set()
            assert go.wait(PATIENCE_S)
            raise ValueError("the storage is away")

        left = asyncio.ensure_future(calls.pool.run("a", fail))
        while not began.is_set():
            await asyncio.sleep(0)
        left.cancel()
        await settled()
        go.set()
        while calls.running():
            await asyncio.sleep(0)
        assert left.cancelled()
        del left  # it holds the call
        collect_garbage()
        assert reported == []

    in_pool(play)


def test_the_end_cancels_what_waits_and_leaves_what_runs() -> None:
    async def play(calls: Calls) -> None:
        calls.ask("a", 3)
        await settled()
        calls.pool.close()
        running, *waiting = calls.tasks["a"]
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(error) for error in ended] == [asyncio.CancelledError] * 2
        calls.release_all()
        assert await running == "a"

    in_pool(play, 1)


@pytest.fixture
def pool() -> Iterator[TableThreads]:
    pool = TableThreads("test", THREADS, of_a_table=2, queued=3)
    yield pool
    pool.close()


class Hanging:
    """Work that hangs until it is released."""

    def __init__(self) -> None:
        self.began = threading.Semaphore(0)
        self.go = threading.Event()

    def __call__(self) -> None:
        self.began.release()
        assert self.go.wait(PATIENCE_S)


def test_the_queue_of_a_table_is_bounded(pool: TableThreads) -> None:
    work = Hanging()
    done = [pool.submit("hangs", work) for _ in range(5)]
    with pytest.raises(RuntimeError, match="3 tasks of the table are waiting already"):
        pool.submit("hangs", work)
    assert pool.submit("good", lambda: 7).result(PATIENCE_S) == 7
    work.go.set()
    assert [each.result(PATIENCE_S) for each in done] == [None] * 5


@pytest.mark.parametrize("finish", [True, False])
def test_at_the_end_what_waits_is_finished_or_cancelled(pool: TableThreads, finish: bool) -> None:
    work = Hanging()
    done = [pool.submit("a", work) for _ in range(4)]
    for _ in range(2):
        assert work.began.acquire(timeout=PATIENCE_S)
    if finish:
        work.go.set()
    pool.close(finish_s=PATIENCE_S if finish else None)
    assert [each.cancelled() for each in done] == [False] * 2 + [not finish] * 2
    assert [each.done() for each in done] == [finish] * 2 + [True] * 2
    with pytest.raises(RuntimeError, match="the thread pool is closed"):
        pool.submit("a", work)
    work.go.set()
    assert [each.result(PATIENCE_S) for each in done[:2]] == [None] * 2


class Content:
    """An object that work holds in memory."""


def test_an_error_is_handed_on_and_not_kept(pool: TableThreads) -> None:
    kept: list[weakref.ref[Content]] = []

    def fail() -> None:
        content = Content()
        kept.append(weakref.ref(content))
        raise OSError("damaged")

    collect_garbage()
    gc.disable()
    try:
        for _ in range(3):
            assert str(pool.submit("a", fail).exception(PATIENCE_S)) == "damaged"
        pool.close(finish_s=PATIENCE_S)
        assert [content() for content in kept] == [None] * 3
    finally:
        gc.enable()


def test_threads_that_run_beside_each_other_lose_and_double_nothing() -> None:
    """Many callers on few threads: each task runs once, and no table exceeds its share."""
    pool = TableThreads("test", 4, of_a_table=2)
    lock = threading.Lock()
    now: Counter[str] = Counter()
    most: Counter[str] = Counter()

    def work(table: str) -> str:
        with lock:
            now[table] += 1
            most[table] = max(most[table], now[table])
        with lock:
            now[table] -= 1
        return table

    def call(table: str) -> list[str]:
        done = [pool.submit(table, partial(work, table)) for _ in range(200)]
        return [each.result(PATIENCE_S) for each in done]

    tables = [f"t{number}" for number in range(4)] * 2
    with ThreadPoolExecutor(len(tables)) as callers:
        assert list(callers.map(call, tables)) == [[table] * 200 for table in tables]
    pool.close(finish_s=PATIENCE_S)
    assert max(most.values()) <= 2
    assert (pool.status()["taken"], pool.status()["waiting"]) == (0, 0)


@contextmanager
def no_new_threads() -> Iterator[None]:
    """Make the system refuse every new thread: none has an address space for such a stack."""
    before = threading.stack_size(1 << 47)
    try:
        yield
    finally:
        threading.stack_size(before)


def test_work_is_refused_if_no_thread_can_be_started(pool: TableThreads) -> None:
    with no_new_threads(), pytest.raises(RuntimeError, match="can't start new thread"):
        pool.submit("a", Hanging())
    assert (pool.status()["taken"], pool.status()["waiting"]) == (0, 0)
    assert pool.submit("a", lambda: 7).result(PATIENCE_S) == 7


def test_work_that_could_start_more_threads_waits_for_one_that_runs() -> None:
    pool, one, other = TableThreads("test", LEFT_FREE + 1), Hanging(), Hanging()
    first = pool.submit("one", one)
    done = [pool.submit("other", other) for _ in range(4)]
    with no_new_threads():
        one.go.set()
        assert first.result(PATIENCE_S) is None
    # The other table is alone now, but there was only the first one's thread for it.
    assert (pool.status()["taken"], pool.status()["waiting"]) == (2, 2)
    other.go.set()
    assert [each.result(PATIENCE_S) for each in done] == [None] * 4
    pool.close(finish_s=PATIENCE_S)
