"""``ThreadShares``: a pool of threads that no single table can take for itself alone.

A storage may hang for ever, and a thread that waits for it can't be taken back. So a request gets a
thread by the table it is about (``strandline.service.http.table_of_request``):

* a table that holds none gets one, of up to ``FIRST`` beyond ``threads``;
* a table that is alone (no other holds a thread or waits for one) gets all ``threads``;
* any other gets one more as long as ``LEFT_FREE`` of ``threads`` stay free.

What gets none waits in its table's queue; a thread that gets free goes to the tables in turn. So
while up to ``FIRST`` tables hang, whatever is asked of them, every other table has one thread at
least; with more, only what needs no thread is answered (ready bytes, probes, marker creations).
Requests of no table ask no storage. They have one thread of their own, so the status is answered
however many tables hang.

Used on the server's loop only, but for ``status``: no lock.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

T = TypeVar("T")

NO_TABLE: Final = ""
LEFT_FREE: Final = 4
"""Threads that a table leaves to others when it has some and isn't alone."""
FIRST: Final = 16
"""Threads beyond the pool's number, each the first of a table: as many tables may hang before
another gets none. They are started when they are needed."""
_SHOWN: Final = 100
"""Tables that the status names, those with the most threads."""


class ThreadShares:
    """Threads for requests, shared by tables.

    A table is a base path in its canonical spelling, or ``NO_TABLE``. ``_held`` is how many threads
    each has, ``_running`` which calls take them, and since when. ``_queues`` are the calls that
    wait for their turn; the table whose turn is next comes first.
    """

    def __init__(self, threads: int) -> None:
        """Make a pool with no thread yet.

        Args:
            threads: How many one table may have that is alone.
        """
        self._threads = threads
        self._most = threads + FIRST
        self._pool = ThreadPoolExecutor(self._most + 1, thread_name_prefix="requests")
        self._held: Counter[str] = Counter()
        self._running: dict[asyncio.Future[Any], tuple[str, float]] = {}
        self._queues: OrderedDict[str, OrderedDict[asyncio.Future[None], None]] = OrderedDict()

    async def run(self, table: str, work: Callable[..., T], *args: Any) -> T:
        """Return what ``work`` returns, run on a thread once it is the caller's turn.

        A caller that is cancelled gives back its place in the queue; what has begun runs on and
        holds its thread until it ends.
        """
        await self._turn(table)
        try:
            running = asyncio.wrap_future(self._pool.submit(work, *args))
        except RuntimeError:  # the pool is closed
            self._give_back(table)
            raise
        self._running[running] = table, running.get_loop().time()
        running.add_done_callback(self._over)
        # Who is cancelled doesn't free the thread: only the end of ``work`` does.
        return await asyncio.shield(running)

    def status(self, now: float) -> dict[str, Any]:
        """Return figures, fit for JSON; from any thread.

        Args:
            now: The loop's time.
        """
        # Each copy is one step of the interpreter: the loop goes on beside.
        running, queues = tuple(self._running.copy().values()), self._queues.copy()
        held = Counter(table for table, _ in running)
        waiting = {table: len(queue) for table, queue in queues.items()}
        since: dict[str, float] = {}
        for table, began in running:
            since[table] = min(began, since.get(table, began))
        named = [table for table in {**held, **waiting} if table != NO_TABLE]
        named.sort(key=lambda table: (-held[table], -waiting.get(table, 0), table))
        return {
            "at_most": self._threads,
            "taken": len(running),
            "waiting": sum(waiting.values()),
            "tables": [
                {
                    "base_path": table,
                    "threads": held[table],
                    "waiting": waiting.get(table, 0),
                    "longest_s": round(now - since.get(table, now), 3),
                }
                for table in named[:_SHOWN]
            ],
        }

    def close(self) -> None:
        """Start nothing new; what runs may go on, but nobody waits for it."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for queue in self._queues.values():
            for turn in queue:
                turn.cancel()
        for running in self._running:
            running.cancel()

    def _may_take(self, table: str) -> bool:
        """Whether a table may have another thread now; see the module's docstring."""
        held = self._held[table]
        if table == NO_TABLE:
            return held == 0
        taken = self._taken()
        if held == 0:
            return taken < self._most
        alone = all(other in (table, NO_TABLE) for other in (*self._held, *self._queues))
        return taken < (self._threads if alone else self._threads - LEFT_FREE)

    def _taken(self) -> int:
        """Return how many threads tables hold."""
        return self._held.total() - self._held[NO_TABLE]

    async def _turn(self, table: str) -> None:
        """Take a thread, when it is the caller's turn."""
        if table not in self._queues and self._may_take(table):
            self._held[table] += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(table, OrderedDict())[turn] = None
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._leave_queue(table, turn)
            else:  # it has been given a thread meanwhile
                self._give_back(table)
            raise

    def _leave_queue(self, table: str, turn: asyncio.Future[None]) -> None:
        queue = self._queues.get(table)
        if queue is not None:
            queue.pop(turn, None)
            if not queue:
                del self._queues[table]
                self._hand_over()  # another table may be alone now

    def _over(self, running: asyncio.Future[Any]) -> None:
        if not running.cancelled():
            running.exception()  # it may be that nobody waits for it any more
        table, _ = self._running.pop(running)
        self._give_back(table)

    def _give_back(self, table: str) -> None:
        self._held[table] -= 1
        if not self._held[table]:
            del self._held[table]
        self._hand_over()

    def _hand_over(self) -> None:
        """Give free threads to the calls that wait, the tables in turn."""
        while (table := self._next()) is not None:
            queue = self._queues[table]
            turn, _ = queue.popitem(last=False)
            if queue:
                self._queues.move_to_end(table)
            else:
                del self._queues[table]
            if not turn.cancelled():
                self._held[table] += 1
                turn.set_result(None)

    def _next(self) -> str | None:
        """Return the table that gets the next thread; ``None``: no table does."""
        if NO_TABLE in self._queues and self._may_take(NO_TABLE):
            return NO_TABLE
        if self._taken() >= self._most:
            return None
        # A table without a thread may have one now, so few of very many are looked at.
        return next(filter(self._may_take, self._queues), None)
