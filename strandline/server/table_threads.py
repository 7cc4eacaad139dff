"""``TableThreads``: a thread pool that no single table can exhaust.

Storage may hang forever, and a thread that waits for it cannot be interrupted. So work is submitted
for a table, and one rule decides whether a table gets another thread:

* a table that holds none gets one of ``threads``, or of ``FIRST`` more reserved for this;
* a table that holds some gets another, up to ``of_a_table``, as long as ``LEFT_FREE`` of
  ``threads`` stay free; a table that is alone (no other holds a thread or waits for one) may also
  take these.

Other work waits in its table's queue; free threads go to the queues round-robin. So up to ``FIRST``
tables may hang, however much work they are given, and every other table still has a thread.
``NO_TABLE`` is for work that uses no storage: it has one thread of its own.

``TableLoads`` are the CPU that requests for each table took, as the peak of five minutes. Plans of
moves between groups of servers use it (``strandline.fleet.planning.plan``). A table's CPU time so
far is the measured one of the threads that compute its answers, and for each of its ready answers
the mean of ``benchmarks.view``: to measure them would take as long as they do.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from timeline.clock import Clock, SystemClock
from timeline.threads import in_context

T = TypeVar("T")

NO_TABLE: Final = ""
LEFT_FREE: Final = 4
"""Threads that a table leaves to others unless it is alone."""
FIRST: Final = 16
"""Threads beyond ``threads``, each for a table that has no other: as many tables may hang before
another gets no thread."""
_SHOWN: Final = 100
"""Tables in the status, those with the most threads."""


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    table: Hashable
    work: Callable[[], Any]
    done: Future[Any]


class TableThreads:
    """A thread pool whose threads are shared fairly by tables; see the module.

    ``_lock`` guards all fields and is never held while work runs. A task is in the queue of its
    table, or it holds a thread: then it is counted in ``_held``, is in ``_since`` (when it got the
    thread), and a thread takes it from ``_handed``. ``_idle`` is how many threads wait there beyond
    the tasks in it. Threads are started when they are first needed, and end with ``close``.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        *,
        of_a_table: int | None = None,
        queued: int = sys.maxsize,
        clock: Clock | None = None,
    ) -> None:
        """Make a pool without threads.

        Args:
            name: Prefix of the threads' names.
            threads: How many threads several tables may hold together.
            of_a_table: How many one table may hold; ``None``: all ``threads``.
            queued: How many tasks of one table may wait.
            clock: Measures how long threads are held.
        """
        self._threads = threads
        self._at_most = threads + FIRST
        self._of_a_table = threads if of_a_table is None else of_a_table
        self._queued = queued
        self._clock = clock or SystemClock()
        self._name = name
        self._lock = threading.Lock()
        self._queues: OrderedDict[Hashable, OrderedDict[_Task, None]] = OrderedDict()
        self._held: Counter[Hashable] = Counter()
        self._since: dict[_Task, float] = {}
        self._handed: SimpleQueue[_Task | None] = SimpleQueue()
        self._idle = 0
        self._started: list[threading.Thread] = []
        self._closed = False

    def submit(self, table: Hashable, work: Callable[[], T]) -> Future[T]:
        """Run ``work`` on a thread as soon as its table may have one; never blocks.

        Args:
            table: Identifies the table, by equality.
            work: Called once, unless the future is cancelled before.

        Raises:
            RuntimeError: No thread could be started, too much waits already, or the pool is closed.
        """
        return self._submit(table, work).done

    async def run(self, table: Hashable, work: Callable[..., T], *args: Any) -> T:
        """Return what ``work(*args)`` returns, run on a thread, in the caller's context.

        A cancelled caller leaves the queue. Work that has begun cannot be cancelled: it keeps its
        thread until it ends.

        Raises:
            RuntimeError: As ``submit``; or whatever ``work`` raises.
        """
        task = self._submit(table, partial(in_context(work), *args))
        try:
            result: T = await asyncio.wrap_future(task.done)
        except asyncio.CancelledError:
            # A task whose client has left must not keep a place in its table's queue.
            self._leave_queue(task)
            raise
        return result

    def status(self) -> dict[str, Any]:
        """Return figures, fit for JSON: threads held and tasks waiting, in all and by table."""
        now = self._clock.monotonic()
        with self._lock:
            # Only copies are made under the lock: sorting would delay those that submit.
            held = self._held.copy()
            waiting = {table: len(queue) for table, queue in self._queues.items()}
            since: dict[Hashable, float] = {}
            for task, began in self._since.items():  # in the order in which they began
                since.setdefault(task.table, began)
        tables = [table for table in {**held, **waiting} if table != NO_TABLE]
        tables.sort(key=lambda table: (-held[table], -waiting.get(table, 0), str(table)))
        return {
            "at_most": self._threads,
            "taken": held.total(),
            "waiting": sum(waiting.values()),
            "tables": [
                {
                    "base_path": str(table),
                    "threads": held[table],
                    "waiting": waiting.get(table, 0),
                    "longest_s": round(now - since.get(table, now), 3),
                }
                for table in tables[:_SHOWN]
            ],
        }

    def held_for(self, seconds: float) -> dict[str, float]:
        """Return the tables of which a task has held a thread for so long → for how long, seconds.

        Cost: one step for each task that is returned.
        """
        now = self._clock.monotonic()
        found: dict[str, float] = {}
        with self._lock:
            for task, began in self._since.items():  # in the order in which they began
                if now - began < seconds:
                    break
                if task.table != NO_TABLE:
                    found.setdefault(str(task.table), now - began)
        return found

    def close(self, *, finish_s: float | None = None) -> None:
        """Accept no more work.

        Args:
            finish_s: How long to wait for queued and running tasks to end; ``None`` cancels the
                queued ones and waits for none.
        """
        with self._lock:
            self._closed = True
            waiting = [task for queue in self._queues.values() for task in queue]
            # Busy threads see in ``_work`` that the pool is closed, once their work ends.
            self._end_idle()
        if finish_s is None:
            for task in waiting:
                # Outside the lock: this runs the waiters' callbacks, which may call the pool.
                task.done.cancel()
        else:
            # One deadline for all threads: the waits for those that hang must not add up.
            until_s = self._clock.monotonic() + finish_s
            for thread in self._started:
                thread.join(max(0.0, until_s - self._clock.monotonic()))

    def _submit(self, table: Hashable, work: Callable[[], Any]) -> _Task:
        task = _Task(table, work, Future())
        with self._lock:
            # Under the lock of queuing: ``close`` was first, or finds this task in the queue.
            if self._closed:
                raise RuntimeError("the thread pool is closed")
            queue = self._queues.get(table)
            # While tasks of its table wait, a new one queues behind them.
            if queue is None and self._may_take(table):
                self._admit(task)
            elif queue is None:
                self._queues[table] = OrderedDict({task: None})
            elif len(queue) < self._queued:
                queue[task] = None
            else:
                raise RuntimeError(f"{self._queued} tasks of the table are waiting already")
        return task

    def _leave_queue(self, task: _Task) -> None:
        with self._lock:
            queue = self._queues.get(task.table)
            if queue is not None and task in queue:
                del queue[task]
                if not queue:
                    del self._queues[task.table]
                    self._admit_waiting()  # another table may be alone now

    def _work(self) -> None:
        """Run tasks until the pool is closed; this is what a thread does."""
        while (task := self._handed.get()) is not None:
            answer = _run(task)
            with self._lock:
                self._release(task)
                # Counted as idle before waiting tasks are admitted: the next one takes this thread.
                self._idle += 1
                self._admit_waiting()
                # ``close`` has ended only the threads that were idle then.
                if self._closed:
                    self._end_idle()
            # After the release: a client that is answered and asks again finds the thread free.
            answer()
            del task, answer  # this frame must not keep an error in it alive

    def _end_idle(self) -> None:
        for _ in range(self._idle):
            self._handed.put(None)
        self._idle = 0

    def _admit(self, task: _Task) -> None:
        """Give a task a thread; ``RuntimeError`` if none can be started."""
        if self._idle:
            self._idle -= 1
        else:
            name = f"{self._name}_{len(self._started)}"
            # A daemon: a thread that hangs in storage must not keep the process from ending.
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            # Before anything is counted: if no thread can be started, this raises.
            thread.start()
            self._started.append(thread)
        self._held[task.table] += 1
        self._since[task] = self._clock.monotonic()
        self._handed.put(task)

    def _release(self, task: _Task) -> None:
        del self._since[task]
        self._held[task.table] -= 1
        if not self._held[task.table]:
            del self._held[task.table]

    def _admit_waiting(self) -> None:
        """Give threads to the tasks that may have them now, round-robin by table."""
        while (table := self._next_table()) is not None:
            queue = self._queues[table]
            try:
                self._admit(next(iter(queue)))
            except RuntimeError:
                return  # the next thread that becomes free takes it: some are running
            # Only now: a task for which no thread could be started stays first in its queue.
            queue.popitem(last=False)
            if queue:
                self._queues.move_to_end(table)
            else:
                del self._queues[table]

    def _next_table(self) -> Hashable | None:
        """Return the table that gets the next thread; ``None`` if no table may."""
        if NO_TABLE in self._queues and self._may_take(NO_TABLE):
            return NO_TABLE
        if self._taken() >= self._at_most:
            return None
        # Any table without a thread may have one now, so the search is short.
        return next(filter(self._may_take, self._queues), None)

    def _may_take(self, table: Hashable) -> bool:
        """Whether a table may have another thread now; see the module."""
        held = self._held[table]
        if table == NO_TABLE:
            return held == 0
        taken = self._taken()
        if held == 0:
            return taken < self._at_most
        if held >= self._of_a_table:
            return False
        alone = all(other in (table, NO_TABLE) for other in (*self._held, *self._queues))
        return taken < (self._threads if alone else self._threads - LEFT_FREE)

    def _taken(self) -> int:
        """Return how many threads tables hold."""
        return self._held.total() - self._held[NO_TABLE]


