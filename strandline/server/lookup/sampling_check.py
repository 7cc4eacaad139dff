"""``SamplingCheck``: periodically compares one partition of one table with storage.

Views that are synced for weeks accumulate any error. So every ``interval_s`` seconds one loaded
partition, with the table's pending and replaced groups, is compared with storage at the same
instant (``fsview.check.partition_checker``): tables in turn, partitions at random. A difference is
counted and logged, and the table is reloaded.

The check has a thread of its own. It computes in slices of a fraction of a millisecond and waits
between them: a busy thread gives up the interpreter lock only every five milliseconds, which would
delay hot answers. Only the list call and reading the timeline aren't sliced, as in a load.
"""

from __future__ import annotations

import logging
import random
import threading
from typing import Final

from fsview.metrics import Metrics
from fsview.table_view import TableView
from fsview.view_manager import ViewManager
from timeline.errors import StrandlineError

logger = logging.getLogger(__name__)

CHECKS: Final = "checks"
"""Counter of checks, by table and outcome (equal, different, skipped, failed)."""

RELOAD_CAUSE: Final = "check-failed"
"""The cause that the reload after a difference is counted under."""

PAUSE_S: Final = 0.001
"""Wait between slices, in which other threads get the interpreter lock."""

JOIN_S: Final = 0.2
"""How long ``close`` waits for a check; one that hangs in storage ends with the process."""


class _EndedError(Exception):
    """The service stops during a check."""


class SamplingCheck:
    """The background check of one service; not thread-safe."""

    def __init__(
        self,
        views: ViewManager,
        metrics: Metrics,
        *,
        interval_s: float,
        rng: random.Random | None = None,
        ending: threading.Event | None = None,
    ) -> None:
        """Make a check that doesn't run until ``start``.

        Args:
            views: The tables.
            metrics: Counts the checks.
            interval_s: Between two checks; 0: never.
            rng: Chooses partitions.
            ending: The event that ends the waits between checks and slices; ``close`` sets it.
        """
        self._views = views
        self._metrics = metrics
        self._interval_s = interval_s
        self._rng = rng or random.Random()  # noqa: S311 - no secret
        self._ending = ending or threading.Event()
        self._thread: threading.Thread | None = None
        self._turn = 0

    def start(self) -> None:
        """Start the thread, which checks after each interval; no effect if that is 0."""
        if self._interval_s > 0:
            self._thread = threading.Thread(target=self._run, name="checks", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop; a check under way ends at its next slice."""
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
        """Check one partition of the next table that has one loaded, round-robin."""
        tables = self._views.open_tables()
        for _ in tables:
            table = tables[self._turn % len(tables)]
            self._turn += 1
            if self._checked(table):
                return

    def _checked(self, table: TableView) -> bool:
        """Check a partition if one is loaded; return whether one was. Failures are logged."""
        partition, lease = "", self._views.lease_of(table)
        if lease is None:  # it was closed meanwhile
            return False
        try:
            partitions = table.held_partitions()
            if not partitions:
                return False
            partition = self._rng.choice(partitions)
            self._check(table, partition)
        except _EndedError:
            raise
        except StrandlineError as error:
            if table.is_closed:  # its root was removed during the check
                return True
            self._count(table, "failed")
            logger.warning("%s: can't check partition %r: %s", table.table_id, partition, error)
        except Exception:  # the boundary of a thread, which must continue
            self._count(table, "failed")
            logger.exception("%s: unexpected error while checking", table.table_id)
        return True

    def _check(self, table: TableView, partition: str) -> None:
        checked = table.check(partition, self._pause)
        self._count(table, checked.outcome)
        if checked.outcome == "skipped":
            logger.debug("%s: partition %r not checked: %s", table.table_id, partition, checked.why)
        if checked.outcome == "different":
            logger.warning(
                "%s: the view differs from storage and is reloaded; partition %r: %s",
                table.table_id,
                partition,
                checked.differences,
            )
            self._reload(table)

    def _reload(self, table: TableView) -> None:
        try:
            table.reload(RELOAD_CAUSE)
        except StrandlineError as error:
            # The view was dropped, so no request is answered from it.
            logger.warning(
                "%s: can't reload, the next request tries again: %s", table.table_id, error
            )

    def _count(self, table: TableView, outcome: str) -> None:
        self._metrics.add(CHECKS, table=str(table.table_id), outcome=outcome)

    def _pause(self) -> None:
        if self._ending.wait(PAUSE_S):
            raise _EndedError
