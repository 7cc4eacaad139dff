"""What the cleaner keeps, and the settings that say so.

``KEEP_LATEST_COMMITS`` keeps, of every file group, what a reader of any of the last ``n``
completed write instants needs: the slices that began in that window, and the one before it, which
the oldest of those readers reads. So does the number of commits, not of file versions, bound the
history.

Source: Hudi 1.2.0 ``CleanerUtils.getEarliestCommitToRetain``, ``HoodieCleanConfig``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from strandline.settings.setting import Setting, Settings
from timeline.instant import CLEAN, Instant
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
    "What the cleaner keeps. Of Hudi's policies this release has KEEP_LATEST_COMMITS.",
    "client",
    allowed=(KEEP_LATEST_COMMITS,),
)
OLD_POLICY: Final = Setting(
    "hoodie.cleaner.policy",
    KEEP_LATEST_COMMITS,
    "The name that hoodie.clean.policy had before Hudi 1.0.",
    "client",
    allowed=(KEEP_LATEST_COMMITS,),
)
RETAINED: Final = Setting(
    "hoodie.clean.commits.retained",
    10,
    "How many completed write instants readers can still read at.",
    "client",
    minimum=1,
)
OLD_RETAINED: Final = Setting(
    "hoodie.cleaner.commits.retained",
    10,
    "The name that hoodie.clean.commits.retained had before Hudi 1.0.",
    "client",
    minimum=1,
)
MAX_COMMITS: Final = Setting(
    "hoodie.clean.trigger.max.commits",
    1,
    "How many write instants must have completed since the last clean before the next is planned.",
    "client",
    minimum=1,
)
PARALLELISM: Final = Setting(
    "hoodie.clean.parallelism",
    8,
    "Files deleted at a time. Hudi's default is 200 tasks of the cluster; ours are the driver's"
    " threads.",
    "client",
    unit="threads",
    minimum=1,
    maximum=256,
)

CLEAN_SETTINGS: Final[tuple[Setting[Any], ...]] = (
    AUTOMATIC,
    POLICY,
    OLD_POLICY,
    RETAINED,
    OLD_RETAINED,
    MAX_COMMITS,
    PARALLELISM,
)
"""What the cleaner can be told."""


@dataclass(frozen=True, slots=True)
class CleanSettings:
    """The cleaner's settings as values.

    Attributes:
        automatic: Whether each write is followed by a clean.
        retained: Completed write instants to keep readable, at least 1.
        max_commits: Write instants to wait for between two cleans, at least 1.
        parallelism: Files deleted at a time.
    """

    automatic: bool = True
    retained: int = 10
    max_commits: int = 1
    parallelism: int = 8

    @classmethod
    def parse(cls, options: Mapping[str, object]) -> CleanSettings:
        """Read a writer's options; those of others are ignored, new names go before old ones.

        Raises:
            ConfigError: A value isn't allowed, or it asks for a policy that this release hasn't.
        """
        settings = Settings.parse(options, CLEAN_SETTINGS)
        retained = RETAINED if settings.is_set(RETAINED) else OLD_RETAINED
        return cls(
            settings.get(AUTOMATIC),
            settings.get(retained),
            settings.get(MAX_COMMITS),
            settings.get(PARALLELISM),
        )


def earliest_to_retain(timeline: Timeline, retained: int) -> Instant | None:
    """Return the oldest instant at which readers must still be able to read.

    It is the ``retained``-th newest completed write instant, but never one after a write instant
    that is pending: what that one reads, or is going to replace, must stay too.

    Args:
        timeline: The active timeline, instants of any state.
        retained: How many completed write instants to keep, at least 1.

    Returns:
        A completed write instant; ``None`` when there is nothing to clean yet.
    """
    writes = timeline.write_timeline()
    completed = writes.completed()
    if len(completed) <= retained:
        return None
    earliest = completed[len(completed) - retained]
    pending = writes.pending().first
    if pending is None or earliest.requested_time <= pending.requested_time:
        return earliest
    return completed.filter(lambda i: i.requested_time < pending.requested_time).last


def is_due(timeline: Timeline, max_commits: int) -> bool:
    """Whether enough write instants completed since the last clean was planned."""
    last = timeline.filter(lambda instant: instant.action == CLEAN).completed().last
    since = "" if last is None else last.requested_time
    writes = timeline.write_timeline().completed()
    return sum(instant.requested_time > since for instant in writes) >= max_commits