def _run(task: _Task) -> Callable[[], None]:
    """Run a task; return the function that reports the outcome to its waiters."""
    if not task.done.set_running_or_notify_cancel():
        return _nothing
    try:
        return partial(task.done.set_result, task.work())
    except BaseException as exc:  # noqa: BLE001 - raised where the result is awaited
        return partial(task.done.set_exception, exc)
    finally:
        del task  # the error refers to this frame, which must not refer to the error


def _nothing() -> None:
    """Report nothing: the task was cancelled."""


WINDOW_S: Final = 300.0
"""Peaks are of this time, as the paper's (DH-HDFS, section 5)."""
READY_CPU_S: Final = 53e-6
"""CPU seconds of an answer that is ready, with its request."""
_STEP_S: Final = 10.0
"""Least time between two samples that are kept."""


class TableLoads:
    """CPU seconds a second by table, over the last ``WINDOW_S`` and at their peak.

    ``_lock`` guards the samples and the peaks. A table that is missing in a sample was closed. Its
    peak is forgotten, so it starts at zero if the table is opened again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: deque[tuple[float, Mapping[str, float]]] = deque()
        self._peaks: dict[str, float] = {}
        self._now: dict[str, float] = {}

    def note(self, now_s: float, cpu_s: Mapping[str, float]) -> None:
        """Take a sample.

        Args:
            now_s: A time that never goes back.
            cpu_s: Table → CPU seconds that its requests took so far; less than before means that
                it was closed meanwhile.
        """
        with self._lock:
            samples = self._samples
            if samples and now_s - samples[-1][0] < _STEP_S:
                return
            # One that is older stays, so that the first is at least as old as the window.
            while len(samples) > 1 and now_s - samples[1][0] >= WINDOW_S:
                samples.popleft()
            began_s, before = samples[0] if samples else (now_s, {})
            window_s = max(now_s - began_s, WINDOW_S)
            samples.append((now_s, dict(cpu_s)))
            self._now = {
                # The counter of a table that was closed meanwhile began at zero again.
                table: (total - (had if had <= total else 0.0)) / window_s
                for table, total in cpu_s.items()
                for had in [before.get(table, 0.0)]
            }
            self._peaks = {
                table: max(load, self._peaks.get(table, 0.0)) for table, load in self._now.items()
            }

    def figures(self, table: str) -> dict[str, Any]:
        """Return a table's load now and at its peak, in CPU seconds a second."""
        with self._lock:
            return {
                "cpu": round(self._now.get(table, 0.0), 6),
                "peak_cpu": round(self._peaks.get(table, 0.0), 6),
            }
