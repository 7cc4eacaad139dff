"""The names of instants' files in the two timeline layouts, and the timeline that they show.

``t`` is the requested time, ``c`` the completion time:

==============  ======================  =====================  =============  =================
action          requested               inflight               completed, 1   completed, 2
==============  ======================  =====================  =============  =================
commit          t.commit.requested      t.inflight             t.commit       t_c.commit
compaction      t.compaction.requested  t.compaction.inflight  t.commit       t_c.commit
logcompaction   as compaction           as compaction          t.deltacommit  t_c.deltacommit
clustering (2)  t.clustering.requested  t.clustering.inflight                 t_c.replacecommit
savepoint       none                    t.savepoint.inflight   t.savepoint    t_c.savepoint
any other X     t.X.requested           t.X.inflight           t.X            t_c.X
==============  ======================  =====================  =============  =================

Layout 1 (table version 6) keeps the files in ``.hoodie``; an instant's completion time is the
modification time of its file, in the table's zone. Layout 2 (versions 8 and 9) keeps them in
``.hoodie/timeline``; a completed name without ``_c`` there is *legacy*: an upgrade left it. Other
names in the folder, such as temporary files ``NAME.<uuid>``, are ignored.

Source: Hudi 1.2.0 ``InstantFileNameParserV1``/``V2``, ``InstantFileNameGeneratorV1``/``V2``.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from timeline import instant as actions
from timeline.clock import format_instant_time
from timeline.instant import Instant, State, completed_action
from timeline.storage.base import FileInfo
from timeline.table.config import TableConfig
from timeline.timeline import Timeline

_NAME: Final = re.compile(r"(\d+)(?:_(\d+))?\.(.+)", re.ASCII)
_BY_NAME: Final = attrgetter("name")
_DIGITS: Final = ("0", ":")
"""Names that begin with a digit, as instants' files do, lie between these."""
_PENDING_ONLY: Final = frozenset({actions.COMPACTION, actions.LOG_COMPACTION, actions.CLUSTERING})
"""Actions whose completed instants bear the name of another action."""


def _states_by_suffix(known: frozenset[str]) -> dict[str, tuple[str, State]]:
    """Map each file-name suffix of these actions to action and state."""
    states = {"inflight": (actions.COMMIT, State.INFLIGHT)}
    for action in known:
        states[f"{action}.requested"] = (action, State.REQUESTED)
        states[f"{action}.inflight"] = (action, State.INFLIGHT)
        if action not in _PENDING_ONLY:
            states[action] = (action, State.COMPLETED)
    del states[f"{actions.COMMIT}.inflight"], states[f"{actions.SAVEPOINT}.requested"]
    return states


_SUFFIXES: Final = {
    1: _states_by_suffix(actions.ACTIONS - {actions.CLUSTERING}),
    2: _states_by_suffix(actions.ACTIONS),
}


@dataclass(frozen=True, slots=True)
class TimelineLayout:
    """The place and the names of a table's instant files.

    Attributes:
        version: 1 or 2.
        zone: The table's zone, for completion times that are modification times.
        folder: Path of the active timeline's folder, below the base path.
    """

    version: int
    zone: str
    folder: str

    @classmethod
    def of(cls, config: TableConfig) -> TimelineLayout:
        """Return the layout of a table."""
        return cls(config.layout_version, config.timezone, config.timeline_folder)

    def parse(self, name: str, mtime_ms: int, size: int | None = None) -> Instant | None:
        """Return the instant and state that a file name stands for, or ``None``.

        Args:
            name: Last segment of the path.
            mtime_ms: The file's modification time, ms since the epoch.
            size: Bytes, if known.
        """
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        requested_time, completion_time, suffix = match.groups()
        found = _SUFFIXES[self.version].get(suffix)
        if found is None:
            return None
        action, state = found
        is_named_by_completion = self.version > 1 and state is State.COMPLETED
        if completion_time is not None and not is_named_by_completion:
            return None
        legacy = is_named_by_completion and completion_time is None
        if legacy or self.version == 1:
            completion_time = format_instant_time(mtime_ms, self.zone)
        return Instant(requested_time, action, state, completion_time, legacy, size)

    def instant_of(self, entry: FileInfo) -> Instant | None:
        """Return the instant and state that a file stands for; ``None`` for other entries."""
        return None if entry.is_dir else self.parse(entry.name, entry.mtime_ms, entry.size)

    def file_name(self, instant: Instant) -> str:
        """Return the name of the file that puts an instant in its state.

        Raises:
            ValueError: The layout has no file for it.
        """
        action = instant.action
        if self.version == 1 and action == actions.CLUSTERING:
            action = actions.REPLACE_COMMIT  # layout 1 has no name for a clustering
        suffix = _suffix(action, instant.state)
        if self.version == 1 or not instant.is_completed or instant.legacy:
            return f"{instant.requested_time}.{suffix}"
        if instant.completion_time is None:
            raise ValueError(f"{instant} is completed, but has no completion time to be named by")
        return f"{instant.requested_time}_{instant.completion_time}.{suffix}"


def _suffix(action: str, state: State) -> str:
    if state is State.COMPLETED:
        return completed_action(action)
    if state is State.INFLIGHT and action == actions.COMMIT:
        return "inflight"
    if state is State.REQUESTED and action == actions.SAVEPOINT:
        raise ValueError("a savepoint is never in state REQUESTED")
    return f"{action}.{state.value.lower()}"


@dataclass(frozen=True, slots=True)
class ListedTimeline:
    """A timeline as it was read from the entries of its folder.

    Attributes:
        entries: The entries that may be instants' files, by name.
        parsed: The instant of each entry, if any.
        timeline: The timeline of these instants.
    """

    entries: tuple[FileInfo, ...] = ()
    parsed: tuple[Instant | None, ...] = ()
    timeline: Timeline = field(default_factory=Timeline)

    def followed_by(self, entries: tuple[FileInfo, ...], layout: TimelineLayout) -> ListedTimeline:
        """Return the timeline of a later listing of the folder; only new entries are parsed."""
        # Layout 1 has directories beside the instants, which change at each write.
        start, end = (bisect_left(entries, at, key=_BY_NAME) for at in _DIGITS)
        entries = entries[start:end]
        if entries == self.entries:
            return self
        # New entries are nearly always at the end, and comparing identical objects is fast.
        same = _equal_at_start(self.entries, entries)
        known = {
            each.name: (each, instant)
            for each, instant in zip(self.entries[same:], self.parsed[same:], strict=True)
        }
        parsed, added = [], []
        for entry in entries[same:]:
            before, instant = known.get(entry.name, (None, None))
            if before == entry:
                del known[entry.name]
            else:
                instant = layout.instant_of(entry)
                added += [] if instant is None else [instant]
            parsed.append(instant)
        read = (*self.parsed[:same], *parsed)
        if not known:
            return ListedTimeline(entries, read, self.timeline.with_files(added))
        # If a file is gone, its instant may be in an earlier state, or gone, too.
        return ListedTimeline(entries, read, Timeline.of(i for i in read if i is not None))


def _equal_at_start(one: tuple[FileInfo, ...], other: tuple[FileInfo, ...]) -> int:
    """Return how many entries two lists have in common before the first difference."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
