"""When an instant completed, and whether it did at all, seen from the active timeline.

In layout 2 the completion time stands in the name of the completed file; of an instant that is
archived it stands in the archive, which is asked only when a time older than the active timeline
comes up. Version 6 has the file's modification time, and takes an archived instant's requested
time.

Source: Hudi 1.2.0 ``CompletionTimeQueryViewV1``/``V2``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from timeline.instant import SAVEPOINT
from timeline.timeline import Timeline

ArchivedTimes = Callable[[str, str], Mapping[str, str]]
"""(from, to) → requested time → completion time of archived instants in [from, to)."""


def _no_archive(_start: str, _end: str) -> Mapping[str, str]:
    return {}


class _Archive:
    """What was read of the archive so far; its lock is held while more is, so that one reads it."""

    def __init__(self, end: str, read: ArchivedTimes) -> None:
        self.end = end
        self._begin = end
        self._read = read
        self._times: dict[str, str] = {}
        self._lock = threading.Lock()

    def completion_time(self, requested_time: str) -> str | None:
        with self._lock:
            if requested_time < self._begin:
                self._times.update(self._read(requested_time, self._begin))
                self._begin = requested_time
            return self._times.get(requested_time)


class CompletionTimes:
    """Completion times by requested time.

    Make one with ``CompletionTimes.of``.
    """

    def __init__(
        self, known: Mapping[str, str], first_write: str, archive: _Archive | None
    ) -> None:
        self._known = known
        self._first_write = first_write
        self._archive = archive

    @classmethod
    def of(
        cls,
        timeline: Timeline,
        table_version: int,
        archived: ArchivedTimes | None = None,
        *,
        before: CompletionTimes | None = None,
    ) -> CompletionTimes:
        """Return the completion times seen from a timeline.

        Args:
            timeline: The active timeline, instants of any state.
            table_version: Decides what an instant older than the timeline has.
            archived: Reads them from the archive (version 8 and later); ``None``: there is no
                archive.
            before: Those seen from an earlier timeline of the table: what they read of the archive
                isn't read again as long as no instant has left the timeline.
        """
        known: dict[str, str] = {}
        for instant in timeline.completed():
            known.setdefault(
                instant.requested_time, instant.completion_time or instant.requested_time
            )
        first_write = timeline.write_timeline().first_non_savepoint_time or ""
        # Other actions are archived by counts of their own, or never: a restore says nothing about
        # whether the writes after it are archived, nor does a write that a savepoint keeps.
        saved = {i.requested_time for i in timeline if i.action == SAVEPOINT}
        writes = timeline.write_timeline().filter(lambda i: i.requested_time not in saved)
        start = first_write if writes.first is None else writes.first.requested_time
        if table_version < 8:
            return cls(known, first_write, None)
        shared = None if before is None or before._known.keys() - known.keys() else before._archive
        if shared is None or shared.end != start:
            shared = _Archive(start, archived or _no_archive)
        return cls(known, first_write, shared)

    def is_completed(self, requested_time: str) -> bool:
        """Whether the instant completed; what is older than the timeline counts as completed."""
        return requested_time in self._known or requested_time < self._first_write

    def completion_time(self, requested_time: str) -> str | None:
        """Return when the instant completed, ``None`` while it is pending.

        Cost: none, but for a time before the active timeline: that reads the archive once as far
            back.
        """
        known = self._known.get(requested_time)
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
        """
        completed = self.completion_time(requested_time)
        if completed is not None and len(completed) != len(base_instant):
            return requested_time
        return completed
