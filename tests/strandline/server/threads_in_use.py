"""Calls that hold threads of a `TableThreads` until they are let go."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import chain

from strandline.server.table_threads import TableThreads
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.concurrency.patience import PATIENCE_S

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
