"""Partition paths of times: Hudi's key generator ``TIMESTAMP``.

A number counts a unit since the epoch; a date counts days, and a timestamp its stored unit, as if
they were such numbers. Text is read by the input patterns. The path is the time by the output
pattern (``date_pattern``) in the output's zone. A null is 1 of the unit, or 1 millisecond.

If no zone is set, Hudi uses that of its Java process; here it is UTC.

Source: Hudi 1.2.0 ``TimestampBasedAvroKeyGenerator``, ``HoodieDateTimeParser``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.key.date_pattern import (
    check_pattern,
    finest_step_ms,
    format_time,
    parse_time,
)
from strandline.records.key.text import key_text
from strandline.records.row_selection import one_chunk
from timeline.errors import ConfigError, InputError

PREFIX: Final = "hoodie.keygen.timebased."
OLD_PREFIX: Final = "hoodie.deltastreamer.keygen.timebased."
TYPE: Final = "timestamp.type"
UNIT: Final = "timestamp.scalar.time.unit"
INPUT_FORMAT: Final = "input.dateformat"
DELIMITER: Final = "input.dateformat.list.delimiter.regex"
INPUT_ZONE: Final = "input.timezone"
OUTPUT_FORMAT: Final = "output.dateformat"
OUTPUT_ZONE: Final = "output.timezone"
ZONE: Final = "timezone"
NAMES: Final = (
    TYPE, UNIT, INPUT_FORMAT, DELIMITER, INPUT_ZONE, OUTPUT_FORMAT, OUTPUT_ZONE, ZONE,
)  # fmt: skip
"""Names of the settings, without ``PREFIX``."""

TEXT_TYPES: Final = ("DATE_STRING", "MIXED")
_UNIT_OF_TYPE: Final = {
    "UNIX_TIMESTAMP": "SECONDS",
    "EPOCHMILLISECONDS": "MILLISECONDS",
    "EPOCHMICROSECONDS": "MICROSECONDS",
}
TYPES: Final = (*_UNIT_OF_TYPE, *TEXT_TYPES, "SCALAR")
NANOSECONDS: Final = {
    "NANOSECONDS": 1,
    "MICROSECONDS": 10**3,
    "MILLISECONDS": 10**6,
    "SECONDS": 10**9,
    "MINUTES": 60 * 10**9,
    "HOURS": 3600 * 10**9,
    "DAYS": 86_400 * 10**9,
}
"""Unit → its nanoseconds."""
_GMT: Final = re.compile(r"GMT([+-])(\d{1,2})(?::?(\d\d))?")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_WHOLE_OFFSETS_SINCE_MS: Final = 3 * 366 * 86_400_000
"""Early in 1973; before 1972, offsets of some zones have seconds."""
_MAX_MS: Final = 62_000_000_000_000
"""Greatest distance from the epoch, so that years have four digits in any zone."""


@dataclass(frozen=True, slots=True)
class TimestampFormat:
    """How a partition column's values become paths.

    Attributes:
        unit: Unit of numbers, a key of ``NANOSECONDS``; ``""`` if values are text.
        input_formats: Patterns of text.
        input_zone: Zone of text without an offset; ``None`` for UTC and the text's own offset.
        output_format: Pattern of paths.
        output_zone: Zone of paths; ``None`` for UTC, or the zone of the text.
    """

    unit: str
    input_formats: tuple[str, ...]
    input_zone: str | None
    output_format: str
    output_zone: str | None

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> TimestampFormat:
        """Return the format that settings describe.

        Args:
            settings: Values by the names in ``NAMES``; those that aren't set are missing.

        Raises:
            ConfigError: A required setting is missing, or a value isn't supported.
        """
        kind = _required(settings, TYPE)
        if kind not in TYPES:
            raise ConfigError(f"{PREFIX}{TYPE} is {kind!r}; allowed: {', '.join(TYPES)}")
        unit = _UNIT_OF_TYPE.get(kind, "")
        if kind == "SCALAR":
            unit = settings.get(UNIT, "SECONDS").upper()
            if unit not in NANOSECONDS:
                allowed = ", ".join(NANOSECONDS)
                raise ConfigError(f"{PREFIX}{UNIT} is {unit!r}; allowed: {allowed}")
        formats: tuple[str, ...] = ()
        if kind in TEXT_TYPES:
            formats = _split(_required(settings, INPUT_FORMAT), settings.get(DELIMITER, ","))
            for pattern in formats:
                check_pattern(PREFIX + INPUT_FORMAT, pattern, reads=True)
        output = _required(settings, OUTPUT_FORMAT)
        check_pattern(PREFIX + OUTPUT_FORMAT, output, reads=False)
        zones = [
            settings.get(ZONE, settings.get(name, "")).strip() or None
            for name in (INPUT_ZONE, OUTPUT_ZONE)
        ]
        for name, zone in zip((INPUT_ZONE, OUTPUT_ZONE), zones, strict=True):
            if zone is not None and _zone(zone) is None:
                called = PREFIX + (ZONE if ZONE in settings else name)
                raise ConfigError(
                    f"{called} is {zone!r}; allowed: a name such as Asia/Tokyo, UTC, or GMT+8:00"
                )
        return cls(unit, formats, zones[0], output, zones[1])

    def makes_paths_of(self, other: TimestampFormat) -> bool:
        """Whether another format makes the same path of every value."""
        return self._effective() == other._effective()

    def _effective(self) -> tuple[object, ...]:
        """Return the properties that decide paths; "no zone" differs from UTC only for text."""
        if self.input_formats:
            zones = (self.input_zone, self.output_zone)
        else:
            zones = (None, self.output_zone or "UTC")
        return (self.unit, self.input_formats, self.output_format, zones)

    def paths(self, column: pa.Array | pa.ChunkedArray, name: str) -> pa.StringArray:
        """Return the time of each row by the output pattern, a string, never null.

        Raises:
            InputError: The column's type doesn't fit, or a value is no time.

        Cost: a Python step for each distinct text or minute (second, millisecond), as the pattern
            has them.
        """
        column = one_chunk(column)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        if is_text != bool(self.input_formats):
            wanted = "text" if self.input_formats else "numbers, dates or timestamps"
            raise InputError(
                f"partition column {name!r} has the type {column.type}; {PREFIX}{TYPE} allows"
                f" {wanted}"
            )
        return self._of_texts(column, name) if is_text else self._of_numbers(column, name)

    def _of_texts(self, column: pa.Array, name: str) -> pa.StringArray:
        encoded = key_text(column, name, "partition column").dictionary_encode("encode")
        made = [self._of_text(text, name) for text in encoded.dictionary.to_pylist()]
        return pa.array(made, pa.string()).take(encoded.indices)

    def _of_text(self, text: str | None, name: str) -> str:
        zone = _zone(self.input_zone)
        if text is None:
            shown = zone or _zone(self.output_zone) or timezone.utc
            text = format_time(_moment(1).astimezone(shown), self.input_formats[0])
        for pattern in self.input_formats:
            moment = parse_time(text, pattern, zone)
            if moment is not None:
                break
        else:
            raise InputError(
                f"partition column {name!r} has the value {text!r}, which is no time by"
                f" {PREFIX}{INPUT_FORMAT} = {','.join(self.input_formats)}"
            )
        try:
            return format_time(
                moment.astimezone(_zone(self.output_zone) or moment.tzinfo), self.output_format
            )
        except (OverflowError, ValueError) as exc:
            raise InputError(f"partition column {name!r} has the value {text!r}: {exc}") from exc

    def _of_numbers(self, column: pa.Array, name: str) -> pa.StringArray:
        milliseconds = self._milliseconds(column, name)
        step = finest_step_ms(self.output_format)
        if len(milliseconds) and milliseconds.min() < _WHOLE_OFFSETS_SINCE_MS:
            step = min(step, 1000)
        distinct, places = np.unique(milliseconds // step, return_inverse=True)
        zone = _zone(self.output_zone) or timezone.utc
        made = [
            format_time(_moment(int(number) * step).astimezone(zone), self.output_format)
            for number in distinct
        ]
        return pa.array(made, pa.string()).take(pa.array(places.reshape(-1)))

    def _milliseconds(self, column: pa.Array, name: str) -> npt.NDArray[np.int64]:
        kind, types = column.type, pa.types
        if types.is_floating(kind) or types.is_decimal(kind):
            # Like Java's longValue, which truncates and converts NaN to 0.
            numbers = column.cast(pa.float64())
            numbers = pc.if_else(pc.is_nan(numbers), 0.0, numbers)
            self._check_range(numbers, name)
            column = (column if types.is_decimal(kind) else numbers).cast(pa.int64(), safe=False)
        elif types.is_date32(kind):
            column = column.cast(pa.int32())
        elif not (types.is_signed_integer(kind) or types.is_timestamp(kind)):
            raise InputError(
                f"partition column {name!r} has the type {kind}",
                hint="allowed: numbers, dates, timestamps; text with DATE_STRING or MIXED",
            )
        column = column.cast(pa.int64())
        self._check_range(column, name)
        counts = column.fill_null(1).to_numpy(zero_copy_only=False)
        nanoseconds = NANOSECONDS[self.unit]
        if nanoseconds >= 10**6:
            return np.asarray(counts * (nanoseconds // 10**6), np.int64)
        # Like Java's TimeUnit, which rounds towards zero.
        divisor = 10**6 // nanoseconds
        return np.asarray(counts // divisor + ((counts < 0) & (counts % divisor != 0)), np.int64)

    def _check_range(self, numbers: pa.Array, name: str) -> None:
        """Refuse numbers whose milliseconds are further than ``_MAX_MS`` from the epoch."""
        limits = pc.min_max(numbers).as_py()
        largest = _MAX_MS * 10**6 / NANOSECONDS[self.unit]
        for value in (limits["min"], limits["max"]):
            if value is not None and abs(value) > largest:
                raise InputError(
                    f"partition column {name!r} has the value {value} in {self.unit}",
                    hint="allowed: times in the years 6 to 3934",
                )


def _required(settings: Mapping[str, str], name: str) -> str:
    value = settings.get(name, "").strip()
    if not value:
        raise ConfigError(f"{PREFIX}{name} is empty; the key generator TIMESTAMP needs it")
    return value


def _split(formats: str, delimiter: str) -> tuple[str, ...]:
    if len(delimiter.strip() or ",") > 1:
        raise ConfigError(f"{PREFIX}{DELIMITER} is {delimiter!r}; allowed: one character")
    found = (each.strip() for each in formats.split(delimiter.strip() or ","))
    return tuple(each for each in found if each)


def _moment(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)


def _zone(name: str | None) -> tzinfo | None:
    """Return a zone by Java's name; ``None`` if there is no name, or it is unknown."""
    if name is None:
        return None
    match = _GMT.fullmatch(name)
    if match:
        ahead = timedelta(hours=int(match[2]), minutes=int(match[3] or 0))
        return timezone(-ahead if match[1] == "-" else ahead) if ahead < timedelta(days=1) else None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
