"""``AsyncCompactor`` executes planned compactions on a thread of its own, beside the writes.

Writes plan compactions; the thread executes all that are planned, the oldest first. It has a client
of its own, with another view, lock object and counters. Writes to the same file groups go on: their
logs belong to the slices that the compactions begin. If a compaction fails, or its process ends,
its plan stays: the next execution undoes what is left, and executes the plan again.

Source: Hudi 1.2.0 ``AsyncCompactService``. Unlike there, an error doesn't end the stream.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Final

from strandline.table_services.compact.planner import CompactionResult
from strandline.write.client import WriteClient
from timeline.errors import StrandlineError
from timeline.threads import JoinedThread

logger = logging.getLogger(__name__)

CLOSE_S: Final = 300.0
"""How long closing waits for a compaction."""

_END_S: Final = 1.0
"""How long closing waits for a thread whose compaction has ended."""

Beside = Callable[[Callable[[], None]], Callable[[], None]]
"""Prepares a call for another thread, as ``EngineContext.beside``."""


@dataclass(frozen=True, slots=True)
class AsyncCompaction:
    """A run of the thread that has ended.

    Attributes:
        result: The result of its last compaction; ``None`` if nothing was planned, or others work
            on it.
        error: Why it failed, if it did, perhaps after compactions had ended; what is still planned
            is executed by the next run.
        left: Requested times of the compactions that are still planned: others work on them, or
            they were planned meanwhile.
    """

    result: CompactionResult | None
    error: BaseException | None = None
    left: tuple[str, ...] = ()


class AsyncCompactor:
    """Executes the planned compactions of one table; used by one thread at a time.

    Args:
        open_client: Opens the thread's client, at its first run.
        beside: Prepares a run for its thread.
        close_s: As ``CLOSE_S``.
    """

    def __init__(
        self, open_client: Callable[[], WriteClient], beside: Beside, close_s: float = CLOSE_S
    ) -> None:
        self._open_client = open_client
        self._beside = beside
        self._close_s = close_s
        self._thread: JoinedThread | None = None
        self._ended: SimpleQueue[AsyncCompaction] = SimpleQueue()
        # Used by the thread, and by ``close`` once that has ended.
        self._client: WriteClient | None = None
        self._stopped = threading.Event()

    @property
    def is_running(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and not self._thread.join(0)

    def start(self) -> None:
        """Execute what is planned; the caller has checked that nothing runs.

        Raises:
            RuntimeError: No thread could be started; nothing is compacted.
        """
        found: list[AsyncCompaction] = []
        call = self._beside(lambda: found.append(self._compacted()))

        def run() -> None:
            try:
                call()
            except BaseException as error:  # noqa: BLE001 - the next batch reports it
                logger.warning("a compaction beside the stream failed; it is repeated: %r", error)
                found[:] = [AsyncCompaction(None, error)]
            self._ended.put(found[0])
            if self._stopped.is_set():
                self._release()

        # Assigned first: a caller that is interrupted in between still waits for it.
        self._thread = JoinedThread(run, "strandline-async-compaction")
        self._thread.start()

    def take(self) -> tuple[AsyncCompaction, ...]:
        """Return the runs that have ended since the last call; never wait."""
        ended = []
        while True:
            try:
                ended.append(self._ended.get_nowait())
            except Empty:
                return tuple(ended)

    def close(self) -> None:
        """Wait for a run that has begun, and release its client.

        If the run takes too long, this returns nevertheless, and the thread goes on while the
        process lives.
        """
        thread, has_ended = self._thread, False
        try:
            has_ended = thread is None or thread.join(self._close_s)
        finally:
            # After an interrupt, too. From here on the thread releases what it uses.
            self._stopped.set()
        # It may have looked right before, and be about to end.
        if has_ended or (thread is not None and thread.join(_END_S)):
            self._release()
        else:
            logger.warning("a compaction still runs after %g s, and goes on", self._close_s)

    def _compacted(self) -> AsyncCompaction:
        if self._client is None:
            self._client = self._open_client()
        done = self._client.compact_planned()
        try:
            left = self._client.planned_compactions()
        except StrandlineError as error:
            return AsyncCompaction(done, error)
        return AsyncCompaction(done, left=left)

    def _release(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()
