"""``Beat``: the last heartbeat of a pending instant's writer, as other writers read it.

A beat is the modification time of the file ``.hoodie/.heartbeat/<instant>``, which is rewritten in
each interval, from before the instant is requested until it has completed. A writer whose last beat
is older than the tolerated number of intervals must not commit any more, because another writer may
be rolling its instant back.

Hudi's heartbeat files are empty, and Hudi reads only their modification time. Strandline's contain
the writer's process as JSON, so that a writer on the same machine detects at once that it was
killed. That isn't enough for a writer that was killed while it completed its instant: the request
may be under way, and an object store may execute it later. Such a writer has announced its
completion, so others wait for the expiry. The announcement is a separate file,
``<instant>.completing``: an unanswered beat may reach the storage late, and would overwrite an
announcement in the heartbeat. ``concurrent_operations`` has its content. Hudi reads heartbeats by
name and never lists their folder.

Clocks of machines that share a table must agree to within a fraction of the interval.

Source: Hudi 1.2.0 ``HoodieHeartbeatUtils``, ``HeartbeatUtils``.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import Any, Final

from strandline.commit.writer_process import WriterProcess, owner_is_gone, this_process
from strandline.server.marker.heartbeat import ENDED, HEARTBEAT_FOLDER, LATE
from strandline.settings.service import HEARTBEAT_INTERVAL, HEARTBEAT_MISSES
from strandline.settings.setting import Settings
from timeline.errors import CorruptMetadataError, PathNotFoundError
from timeline.storage.base import Storage
from timeline.storage.read_limits import FileKind

_ANNOUNCED: Final = ".completing"
"""Suffix of the file that announces a completion."""

_PIDS: Final = range(1, 1 << 31)
"""Process ids that the system can have; ``os.kill`` raises for larger numbers."""


@dataclass(frozen=True, slots=True)
class HeartbeatSettings:
    """Values of the settings of heartbeats.

    Attributes:
        interval_ms: Time between two beats.
        tolerable_misses: Number of intervals after which a beat has expired.
    """

    interval_ms: int = 60_000
    tolerable_misses: int = 2

    @classmethod
    def of(cls, values: Settings) -> HeartbeatSettings:
        """Return the heartbeats' part of parsed options."""
        return cls(values.get(HEARTBEAT_INTERVAL), values.get(HEARTBEAT_MISSES))

    @property
    def timeout_ms(self) -> int:
        """Age at which a beat has expired."""
        return self.interval_ms * self.tolerable_misses


@dataclass(frozen=True, slots=True)
class Beat:
    """The last beat of an instant's writer.

    Attributes:
        instant: Requested time of the instant.
        modified_ms: When it or the announcement was written, whichever is later, milliseconds since
            the epoch, by the storage's clock.
        owner: The writer's process; ``None`` if Hudi wrote the heartbeat, it is corrupt, or only
            the announcement is left.
        token: Identifies the writer within its process.
        ended: Whether the writer recorded that it failed.
        completing: Whether the writer may have sent the request that completes the instant.
        late: Whether it failed, but data files of it may still appear until the beat has expired.
    """

    instant: str
    modified_ms: int
    owner: WriterProcess | None
    token: str = ""
    ended: bool = False
    completing: bool = False
    late: bool = False


def heartbeat_path(instant: str) -> str:
    """Return the path of an instant's heartbeat file."""
    return f"{HEARTBEAT_FOLDER}/{instant}"


def announcement_path(instant: str) -> str:
    """Return the path of the file whose existence announces an instant's completion."""
    return heartbeat_path(instant) + _ANNOUNCED


def read_beat(storage: Storage, instant: str) -> Beat | None:
    """Return an instant's last beat; ``None`` if it has neither heartbeat file nor announcement.

    Cost: a read and two stats; without a heartbeat file, a read and a stat.
    """
    content, beaten_ms = _read_heartbeat(storage, heartbeat_path(instant))
    # Last, so that an announcement made meanwhile is seen.
    announced = storage.stat(announcement_path(instant))
    times = [] if beaten_ms is None else [beaten_ms]
    if announced is not None:
        times.append(announced.mtime_ms)
    if not times:
        return None
    owner, token = _owner_in(content), content.get("token")
    ended = owner is not None and content.get(ENDED) is True
    return Beat(
        instant,
        max(times),
        owner,
        token if isinstance(token, str) else "",
        ended=ended,
        completing=announced is not None and not ended,
        late=ended and content.get(LATE) is True,
    )


