"""When an instant completed, and whether it did at all, seen from the active timeline.

In layout 2 the completion time stands in the name of the completed file; of an instant that is
archived it stands in the archive, which is asked only when a time older than the active timeline
comes up. Version 6 has the file's modification time, and takes an archived instant's requested
time.

Nothing is read here. What is asked for and wasn't read of the archive yet is an
``UnreadArchiveError``; whoever may wait reads it (``CompletionTimes.read_archive``) and asks again.

Source: Hudi 1.2.0 ``CompletionTimeQueryViewV1``/``V2``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from timeline.instant import SAVEPOINT, WRITE_ACTIONS
from timeline.timeline import Timeline

ReadArchive = Callable[[str, str], Mapping[str, str]]
"""(from, to) → requested time → completion time of archived instants in [from, to)."""


class UnreadArchiveError(Exception):
    """A completion time was asked for that lies in a part of the archive that wasn't read yet.

    Attributes:
        requested_time: Of the instant.
    """

    def __init__(self, requested_time: str) -> None:
        super().__init__(requested_time)
        self.requested_time = requested_time


class _ArchivedTimes:
    """What was read of the archive so far, of instants requested before ``end``.

    Asking takes no lock: where it begins and what it holds are swapped in one step. The lock is
    held while more is read, so that one caller reads it; only those who read wait for it.
    """

    def __init__(self, end: str) -> None:
        self.end = end
        self._held: tuple[str, Mapping[str, str]] = end, {}
        self._reading = threading.Lock()

    def completion_time(self, requested_time: str) -> str | None:
        begin, times = self._held
        if requested_time < begin:
            raise UnreadArchiveError(requested_time)
        return times.get(requested_time)

    def read(self, start: str, read: ReadArchive) -> None:
        with self._reading:
            begin, times = self._held
            if start < begin:
                self._held = start, {**read(start, begin), **times}


class CompletionTimes:
    """Completion times by requested time.

    Make one with ``CompletionTimes.of``.
    """

    __slots__ = ("_archive", "_asked", "_first_write", "_timeline")

    def __init__(
        self, timeline: Timeline, first_write: str, archive: _ArchivedTimes | None
    ) -> None:
        self._timeline = timeline
        self._first_write = first_write
        self._archive = archive
        # Few instants write many files; of all there are a table each snapshot would be too much.
        self._asked: dict[str, str | None] = {}

    @classmethod
    def of(
        cls, timeline: Timeline, table_version: int, *, before: CompletionTimes | None = None
    ) -> CompletionTimes:
        """Return the completion times seen from a timeline.

        Args:
            timeline: The active timeline, instants of any state.
            table_version: Decides what an instant older than the timeline has.
            before: Those seen from an earlier timeline of the table: what was read of the archive
                for them isn't read again as long as no instant has left the timeline.
        """
        writes = (i.requested_time for i in timeline if i.action in WRITE_ACTIONS)
        first_write = next(writes, "")
        if table_version < 8:
            return cls(timeline, first_write, None)
        # Other actions are archived by counts of their own, or never: a restore says nothing about
        # whether the writes after it are archived, nor does a write that a savepoint keeps.
        saved = {i.requested_time for i in timeline if i.action == SAVEPOINT}
        start = first_write
        if saved and first_write in saved:
            start = next((time for time in writes if time not in saved), first_write)
        shared = (
            None if before is None or _have_left(before._timeline, timeline) else before._archive
        )
        if shared is None or shared.end != start:
            shared = _ArchivedTimes(start)
        return cls(timeline, first_write, shared)

    @property
    def remembered(self) -> int:
        """How many of the times asked for are remembered."""
        return len(self._asked)

    def is_completed(self, requested_time: str) -> bool:
        """Whether the instant completed; what is older than the timeline counts as completed."""
        return self._known(requested_time) is not None or requested_time < self._first_write

    def completion_time(self, requested_time: str) -> str | None:
        """Return when the instant completed, ``None`` while it is pending.

        Raises:
            UnreadArchiveError: It is older than the active timeline and than what was read.
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
        """Return when an instant completed, fit to be compared with a slice's base instant.

        Where the two differ in length (bootstrap instants, times of 14 digits) the requested time
        stands in for the completion time.

        Raises:
            UnreadArchiveError: As ``completion_time``.
        """
        completed = self.completion_time(requested_time)
        if completed is not None and len(completed) != len(base_instant):
            return requested_time
        return completed

    def read_archive(self, start: str, read: ReadArchive) -> None:
        """Have the archive read back to a requested time, unless it was.

        Args:
            start: The time.
            read: Reads it; what it raises leaves things as they were.
        """
        if self._archive is not None:
            self._archive.read(start, read)

    def _known(self, requested_time: str) -> str | None:
        """Return when an instant of the active timeline completed."""
        try:
            return self._asked[requested_time]
        except KeyError:
            known = self._asked[requested_time] = self._timeline.completion_time(requested_time)
            return known


def _have_left(before: Timeline, now: Timeline) -> bool:
    """Whether an instant that was completed isn't any more, or isn't there."""
    if now.instants[: len(before)] == before.instants:  # as after most commits
        return False
    completed = {i.requested_time for i in now if i.is_completed}
    return any(i.is_completed and i.requested_time not in completed for i in before)
