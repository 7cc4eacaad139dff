"""How a pool of threads is shared fairly among tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.server.table_threads import FIRST, LEFT_FREE, NO_TABLE, TableThreads
from tests.kit.concurrency.manual_clock import ManualClock
from tests.strandline.server.threads_in_use import THREADS, Calls, in_pool, settled


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
