"""``ThreadShares``: which table gets a thread, and in what order."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable
from itertools import chain
from typing import Any

import pytest

from strandline.service.http.request_threads import FIRST, LEFT_FREE, NO_TABLE, ThreadShares

THREADS = 8


class Calls:
    """Calls that take a thread each and hang until they are let go."""

    def __init__(self, shares: ThreadShares) -> None:
        self.shares = shares
        self.tasks: dict[str, list[asyncio.Task[str]]] = {}
        self._go: dict[str, threading.Semaphore] = {}

    def ask(self, table: str, count: int = 1) -> None:
        """Have some more calls of a table come in."""
        go = self._go.setdefault(table, threading.Semaphore(0))

        def hang() -> str:
            assert go.acquire(timeout=60)
            return table

        of_table = self.tasks.setdefault(table, [])
        of_table += [asyncio.ensure_future(self.shares.run(table, hang)) for _ in range(count)]

    async def end(self, table: str, count: int = 1) -> None:
        """Let some calls of a table end, and wait until their threads have been given on."""
        left = sum(not task.done() for task in self.tasks[table]) - count
        self._go[table].release(count)
        while sum(not task.done() for task in self.tasks[table]) > left:
            await asyncio.sleep(0)

    def running(self) -> dict[str, int]:
        """Return how many threads each table has."""
        return {said["base_path"]: said["threads"] for said in self._said() if said["threads"]}

    def waiting(self) -> dict[str, int]:
        """Return how many calls of each table wait."""
        return {said["base_path"]: said["waiting"] for said in self._said() if said["waiting"]}

    def _said(self) -> list[dict[str, int]]:
        tables: list[dict[str, int]] = self.shares.status(0)["tables"]
        return tables

    def let_all_go(self) -> None:
        for go in self._go.values():
            go.release(1000)


def on_shares(play: Callable[[Calls], Awaitable[None]], threads: int = THREADS) -> None:
    """Play something with the calls of a pool, then end it."""

    async def whole() -> None:
        shares = ThreadShares(threads)
        calls = Calls(shares)
        try:
            await play(calls)
        finally:
            calls.let_all_go()
            tasks = chain.from_iterable(calls.tasks.values())
            await asyncio.gather(*tasks, return_exceptions=True)
            shares.close()

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

    on_shares(play)


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

    on_shares(play)


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

    on_shares(play)


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

    on_shares(play, threads)


def test_a_request_of_no_table_has_a_thread_whatever_hangs() -> None:
    async def play(calls: Calls) -> None:
        for number in range(2 * FIRST):
            calls.ask(f"hangs {number}", THREADS)
        await settled()
        for _ in range(3):
            assert await calls.shares.run(NO_TABLE, lambda: "said") == "said"

    on_shares(play)


def test_requests_of_no_table_take_nothing_from_a_table() -> None:
    async def play(calls: Calls) -> None:
        calls.ask(NO_TABLE, 20)
        calls.ask("a", 20)
        await settled()
        assert calls.running() == {"a": THREADS}
        assert calls.shares.status(0)["taken"] == THREADS + 1

    on_shares(play)


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

    on_shares(play)


def test_a_table_alone_again_gets_all_threads_again() -> None:
    async def play(calls: Calls) -> None:
        calls.ask("b")
        await settled()
        calls.ask("a", 20)
        await settled()
        assert calls.running()["a"] < THREADS
        await calls.end("b")
        assert calls.running() == {"a": THREADS}

    on_shares(play)


def test_who_leaves_is_taken_out_of_the_queue_and_who_runs_keeps_the_thread() -> None:
    async def play(calls: Calls) -> None:
        calls.ask("a", 3)
        await settled()
        for task in calls.tasks["a"]:
            task.cancel()
        await settled()
        assert (calls.running(), calls.waiting()) == ({"a": 1}, {})
        calls.ask("a", 1)
        await settled()
        assert (calls.running(), calls.waiting()) == ({"a": 1}, {"a": 1})

    on_shares(play, 1)


def test_a_thread_given_to_who_is_just_leaving_is_given_on() -> None:
    async def play(calls: Calls) -> None:
        calls.ask("a", 3)
        await settled()
        _, leaving, last = calls.tasks["a"]
        calls.let_all_go()
        while calls.waiting() == {"a": 2}:
            await asyncio.sleep(0)
        leaving.cancel()  # it hasn't been woken yet
        assert await last == "a"
        assert leaving.cancelled()
        assert calls.running() == {}

    on_shares(play, 1)


def test_errors_are_the_callers_and_free_the_thread() -> None:
    async def play(calls: Calls) -> None:
        for _ in range(3):
            with pytest.raises(ValueError, match="not a number"):
                await calls.shares.run("a", int, "not a number")
        assert calls.running() == {}

    on_shares(play, 1)


def test_an_error_that_nobody_waits_for_any_more_is_not_reported_as_forgotten() -> None:
    async def play(calls: Calls) -> None:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: reported.append(context)
        )
        go = threading.Event()

        def fail() -> None:
            assert go.wait(60)
            raise ValueError("the storage is away")

        left = asyncio.ensure_future(calls.shares.run("a", fail))
        await settled()
        left.cancel()
        await settled()
        go.set()
        while calls.running():
            await asyncio.sleep(0)
        assert left.cancelled()
        del left  # it holds the call
        gc.collect()
        assert reported == []

    on_shares(play)


def test_the_end_cancels_who_waits_and_who_runs() -> None:
    async def play(calls: Calls) -> None:
        calls.ask("a", 3)
        await settled()
        calls.shares.close()
        done = await asyncio.gather(*calls.tasks["a"], return_exceptions=True)
        assert [type(error) for error in done] == [asyncio.CancelledError] * 3

    on_shares(play, 1)


def test_the_status_says_since_when_a_table_holds_a_thread() -> None:
    async def play(calls: Calls) -> None:
        began = asyncio.get_running_loop().time()
        calls.ask("/lake/t", THREADS + 2)
        await settled()
        said = calls.shares.status(began + 100)
        (table,) = said["tables"]
        assert (said["at_most"], said["taken"], said["waiting"]) == (THREADS, THREADS, 2)
        assert {**table, "longest_s": 0} == {
            "base_path": "/lake/t",
            "threads": THREADS,
            "waiting": 2,
            "longest_s": 0,
        }
        assert 99 < table["longest_s"] <= 100

    on_shares(play)
