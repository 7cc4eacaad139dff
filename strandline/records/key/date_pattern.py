"""The date patterns of Hudi's timestamp key generator, with Joda-Time's meaning.

============  ======================================================
letters       meaning
============  ======================================================
yyyy, y       the year; ``yy`` its last two digits, for output only
M, MM         the month; d, dd the day; D, DDD the day of the year
H, HH         the hour from 0 to 23; m, mm the minute; s, ss the second
S, SS, ...    the first digits of the second's fraction, one a letter
Z, ZZ         the offset: ``+0530``, ``+05:30``; either is read for both
'text'        text; ``''`` a quote; other characters stand for themselves
============  ======================================================

All other letters are refused: their text depends on the locale, or on a calendar of weeks.

Source: Joda-Time 2 ``DateTimeFormat``, ``DateTimeFormatterBuilder``.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final

from timeline.errors import ConfigError

_LETTERS: Final = "yMdDHmsSZ"
_TOKEN: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']")
_OFFSET: Final = r"[+-]\d\d(?::?\d\d)?"
_NUMBER: Final = {"M": 2, "d": 2, "D": 3, "H": 2, "m": 2, "s": 2}
_NAME: Final = {"y": "year", "M": "month", "d": "day", "D": "day_of_year", "H": "hour"} | {
    "m": "minute", "s": "second", "S": "fraction", "Z": "offset",
}  # fmt: skip


def check_pattern(setting: str, pattern: str, *, reads: bool) -> None:
    """Check that a pattern is supported.

    Args:
        setting: Name of the setting, for messages.
        pattern: The pattern.
        reads: Whether it is used to parse text.

    Raises:
        ConfigError: It has an unsupported letter, or text can't be parsed by it unambiguously.
    """
    tokens = _tokens(pattern)
    if tokens is None:
        raise ConfigError(f"{setting} is {pattern!r}, which has a quote that isn't closed")
    letters = [text for is_letter, text in tokens if is_letter]
    for text in letters:
        if text[0] not in _LETTERS or len(text) > (9 if text[0] == "S" else 4):
            raise ConfigError(
                f"{setting} is {pattern!r}, in which {text!r} isn't supported; allowed:"
                f" {', '.join(_LETTERS)}"
            )
        if (text[0] == "M" and len(text) > 2) or (text[0] == "Z" and len(text) > 2):
            raise ConfigError(
                f"{setting} is {pattern!r}, in which {text!r} isn't supported; allowed:"
                f" {text[0]}, {text[0] * 2}"
            )
    if reads and ("yy" in letters or len({text[0] for text in letters}) < len(letters)):
        raise ConfigError(f"{setting} is {pattern!r}; allowed: each letter once, and no yy")


def finest_step_ms(pattern: str) -> int:
    """Return the largest step, in ms from the epoch, within which a time's text doesn't change.

    Valid in any zone since 1973.
    """
    letters = {text[0] for is_letter, text in _tokens(pattern) or () if is_letter}
    if "S" in letters:
        return 1
    if "s" in letters:
        return 1000
    # Offsets have been whole quarters of an hour since 1973.
    return 60_000 if "m" in letters else 900_000


def format_time(moment: datetime, pattern: str) -> str:
    """Return the text of a moment, with a zone, by a pattern."""
    return "".join(
        _formatted(moment, text) if is_letter else text
        for is_letter, text in _tokens(pattern) or ()
    )


def parse_time(text: str, pattern: str, zone: tzinfo | None) -> datetime | None:
    """Parse a text by a pattern; return ``None`` if it doesn't match.

    Args:
        text: The text.
        pattern: The pattern.
        zone: Zone of texts without an offset, and of the result; without it, the result has the
            offset of the text, or UTC.
    """
    match = _reader(pattern).fullmatch(text)
    if match is None:
        return None
    parts = match.groupdict()
    numbers = {
        name: int(value) for name, value in parts.items() if name not in ("fraction", "offset")
    }
    days = numbers.pop("day_of_year", None)
    fraction = int((parts.get("fraction") or "0").ljust(6, "0")[:3]) * 1000
    offset = parts.get("offset")
    given = _zone(offset) if offset else zone or timezone.utc
    numbers = {"year": 1970, "month": 1, "day": 1, **numbers}
    try:
        moment = datetime(**numbers, microsecond=fraction, tzinfo=given)
        if days is not None:
            moment = moment.replace(month=1, day=1) + timedelta(days=days - 1)
    except (ValueError, OverflowError):
        return None
    return moment.astimezone(zone) if zone is not None else moment


@lru_cache(64)
def _tokens(pattern: str) -> tuple[tuple[bool, str], ...] | None:
    """Return the parts of a pattern: whether each is a run of letters, and its text."""
    found = list(_TOKEN.finditer(pattern))
    if sum(len(match.group()) for match in found) < len(pattern):
        return None
    return tuple(
        (True, match.group())
        if match[2]
        else (False, match.group() if match[1] is None else match[1].replace("''", "'") or "'")
        for match in found
    )


@lru_cache(64)
def _reader(pattern: str) -> re.Pattern[str]:
    tokens = _tokens(pattern) or ()
    made = []
    for at, (is_letter, text) in enumerate(tokens):
        if not is_letter:
            made.append(re.escape(text))
            continue
        name = _NAME[text[0]]
        if text[0] == "Z":
            made.append(f"(?P<{name}>{_OFFSET})")
            continue
        next_is_number = at + 1 < len(tokens) and tokens[at + 1][0] and tokens[at + 1][1][0] != "Z"
        most = _NUMBER.get(text[0], len(text) if text[0] == "S" or next_is_number else 4)
        # Takes all digits, like Joda-Time, which doesn't backtrack.
        made.append(f"(?=(?P<{name}>[0-9]{{1,{most}}}))(?P={name})")
    return re.compile("".join(made))


def _formatted(moment: datetime, letters: str) -> str:
    letter, width = letters[0], len(letters)
    if letter == "S":
        return f"{moment.microsecond // 1000:03d}".ljust(width, "0")[:width]
    if letter == "Z":
        offset = moment.utcoffset() or timedelta()
        minutes = abs(offset) // timedelta(minutes=1)
        colon = ":" if width == 2 else ""
        sign = "-" if offset < timedelta() else "+"
        return f"{sign}{minutes // 60:02d}{colon}{minutes % 60:02d}"
    if letter == "y":
        year = moment.year % 100 if width == 2 else moment.year
        return str(year).zfill(width)
    number = moment.timetuple().tm_yday if letter == "D" else getattr(moment, _NAME[letter])
    return str(number).zfill(width)


def _zone(offset: str) -> tzinfo:
    digits = offset[1:].replace(":", "").ljust(4, "0")
    ahead = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-ahead if offset[0] == "-" else ahead)
