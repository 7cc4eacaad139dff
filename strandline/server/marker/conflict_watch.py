"""``ConflictDetector``: checks marker directories for early conflicts in the background.

Requests never wait for a check: they read the result of the last one. Checks run on a pool in which
a table has a bounded share, so a table whose storage hangs delays no other; one more thread
schedules them. Each directory has its own state. Hudi's server has one state for all tables, which
every request of another writer resets.

A conflict is final. A directory that hasn't been asked about for ``IDLE_PERIODS`` periods isn't
checked until it is.

Source: Hudi 1.2.0 ``AsyncTimelineServerBasedDetectionStrategy``.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import Final, Protocol

from strandline.server.marker.conflict import ConflictOptions
from strandline.server.table_threads import TableThreads
from timeline.clock import Clock
from timeline.errors import StrandlineError
from timeline.storage.table_id import TableId

logger = logging.getLogger(__name__)

IDLE_PERIODS: Final = 10


class DirectoryCheck(Protocol):
    """The check of one directory; one thread at a time calls it."""

    def begin(self) -> None:
        """Record the completed instants, on the first call."""

    def run(self) -> str | None:
        """Return a description of the conflict, or ``None``."""


class ConflictWatch:
    """The state of one directory; the detector's lock guards ``running`` and ``due_s``.

    Attributes:
        conflict: A description of the conflict once there is one; never reset.
        asked_s: When ``ask`` was last called, monotonic seconds.
        first_s: When the initial delay is over.
        due_s: When the next check is due.
        running: Whether a check is queued or under way.
    """

    def __init__(
        self, detector: ConflictDetector, table: TableId, label: str, check: DirectoryCheck
    ) -> None:
        self.conflict: str | None = None
        self.table = table
        self.label = label
        self.check = check
        self.asked_s = detector.clock.monotonic()
        self.first_s = self.asked_s + detector.options.initial_delay_s
        self.due_s = self.asked_s
        self.running = False
        self._detector = detector

    def ask(self) -> bool:
        """Whether a conflict was found; keeps the checks going and never waits."""
        now_s = self._detector.clock.monotonic()
        was_idle, self.asked_s = self._detector.is_idle(self, now_s), now_s
        # The scheduling thread skips idle watches, so it may wait without a limit.
        if was_idle:
            self._detector.wake()
        return self.conflict is not None

    def end(self) -> None:
        """Stop the checks."""
        self._detector.drop(self)


class ConflictDetector:
    """All watches of a service; ``_lock`` guards the set of watches and when each is due."""

    def __init__(self, options: ConflictOptions, clock: Clock, *, pool: TableThreads) -> None:
        """Make a detector that checks on ``pool``, only in ``run_due`` until ``start``."""
        self.options = options
        self.clock = clock
        self._pool = pool
        self._lock = threading.Lock()
        self._watches: set[ConflictWatch] = set()
        self._found = 0
        self._wake = threading.Event()
        self._ended = False

    def watch(self, table: TableId, label: str, check: DirectoryCheck) -> ConflictWatch:
        """Watch a directory of a table, which log messages call ``label``."""
        watch = ConflictWatch(self, table, label, check)
        with self._lock:
            self._watches.add(watch)
        self.wake()
        return watch

    def drop(self, watch: ConflictWatch) -> None:
        """Forget a watch."""
        with self._lock:
            self._watches.discard(watch)

    def start(self) -> None:
        """Start the thread that schedules checks."""
        threading.Thread(target=self._schedule, name="conflicts", daemon=True).start()

    def close(self) -> None:
        """Stop; checks under way aren't waited for."""
        self._ended = True
        self._wake.set()
        self._pool.close()

    def wake(self) -> None:
        """Have the scheduling thread search again for due checks."""
        self._wake.set()

    def status(self) -> dict[str, int]:
        """Return how many directories are watched, and how many conflicts were found so far."""
        with self._lock:
            return {"watched": len(self._watches), "conflicts": self._found}

    def is_idle(self, watch: ConflictWatch, now_s: float) -> bool:
        """Whether a watch hasn't been asked for ``IDLE_PERIODS`` periods."""
        return now_s - watch.asked_s > IDLE_PERIODS * self.options.period_s

    def run_due(self) -> float | None:
        """Submit the checks that are due; return the seconds to the next, ``None`` without one."""
        now_s = self.clock.monotonic()
        with self._lock:
            waiting = [w for w in self._watches if not w.running and not self.is_idle(w, now_s)]
            due = [watch for watch in waiting if watch.due_s <= now_s]
            for watch in due:
                # Before ``submit``: when it returns, the check may have ended and reset this.
                watch.running = True
            later = [watch.due_s for watch in waiting if watch.due_s > now_s]
        for watch in due:
            try:
                self._pool.submit(watch.table, partial(self._check, watch))
            except RuntimeError as error:
                # The table's queue is full, or there is no thread: it is tried again in a period.
                logger.warning("%s: can't check for early conflicts: %s", watch.label, error)
                with self._lock:
                    watch.running, watch.due_s = False, now_s + self.options.period_s
                    later.append(watch.due_s)
        return min(later) - now_s if later else None

    def _schedule(self) -> None:
        while not self._ended:
            wait_s = self.run_due()
            self._wake.wait(wait_s)
            # A watch added before this is seen by the next round; one added later sets it again.
            self._wake.clear()

    def _check(self, watch: ConflictWatch) -> None:
        conflict = None
        try:
            # During the initial delay, too: what completes after this counts as concurrent.
            watch.check.begin()
            if self.clock.monotonic() >= watch.first_s:
                conflict = watch.check.run()
        except StrandlineError as error:
            logger.warning("%s: can't check for early conflicts: %s", watch.label, error)
        except Exception:  # the boundary of a thread: the next check must still come
            logger.exception("%s: unexpected error while checking for early conflicts", watch.label)
        if conflict is not None:
            logger.warning("%s: early conflict, its markers are refused: %s", watch.label, conflict)
        now_s = self.clock.monotonic()
        with self._lock:
            watch.running = False
            watch.due_s = watch.first_s if now_s < watch.first_s else now_s + self.options.period_s
            if conflict is not None:
                watch.conflict = conflict
                self._watches.discard(watch)
                self._found += 1
        # Nothing else may have been due, so the scheduling thread may wait without a limit.
        self.wake()
