"""The cleaner's retention policy and its settings.

``KEEP_LATEST_COMMITS`` keeps the file slices that a reader at any of the last ``n`` completed write
instants needs: in every file group the slices that began in that window, and the last one before
it. The history is bounded by the number of commits, not of file versions.

Source: Hudi 1.2.0 ``CleanerUtils.getEarliestCommitToRetain``, ``HoodieCleanConfig``.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from strandline.settings.setting import Setting, Settings, declared
from timeline.instant import CLEAN, WRITE_ACTIONS, Instant
from timeline.timeline import Timeline

KEEP_LATEST_COMMITS: Final = "KEEP_LATEST_COMMITS"

AUTOMATIC: Final = Setting(
    "hoodie.clean.automatic",
    True,
    "Whether each write is followed by a clean.",
    "client",
)
POLICY: Final = Setting(
    "hoodie.clean.policy",
    KEEP_LATEST_COMMITS,
    "Retention policy; this release has one of Hudi's.",
    "client",
    allowed=(KEEP_LATEST_COMMITS,),
)
RETAINED: Final = Setting(
    "hoodie.clean.commits.retained",
    10,
    "Number of completed write instants that stay readable.",
    "client",
    minimum=1,
)
MAX_COMMITS: Final = Setting(
    "hoodie.clean.trigger.max.commits",
    1,
    "Number of write instants that must complete after a clean before the next one is planned.",
    "client",
    minimum=1,
)
PARALLELISM: Final = Setting(
    "hoodie.clean.parallelism",
    8,
    "Number of files deleted at a time, by threads of the driver. Hudi's default is 200 tasks of"
    " the cluster.",
    "client",
    unit="threads",
    minimum=1,
    maximum=256,
)

CLEAN_SETTINGS: Final = declared(globals())
"""All settings of this module."""


@dataclass(frozen=True, slots=True)
class CleanSettings:
    """Values of the cleaner's settings.

    Attributes:
        automatic: Whether each write is followed by a clean.
        retained: Number of completed write instants that stay readable, at least 1.
        max_commits: Number of write instants between two cleans, at least 1.
        parallelism: Number of files deleted at a time.
    """

    automatic: bool = True
    retained: int = 10
    max_commits: int = 1
    parallelism: int = 8

    @classmethod
    def of(cls, values: Settings) -> CleanSettings:
        """Return the cleaner's part of parsed options."""
        return cls(
            values.get(AUTOMATIC),
            values.get(RETAINED),
            values.get(MAX_COMMITS),
            values.get(PARALLELISM),
        )


def earliest_to_retain(timeline: Timeline, retained: int) -> Instant | None:
    """Return the earliest instant to retain: the oldest one that must stay readable.

    It is the ``retained``-th newest completed write instant, but never later than a pending one.

    Args:
        timeline: The active timeline, instants of any state.
        retained: Number of completed write instants to keep, at least 1.

    Returns:
        A completed write instant; ``None`` if there is nothing to clean yet.
    """
    writes = timeline.write_timeline()
    completed = writes.completed()
    if len(completed) <= retained:
        return None
    earliest = completed[len(completed) - retained]
    # The files that a pending write reads, and those that it will replace, must stay.
    pending = writes.pending().first
    if pending is None or earliest.requested_time <= pending.requested_time:
        return earliest
    return completed.filter(lambda i: i.requested_time < pending.requested_time).last


def is_due(timeline: Timeline, max_commits: int) -> bool:
    """Whether at least ``max_commits`` write instants completed since the last clean."""
    last = last_clean(timeline)
    since = "" if last is None else last.requested_time
    first = bisect_left(timeline.instants, since, key=attrgetter("requested_time"))
    later = (i for i in timeline.instants[first:] if i.action in WRITE_ACTIONS and i.is_completed)
    return sum(instant.requested_time > since for instant in later) >= max_commits


def last_clean(timeline: Timeline) -> Instant | None:
    """Return the last completed clean; ``None`` if there is none."""
    cleans = (i for i in reversed(timeline.instants) if i.action == CLEAN and i.is_completed)
    return next(cleans, None)
