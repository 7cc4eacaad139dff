"""The random walks of real Hudi on merge-on-read tables whose rows both readers read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.oracle.hudi import HUDI, HUDI_0
from tests.oracle.view.walk import BUCKETS, MERGE_ON_READ, Walk

_MODE: Final = "hoodie.write.record.merge.mode"
EVENT: Final = {_MODE: "EVENT_TIME_ORDERING"}
COMMIT: Final = {_MODE: "COMMIT_TIME_ORDERING"}
OLD_EVENT: Final = {
    "hoodie.datasource.write.payload.class": (
        "org.apache.hudi.common.model.DefaultHoodieRecordPayload"
    )
}


@dataclass(frozen=True)
class RowsWalk(Walk):
    """One walk.

    Attributes:
        has_late_rows: Whether a row's time may be before that of one written earlier.
        has_partial_updates: Whether ``MERGE INTO`` changes some columns alone; the walk then often
            goes back to savepoints, too.
    """

    has_late_rows: bool = True
    has_partial_updates: bool = False


def _walk(name: str, seed: int, version: int, options: dict[str, str], **more: bool) -> RowsWalk:
    return RowsWalk(name, seed, 25, version, MERGE_ON_READ, options, **more)


WALKS: Final = {
    HUDI: (
        _walk("version 6, event time", 126, 6, EVENT),
        _walk("version 6, commit time, buckets", 136, 6, COMMIT | BUCKETS),
        _walk("version 8, event time, buckets", 18, 8, EVENT | BUCKETS),
        _walk("version 8, commit time", 28, 8, COMMIT),
        _walk("version 9, event time", 19, 9, EVENT),
        _walk("version 9, commit time", 29, 9, COMMIT),
        _walk("version 9, partial updates", 40, 9, EVENT, has_partial_updates=True),
        _walk("version 8, partial updates", 48, 8, COMMIT, has_partial_updates=True),
    ),
    HUDI_0: (
        _walk("0.15.0, event time", 15, 6, OLD_EVENT),
        # Its payload by default compares the times of records within logs, unlike 1.2.0's.
        _walk("0.15.0 by default", 25, 6, {}, has_late_rows=False),
    ),
}
"""Release → its walks; together they are 250 steps."""

REFUSED: Final = 0.25
"""The share of steps that Hudi may refuse, else a walk goes nowhere."""
ANSWERED: Final = 0.5
"""The share of reads of earlier times, and of ranges, that Hudi must answer."""
