"""How the two timeline layouts name an instant's files.

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

Layout 1 (table version 6) keeps them in ``.hoodie`` and knows no completion time but a file's
modification time, written in the table's zone. Layout 2 (versions 8 and 9) keeps them in
``.hoodie/timeline``; a completed name without ``_c`` there is left over from an upgrade: *legacy*.
Whatever else lies in the folder, temporary files ``NAME.<uuid>`` among it, is no instant's.

Source: Hudi 1.2.0 ``InstantFileNameParserV1``/``V2``, ``InstantFileNameGeneratorV1``/``V2``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Protocol

from timeline import instant as actions
from timeline.clock import format_instant_time
from timeline.instant import Instant, State, completed_action
from timeline.table.config import META_FOLDER, TableConfig

_NAME_V1: Final = re.compile(r"(\d+)\.(.+)", re.ASCII)
_NAME_V2: Final = re.compile(r"(\d+)(?:_(\d+))?\.(.+)", re.ASCII)

_PENDING_ONLY: Final = frozenset(
    {actions.COMPACTION, actions.LOG_COMPACTION, actions.CLUSTERING}
)  # they bear another action once completed


def _suffixes(known: frozenset[str]) -> dict[str, tuple[str, State]]:
    """Map each file-name suffix of these actions to what it says."""
    said = {"inflight": (actions.COMMIT, State.INFLIGHT)}
    for action in known:
        said[f"{action}.requested"] = (action, State.REQUESTED)
        said[f"{action}.inflight"] = (action, State.INFLIGHT)
        if action not in _PENDING_ONLY:
            said[action] = (action, State.COMPLETED)
    del said[f"{actions.COMMIT}.inflight"], said[f"{actions.SAVEPOINT}.requested"]
    return said


_SUFFIXES_V1: Final = _suffixes(actions.ACTIONS - {actions.CLUSTERING})
_SUFFIXES_V2: Final = _suffixes(actions.ACTIONS)


class TimelineLayout(Protocol):
    """Where a table keeps its instants and how their files are named.

    Attributes:
        folder: Path of the active timeline's folder, below the base path.
        archive_folder: Path of the archived timeline's folder.
    """

    @property
    def folder(self) -> str: ...  # noqa: D102 - documented above

    @property
    def archive_folder(self) -> str: ...  # noqa: D102 - documented above

    def parse(self, name: str, mtime_ms: int, size: int | None = None) -> Instant | None:
        """Return the instant and state that a file name stands for, or ``None``.

        Args:
            name: Last segment of the path.
            mtime_ms: The file's modification time, ms since the epoch.
            size: How many bytes it has, as far as known.
        """

    def file_name(self, instant: Instant) -> str:
        """Return the name of the file that puts ``instant`` in its state.

        Raises:
            ValueError: The layout has no file for it.
        """


@dataclass(frozen=True, slots=True)
class LayoutV1:
    """Layout 1: completion times are modification times."""

    zone: str
    folder: str = META_FOLDER
    archive_folder: str = f"{META_FOLDER}/archived"

    def parse(self, name: str, mtime_ms: int, size: int | None = None) -> Instant | None:
        """Return the instant that a file name stands for, or ``None``."""
        match = _NAME_V1.fullmatch(name)
        said = _SUFFIXES_V1.get(match[2]) if match else None
        if match is None or said is None:
            return None
        completed = format_instant_time(mtime_ms, self.zone)
        return Instant(match[1], *said, completed, size_bytes=size)

    def file_name(self, instant: Instant) -> str:
        """Return the name of the file that puts ``instant`` in its state."""
        action = instant.action
        if action == actions.CLUSTERING:  # has no name of its own here
            action = actions.REPLACE_COMMIT
        return f"{instant.requested_time}.{_suffix(action, instant.state)}"


@dataclass(frozen=True, slots=True)
class LayoutV2:
    """Layout 2: a completed name bears the completion time."""

    zone: str
    folder: str = f"{META_FOLDER}/timeline"
    archive_folder: str = f"{META_FOLDER}/timeline/history"

    def parse(self, name: str, mtime_ms: int, size: int | None = None) -> Instant | None:
        """Return the instant that a file name stands for, or ``None``."""
        match = _NAME_V2.fullmatch(name)
        said = _SUFFIXES_V2.get(match[3]) if match else None
        if match is None or said is None:
            return None
        requested_time, completion_time, _ = match.groups()
        action, state = said
        if state is not State.COMPLETED:
            if completion_time:
                return None
            return Instant(requested_time, action, state, size_bytes=size)
        if completion_time:
            return Instant(requested_time, action, state, completion_time, size_bytes=size)
        mtime = format_instant_time(mtime_ms, self.zone)
        return Instant(requested_time, action, state, mtime, legacy=True, size_bytes=size)

    def file_name(self, instant: Instant) -> str:
        """Return the name of the file that puts ``instant`` in its state.

        Raises:
            ValueError: A completed instant without completion time.
        """
        suffix = _suffix(instant.action, instant.state)
        if not instant.is_completed or instant.legacy:
            return f"{instant.requested_time}.{suffix}"
        if instant.completion_time is None:
            raise ValueError(f"{instant} is completed, but has no completion time to be named by")
        return f"{instant.requested_time}_{instant.completion_time}.{suffix}"


def layout_of(config: TableConfig) -> TimelineLayout:
    """Return the layout of a table."""
    if config.layout_version == 1:
        return LayoutV1(config.timezone, config.timeline_folder, config.archive_folder)
    return LayoutV2(config.timezone, config.timeline_folder, config.archive_folder)


def _suffix(action: str, state: State) -> str:
    if state is State.COMPLETED:
        return completed_action(action)
    if state is State.INFLIGHT and action == actions.COMMIT:
        return "inflight"
    if state is State.REQUESTED and action == actions.SAVEPOINT:
        raise ValueError("a savepoint is never in state REQUESTED")
    return f"{action}.{state.value.lower()}"
