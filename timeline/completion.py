"""Whether and when instants completed, seen from the active timeline.

In layout 2 the completion time is in the name of the completed file. Completion times of archived
instants are in the archive, which is read only if a time older than the active timeline is needed.
Version 6 uses the file's modification time, and for an archived instant its requested time.

Queries do no I/O. A query for a time in a part of the archive that hasn't been read raises
``UnreadArchiveError``; a caller that may block reads it (``CompletionTimes.read_archive``) and
retries.

Source: Hudi 1.2.0 ``CompletionTimeQueryViewV1``/``V2``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from timeline.instant import SAVEPOINT, WRITE_ACTIONS
from timeline.timeline import Timeline

ReadArchive = Callable[[str, str], Mapping[str, str]]
"""(start, end) → {requested time: completion time} of the archived instants in [start, end)."""


class UnreadArchiveError(Exception):
    """A completion time is in a part of the archive that hasn't been read yet.

    Attributes:
        requested_time: The instant's requested time.
    """

    def __init__(self, requested_time: str) -> None:
        super().__init__(requested_time)
        self.requested_time = requested_time


class _ArchivedTimes:
    """Completion times read from the archive so far, of instants requested before ``end``.

    The lock serialises reads of the archive; queries don't take it.
    """

    def __init__(self, end: str) -> None:
        self.end = end
        self._held: tuple[str, Mapping[str, str]] = end, {}
        self._reading = threading.Lock()

    def completion_time(self, requested_time: str) -> str | None:
        # Read once, without the lock: the start and its times are swapped in one assignment.
        begin, times = self._held
        if requested_time < begin:
            raise UnreadArchiveError(requested_time)
        return times.get(requested_time)

    def read(self, start: str, read: ReadArchive) -> None:
        # Only callers that read the archive wait here; queries keep using the old range.
        with self._reading:
            begin, times = self._held
            # Checked under the lock: another caller may have read the range while this one waited.
            if start < begin:
                # Assigned after the read, so that a failed read leaves the old range.
                self._held = start, {**read(start, begin), **times}


class CompletionTimes:
    """Completion times by requested time; made by ``CompletionTimes.of``."""

    __slots__ = ("_archive", "_asked", "_first_write", "_timeline")

    def __init__(
        self, timeline: Timeline, first_write: str, archive: _ArchivedTimes | None
    ) -> None:
        self._timeline = timeline
        self._first_write = first_write
        self._archive = archive
        # A memo of queries: few instants write many files, and an index of all instants would be
        # larger.
        self._asked: dict[str, str | None] = {}

    @classmethod
    def of(
        cls, timeline: Timeline, table_version: int, *, before: CompletionTimes | None = None
    ) -> CompletionTimes:
        """Return the completion times seen from a timeline.

        Args:
            timeline: The active timeline, instants of any state.
            table_version: Decides how archived instants are treated.
            before: The completion times of an earlier timeline of the table. Archived times that
                were read for them are shared unless an instant has left the timeline since.
        """
        writes = (i.requested_time for i in timeline if i.action in WRITE_ACTIONS)
        first_write = next(writes, "")
        # Version 6 uses the requested time of an archived instant, so its archive is never read.
        if table_version < 8:
            return cls(timeline, first_write, None)
        # The archive ends where the active writes begin. Other actions don't mark that place, as
        # Hudi archives them by separate counts or never; nor do writes with savepoints, which stay.
        has_saved = SAVEPOINT in timeline.actions
        saved = {i.requested_time for i in timeline if has_saved and i.action == SAVEPOINT}
        start = first_write
        if saved and first_write in saved:
            start = next((time for time in writes if time not in saved), first_write)
        # An instant that has left the timeline may be in the archive now; the earlier read didn't
        # find it there.
        shared = (
            None if before is None or _have_left(before._timeline, timeline) else before._archive
        )
        # If the active writes begin later now, the earlier read lacks the instants in between.
        if shared is None or shared.end != start:
            shared = _ArchivedTimes(start)
        return cls(timeline, first_write, shared)

    @property
    def remembered(self) -> int:
        """The number of memoised times."""
        return len(self._asked)

    def is_completed(self, requested_time: str) -> bool:
        """Return whether an instant completed; those older than the timeline count as completed."""
        return self._known(requested_time) is not None or requested_time < self._first_write

    def completion_time(self, requested_time: str) -> str | None:
        """Return when an instant completed, ``None`` while it is pending.

        Raises:
            UnreadArchiveError: It is in a part of the archive that hasn't been read yet.
        """
        known = self._known(requested_time)
        if known is not None:
            return known
        if self._archive is not None:
            return self._archive.completion_time(requested_time)
        if len(requested_time) < 10 or requested_time < self._first_write:
            return requested_time
        return None

    def completion_time_for(self, base_instant: str, requested_time: str) -> str | None:
        """Return when an instant completed, for a comparison with a slice's base instant.

        If the two times differ in length (bootstrap instants, times of 14 digits), return the
        requested time.

        Raises:
            UnreadArchiveError: As ``completion_time``.
        """
        completed = self.completion_time(requested_time)
        if completed is not None and len(completed) != len(base_instant):
            return requested_time
        return completed

    def read_archive(self, start: str, read: ReadArchive) -> None:
        """Read the archive back to a requested time, unless that is done already.

        Args:
            start: The time.
            read: Reads a range; if it raises, nothing changes.
        """
        if self._archive is not None:
            self._archive.read(start, read)

    def _known(self, requested_time: str) -> str | None:
        """Return when an instant of the active timeline completed, ``None`` if it isn't there."""
        try:
            return self._asked[requested_time]
        except KeyError:
            # Without a lock: the timeline is immutable, so all threads store the same time.
            known = self._asked[requested_time] = self._timeline.completion_time(requested_time)
            return known


def _have_left(before: Timeline, now: Timeline) -> bool:
    """Return whether a completed instant is missing or no longer completed."""
    if now.instants[: len(before)] == before.instants:  # the usual case: only appended to
        return False
    completed = {i.requested_time for i in now if i.is_completed}
    return any(i.is_completed and i.requested_time not in completed for i in before)
