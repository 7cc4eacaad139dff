"""Values of a column whose type has changed, as Hudi rewrites them."""

from __future__ import annotations

import re
from datetime import date, datetime, timezone
from decimal import Decimal
from itertools import product

import pyarrow as pa
import pytest

from strandline.records.schema.cast import cast_column

UTC = timezone.utc
WHOLE = pa.int64()
CASES = {
    "int to long": ([1, None], pa.int32(), pa.int64(), [1, None]),
    "long to float": ([2**24 + 1, None], WHOLE, pa.float32(), [float(2**24), None]),
    "long to text": ([-5, None], WHOLE, pa.string(), ["-5", None]),
    "float to double": ([0.1, 1e10, None], pa.float32(), pa.float64(), [0.1, 1e10, None]),
    "float to text": ([0.1, 1e10, 0.0], pa.float32(), pa.string(), ["0.1", "1.0E10", "0.0"]),
    "decimal to text": (
        [Decimal("1.50"), None],
        pa.decimal128(9, 2),
        pa.string(),
        ["1.50", None],
    ),
    "date to text": ([date(1969, 12, 31)], pa.date32(), pa.string(), ["1969-12-31"]),
    "late date to text": (
        [2_932_896, 2_932_897, -719_529, None],
        pa.date32(),
        pa.string(),
        ["9999-12-31", "+10000-01-01", "-0001-12-31", None],
    ),
    "text to date": (["2024-02-29"], pa.string(), pa.date32(), [date(2024, 2, 29)]),
    "bytes to text": (["ä".encode()], pa.binary(), pa.string(), ["ä"]),
    "text to bytes": (["ä"], pa.string(), pa.binary(), ["ä".encode()]),
    "long to decimal": ([7, None], WHOLE, pa.decimal128(9, 2), [Decimal("7.00"), None]),
    "double to decimal": ([0.125, 1e3], pa.float64(), pa.decimal128(9, 2), ["0.13", "1000.00"]),
    "text to decimal": (["-0.125", "1E2"], pa.string(), pa.decimal128(9, 2), ["-0.13", "100.00"]),
    "wider decimal": ([Decimal("1.50")], pa.decimal128(9, 2), pa.decimal128(12, 4), ["1.5000"]),
    "micros to millis": (
        [datetime(1969, 12, 31, 23, 59, 59, 999_999)],
        pa.timestamp("us"),
        pa.timestamp("ms"),
        [datetime(1969, 12, 31, 23, 59, 59, 999_000)],
    ),
    "millis to micros": (
        [datetime(2024, 2, 29, 1, 2, 3, 4_000)],
        pa.timestamp("ms"),
        pa.timestamp("us"),
        [datetime(2024, 2, 29, 1, 2, 3, 4_000)],
    ),
    "int to timestamp": ([None], pa.int32(), pa.timestamp("ms"), [None]),
    "long to timestamp": (
        [1],
        WHOLE,
        pa.timestamp("us", tz="UTC"),
        [datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)],
    ),
}


def test_values_become_those_of_the_other_type(subtests):
    for name in CASES:
        with subtests.test(name=name):
            values, kind, to, expected = CASES[name]
            if pa.types.is_decimal(to):
                expected = [value if value is None else Decimal(value) for value in expected]
            for given in (pa.array(values, kind), pa.chunked_array([values, values], kind)):
                found = cast_column(given, to)
                assert found.type == to
                assert found.to_pylist() == expected * (len(given) // len(values))


def test_values_that_do_not_fit_are_refused(subtests):
    for value, kind, to in [
        ("1.5 kg", pa.string(), pa.decimal128(9, 2)),
        (float("nan"), pa.float64(), pa.decimal128(9, 2)),
        (float("inf"), pa.float64(), pa.decimal128(9, 2)),
        ("12345678.9", pa.string(), pa.decimal128(9, 2)),
        (70_000, WHOLE, pa.decimal128(5, 2)),
        ("yesterday", pa.string(), pa.date32()),
        (b"\xff", pa.binary(), pa.string()),
        (2**40, WHOLE, pa.int32()),
    ]:
        with subtests.test(value=value, kind=kind, to=to):
            with pytest.raises(pa.ArrowInvalid) as caught:
                cast_column(pa.array([value], kind), to)
            if pa.types.is_decimal(to):
                assert str(value) in str(caught.value)


def test_structs_are_matched_by_name_at_any_depth():
    old = pa.struct([("a", pa.int32()), ("gone", pa.bool_()), ("l", pa.list_(pa.int32()))])
    new = pa.struct([("l", pa.list_(WHOLE)), ("new", pa.string()), ("a", pa.string())])
    rows = [{"a": 1, "gone": True, "l": [1, None]}, None, {"a": None, "gone": None, "l": None}]
    expected = [{"l": [1, None], "new": None, "a": "1"}, None, {"l": None, "new": None, "a": None}]
    shapes = {
        "struct": (old, new, rows, expected),
        "list": (pa.list_(old), pa.list_(new), [rows, None, []], [expected, None, []]),
        "large list": (pa.large_list(old), pa.list_(new), [rows, None], [expected, None]),
        "map": (
            pa.map_(pa.string(), old),
            pa.map_(pa.string(), new),
            [[(str(at), row) for at, row in enumerate(rows)], None],
            [[(str(at), row) for at, row in enumerate(expected)], None],
        ),
    }
    for kind, to, values, wanted in shapes.values():
        column = pa.array([None, *values, *values], kind)
        for given, expected_rows in (
            (column, [None, *wanted, *wanted]),
            (column.slice(1 + len(values)), wanted),
        ):
            found = cast_column(given, to)
            found.validate(full=True)
            assert found.type == to
            assert found.to_pylist() == expected_rows


def test_nested_types_that_do_not_cast(subtests):
    for kind, held in product(
        [pa.list_(pa.int32()), pa.struct([("x", pa.int32())])],
        [pa.string(), pa.map_(pa.string(), pa.int32())],
    ):
        with (
            subtests.test(kind=kind, held=held),
            pytest.raises(
                pa.ArrowNotImplementedError, match=rf"no cast from {re.escape(str(held))} to "
            ),
        ):
            cast_column(pa.nulls(2, held), kind)
