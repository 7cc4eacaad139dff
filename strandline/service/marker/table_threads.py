"""``TableThreads``: threads for work on many tables, of which a hanging one takes only a few.

A table whose storage hangs doesn't give its threads back, and a client chooses how many directories
of it are to be worked on. So a table has at most ``OF_A_TABLE`` threads at once; what is more waits
in the table's own queue, of at most ``QUEUED``. There are threads for ``TABLES`` that hang.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from timeline.storage.table_id import TableId

T = TypeVar("T")

OF_A_TABLE: Final = 8
TABLES: Final = 16
"""Tables that may hang before another gets no thread, as with other requests."""
QUEUED: Final = 1000


class _Share:
    """What of a table is being worked on.

    Attributes:
        workers: One for each thread that it has, or was promised.
        queue: What no worker has begun; empty without workers.
    """

    def __init__(self) -> None:
        self.workers: set[object] = set()
        self.queue: deque[tuple[Callable[[], None], Callable[[], bool]]] = deque()


class TableThreads:
    """Threads of which no table takes more than its share; the lock guards the shares.

    Threads are started as they are needed.
    """

    def __init__(self, name: str) -> None:
        """Start no thread yet; they will go by a name and a number."""
        self._pool = ThreadPoolExecutor(OF_A_TABLE * TABLES, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._shares: dict[TableId, _Share] = {}
        self._ended = False

    def submit(self, table: TableId, work: Callable[[], T]) -> Future[T]:
        """Have work on a table done as soon as it has a thread for it; never waits.

        Raises:
            RuntimeError: There is no thread to be had, too much waits already, or it is the end.
        """
        done: Future[T] = Future()
        task = partial(_run, work, done), done.cancel
        worker = object()
        with self._lock:
            if self._ended:
                raise RuntimeError("it is the end")
            share = self._shares.setdefault(table, _Share())
            if len(share.queue) >= QUEUED:
                raise RuntimeError(f"{QUEUED} pieces of work on the table wait already")
            share.queue.append(task)
            if len(share.workers) == OF_A_TABLE:
                return done
            share.workers.add(worker)
        try:
            self._pool.submit(self._work, table, worker)
        except RuntimeError:
            with self._lock:
                share.workers.discard(worker)
                if share.workers or task not in share.queue:
                    return done  # another worker does it
                del self._shares[table]
            raise
        return done

    def shutdown(self, *, finish: bool) -> None:
        """Take no more work.

        Args:
            finish: Whether what was taken is done, and waited for; else what hasn't begun is
                cancelled.
        """
        with self._lock:
            self._ended = True
            waiting = [cancel for share in self._shares.values() for _, cancel in share.queue]
        if not finish:
            for cancel in waiting:
                cancel()
        self._pool.shutdown(wait=finish)

    def _work(self, table: TableId, worker: object) -> None:
        """Do what waits of a table, until nothing does."""
        while (run := self._next(table, worker)) is not None:
            run()
            del run  # what it failed with refers to it

    def _next(self, table: TableId, worker: object) -> Callable[[], None] | None:
        with self._lock:
            share = self._shares.get(table)
            # A thread may come for a worker that was given up, as it seemed there was none.
            if share is None or worker not in share.workers:
                return None
            if share.queue:
                return share.queue.popleft()[0]
            share.workers.discard(worker)
            if not share.workers:
                del self._shares[table]
            return None


def _run(work: Callable[[], T], done: Future[T]) -> None:
    if not done.set_running_or_notify_cancel():
        return
    try:
        done.set_result(work())
    except BaseException as exc:  # noqa: BLE001 - handed to who waits
        done.set_exception(exc)
    finally:
        del work, done  # or the error would refer to itself through this frame
