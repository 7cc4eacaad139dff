"""The sampling check: now and then, one partition of one table compared with storage.

A view that is followed for weeks is only as good as what it was told. So every ``interval_s``
seconds one loaded partition, and the table's pending and replaced groups with it, is compared with
what lies on storage at the same instant (``fsview.check.partition_checker``): tables in turn,
partitions by chance. A difference is counted, logged once, and the table is loaded anew.

It runs in a thread of its own and nothing of it on the loop. Its computing is cut into slices of a
fraction of a millisecond with a wait between them: a second busy thread would otherwise hold the
interpreter for five milliseconds at each hand-over, and hot answers with it. What isn't cut is what
a load does, too: the list call, and reading the timeline.
"""

from __future__ import annotations

import logging
import random
import threading
from typing import Final, Protocol

from fsview.metrics import Metrics
from fsview.table_view import TableView
from fsview.view_manager import ViewManager
from timeline.errors import StrandlineError

logger = logging.getLogger(__name__)

CHECKS: Final = "checks"
"""The counter of checks, by table and outcome (equal, different, skipped, failed)."""

RELOAD_CAUSE: Final = "check-failed"
"""What the reload after a difference is counted under."""

PAUSE_S: Final = 0.001
"""Between slices: long enough that whoever waits for the interpreter gets it."""

JOIN_S: Final = 0.2
"""How long the end waits for a check under way; one that hangs in storage ends with the process."""


class Waiter(Protocol):
    """What the thread waits by; a ``threading.Event`` that is set at the end."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most ``timeout`` seconds; return whether it is."""

    def set(self) -> None:
        """End all waiting, now and from now on."""


class _EndedError(Exception):
    """The service ends in the midst of a check."""


class SamplingCheck:
    """The background check of one service; ``check_next`` is called by one thread at a time."""

    def __init__(
        self,
        views: ViewManager,
        metrics: Metrics,
        *,
        interval_s: float,
        rng: random.Random | None = None,
        ending: Waiter | None = None,
    ) -> None:
        """Make a check that doesn't run yet.

        Args:
            views: The tables.
            metrics: Where to count.
            interval_s: Between two checks, seconds; 0: never.
            rng: Chooses partitions.
            ending: Waited on between checks and slices, and set at the end.
        """
        self._views = views
        self._metrics = metrics
        self._interval_s = interval_s
        # Which partition comes next is no secret.
        self._rng = rng or random.Random()  # noqa: S311
        self._ending: Waiter = ending or threading.Event()
        self._thread: threading.Thread | None = None
        self._turn = 0

    def start(self) -> None:
        """Begin to check, the first time after one interval; does nothing if that is 0."""
        if self._interval_s > 0:
            self._thread = threading.Thread(target=self._run, name="checks", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End: what is under way is broken off at its next slice."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(JOIN_S)

    def _run(self) -> None:
        while not self._ending.wait(self._interval_s):
            try:
                self.check_next()
            except _EndedError:
                return

    def check_next(self) -> None:
        """Check one partition of the next table in turn that has one loaded."""
        tables = self._views.open_tables()
        for _ in tables:
            table = tables[self._turn % len(tables)]
            self._turn += 1
            if self._checked(table):
                return

    def _checked(self, table: TableView) -> bool:
        """Check a partition, if one is loaded; return whether. Failing is counted and logged."""
        partition = ""
        try:
            partitions = table.held_partitions()
            if not partitions:
                return False
            partition = self._rng.choice(partitions)
            self._check(table, partition)
        except _EndedError:
            raise
        except StrandlineError as error:
            self._count(table, "failed")
            logger.warning(
                "partition %r of %s could not be checked: %s", partition, table.table_id, error
            )
        except Exception:  # the thread must live on, and somebody hear of it
            self._count(table, "failed")
            logger.exception("unforeseen error in a check of %s", table.table_id)
        return True

    def _check(self, table: TableView, partition: str) -> None:
        checked = table.check(partition, self._pause)
        self._count(table, checked.outcome)
        if checked.outcome == "skipped":
            logger.debug("%s: partition %r not checked: %s", table.table_id, partition, checked.why)
        if checked.outcome == "different":
            logger.warning(
                "%s isn't held as it lies on storage and is loaded anew; found at partition %r: %s",
                table.table_id,
                partition,
                checked.differences,
            )
            self._reload(table)

    def _reload(self, table: TableView) -> None:
        try:
            table.reload(RELOAD_CAUSE)
        except StrandlineError as error:
            # Nobody is answered from what was held; the next request tries again.
            logger.warning("%s could not be loaded anew yet: %s", table.table_id, error)

    def _count(self, table: TableView, outcome: str) -> None:
        self._metrics.add(CHECKS, table=str(table.table_id), outcome=outcome)

    def _pause(self) -> None:
        if self._ending.wait(PAUSE_S):
            raise _EndedError
