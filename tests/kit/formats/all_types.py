"""A table with a column of every supported type, and one row that sets them all."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa


def element(kind):
    return pa.list_(pa.field("element", kind))


ALL_TYPES = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("flag", pa.bool_()),
        pa.field("i", pa.int32()),
        pa.field("n", pa.int64()),
        pa.field("f", pa.float32()),
        pa.field("x", pa.float64()),
        pa.field("raw", pa.binary()),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("at_ms", pa.timestamp("ms", tz="UTC")),
        pa.field("local_ms", pa.timestamp("ms")),
        pa.field("small", pa.decimal128(5, 2)),
        pa.field("big", pa.decimal128(38, 10)),
        pa.field("words", element(pa.string())),
        pa.field("grid", element(element(pa.int32()))),
        pa.field("points", element(pa.struct([("x", pa.int32())]))),
        pa.field("counts", pa.map_(pa.string(), pa.int64())),
        pa.field("deep", pa.struct([("s", pa.struct([("t", pa.timestamp("us", tz="UTC"))]))])),
    ]
)
MOMENT = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)
MOMENT_MS = MOMENT.replace(microsecond=999_000)
FULL_ROW = {
    "id": "k", "flag": True, "i": -5, "n": 2**40, "f": 1.5, "x": 2.25, "raw": b"\x00\xff",
    "day": dt.date(1900, 1, 1), "at": MOMENT.replace(tzinfo=dt.timezone.utc), "local": MOMENT,
    "at_ms": MOMENT_MS.replace(tzinfo=dt.timezone.utc), "local_ms": MOMENT_MS,
    "small": Decimal("-123.45"), "big": Decimal("-1234567890123456789012345678.0123456789"),
    "words": ["a", None, ""], "grid": [[1, None], None, []], "points": [{"x": 1}, {"x": None}],
    "counts": [("a", 1), ("b", None)],
    "deep": {"s": {"t": dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc)}},
}  # fmt: skip
