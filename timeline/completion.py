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


class CompletionTimes:
    """Completion times by requested time; its lock guards what was read of the archive.

    Make one with ``CompletionTimes.of``.
    """

    def __init__(
        self,
        known: Mapping[str, str],
        first_write: str,
        start: str,
        archived: ArchivedTimes | None,
    ) -> None:
        self._known = dict(known)
        self._first_write = first_write
        self._start = start
        self._archived = archived
        self._lock = threading.Lock()
        self._completed = frozenset(known)

    @classmethod
    def of(
        cls, timeline: Timeline, table_version: int, archived: ArchivedTimes | None = None
    ) -> CompletionTimes:
        """Return the completion times seen from a timeline.

        Args:
            timeline: The active timeline, instants of any state.
            table_version: Decides what an instant older than the timeline has.
            archived: Reads them from the archive (version 8 and later); ``None``: there is no
                archive.
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
        return cls(
            known, first_write, start, None if table_version < 8 else archived or _no_archive
        )

    def is_completed(self, requested_time: str) -> bool:
        """Whether the instant completed; what is older than the timeline counts as completed."""
        return requested_time in self._completed or requested_time < self._first_write

    def completion_time(self, requested_time: str) -> str | None:
        """Return when the instant completed, ``None`` while it is pending.

        Cost: none, but for a time before the active timeline: that reads the archive once as far
            back.
        """
        known = self._known.get(requested_time)
        if known is not None:
            return known
        if self._archived is not None:
            return self._from_archive(requested_time)
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

    def _from_archive(self, requested_time: str) -> str | None:
        with self._lock:
            if self._archived is not None and requested_time < self._start:
                for time, completed in self._archived(requested_time, self._start).items():
                    self._known.setdefault(time, completed)
                self._start = requested_time
            return self._known.get(requested_time)
