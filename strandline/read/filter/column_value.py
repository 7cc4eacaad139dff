"""``FilterColumn``: a column that a filter compares with values, each cast to its type exactly.

Arrow compares values of different types by rules of its own: it refuses a decimal with a whole
number, a date with text, and compares large numbers as floats. Here each value becomes one of the
column's type, or is refused:

* a float stands for the decimal number that Python shows, so 0.1 is one tenth;
* a text is a date or time in ISO 8601's form (``IsoTime``) for columns of dates and times;
* a time without a zone is UTC's for a column with a zone.

A value between two neighbours of the type equals no value of it. An order is compared with the
lower neighbour, which gives the same rows: ``n > 2.5`` is ``n > 2``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import ROUND_FLOOR, Context, Decimal, DecimalException
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.read.filter.nan_comparisons import Compare
from strandline.read.iso_time import DAY_NANOS, IsoTime
from strandline.settings.setting import nearest, shortened
from timeline.errors import InputError

_SHOWN: Final = 120
"""Most characters of a value in a message."""
_MOST_DIGITS: Final = 400
"""Most digits before the point of any number that a column may have; a float has up to 309."""
_UNIT_NANOS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1000, "ns": 1}
_IN_ORDER: Final = {
    operator.gt: operator.gt,
    operator.ge: operator.gt,
    operator.lt: operator.le,
    operator.le: operator.le,
}
"""A comparison with a value between two neighbours → that with the lower one."""


class _UnfitError(Exception):
    """A value isn't one of a type, nor between two of them."""


@dataclass(frozen=True, slots=True)
class FilterColumn:
    """A column, or a field inside a struct, that a filter compares with values.

    Attributes:
        path: The column's name, and those of the fields inside it.
        kind: Its type.
    """

    path: tuple[str, ...]
    kind: pa.DataType

    @classmethod
    def of(cls, path: Sequence[str], schema: pa.Schema) -> FilterColumn:
        """Return a column of a schema.

        Raises:
            InputError: There is no such column or field; the message names the nearest.
        """
        if path[0] not in schema.names:
            raise unknown_column(path[0], schema)
        kind = schema.field(path[0]).type
        for at, name in enumerate(path[1:], 1):
            names = [each.name for each in kind] if pa.types.is_struct(kind) else []
            if name not in names:
                outer = ".".join(path[:at])
                close = nearest(name, names)
                raise InputError(
                    f"column {outer!r} is {kind} and has no field {name!r:.{_SHOWN}}",
                    hint=None if close is None else f"did you mean {close!r}?",
                )
            kind = kind.field(kind.get_field_index(name)).type
        return cls(tuple(path), kind)

    @property
    def expression(self) -> pc.Expression:
        """The column's values."""
        return pc.field(*self.path)

    @property
    def name(self) -> str:
        """Its name with dots, for messages."""
        return ".".join(self.path)

    def compared(self, compare: Compare, value: Any) -> pc.Expression:
        """Return the comparison of the column, on the left, with a value.

        Raises:
            InputError: The value isn't of the column's type, nor equal to one that is; or it lies
                between two such values and is compared for equality.
        """
        if compare not in _IN_ORDER:
            return compare(self.expression, self._exact(value))
        found, is_exact = self._floor(value)
        return (compare if is_exact else _IN_ORDER[compare])(self.expression, found)

    def among(self, values: Iterable[Any]) -> pc.Expression:
        """Return whether the column has one of some values; true or false for nulls as well.

        As in pyarrow's ``isin``, null is among values with ``None``, and NaN among values with it.

        Raises:
            InputError: As ``compared`` for equality.
        """
        return self.expression.isin(self._array(list(values)))

    def _array(self, values: list[Any]) -> pa.Array:
        """Return values, and nulls, as an array of the type; errors as in ``_exact``."""
        if pa.types.is_floating(self.kind):
            return self._floats(values)
        is_whole = pa.types.is_integer
        with suppress(pa.ArrowException, OverflowError, TypeError, ValueError):
            # Long lists are fast if their values have the type.
            found = pa.array(values)
            if found.type == self.kind or (is_whole(found.type) and is_whole(self.kind)):
                return found.cast(self.kind)
        exact = [pa.scalar(None, self.kind) if v is None else self._exact(v) for v in values]
        return pa.array(exact, self.kind)

    def _floats(self, values: list[Any]) -> pa.Array:
        """Return numbers, and nulls, as floats of the type, without those that it doesn't have."""
        doubles = (None if v is None else self._exact(v).as_py() for v in values)
        found: list[float | None] = []
        for value in doubles:
            if value == 0:  # ``isin`` compares bytes, in which these differ
                found += (0.0, -0.0)
            elif value is None or math.isnan(value) or pa.scalar(value, self.kind).as_py() == value:
                found.append(value)
        return pa.array(found, self.kind)

    def _exact(self, value: Any) -> pa.Scalar:
        """Return a value as one of the type, if they are equal."""
        found, is_exact = self._floor(value)
        if not is_exact:
            raise self._refused(value, "; no value of this type equals it")
        return found

    def _floor(self, value: Any) -> tuple[pa.Scalar, bool]:
        """Return the greatest value of the type up to a value, and whether they are equal."""
        for is_kind, floor, _ in _KINDS:
            if is_kind(self.kind):
                try:
                    found, is_exact = floor(_plain(value), self.kind)
                    # Floats are compared as doubles, which have all values of the others.
                    wide = pa.float64() if pa.types.is_floating(self.kind) else self.kind
                    return pa.scalar(found, wide), is_exact
                except (_UnfitError, pa.ArrowException, OverflowError, ValueError, TypeError):
                    raise self._refused(value) from None
        raise InputError(
            f"column {self.name!r} is {self.kind}, whose values can't be compared with"
            f" {shown(value)}; allowed: whether it is null, and comparisons of fields in it"
        )

    def _refused(self, value: Any, why: str = "") -> InputError:
        allowed = next(text for is_kind, _, text in _KINDS if is_kind(self.kind))
        return InputError(
            f"filter compares column {self.name!r}, which is {self.kind}, with {shown(value)}"
            f"{why}; allowed: {allowed(self.kind)}"
        )


