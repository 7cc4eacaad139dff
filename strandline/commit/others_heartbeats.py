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

``WriterProcess`` identifies the process of a writer, so that others can detect its end. A process
id alone isn't unique: ids are reused, and containers on one machine have their own. So it is
combined with the process's start time and with the boot and namespaces that both belong to. The end
of an owner on another machine, or on a system without ``/proc``, can't be detected; then only the
expiry of its heartbeat counts.

Source: Hudi 1.2.0 ``HoodieHeartbeatUtils``, ``HeartbeatUtils``.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from strandline.server.marker.heartbeat import ENDED, HEARTBEAT_FOLDER, LATE
from strandline.settings.service import HEARTBEAT_INTERVAL, HEARTBEAT_MISSES
from timeline.errors import CorruptMetadataError, PathNotFoundError
from timeline.storage.base import FileKind, Storage

_ANNOUNCED: Final = ".completing"
"""Suffix of the file that announces a completion."""

_PIDS: Final = range(1, 1 << 31)
"""Process ids that the system can have; ``os.kill`` raises for larger numbers."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_ENDED_STATES: Final = frozenset({"Z", "X"})
"""States of a process in ``/proc/<pid>/stat`` whose first thread has ended."""


@dataclass(frozen=True, slots=True)
class HeartbeatSettings:
    """Values of the settings of heartbeats.

    Attributes:
        interval_ms: Time between two beats.
        tolerable_misses: Number of intervals after which a beat has expired.
    """

    interval_ms: int = HEARTBEAT_INTERVAL.field()
    tolerable_misses: int = HEARTBEAT_MISSES.field()

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
        late: Whether it failed, but its data files may still appear until the beat has expired.
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
    write with a file that may still appear: for these only the expiry counts. An earlier rollback
    wouldn't find the file, which readers treat as committed once the timeline begins later.
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
    expires, but not to this process. A write that was left in doubt, or whose heartbeat couldn't be
    deleted, stays until the process ends: it beats no more, so the expiry of its last beat decides.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens: set[str] = set()
        self._left: set[str] = set()

    def add(self, token: str) -> None:
        """Add a write that starts its heartbeat."""
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


@dataclass(frozen=True, slots=True)
class WriterProcess:
    """One process of one machine.

    Attributes:
        host: Name of the machine, for messages.
        namespace: The boot and the namespaces of process ids and clocks in which ``pid`` and
            ``started`` are valid; ``""`` if unknown.
        pid: Process id.
        started: Start time in clock ticks since the boot; 0 if unknown.
    """

    host: str
    namespace: str
    pid: int
    started: int

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def this_process() -> WriterProcess:
    """Return the calling process as an owner."""
    pid = os.getpid()
    stat = _stat_of(pid)
    return WriterProcess(socket.gethostname(), _namespace(), pid, 0 if stat is None else stat[1])


def owner_is_gone(owner: WriterProcess) -> bool:
    """Return whether the owner is known to have ended; false if that can't be known.

    The first thread of a killed process may be a zombie while another one is still writing to
    storage, so a zombie has ended only if it is the process's last thread.
    """
    if not owner.namespace or owner.namespace != _namespace():
        return False
    stat = _stat_of(owner.pid)
    if stat is None:
        # Where others' processes are hidden (mount option hidepid), a missing folder proves
        # nothing.
        return not _exists(owner.pid)
    state, started = stat
    if owner.started and started != owner.started:
        return True  # the process id has been reused
    return state in _ENDED_STATES and _threads_of(owner.pid) <= 1


def _namespace() -> str:
    """Return the boot and the namespaces in which process ids and start times are unique."""
    try:
        names = [_BOOT_ID.read_text("ascii").strip(), os.readlink("/proc/self/ns/pid")]
    except OSError:
        return ""
    try:
        names.append(os.readlink("/proc/self/ns/time"))
    except OSError:
        names.append("")  # kernels before 5.6 have no time namespaces
    return " ".join(names)


def _stat_of(pid: int) -> tuple[str, int] | None:
    """Return state and start time of a process; ``None`` if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The second field is the command in parentheses and may contain anything.
    fields = text.rpartition(b")")[2].split()
    return fields[0].decode("ascii"), int(fields[19])


def _threads_of(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