def is_expired(beat: Beat, now_ms: int, settings: HeartbeatSettings) -> bool:
    """Return whether a beat is older than the settings tolerate."""
    return now_ms - beat.modified_ms > settings.timeout_ms


def writer_is_gone(beat: Beat) -> bool:
    """Return whether a beat's writer is known to be inactive, expired or not.

    It recorded that it failed, or it is a failed write of this process, or its process ended before
    it began to complete its instant. False for heartbeats of Hudi and of other machines, and for a
    write of which a file may still appear: for these only the expiry counts. A rollback before that
    wouldn't find the file, which readers take for committed once the timeline begins later.
    """
    if beat.owner is None:
        return False
    if beat.ended:
        return not beat.late
    if beat.owner == this_process():
        return not LIVE_WRITES.has(beat.token)
    # The completing request of a process that has ended may still take effect.
    return not beat.completing and owner_is_gone(beat.owner)


def is_in_doubt(beat: Beat) -> bool:
    """Return whether a beat's writer can't complete its instant, except by a request under way.

    Its process has ended after it began to complete, or it is a write of this process that ended
    without knowing its outcome.
    """
    if beat.owner is None or beat.ended or not beat.completing:
        return False
    if beat.owner == this_process():
        return LIVE_WRITES.is_left(beat.token)
    return owner_is_gone(beat.owner)


def delete_heartbeat(storage: Storage, instant: str) -> None:
    """Delete an instant's heartbeat file and announcement, if any."""
    storage.delete_all((heartbeat_path(instant), announcement_path(instant)))


def instants_with_heartbeat(storage: Storage) -> tuple[str, ...]:
    """Return the instants that have a heartbeat file or an announcement, ascending.

    Cost: one list call.
    """
    found = storage.list(HEARTBEAT_FOLDER)
    names = {info.name.removesuffix(_ANNOUNCED) for info in found if not info.is_dir}
    return tuple(sorted(filter(str.isdigit, names)))


class LiveWrites:
    """The tokens of this process's writes that may still commit; its lock guards them.

    A failed write whose last beat couldn't be written looks alive to other processes until it
    expires, but not to this process. A write that was left in doubt stays until the process ends.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens: set[str] = set()
        self._left: set[str] = set()

    def add(self, token: str) -> None:
        """Add a write that begins to beat."""
        with self._lock:
            self._tokens.add(token)

    def discard(self, token: str) -> None:
        """Remove a write that has completed or failed."""
        with self._lock:
            self._tokens.discard(token)

    def leave(self, token: str) -> None:
        """Record that a write ended in doubt."""
        with self._lock:
            self._left.add(token)

    def has(self, token: str) -> bool:
        """Return whether a write may still commit."""
        with self._lock:
            return token in self._tokens

    def is_left(self, token: str) -> bool:
        """Return whether a write ended in doubt."""
        with self._lock:
            return token in self._left


LIVE_WRITES: Final = LiveWrites()
"""The live writes of this process."""


def _read_heartbeat(storage: Storage, path: str) -> tuple[dict[str, Any], int | None]:
    """Return a heartbeat file's content and modification time; ``None`` if there is no file."""
    try:
        content = _parsed(storage.read(path, FileKind.PROPERTIES))
    except PathNotFoundError:
        return {}, None
    except CorruptMetadataError:
        content = {}
    # After the read, so that a beat in between makes the writer look more alive, not less.
    info = storage.stat(path)
    return (content, info.mtime_ms) if info is not None else ({}, None)


def _parsed(data: bytes) -> dict[str, Any]:
    """Return a heartbeat file's content; empty for Hudi's, which have none."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):  # the latter for JSON that is nested too deeply
        return {}
    return content if isinstance(content, dict) else {}


def _owner_in(content: dict[str, Any]) -> WriterProcess | None:
    names, numbers = ("host", "namespace"), ("pid", "started")
    if not all(isinstance(content.get(name), str) for name in names):
        return None
    if not all(type(content.get(name)) is int for name in numbers):
        return None
    if content["pid"] not in _PIDS:
        return None
    return WriterProcess(**{name: content[name] for name in (*names, *numbers)})