def unknown_column(name: str, schema: pa.Schema) -> InputError:
    """Return the error for an unknown column; it names the most similar one."""
    close = nearest(name, schema.names)
    return InputError(
        f"the table has no column {name!r:.{_SHOWN}}; it has {schema.names}",
        hint=None if close is None else f"did you mean {close!r}?",
    )


def joined(
    parts: Sequence[pc.Expression],
    operation: Callable[[pc.Expression, pc.Expression], pc.Expression],
    *,
    neutral: bool,
) -> pc.Expression:
    """Return ``and`` or ``or`` of any number of conditions, as a balanced tree.

    Args:
        parts: The conditions.
        operation: Joins two of them.
        neutral: What no condition means.
    """
    level = list(parts) or [pc.scalar(neutral)]
    while len(level) > 1:
        level = [reduce(operation, level[at : at + 2]) for at in range(0, len(level), 2)]
    return level[0]


def shown(value: Any) -> str:
    """Return a value for a message, shortened; Python refuses to show some long numbers."""
    try:
        return shortened(str(value) if isinstance(value, Decimal) else repr(value), _SHOWN)
    except ValueError:
        return "a number of thousands of digits"


def _plain(value: Any) -> Any:
    """Return a value of numpy, or of pyarrow, as one of Python."""
    if isinstance(value, np.generic):
        value = pa.scalar(value)
    return value.as_py() if isinstance(value, pa.Scalar) else value


def _flag(value: Any, _: pa.DataType) -> tuple[bool, bool]:
    if not isinstance(value, bool):
        raise _UnfitError
    return value, True


def _text(value: Any, _: pa.DataType) -> tuple[str, bool]:
    if not isinstance(value, str):
        raise _UnfitError
    value.encode()  # a lone surrogate is a ``ValueError``
    return value, True


def _bytes(value: Any, _: pa.DataType) -> tuple[bytes, bool]:
    if not isinstance(value, bytes | bytearray):
        raise _UnfitError
    return bytes(value), True


