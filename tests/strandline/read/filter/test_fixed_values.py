"""Which values a filter leaves a column: those of its text that pyarrow proves to be all."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from strandline.read.filter.partition_filter import fixed_values

SCHEMA = pa.schema([("s", pa.string()), ("n", pa.int32()), ("d", pa.date32()), ("b", pa.bool_())])
S, N, D, B = (pc.field(name) for name in SCHEMA.names)
FIRST, SECOND = date(2026, 1, 1), date(2026, 1, 2)

FIXED = [
    ("s", S == "a", ["a"]),
    ("s", pc.scalar("a") == S, ["a"]),
    ("s", S.isin(["b", "a"]), ["a", "b"]),
    ("s", (S == "b") | (S == "a"), ["a", "b"]),
    ("s", (S == "a") & (N > 3), ["a"]),
    ("s", S == 'with "quotes" and \\', ['with "quotes" and \\']),
    ("s", ~(S != "é"), ["é"]),
    ("n", (N == -7) & (S == "8"), [-7]),
    ("n", N.isin([3, 1, 2]) & (N != 2), [1, 3]),
    ("n", (N >= 4) & (N <= 4), [4]),
    ("n", (N == 1) & (N == 2), []),
    ("d", D.isin([SECOND, FIRST]), [FIRST, SECOND]),
    ("b", B, [True]),
    ("b", ~B, [False]),
]
OPEN = [
    ("s", (S == "a") | S.is_null()),
    ("s", S != "a"),
    ("s", S >= "a"),
    ("s", pc.starts_with(S, "a")),
    ("s", (S == "a") | (N == 1)),
    ("s", S.isin([f"v{number}" for number in range(1000)])),  # pyarrow doesn't show all of them
    ("n", N.isin([1, None])),
    ("n", N > 1),
    ("b", B | B.is_null()),
    ("b", S == "a"),
    ("d", S == "2026-01-01"),
]


def test_values_that_a_filter_fixes(subtests):
    for column, condition, values in FIXED:
        with subtests.test(column=column, condition=condition):
            found = fixed_values(column, condition, SCHEMA)
            assert found is not None
            assert found.to_pylist() == values


def test_filters_that_leave_it_open(subtests):
    for column, condition in OPEN:
        with subtests.test(column=column, condition=condition):
            assert fixed_values(column, condition, SCHEMA) is None
