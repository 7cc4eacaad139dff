"""``TableThreads``: which table gets a thread, and in what order."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any

import pytest

from strandline.service.table_threads import FIRST, LEFT_FREE, NO_TABLE, TableThreads
from tests.kit.manual_clock import ManualClock
from tests.kit.patience import PATIENCE_S

THREADS = 8


class Calls:
    """Calls that take a thread each and hang until they are released."""

    def __init__(self, pool: TableThreads) -> None:
        self.pool = pool
        self.tasks: dict[str, list[asyncio.Task[str]]] = {}
        self.begun: Counter[str] = Counter()
        self._go: dict[str, threading.Semaphore] = {}

    def ask(self, table: str, count: int = 1) -> None:
        """Have some more calls of a table come in."""
        go = self._go.setdefault(table, threading.Semaphore(0))

        def hang() -> str:
            self.begun[table] += 1
            assert go.acquire(timeout=PATIENCE_S)
            return table

        of_table = self.tasks.setdefault(table, [])
        of_table += [asyncio.ensure_future(self.pool.run(table, hang)) for _ in range(count)]

    async def end(self, table: str, count: int = 1) -> None:
        """Let some calls of a table end, and wait until their threads have been given on."""
        left = sum(not task.done() for task in self.tasks[table]) - count
        self._go[table].release(count)
        while sum(not task.done() for task in self.tasks[table]) > left:
            await asyncio.sleep(0)

    def running(self) -> dict[str, int]:
        """Return how many threads each table has."""
        return {row["base_path"]: row["threads"] for row in self._tables() if row["threads"]}

    def waiting(self) -> dict[str, int]:
        """Return how many calls of each table wait."""
        return {row["base_path"]: row["waiting"] for row in self._tables() if row["waiting"]}

    def _tables(self) -> list[dict[str, int]]:
        tables: list[dict[str, int]] = self.pool.status()["tables"]
        return tables

    def release_all(self) -> None:
        for go in self._go.values():
            go.release(1000)


def in_pool(
    play: Callable[[Calls], Awaitable[None]],
    threads: int = THREADS,
    of_a_table: int | None = None,
    clock: ManualClock | None = None,
) -> None:
    """Play something with the calls of a pool, then end it."""

    async def whole() -> None:
        pool = TableThreads("test", threads, of_a_table=of_a_table, clock=clock)
        calls = Calls(pool)
        try:
            await play(calls)
        finally:
            calls.release_all()
            tasks = chain.from_iterable(calls.tasks.values())
            await asyncio.gather(*tasks, return_exceptions=True)
            pool.close()

    asyncio.run(whole())


async def settled() -> None:
    """Let the loop come to everything that is ready."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_table_that_is_alone_gets_all_threads_and_what_is_above_waits() -> None:
    async def play(calls: Calls) -> None:
        calls.ask("a", THREADS + 5)
        await settled()
        assert (calls.running(), calls.waiting()) == ({"a": THREADS}, {"a": 5})
        await calls.end("a", 3)
        assert (calls.running(), calls.waiting()) == ({"a": THREADS}, {"a": 2})

    in_pool(play)


def test_beside_another_table_each_leaves_threads_free() -> None:
    async def play(calls: Calls) -> None:
        calls.ask("b")
        await settled()
        calls.ask("a", 50)
        await settled()
        assert calls.running() == {"a": THREADS - LEFT_FREE - 1, "b": 1}
        calls.ask("b", 50)
        for table in ("c", "d", "e", "f"):
            calls.ask(table)
        await settled()
        others = dict.fromkeys("bcdef", 1)
        assert calls.running() == {"a": THREADS - LEFT_FREE - 1, **others}

    in_pool(play)


def test_a_table_gets_a_thread_though_another_took_all_while_it_was_alone() -> None:
    async def play(calls: Calls) -> None:
        calls.ask("hangs", 3 * THREADS)
        await settled()
        calls.ask("good", 5)
        await settled()
        assert calls.running() == {"hangs": THREADS, "good": 1}
        for left in range(4, -1, -1):
            await calls.end("good")
            assert calls.running().get("good", 0) == min(left, 1)

    in_pool(play)


