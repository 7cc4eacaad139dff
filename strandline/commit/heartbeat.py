"""Heartbeats, which tell other writers that the writer of a pending instant is alive.

A beat is the modification time of the file ``.hoodie/.heartbeat/<instant>``, which is written again
in each interval, from before the instant is requested until it has completed. A writer whose last
beat is older than the tolerated number of intervals must not commit any more, because another one
may be rolling its instant back.

Hudi's heartbeat files are empty, and Hudi reads only their modification time. Strandline's hold the
writer's process as JSON, so that a writer on the same machine knows at once that it was killed.
Clocks of machines that share a table must agree to within a fraction of the interval.

Source: Hudi 1.2.0 ``HoodieHeartbeatClient``, ``HoodieHeartbeatUtils``, ``HeartbeatUtils``.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from dataclasses import asdict, dataclass
from typing import Any, Final

from strandline.commit.owner import Owner, owner_is_gone, this_process
from strandline.service.marker.heartbeat import HEARTBEAT_FOLDER
from strandline.settings.service import HEARTBEAT_INTERVAL, HEARTBEAT_MISSES
from strandline.settings.setting import Settings
from timeline.clock import Clock
from timeline.errors import (
    ConcurrentWriteError,
    CorruptMetadataError,
    PathNotFoundError,
    StorageError,
)
from timeline.storage.base import Storage
from timeline.storage.read_limits import FileKind

logger = logging.getLogger(__name__)

_RETRIES: Final = 10
"""A beat that failed is repeated after this fraction of an interval."""


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
        modified_ms: When it was written, milliseconds since the epoch, by the storage's clock.
        owner: The writer's process; ``None`` if Hudi wrote the heartbeat.
        token: Identifies the writer within its process.
        ended: Whether the writer wrote that it failed.
    """

    instant: str
    modified_ms: int
    owner: Owner | None
    token: str = ""
    ended: bool = False


def heartbeat_path(instant: str) -> str:
    """Return the path of an instant's heartbeat file."""
    return f"{HEARTBEAT_FOLDER}/{instant}"


def read_beat(storage: Storage, instant: str) -> Beat | None:
    """Return an instant's last beat; ``None`` if it has no heartbeat file.

    Cost: a read and a stat.
    """
    path = heartbeat_path(instant)
    try:
        content = _parsed(storage.read(path, FileKind.PROPERTIES))
    except PathNotFoundError:
        return None
    except CorruptMetadataError:
        content = {}
    # After the read, so that a beat in between makes the writer look more alive, not less.
    info = storage.stat(path)
    if info is None:
        return None
    owner, token, ended = _owner_in(content), content.get("token"), content.get("ended")
    return Beat(
        instant,
        info.mtime_ms,
        owner,
        token if isinstance(token, str) else "",
        ended=owner is not None and ended is True,
    )


def is_expired(beat: Beat, now_ms: int, settings: HeartbeatSettings) -> bool:
    """Return whether a beat is older than the settings tolerate."""
    return now_ms - beat.modified_ms > settings.timeout_ms


def writer_is_gone(beat: Beat) -> bool:
    """Return whether a beat's writer is known to do nothing any more, expired or not.

    It has said so, its process has ended, or it is a failed write of this process. False for
    Hudi's heartbeats and for other machines', of which only the expiry tells.
    """
    if beat.owner is None:
        return False
    if beat.ended or owner_is_gone(beat.owner):
        return True
    return beat.owner == this_process() and not _LIVE.has(beat.token)


def delete_heartbeat(storage: Storage, instant: str) -> None:
    """Delete an instant's heartbeat file, if any."""
    storage.delete(heartbeat_path(instant))


def instants_with_heartbeat(storage: Storage) -> tuple[str, ...]:
    """Return the instants that have a heartbeat file, ascending. Cost: one list call."""
    found = storage.list(HEARTBEAT_FOLDER)
    return tuple(info.name for info in found if not info.is_dir and info.name.isdigit())


