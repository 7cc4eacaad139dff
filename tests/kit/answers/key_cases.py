"""Cases of key generators, and real Hudi's answers to them (``key_answers.json``).

A case is a column, used as record key and as partition column, with the options of a key generator.
Its answer is the text of each value, or ``REFUSED``. ``tests.oracle.answers.key_answers`` asks
Hudi.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

ANSWERS: Final = Path(__file__).with_name("key_answers.json")
REFUSED: Final = "refused"
PREFIX: Final = "hoodie.keygen.timebased."


@dataclass(frozen=True)
class Case:
    """A column ``c`` and its values.

    Attributes:
        name: Distinct name.
        type: The column's type; a struct's field ``x`` is addressed as ``c.x``.
        values: Its values.
        options: Settings of the generator ``TIMESTAMP``, behind ``PREFIX``; none for ``SIMPLE``.
        hive: Whether paths are hive-style and URL-encoded.
    """

    name: str
    type: pa.DataType
    values: tuple[Any, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    hive: bool = False

    @property
    def column(self) -> str:
        """The column's name in options."""
        return "c.x" if pa.types.is_struct(self.type) else "c"


_UTC: Final = datetime.timezone.utc
_MOMENT: Final = datetime.datetime(2024, 2, 29, 23, 59, 59, 123456)
_FLOATS: Final = (
    0.0, -0.0, 1.5, 0.1, -0.001, 0.00099, 1e-5, 9999999.0, 1e7, 12345678.0, 16777216.0, 1e-45,
    3.25e-30,
)  # fmt: skip
_DOUBLES: Final = (
    *_FLOATS[:-2],
    5e-324,
    123456789.125,
    9007199254740992.0,
    2.2250738585072014e-308,
)
_SIMPLE: Final = {
    "boolean": (pa.bool_(), (True, False)),
    "int": (pa.int32(), (0, -7, 2**31 - 1)),
    "long": (pa.int64(), (0, -7, 2**63 - 1)),
    "float": (pa.float32(), _FLOATS),
    "double": (pa.float64(), _DOUBLES),
    "string": (pa.string(), ("x", "ä€𝄞", "a b", "a=b:c%", "")),
    "binary": (pa.binary(), (b"x", b"\x00\xff\x7f", b"")),
    "date": (pa.date32(), (datetime.date(1969, 12, 31), datetime.date(2024, 2, 29))),
    "timestamp": (pa.timestamp("us", tz="UTC"), (_MOMENT.replace(tzinfo=_UTC),)),
    "local": (pa.timestamp("us"), (_MOMENT, datetime.datetime(1969, 12, 31))),
    "timestamp in ms": (
        pa.timestamp("ms", tz="UTC"),
        (_MOMENT.replace(microsecond=123000, tzinfo=_UTC),),
    ),
    "local in ms": (pa.timestamp("ms"), (_MOMENT.replace(microsecond=123000),)),
    "decimal": (pa.decimal128(20, 8), (Decimal("0E-8"), Decimal("0.00000001"), Decimal("-12.3"))),
    "decimal of 2": (pa.decimal128(9, 2), (Decimal("0.00"), Decimal("1234567.80"))),
    "nested": (pa.struct([("x", pa.int64())]), ({"x": 5}, {"x": -1})),
    "nested double": (pa.struct([("x", pa.float64())]), ({"x": 1e10},)),
}
_SECONDS: Final = (0, 1_700_000_000, -1, 1_709_251_199)
_DAYS: Final = "yyyy/MM/dd"
_HOURS: Final = "yyyyMMddHH"


def _simple() -> Iterator[Case]:
    for name, (kind, values) in _SIMPLE.items():
        for hive in (False, True):
            nulls = () if pa.types.is_struct(kind) else (None,)
            yield Case(f"{name}{', hive' if hive else ''}", kind, (*values, *nulls), {}, hive)


