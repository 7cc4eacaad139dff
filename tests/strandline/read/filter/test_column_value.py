"""Values of filters are cast to the columns' types where that is exact, else refused."""

from __future__ import annotations

import math
import operator
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.read.filter.column_value import FilterColumn
from strandline.read.filter.row_filter import RowFilter
from timeline.errors import InputError

DAY = date(2024, 1, 2)
NOON = datetime(2024, 1, 2, 12)
AWARE = datetime(2024, 1, 2, 13, tzinfo=timezone(timedelta(hours=1)))
UTC_US, LOCAL_MS = pa.timestamp("us", "UTC"), pa.timestamp("ms")
COMPARISONS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def kept(kind: pa.DataType, stored: list[Any], *condition: Any) -> list[Any]:
    """Return the stored values that a triple without its column keeps."""
    rows = pa.table({"x": pa.array(stored, kind)})
    return RowFilter.of([("x", *condition)], rows.schema).keep(rows)["x"].to_pylist()


def test_values_are_cast_to_the_columns_type(subtests):
    prices = [Decimal("99.50"), Decimal("100.00"), Decimal("100.50"), None]
    for kind, stored, compared, value, expected in [
        (pa.decimal128(10, 2), prices, ">", 100, prices[2:3]),
        (pa.decimal128(10, 2), prices, "=", 100.5, prices[2:3]),
        (pa.decimal128(10, 2), prices, "<", Decimal("100.001"), prices[:2]),
        (pa.decimal128(10, 2), prices, "in", [100, 99.5], prices[:2]),
        (pa.decimal256(40, 2), prices, ">=", 10**30, []),
        (pa.date32(), [DAY, None], "=", "2024-01-02", [DAY]),
        (pa.date32(), [DAY], ">=", DAY, [DAY]),
        (pa.date32(), [DAY], "<", NOON, [DAY]),
        (pa.date32(), [DAY], ">", NOON, []),
        (pa.date32(), [DAY], "=", datetime(2024, 1, 2), [DAY]),
        (pa.date64(), [DAY], "not in", ["2024-01-03"], [DAY]),
        (UTC_US, [NOON], "=", NOON, [NOON.replace(tzinfo=timezone.utc)]),
        (UTC_US, [NOON], "=", AWARE, [NOON.replace(tzinfo=timezone.utc)]),
        (UTC_US, [NOON], "=", "2024-01-02T13:00:00+01:00", [NOON.replace(tzinfo=timezone.utc)]),
        (UTC_US, [NOON], "=", "2024-01-02 12:00", [NOON.replace(tzinfo=timezone.utc)]),
        (UTC_US, [NOON], ">", "2024-01-02", [NOON.replace(tzinfo=timezone.utc)]),
        (LOCAL_MS, [NOON], "=", NOON, [NOON]),
        (LOCAL_MS, [NOON], "=", np.datetime64("2024-01-02T12:00:00"), [NOON]),
        (LOCAL_MS, [NOON], "=", pd.Timestamp("2024-01-02T12"), [NOON]),
        (LOCAL_MS, [NOON], "<", pd.Timestamp("2024-01-02T12:00:00.000000001"), [NOON]),
        (LOCAL_MS, [NOON], ">=", "2024-01-02T12:00:00.0001", []),
        (pa.time64("us"), [time(3, 4)], "=", "03:04", [time(3, 4)]),
        (pa.time64("us"), [time(3, 4, 5, 6)], "=", time(3, 4, 5, 6), [time(3, 4, 5, 6)]),
        (pa.time64("us"), [time(3, 4, 5, 6)], ">=", "03:04:05.0000061", []),
        (pa.time32("s"), [time(3, 4, 5)], "<", "03:04:05.1", [time(3, 4, 5)]),
        (pa.int32(), [1, 2, 3, None], ">", 1.5, [2, 3]),
        (pa.int32(), [1, 2, 3], ">=", 2.0, [2, 3]),
        (pa.int32(), [1, 2, 3], "<=", Fraction(5, 2).limit_denominator().numerator / 2, [1, 2]),
        (pa.int32(), [-2, -1], "<", -1.5, [-2]),
        (pa.uint8(), [1, 255], "=", np.int64(255), [255]),
        (pa.int64(), [2**53, 2**53 + 1], "=", 2**53 + 1, [2**53 + 1]),
        (pa.float64(), [0.1, -0.0, None], "=", 0, [-0.0]),
        (pa.float64(), [0.1, -0.0, None], "in", [0], [-0.0]),
        (pa.float64(), [0.1, None], "in", [None], [None]),
        (pa.float32(), [0.25, -0.0, None], "in", [0.25, 0, 0.1, 1e300], [0.25, -0.0]),
        (pa.float32(), [0.1], "in", [0.1], []),
        (pa.float32(), [0.1], "=", 0.1, []),
        (pa.float64(), [0.1, None], "not in", [1], [0.1, None]),
        (pa.float64(), [0.1, 0.2], "=", Decimal("0.1"), [0.1]),
        (pa.int32(), [1, None], "in", [1, None], [1, None]),
        (pa.int32(), [1, None], "not in", [2], [1, None]),
        (pa.int32(), [1, None], "in", pa.array([1]), [1]),
        (pa.int32(), [1, None], "in", [], []),
        (pa.float64(), [1.0, None], "in", [], []),
        (pa.bool_(), [True, False, None], "=", np.bool_(False), [False]),
        (pa.binary(), [b"a"], "=", bytearray(b"a"), [b"a"]),
        (pa.large_string(), ["a"], "=", pa.scalar("a"), ["a"]),
    ]:
        with subtests.test(kind=kind, compared=compared, value=value):
            assert kept(kind, stored, compared, value) == expected


