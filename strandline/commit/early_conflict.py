"""Early detection of conflicts by direct markers: tasks search for concurrent writes themselves.

With markers of the timeline service, the service searches (``strandline.server.marker.conflict``,
which has the rules for both). In doubt no conflict is reported: the commit decides.

Source: Hudi 1.2.0 ``SimpleDirectMarkerBasedDetectionStrategy``,
``SimpleTransactionDirectMarkerBasedDetectionStrategy``.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from strandline.commit.conflict import REPEAT
from strandline.server.marker.conflict import ConflictCheck, ConflictOptions
from timeline.clock import Clock
from timeline.errors import StrandlineError, WriteConflictError
from timeline.instant import Instant
from timeline.storage.base import Storage

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EarlyConflicts:
    """How a write's tasks search for conflicts; pickles.

    Attributes:
        options: What counts as a conflict, and when a heartbeat has expired.
        before: The instants that had completed when the write began.
        clock: Measures the age of heartbeats.
    """

    options: ConflictOptions
    before: frozenset[Instant]
    clock: Clock

    def refuse(self, storage: Storage, instant: str, names: Sequence[str]) -> None:
        """Raise if another write also has markers for the file groups of this write's markers.

        Raises:
            WriteConflictError: One of them is.

        Cost: ``ConflictCheck.run``.
        """
        check = ConflictCheck(
            storage, instant, lambda: names, self.options, self.clock, before=self.before
        )
        try:
            found = check.run()
        except StrandlineError as error:
            logger.warning("can't check for early conflicts of %s: %s", instant, error)
            return
        if found is not None:
            raise early_conflict(storage, instant, found)


def early_conflict(storage: Storage, instant: str, reason: str) -> WriteConflictError:
    """Return the error of a write that is abandoned before its commit."""
    return WriteConflictError(
        f"commit {instant} of {storage.base_path} conflicts with another writer, by its markers:"
        f" {reason}",
        hint=REPEAT,
    )
