"""``InstantRange``: a range of commits; and whether some of them were archived.

Commits are ordered by completion time from table version 8 on, and by requested time in version 6.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from strandline.read.state.pin import instant_time
from strandline.read.state.slice_source import NEWEST
from timeline.archive.archived_timeline import ArchivedTimeline
from timeline.clock import format_instant_time, parse_instant_time
from timeline.errors import InputError
from timeline.instant import WRITE_ACTIONS, Instant
from timeline.meta_client import TableMetaClient
from timeline.table.config import TableConfig
from timeline.timeline import Timeline

EARLIEST: Final = ("earliest", "000")
"""Values by which Hudi's users begin a range with the first commit."""

_DAY_MS: Final = 24 * 60 * 60 * 1000
_TICK_MS: Final = 1000
"""Object stores round modification times down to seconds."""


@dataclass(frozen=True, slots=True)
class InstantRange:
    """A half-open range of commits, (since, until].

    Attributes:
        since: The time after which it begins; ``""`` for all commits, archived ones too.
        until: The time with which it ends; ``None`` for the newest commit.
        by_completion: Whether commits are ordered by completion time, else by requested time.
    """

    since: str
    until: str | None
    by_completion: bool

    @classmethod
    def of(cls, since: Any, until: Any, config: TableConfig) -> InstantRange:
        """Return the range for a caller's arguments.

        Args:
            since: A time as in ``instant_time``, or one of ``EARLIEST``.
            until: A time; ``None`` for the newest commit.
            config: The table's properties.

        Raises:
            InputError: A time is invalid, or ``since`` is after ``until``.
        """
        begin = ""
        if not isinstance(since, str) or since.lower() not in EARLIEST:
            begin = instant_time(since, config.timezone, "since")
        end = None if until is None else instant_time(until, config.timezone, "until")
        if end is not None and begin > end:
            raise InputError(f"since {begin} is after until {end}; allowed: the same, or before")
        return cls(begin, end, config.layout_version > 1)

    def place(self, instant: Instant) -> str:
        """Return the time by which a completed instant is ordered."""
        by_completion = self.by_completion and instant.completion_time
        return by_completion or instant.requested_time

    def commits_of(self, timeline: Timeline) -> tuple[Instant, ...]:
        """Return the completed writes of the range on a timeline."""
        end = NEWEST if self.until is None else self.until
        writes = timeline.write_timeline().completed()
        return tuple(i for i in writes if self.since < self.place(i) <= end)


def refuse_archived(meta: TableMetaClient, timeline: Timeline, span: InstantRange) -> None:
    """Refuse a range if any of its commits were archived.

    Args:
        meta: The table.
        timeline: The active timeline at the end of the range.
        span: The range.

    Raises:
        InputError: Some were archived; the message names the last one.
        CorruptMetadataError: The archive can't be read.

    Cost: as in ``strandline.read.state.incremental.pin_range``.
    """
    archived = _newest_archived(meta, timeline, span)
    if span.since < archived:
        raise InputError(
            f"since {span.since} is before {archived}, the earliest after which no commit of"
            f" {meta.storage.base_path} was archived",
            hint="'earliest' gives the rows of all commits; writers archive less with a greater"
            " hoodie.keep.min.commits",
        )


def _newest_archived(meta: TableMetaClient, timeline: Timeline, span: InstantRange) -> str:
    """Return the time of the last archived commit of a range; ``""`` if none was archived.

    Older commits may still be on the timeline, kept by savepoints that may since be deleted.
    """
    archive: ArchivedTimeline
    if not span.by_completion:
        archive = meta.archived_timeline(modified_ms=_archived_after_ms(meta, timeline, span.since))
    elif any(t > span.since for t in _late_completions(meta, span.since)):
        archive = meta.archived_timeline()
    else:
        return ""
    end = NEWEST if span.until is None else span.until
    places = (
        span.place(i)
        for i in archive.timeline
        # Archiving copies an instant before it deletes it, and may stop in between.
        if i.is_completed
        and i.action in WRITE_ACTIONS
        and timeline.completion_time(i.requested_time) is None
    )
    return max((place for place in places if place <= end), default="")


def _archived_after_ms(meta: TableMetaClient, timeline: Timeline, since: str) -> int:
    """Return a lower bound of the modification times of archive files (layout 1) with later writes.

    Returns:
        The earliest possible time of a file with a write after ``since``, in milliseconds since the
        epoch.
    """
    zone = meta.config.timezone
    before = timeline.write_timeline().completed().filter(lambda i: i.requested_time <= since).last
    try:
        asked = parse_instant_time(since, zone)
        if before is None:  # a day of tolerance for clocks, and for writers in other zones
            return asked - _DAY_MS
        # No instant later than a write is archived before the write completes. Times are those of
        # the storage's clock, or ``since`` if that is earlier: a copy of a table has new times.
        completed = parse_instant_time(before.completion_time or since, zone)
    except ValueError:  # digits that aren't a time
        return 0
    return min(asked, completed) - _TICK_MS


def _late_completions(meta: TableMetaClient, since: str) -> Iterable[str]:
    """Return the completion times of archived instants that may have completed after a time."""
    # As in Hudi, no write takes more than a day.
    try:
        ms = parse_instant_time(since, meta.config.timezone) - _DAY_MS
    except ValueError:  # digits that aren't a time
        return meta.archived_timeline().completion_times("", "~").values()
    start = format_instant_time(ms, meta.config.timezone)
    return meta.archived_timeline().completion_times(start, "~").values()