def test_nan_is_among_values_with_nan():
    assert len(kept(pa.float64(), [math.nan, 1.0, None], "in", [math.nan])) == 1
    assert kept(pa.float64(), [math.nan, 1.0], "=", math.nan) == []


REFUSED = [
    (pa.decimal128(10, 2), 100.001, "with 100.001; no value of this type equals it; allowed: n"),
    (pa.decimal128(5, 2), 1000, "at most 3 digits before the point and 2 after it"),
    (pa.decimal128(10, 2), math.nan, "which is decimal128.10, 2., with nan; allowed: numbers of"),
    (pa.decimal128(10, 2), "1.5", "with '1.5'; allowed: numbers of at most"),
    (
        pa.date32(),
        NOON,
        "with datetime.datetime.*; no value of this type equals it; allowed: dates",
    ),
    (pa.date32(), AWARE, "allowed: dates, such as '2024-01-02' or a date"),
    (pa.date32(), "2026-02-31", "which is date32.day., with '2026-02-31'; allowed: dates"),
    (pa.date32(), 19724, "with 19724; allowed: dates"),
    (
        UTC_US,
        "yesterday",
        "allowed: times in microseconds such as '2024.*without a time zone in UTC",
    ),
    (UTC_US, "2024-01-02T00:00:00.0000001", "no value of this type equals it"),
    (LOCAL_MS, AWARE, "allowed: times in milliseconds without a time zone, such as"),
    (UTC_US, "2024-01-02T03:04.5", "with '2024-01-02T03:04.5'; allowed: times in microseconds"),
    (pa.time64("us"), "25:00", "allowed: times of day"),
    (pa.time64("us"), "03:04Z", "allowed: times of day"),
    (pa.time64("us"), "03:04:05.1234567", "no value of this type equals it; allowed: times of d"),
    (pa.int8(), 128, "which is int8, with 128; allowed: whole numbers from -128 to 127"),
    (pa.uint16(), -1, "allowed: whole numbers from 0 to 65535"),
    (pa.int64(), 1.5, "with 1.5; no value of this type equals it; allowed: whole numbers"),
    (pa.int64(), True, "with True; allowed: whole numbers"),
    (pa.int64(), math.inf, "with inf; allowed: whole numbers"),
    (pa.int64(), Decimal("1e999999999"), r"with 1E\+999999999; allowed"),
    (pa.int64(), 10**5000, "with a number of thousands of digits; allowed"),
    (pa.float64(), 2**53 + 1, "allowed: numbers that a float has"),
    (pa.float64(), Decimal("1e400"), "allowed: numbers that a float has"),
    (pa.bool_(), 1, "which is bool, with 1; allowed: true, false"),
    (pa.string(), 1, "which is string, with 1; allowed: text"),
    (pa.string(), "\ud800", "which is string, with .*; allowed: text"),
    (pa.binary(), "a", "which is binary, with 'a'; allowed: bytes"),
    (pa.list_(pa.int8()), 1, "whose values can't be compared with 1; allowed: whether it is null"),
]


def test_values_that_do_not_fit(subtests):
    for kind, value, message in REFUSED:
        schema = pa.schema([("x", kind)])
        for triple in (("x", "=", value), ("x", "in", [value])):
            with subtests.test(triple=triple), pytest.raises(InputError, match=message) as refused:
                RowFilter.of([triple], schema)
            assert "'x'" in str(refused.value)


def test_fields_inside_structs():
    rows = pa.table({"s": [{"a": {"b": 1}}, {"a": None}, None, {"a": {"b": 2}}]})
    found = RowFilter.of([(("s", "a", "b"), ">", 1)], rows.schema)
    assert found.keep(rows).num_rows == 1
    assert found.columns == ("s",)
    for path, message in [
        (("s", "a", "c"), "column 's.a' is struct<b: int64> and has no field 'c'"),
        (("s", "a", "B"), "did you mean 'b'"),
        (("t",), "no column 't'"),
    ]:
        with pytest.raises(InputError, match=message):
            FilterColumn.of(path, rows.schema)


def numbers(scale: int) -> st.SearchStrategy[Any]:
    """Whole numbers, decimals and floats near the values of a decimal type with this scale."""
    return st.one_of(
        st.integers(-300, 300),
        st.decimals(-3, 3, places=scale),
        st.decimals(-3, 3, places=scale + 1),
        st.floats(-3, 3).map(lambda x: round(x, scale)),
    )


@pytest.mark.property
@given(
    kind=st.sampled_from([pa.int16(), pa.decimal128(6, 2), pa.float64()]),
    stored=st.lists(st.none() | st.integers(-300, 300), max_size=9),
    value=numbers(2),
    compared=st.sampled_from(sorted(COMPARISONS)),
)
def test_comparisons_are_those_of_exact_numbers(kind, stored, value, compared):
    places = 0 if kind == pa.int16() else 2
    exactly = [None if n is None else Decimal(n).scaleb(-places) for n in stored]
    array = pa.array([None if n is None else n if places else int(n) for n in exactly]).cast(kind)
    rows = pa.table({"x": array})
    exact = float(value) if kind == pa.float64() else Decimal(str(value))
    expected = [
        each
        for each in array.to_pylist()
        if each is not None and COMPARISONS[compared](each, exact)
    ]
    try:
        found = RowFilter.of([("x", compared, value)], rows.schema).keep(rows)["x"].to_pylist()
    except InputError:
        assert compared in ("=", "!=")
        assert exact not in array.to_pylist()
    else:
        assert found == expected
