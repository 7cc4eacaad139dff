"""``IsoTime``: a date or a time in ISO 8601's extended form, as filters and ``as_of`` take it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

_FORM: Final = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[T ](?P<time>[0-9]{2}:[0-9]{2}(?P<seconds>:[0-9]{2})?)"
    r"(?(seconds)(?:[.,](?P<fraction>[0-9]{1,9}))?)"
    r" ?(?P<zone>Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_EPOCH: Final = datetime(1970, 1, 1)
_NANOS: Final = 1_000_000_000
DAY_NANOS: Final = 24 * 60 * 60 * _NANOS


@dataclass(frozen=True, slots=True, repr=False)
class IsoTime:
    """A time to the nanosecond, with a time zone or without.

    Attributes:
        nanos: Nanoseconds from 1970 on: of UTC's clock if there is an offset, else of an unknown
            zone's.
        has_zone: Whether it has a zone, and so is an instant.
        is_date: Whether it is a date alone, then at its first moment.
    """

    nanos: int
    has_zone: bool
    is_date: bool = False

    @classmethod
    def parse(cls, text: str) -> IsoTime | None:
        """Return the time of a text such as ``2024-01-02`` or ``2024-01-02T03:04:05.678+01:00``.

        A space may stand for the ``T``, seconds may be missing, and ``Z`` is UTC.

        Returns:
            The time; ``None`` if the text has another form.

        Raises:
            ValueError: It has this form, but isn't a time, such as February 30.
        """
        found = _FORM.fullmatch(text)
        if found is None:
            return None
        date, time, fraction, zone = found.group("date", "time", "fraction", "zone")
        wall = datetime.fromisoformat(f"{date}T{time or '00:00'}")
        nanos = int((fraction or "").ljust(9, "0"))
        return cls(_nanos(wall - _EPOCH - _offset(zone)) + nanos, zone is not None, time is None)

    def __repr__(self) -> str:
        """Return it as a text of the form."""
        wall = _EPOCH + timedelta(microseconds=self.nanos // 1000)
        if self.is_date:
            return str(wall.date())
        rest = f"{self.nanos % 1000:03}" if self.nanos % 1000 else ""
        return f"{wall.isoformat()}{rest}{'Z' if self.has_zone else ''}"

    @classmethod
    def of(cls, moment: datetime) -> IsoTime:
        """Return the time of a ``datetime``; pandas' subclass has nanoseconds, too."""
        offset = moment.utcoffset()
        wall = moment.replace(tzinfo=None) - (offset or timedelta())
        nanos = int(getattr(moment, "nanosecond", 0))
        return cls(_nanos(wall - _EPOCH) + nanos, offset is not None)


def _nanos(span: timedelta) -> int:
    return span // timedelta(microseconds=1) * 1000


def _offset(zone: str | None) -> timedelta:
    """Return the offset of a text such as ``+01:00``, ``-0730`` or ``Z``; none is zero."""
    if zone is None or zone == "Z":
        return timedelta()
    digits = zone[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 23 or minutes > 59:
        raise ValueError(f"{zone} is no offset from UTC")
    span = timedelta(hours=hours, minutes=minutes)
    return -span if zone.startswith("-") else span
