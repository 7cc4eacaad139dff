"""Clocks, and the generation of instants' times.

An instant's time is text of 17 digits, ``yyyyMMddHHmmssSSS``, in the zone of the table's
properties: ``UTC``, or ``LOCAL`` for the zone of the machine that writes. Text order is time order,
except when a local zone sets its clock back; a ``TimeGenerator`` never goes back.

Source: Hudi 1.2.0 ``HoodieInstantTimeGenerator``, ``SkewAdjustingTimeGenerator``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Final, Protocol

from timeline.errors import ConfigError, CorruptMetadataError

UTC: Final = "UTC"
LOCAL: Final = "LOCAL"

MAX_WAIT_MS: Final = 200
"""If a new time is at most this far ahead of the clock, the generator waits for the clock."""
MAX_AHEAD_MS: Final = 2 * 60 * 60 * 1000
"""How far ahead of the clock the timeline may be: local zones are set back, and clocks differ."""

_EPOCH: Final = datetime(1970, 1, 1)  # wall time: the zone is the caller's
_ONE_MS: Final = timedelta(milliseconds=1)
_HOUR_MS: Final = 60 * 60 * 1000
_EARLIEST_MS: Final = (datetime(1, 1, 2) - _EPOCH) // _ONE_MS
_LATEST_MS: Final = (datetime(9999, 12, 31) - _EPOCH) // _ONE_MS
"""The range of times that 17 digits can express in every zone."""


class Clock(Protocol):
    """A source of time."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, UTC."""

    def monotonic(self) -> float:
        """Return seconds from some fixed point; never goes back."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, UTC."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return seconds from some fixed point; never goes back."""
        return time.monotonic()


def boot_seconds() -> float:
    """Return seconds from some fixed point, also of the time in which the machine slept.

    Where the system has no such clock, that time is left out.
    """
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def format_instant_time(ms: int, zone: str) -> str:
    """Format a time (ms since the epoch) as an instant's time in ``zone``.

    Args:
        ms: Milliseconds since the epoch, UTC.
        zone: ``"UTC"`` or ``"LOCAL"``.

    Returns:
        17 digits, ``yyyyMMddHHmmssSSS``; times out of range are clamped.
    """
    return _to_text(_wall_time(max(_EARLIEST_MS, min(ms, _LATEST_MS)), zone))


def parse_instant_time(text: str, zone: str) -> int:
    """Parse an instant's time; return milliseconds since the epoch.

    Args:
        text: 17 digits, or 14 in releases before 0.10; 14 digits mean the last millisecond of the
            second.
        zone: ``"UTC"`` or ``"LOCAL"``; a time that occurs twice in a local zone means the first.

    Raises:
        ValueError: The text is not a time.
    """
    wall = _from_text(text)
    if zone == UTC:
        return (wall - _EPOCH) // _ONE_MS
    whole = wall.replace(microsecond=0)
    return round(whole.timestamp()) * 1000 + wall.microsecond // 1000


class TimeGenerator:
    """Generates instants' times, each later than the last; its lock guards the last one.

    A time is never far ahead of the clock.

    Args:
        clock: The source of time.
        zone: The table's zone, ``"UTC"`` or ``"LOCAL"``.
        wait: Sleeps for a number of seconds: at most ``MAX_WAIT_MS`` until the clock catches up,
            plus the clocks' skew.
        skew_ms: How far the clocks of writers that share a lock may differ. A time is returned
            only when it has passed on all of them, so the next writer that gets the lock generates
            a later one.
    """

    def __init__(
        self,
        clock: Clock,
        zone: str = UTC,
        wait: Callable[[float], None] = time.sleep,
        skew_ms: int = 0,
    ) -> None:
        if zone not in (UTC, LOCAL):
            raise ConfigError(
                f"hoodie.table.timeline.timezone is {zone!r}; allowed: 'UTC', 'LOCAL'"
            )
        self.zone = zone
        self._clock = clock
        self._wait = wait
        self._skew_ms = skew_ms
        self._lock = threading.Lock()
        self._last = ""

    def next(self, after: str = "") -> str:
        """Return a time later than any returned so far and than ``after``.

        Args:
            after: The newest time on the timeline, or empty. If it is ahead of the clock by at most
                ``MAX_AHEAD_MS``, the result is one millisecond later.

        Raises:
            ConfigError: ``after`` is further ahead: the clock or zone of this machine or of the
                last writer's is wrong.
            CorruptMetadataError: ``after`` sorts after the clock's time, but is not a time.
        """
        # Hold the lock during the wait, too: the next caller's time must be later than this one.
        with self._lock:
            # A time of 14 digits stands for the last millisecond of its second.
            self._last = self._later_than(
                max(self._last, after + "999" if len(after) == 14 else after)
            )
            if self._skew_ms:
                self._wait(self._skew_ms / 1000)
            return self._last

    @property
    def clock(self) -> Clock:
        """The source of time."""
        return self._clock

    def hours_ago(self, hours: int) -> str:
        """Return the time that was some hours ago, as an instant's."""
        return format_instant_time(self._clock.now_ms() - hours * _HOUR_MS, self.zone)

    def _later_than(self, floor: str) -> str:
        """Return the current time, or the first after ``floor`` if the clock isn't past it."""
        now = _wall_time(self._clock.now_ms(), self.zone)
        if _to_text(now) > floor:
            return _to_text(now)
        try:
            wanted = _from_text(floor) + _ONE_MS
        except (ValueError, OverflowError) as exc:
            raise CorruptMetadataError(
                f"the timeline's newest instant has the time {floor[:100]!r}, which is no time",
                hint="an instant's file has this time in its name",
            ) from exc
        ahead_ms = (wanted - now) // _ONE_MS
        if ahead_ms > MAX_AHEAD_MS:
            raise ConfigError(
                f"the timeline's newest time {floor} is {ahead_ms / 1000:.0f} s ahead of this"
                f" machine's clock, {_to_text(now)} in zone {self.zone};"
                f" allowed: {MAX_AHEAD_MS // 1000} s",
                hint="check the clock and hoodie.table.timeline.timezone",
            )
        # Version 6 uses modification times as completion times, so a file created from now on must
        # not look older than its instant.
        if ahead_ms <= MAX_WAIT_MS:
            self._wait(ahead_ms / 1000)
        return _to_text(wanted)


def _wall_time(ms: int, zone: str) -> datetime:
    seconds, rest = divmod(ms, 1000)
    at = datetime.fromtimestamp(seconds, timezone.utc)
    if zone == LOCAL:
        at = at.astimezone()
    return at.replace(microsecond=rest * 1000, tzinfo=None)


def _to_text(wall: datetime) -> str:
    return f"{wall:%Y%m%d%H%M%S}".rjust(14, "0") + f"{wall.microsecond // 1000:03d}"


def _from_text(text: str) -> datetime:
    if len(text) not in (14, 17) or not (text.isascii() and text.isdigit()):
        raise ValueError(f"instant time {text!r} is not 17 digits, yyyyMMddHHmmssSSS")
    ms = int(text[14:]) if len(text) == 17 else 999
    month, day, hour, minute, second = (int(text[at : at + 2]) for at in range(4, 14, 2))
    try:
        return datetime(int(text[:4]), month, day, hour, minute, second, ms * 1000)
    except ValueError as exc:
        raise ValueError(f"instant time {text!r} is no time: {exc}") from exc