def _numbers() -> Iterator[Case]:
    long = pa.int64()
    for kind, factor in (
        ("UNIX_TIMESTAMP", 1),
        ("EPOCHMILLISECONDS", 1000),
        ("EPOCHMICROSECONDS", 10**6),
    ):
        values = (*(each * factor for each in _SECONDS), 123 * factor - 1, None)
        for zone in ("UTC", "GMT+8:00", "Asia/Kolkata", "America/New_York"):
            options = {"timestamp.type": kind, "output.dateformat": _HOURS, "timezone": zone}
            yield Case(f"{kind} {zone}", long, values, options)
    for unit in (
        "NANOSECONDS",
        "MICROSECONDS",
        "MILLISECONDS",
        "SECONDS",
        "MINUTES",
        "HOURS",
        "DAYS",
    ):
        options = {
            "timestamp.type": "SCALAR",
            "timestamp.scalar.time.unit": unit,
            "output.dateformat": "yyyy-MM-dd HH:mm:ss.SSS",
            "output.timezone": "UTC",
        }
        yield Case(f"SCALAR {unit}", long, (0, 1, -1, 1999, -1999, 19782, None), options)
    unix = {
        "timestamp.type": "UNIX_TIMESTAMP",
        "output.dateformat": _DAYS,
        "output.timezone": "UTC",
    }
    yield Case("UNIX_TIMESTAMP of int", pa.int32(), (0, 1_700_000_000, None), unix)
    yield Case("UNIX_TIMESTAMP of double", pa.float64(), (0.0, 1_700_000_000.9, -0.5, None), unix)
    yield Case("UNIX_TIMESTAMP of float", pa.float32(), (0.0, 16777216.0, None), unix)
    yield Case(
        "UNIX_TIMESTAMP of decimal", pa.decimal128(12, 2), (Decimal("1700000000.99"), None), unix
    )
    yield Case("UNIX_TIMESTAMP of text", pa.string(), ("1700000000",), unix)
    yield Case("UNIX_TIMESTAMP, hive", long, (*_SECONDS, None), unix, hive=True)
    days = {**unix, "timestamp.type": "SCALAR", "timestamp.scalar.time.unit": "days"}
    yield Case("days of date", pa.date32(), (datetime.date(2024, 2, 29), None), days)
    micros = {**unix, "timestamp.type": "EPOCHMICROSECONDS"}
    yield Case(
        "micros of timestamp",
        pa.timestamp("us", tz="UTC"),
        (_MOMENT.replace(tzinfo=_UTC), None),
        micros,
    )
    yield Case("micros of local", pa.timestamp("us"), (_MOMENT, None), micros)
    nested = pa.struct([("x", long)])
    yield Case("UNIX_TIMESTAMP of nested", nested, ({"x": 1_700_000_000},), unix)


def _texts() -> Iterator[Case]:
    text = pa.string()
    iso = "yyyy-MM-dd'T'HH:mm:ss"
    zoned = (
        "2024-02-29T23:59:59+0530",
        "2024-02-29T23:59:59-03:30",
        "2024-02-29T23:59:59+05",
        None,
    )
    plain = ("2024-02-29T23:59:59", "2024-2-9T3:5:9", "2023-02-29T00:00:00", "yesterday", "", None)
    base = {"timestamp.type": "DATE_STRING", "input.dateformat": iso, "output.dateformat": _HOURS}
    utc = {"input.timezone": "UTC", "output.timezone": "UTC"}
    yield Case("text", text, plain, {**base, **utc})
    yield Case("text, hive", text, plain, {**base, **utc, "output.dateformat": _DAYS}, hive=True)
    tokyo = {"input.timezone": "Asia/Tokyo", "output.timezone": "America/New_York"}
    yield Case("text of Tokyo in New York", text, plain, {**base, **tokyo})
    yield Case("mixed", text, plain, {**base, **utc, "timestamp.type": "MIXED"})
    with_zone = {**base, "input.dateformat": f"{iso}Z"}
    yield Case("text with offset", text, zoned, {**with_zone, **utc})
    yield Case("text with offset, kept", text, zoned[:3], with_zone)
    yield Case("text with ZZ", text, zoned, {**with_zone, "input.dateformat": f"{iso}ZZ", **utc})
    both = {**base, "input.dateformat": f"{iso},yyyyMMdd,{iso}.SSSZ"}
    some = ("2024-02-29T23:59:59", "20240229", "2024-02-29T23:59:59.123+0000", "2024")
    yield Case("several formats", text, some, {**both, **utc})
    other = {
        **both,
        "input.dateformat": f"{iso};yyyyMMdd",
        "input.dateformat.list.delimiter.regex": ";",
    }
    yield Case("formats with another delimiter", text, some[:2], {**other, **utc})
    outputs = (
        "yyyy-MM-dd",
        "yy/M/d",
        "'year='yyyy'/month='MM",
        "yyyy-DDD",
        "HH:mm:ss.SSS",
        "yyyy Z",
        "yyyy ZZ",
        "y''",
    )
    for output in outputs:
        options = {**base, **utc, "output.dateformat": output, "output.timezone": "Asia/Kolkata"}
        yield Case(f"to {output}", text, (plain[0],), options)


@cache
def cases() -> tuple[Case, ...]:
    """Return all cases; their names are distinct."""
    return (*_simple(), *_numbers(), *_texts())


@cache
def recorded() -> dict[str, Any]:
    """Return the content of ``key_answers.json``."""
    return json.loads(ANSWERS.read_text("utf-8"))