@pytest.mark.parametrize("threads", [1, THREADS, 16])
def test_as_many_tables_may_hang_as_there_are_first_threads(threads: int) -> None:
    async def play(calls: Calls) -> None:
        for number in range(FIRST):
            calls.ask(f"hangs {number}", 3 * threads)
            await settled()
        calls.ask("good", 2)
        await settled()
        assert calls.running()["good"] == 1
        await calls.end("good")
        assert calls.running()["good"] == 1
        calls.ask("one too many")
        await settled()
        assert "one too many" not in calls.running()
        await calls.end("good")
        assert calls.running()["one too many"] == 1

    in_pool(play, threads)


def test_a_request_of_no_table_has_a_thread_whatever_hangs() -> None:
    async def play(calls: Calls) -> None:
        for number in range(2 * FIRST):
            calls.ask(f"hangs {number}", THREADS)
        await settled()
        for _ in range(3):
            assert await calls.pool.run(NO_TABLE, lambda: "said") == "said"

    in_pool(play)


def test_requests_of_no_table_take_nothing_from_a_table() -> None:
    async def play(calls: Calls) -> None:
        calls.ask(NO_TABLE, 20)
        calls.ask("a", 20)
        await settled()
        assert calls.running() == {"a": THREADS}
        assert calls.pool.status()["taken"] == THREADS + 1

    in_pool(play)


def test_threads_that_get_free_go_to_the_tables_in_turn() -> None:
    async def play(calls: Calls) -> None:
        calls.ask("a", 10)
        await settled()
        for table in ("b", "c", "d"):
            calls.ask(table, 10)
        await settled()
        assert calls.running() == {"a": THREADS, "b": 1, "c": 1, "d": 1}
        await calls.end("a", THREADS)
        # Four of eight stay free: a table without a thread still gets one, others none.
        assert calls.running() == {"a": 1, "b": 1, "c": 1, "d": 1}
        for table in ("b", "c", "d"):
            await calls.end(table, 10)
        assert calls.running() == {"a": 2}

    in_pool(play)


def test_a_table_alone_again_gets_all_threads_again() -> None:
    async def play(calls: Calls) -> None:
        calls.ask("b")
        await settled()
        calls.ask("a", 20)
        await settled()
        assert calls.running()["a"] < THREADS
        await calls.end("b")
        assert calls.running() == {"a": THREADS}

    in_pool(play)


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
        gc.collect()
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


def test_the_status_says_since_when_a_table_holds_a_thread() -> None:
    clock = ManualClock(0)

    async def play(calls: Calls) -> None:
        calls.ask("/lake/t", THREADS + 2)
        await settled()
        clock.advance(100_000)
        calls.ask("/lake/u")
        await settled()
        status = calls.pool.status()
        assert (status["at_most"], status["taken"], status["waiting"]) == (THREADS, THREADS + 1, 2)
        assert status["tables"] == [
            {"base_path": "/lake/t", "threads": THREADS, "waiting": 2, "longest_s": 100},
            {"base_path": "/lake/u", "threads": 1, "waiting": 0, "longest_s": 0},
        ]

    in_pool(play, clock=clock)


def test_a_table_has_no_more_threads_than_one_may_though_it_is_alone() -> None:
    async def play(calls: Calls) -> None:
        calls.ask("hangs", 20)
        await settled()
        assert (calls.running(), calls.waiting()) == ({"hangs": 3}, {"hangs": 17})
        calls.ask("good", 20)
        await settled()
        assert calls.running() == {"hangs": 3, "good": THREADS - LEFT_FREE - 3}
        await calls.end("hangs", 20)
        assert calls.running() == {"good": 3}

    in_pool(play, of_a_table=3)


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

    gc.collect()
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