class Heartbeat:
    """The heartbeat of one write, beaten by a daemon thread; its lock guards the last beat's time.

    Args:
        storage: The table's storage.
        settings: How often it beats, and when it has expired.
        clock: Tells the time of beats.
    """

    def __init__(self, storage: Storage, settings: HeartbeatSettings, clock: Clock) -> None:
        self._storage = storage.for_cause("heartbeat")
        self._settings = settings
        self._clock = clock
        self._owner = this_process()
        self._token = uuid.uuid4().hex
        self._instant = ""
        self._lock = threading.Lock()
        self._last: tuple[float, int] = (0.0, 0)
        self._expired = False
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, instant: str) -> None:
        """Write the first beat, then beat until ``stop``, ``abandon`` or ``leave`` is called.

        Raises:
            StorageError: The first beat can't be written.
        """
        assert self._thread is None
        self._instant = instant
        self._last = self._now()
        _LIVE.add(self._token)
        try:
            self._write()
        except BaseException:
            _LIVE.discard(self._token)
            raise
        name = f"heartbeat-{instant}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Check that no other writer may take this one for dead.

        Raises:
            ConcurrentWriteError: The last beat has expired.
        """
        age_ms = self._age_ms()
        if age_ms is not None:
            return
        raise ConcurrentWriteError(
            f"the heartbeat of instant {self._instant} of {self._storage.base_path} expired: it was"
            f" not written for more than {self._settings.timeout_ms / 1000:g} s",
            hint="another writer may have rolled the instant back; repeat the write",
        )

    def stop(self) -> None:
        """Stop beating and delete the file; for an instant that completed or was rolled back."""
        self._end()
        _LIVE.discard(self._token)
        delete_heartbeat(self._storage, self._instant)

    def abandon(self) -> None:
        """Stop beating and write that the write failed, so that the next writer rolls it back."""
        self._end()
        _LIVE.discard(self._token)
        try:
            self._write(ended=True)
        except StorageError as error:
            # Writers of other processes then wait for the expiry.
            logger.warning("the heartbeat of %s can't be ended: %s", self._instant, error)

    def leave(self) -> None:
        """Stop beating and leave the file to expire, because the commit may still become visible.

        A request to storage that timed out may take effect later; the timeout is the time it gets.
        """
        self._end()

    def _end(self) -> None:
        """Stop the thread; when this returns, no beat is under way."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        wait_ms: float = self._settings.interval_ms
        while not self._stopping.wait(wait_ms / 1000):
            # Before the beat: it would revive a writer that others already take for dead.
            if self._age_ms() is None:
                return
            started = self._now()
            try:
                self._write()
            except Exception as error:  # noqa: BLE001 - the thread has to go on
                logger.warning("the heartbeat of %s can't be written: %s", self._instant, error)
                wait_ms = self._settings.interval_ms / _RETRIES
                continue
            # If this call took too long, others saw the beat before it expire.
            if self._age_ms() is None:
                return
            with self._lock:
                self._last = started
            wait_ms = self._settings.interval_ms

    def _write(self, *, ended: bool = False) -> None:
        content = {**asdict(self._owner), "token": self._token, "ended": ended}
        self._storage.replace(heartbeat_path(self._instant), json.dumps(content).encode())

    def _now(self) -> tuple[float, int]:
        return self._clock.monotonic(), self._clock.now_ms()

    def _age_ms(self) -> float | None:
        """Return the last beat's age; ``None`` from the first time on that it has expired.

        The monotonic clock stands still while a machine is suspended, and the wall clock may be
        set back, so the greater of both counts.
        """
        monotonic, wall_ms = self._now()
        with self._lock:
            age_ms = max((monotonic - self._last[0]) * 1000, wall_ms - self._last[1])
            self._expired = self._expired or age_ms > self._settings.timeout_ms
            return None if self._expired else age_ms


class _LiveWrites:
    """The tokens of this process's writes that may still commit; its lock guards them.

    A failed write whose last beat couldn't be written looks alive to other processes until it
    expires; this one knows better.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens: set[str] = set()

    def add(self, token: str) -> None:
        with self._lock:
            self._tokens.add(token)

    def discard(self, token: str) -> None:
        with self._lock:
            self._tokens.discard(token)

    def has(self, token: str) -> bool:
        with self._lock:
            return token in self._tokens


_LIVE: Final = _LiveWrites()


def _parsed(data: bytes) -> dict[str, Any]:
    """Return a heartbeat file's content; empty for Hudi's, which have none."""
    try:
        content = json.loads(data)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _owner_in(content: dict[str, Any]) -> Owner | None:
    names, numbers = ("host", "namespace"), ("pid", "started")
    if not all(isinstance(content.get(name), str) for name in names):
        return None
    if not all(isinstance(content.get(name), int) for name in numbers):
        return None
    return Owner(**{name: content[name] for name in (*names, *numbers)})
