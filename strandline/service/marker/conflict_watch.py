"""``ConflictDetector``: looks for early conflicts beside the requests, each directory by itself.

A request never waits for a look: it asks what the last one found. Looks run on threads of which a
table has its share, so that one whose storage hangs holds up no other; one more keeps the time.
Hudi's server has one such state for all tables, which every request of another writer resets.

A conflict stays one. A directory that nobody has asked about for ``IDLE_PERIODS`` periods isn't
looked at until somebody does.

Source: Hudi 1.2.0 ``AsyncTimelineServerBasedDetectionStrategy``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from strandline.service.marker.conflict_options import ConflictOptions
from timeline.clock import Clock
from timeline.errors import StrandlineError
from timeline.storage.table_id import TableId

logger = logging.getLogger(__name__)

IDLE_PERIODS: Final = 10
JOIN_S: Final = 0.2


class Check(Protocol):
    """One look at a directory; by one thread at a time."""

    def begin(self) -> None:
        """Learn what was before, the first time; later do nothing."""

    def run(self) -> str | None:
        """Return the conflict in words, or ``None``."""


class Pool(Protocol):
    """What looks run on, see ``TableThreads``."""

    def submit(self, table: TableId, work: Callable[[], None], /) -> object:
        """Run a look, soon; ``RuntimeError``: there is no thread for it."""

    def close(self) -> None:
        """Start nothing new."""


class ConflictWatch:
    """What is known of one directory. The detector's lock guards what only it touches.

    Attributes:
        conflict: The conflict in words, once there is one; it stays.
    """

    def __init__(
        self, detector: ConflictDetector, table: TableId, whose: str, check: Check
    ) -> None:
        self.conflict: str | None = None
        self.table = table
        self.whose = whose
        self.check = check
        self.asked_s = detector.now_s()
        self.first_s = self.asked_s + detector.options.initial_delay_s
        self.due_s = self.asked_s
        self.running = False
        self._detector = detector

    def ask(self) -> bool:
        """Whether there is a conflict; somebody wants to know, so go on looking. Never waits."""
        now_s = self._detector.now_s()
        slept, self.asked_s = self._detector.is_idle(self, now_s), now_s
        if slept:
            self._detector.wake()
        return self.conflict is not None

    def end(self) -> None:
        """Look no more."""
        self._detector.drop(self)


class ConflictDetector:
    """All watches of a service; its lock guards the set of them and when each is due."""

    def __init__(self, options: ConflictOptions, clock: Clock, *, pool: Pool) -> None:
        """Make a detector that looks only when ``run_due`` is called, until it is started.

        Args:
            options: When to look.
            clock: To time by.
            pool: Runs the looks; closed by ``close``.
        """
        self.options = options
        self._clock = clock
        self._pool = pool
        self._lock = threading.Lock()
        self._watches: set[ConflictWatch] = set()
        self._found = 0
        self._wake = threading.Event()
        self._ended = False
        self._thread: threading.Thread | None = None

    def watch(self, table: TableId, whose: str, check: Check) -> ConflictWatch:
        """Begin to look at a directory of a table, at first after the initial delay."""
        watch = ConflictWatch(self, table, whose, check)
        with self._lock:
            self._watches.add(watch)
        self.wake()
        return watch

    def drop(self, watch: ConflictWatch) -> None:
        """Look at a directory no more."""
        with self._lock:
            self._watches.discard(watch)

    def start(self) -> None:
        """Keep the time, in a thread."""
        self._thread = threading.Thread(target=self._keep_time, name="conflicts", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End; a look under way isn't waited for."""
        self._ended = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(JOIN_S)
        self._pool.close()

    def wake(self) -> None:
        """Have another look at what is due."""
        self._wake.set()

    def status(self) -> dict[str, int]:
        """Return how many directories are watched, and how many conflicts were found so far."""
        with self._lock:
            return {"watched": len(self._watches), "conflicts": self._found}

    def now_s(self) -> float:
        """Return the time, by a monotonic clock."""
        return self._clock.monotonic()

    def is_idle(self, watch: ConflictWatch, now_s: float) -> bool:
        """Whether nobody has asked about a directory for long."""
        return now_s - watch.asked_s > IDLE_PERIODS * self.options.period_s

    def run_due(self) -> float | None:
        """Have what is due looked at; return in how many seconds the next is, ``None``: none."""
        now_s = self.now_s()
        with self._lock:
            waiting = [w for w in self._watches if not w.running and not self.is_idle(w, now_s)]
            due = [watch for watch in waiting if watch.due_s <= now_s]
            for watch in due:
                watch.running = True
            later = [watch.due_s for watch in waiting if watch.due_s > now_s]
        for watch in due:
            try:
                self._pool.submit(watch.table, partial(self._look, watch))
            except RuntimeError as error:
                logger.warning("%s: no look for early conflicts: %s", watch.whose, error)
                with self._lock:
                    watch.running, watch.due_s = False, now_s + self.options.period_s
                    later.append(watch.due_s)
        return min(later) - now_s if later else None

    def _keep_time(self) -> None:
        while not self._ended:
            wait_s = self.run_due()
            self._wake.wait(wait_s)
            # What was added before this is seen by the next round, what comes later wakes it.
            self._wake.clear()

    def _look(self, watch: ConflictWatch) -> None:
        conflict = None
        try:
            watch.check.begin()
            if self.now_s() >= watch.first_s:
                conflict = watch.check.run()
        except StrandlineError as error:
            logger.warning("%s: no look for early conflicts: %s", watch.whose, error)
        except Exception:  # the next look must come, and somebody hear of it
            logger.exception("%s: unforeseen error in a look for early conflicts", watch.whose)
        if conflict is not None:
            logger.warning("%s: early conflict, its markers are refused: %s", watch.whose, conflict)
        now_s = self.now_s()
        with self._lock:
            watch.running = False
            watch.due_s = watch.first_s if now_s < watch.first_s else now_s + self.options.period_s
            if conflict is not None:
                watch.conflict = conflict
                self._watches.discard(watch)
                self._found += 1
        self.wake()