def _number(value: Any) -> Decimal:
    """Return a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _UnfitError
    found = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    # A text such as 1e999999999 would make an integer of a gigabyte.
    if not found.is_finite() or found.adjusted() > _MOST_DIGITS:
        raise _UnfitError
    return found


def _whole(value: Any, _: pa.DataType) -> tuple[int, bool]:
    number = _number(value)
    floor = math.floor(number)
    return floor, floor == number


def _decimal(value: Any, kind: pa.DataType) -> tuple[Decimal, bool]:
    number = _number(value)
    digits = Context(prec=kind.precision, rounding=ROUND_FLOOR)
    try:
        floor = number.quantize(Decimal(1).scaleb(-kind.scale), context=digits)
    except DecimalException:
        raise _UnfitError from None
    return floor, floor == number


def _float(value: Any, _: pa.DataType) -> tuple[float, bool]:
    if isinstance(value, float):
        return value, True
    number = _number(value)
    found = float(number)
    if math.isinf(found) or (isinstance(value, int) and int(found) != value):
        raise _UnfitError
    return found, True


def _time(value: Any) -> IsoTime:
    """Return a date, time or text as a time."""
    if isinstance(value, IsoTime):
        return value
    if isinstance(value, datetime):
        return IsoTime.of(value)
    if isinstance(value, date):
        return IsoTime((value.toordinal() - _EPOCH_DAY) * DAY_NANOS, has_zone=False, is_date=True)
    found = IsoTime.parse(value) if isinstance(value, str) else None
    if found is None:
        raise _UnfitError
    return found


_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()


def _date(value: Any, kind: pa.DataType) -> tuple[int, bool]:
    moment = _time(value)
    if moment.has_zone:
        raise _UnfitError
    days, rest = divmod(moment.nanos, DAY_NANOS)
    return days * (DAY_NANOS // 1_000_000 if pa.types.is_date64(kind) else 1), not rest


def _timestamp(value: Any, kind: pa.DataType) -> tuple[int, bool]:
    moment = _time(value)
    if moment.has_zone and kind.tz is None:
        raise _UnfitError
    units, rest = divmod(moment.nanos, _UNIT_NANOS[kind.unit])
    return units, not rest


def _time_of_day(value: Any, kind: pa.DataType) -> tuple[int, bool]:
    if isinstance(value, time):  # whose text has microseconds
        value = value.isoformat()
    moment = IsoTime.parse(f"1970-01-01T{value}") if isinstance(value, str) else None
    if moment is None or moment.has_zone:
        raise _UnfitError
    units, rest = divmod(moment.nanos, _UNIT_NANOS[kind.unit])
    return units, not rest


def _whole_range(kind: pa.DataType) -> str:
    bits = kind.bit_width
    if pa.types.is_unsigned_integer(kind):
        return f"whole numbers from 0 to {2**bits - 1}"
    return f"whole numbers from {-(2 ** (bits - 1))} to {2 ** (bits - 1) - 1}"


def _decimal_range(kind: pa.DataType) -> str:
    before = kind.precision - kind.scale
    return f"numbers of at most {before} digits before the point and {kind.scale} after it"


def _time_range(kind: pa.DataType) -> str:
    units = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
    if kind.tz is None:
        example = "without a time zone, such as '2024-01-02T03:04:05', '2024-01-02' or a datetime"
    else:
        example = "such as '2024-01-02T03:04:05+01:00' or a datetime; without a time zone in UTC"
    return f"times in {units[kind.unit]} {example}"


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    checks = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary)
    return any(check(kind) for check in checks)


_Floor = Callable[[Any, pa.DataType], tuple[Any, bool]]
_KINDS: Final[
    tuple[tuple[Callable[[pa.DataType], bool], _Floor, Callable[[pa.DataType], str]], ...]
] = (
    (pa.types.is_boolean, _flag, lambda kind: "true, false"),
    (pa.types.is_integer, _whole, _whole_range),
    (pa.types.is_floating, _float, lambda kind: "numbers that a float has"),
    (pa.types.is_decimal, _decimal, _decimal_range),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), _text,
     lambda kind: "text"),
    (_is_bytes, _bytes, lambda kind: "bytes"),
    (pa.types.is_date, _date, lambda kind: "dates, such as '2024-01-02' or a date"),
    (pa.types.is_timestamp, _timestamp, _time_range),
    (pa.types.is_time, _time_of_day, lambda kind: "times of day, such as '03:04:05' or a time"),
)  # fmt: skip
"""Kinds of types: the test, the greatest value up to a given one, the allowed values as text."""
