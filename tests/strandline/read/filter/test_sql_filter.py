"""Filters as SQL text: rows are those that plain Python chooses, with SQL's three-valued logic."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.read.filter.partition_filter import fixed_partitions, matching_partitions
from strandline.read.filter.row_filter import RowFilter
from strandline.read.filter.sql_filter import LONGEST, MOST_LEVELS
from tests.strandline.read.filter.test_column_value import COMPARISONS
from tests.strandline.read.filter.test_partition_filter import SCHEMA as PARTITIONED
from tests.strandline.read.filter.test_partition_filter import config
from tests.strandline.read.filter.test_row_filter import groups
from timeline.errors import InputError

STRUCT = pa.struct([("a", pa.int64()), ("q.r", pa.string())])
SCHEMA = pa.schema(
    [
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("p", pa.decimal128(6, 2)),
        ("größe", pa.string()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("b", pa.bool_()),
        ("s", STRUCT),
        ("a.b c", pa.int64()),
    ]
)
TEXTS = ["", "a", "ab", "b", "it's", "é", "\ud7ff", "🙂", "\U0010ffff", "%", 'q"']
DAYS = [date(2023, 12, 31), date(2024, 1, 2), date(2024, 2, 29)]
VALUES: dict[str, list[Any]] = {
    "n": [-1, 0, 1, 2],
    "x": [-1.5, -0.0, 0.0, 0.25, 2.0, math.nan, math.inf],
    "p": [Decimal("-1.50"), Decimal("0.00"), Decimal("0.25"), Decimal("2.00")],
    "größe": TEXTS,
    "d": DAYS,
    "t": [datetime(d.year, d.month, d.day, 3, tzinfo=timezone.utc) for d in DAYS],
    "b": [True, False],
    "a.b c": [0, 1],
}
NAMES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    **{name: (name, lambda row, name=name: row[name]) for name in VALUES if name != "a.b c"},
    "a.b c": ('"a.b c"', lambda row: row["a.b c"]),
    "s.a": ("s.a", lambda row: row["s"] and row["s"]["a"]),
    "q.r": ("`s`.`q.r`", lambda row: row["s"] and row["s"]["q.r"]),
}
OF_FIELD = {"s.a": "a.b c", "q.r": "größe"}

Truth = Callable[[dict[str, Any]], bool | None]
Condition = tuple[str, Truth]


def values_of(name: str) -> list[Any]:
    return [
        each
        for each in VALUES[OF_FIELD.get(name, name)]
        if not (isinstance(each, float) and not math.isfinite(each))
    ]


def literal(value: Any) -> str:
    """Return a value in SQL."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return f"timestamp '{value.isoformat()}'"
    if isinstance(value, date):
        return f"date '{value}'"
    if isinstance(value, str):
        doubled = value.replace("'", "''")
        return f"'{doubled}'"
    return str(value)


def lifted(test: Callable[[Any], bool], of: Callable[[Any], Any]) -> Truth:
    """Return a test that is null for null."""
    return lambda row: None if of(row) is None else test(of(row))


@st.composite
def one_column(draw: st.DrawFn) -> Condition:
    """Tests of one column."""
    name = draw(st.sampled_from(sorted(NAMES)))
    text, of = NAMES[name]
    low, high = (draw(st.sampled_from(values_of(name))) for _ in range(2))
    several = draw(st.lists(st.sampled_from(values_of(name)), min_size=1, max_size=3))
    listed = ", ".join(map(literal, several))
    found: list[Condition] = [
        (f"{text} is null", lambda row: of(row) is None),
        (f"{text} is not null", lambda row: of(row) is not None),
        (f"{text} in ({listed})", lifted(lambda v: v in several, of)),
        (f"{text} not in ({listed})", lifted(lambda v: v not in several, of)),
    ]
    for symbol, compare in COMPARISONS.items():
        ordered = "<" in symbol or ">" in symbol
        if name != "b" or not ordered:
            found.append((f"{text} {symbol} {literal(low)}", lifted(bind(compare, low), of)))
            back = lifted(lambda v, compare=compare: compare(low, v), of)
            found.append((f"{literal(low)} {symbol} {text}", back))
    if name != "b":
        between = lifted(lambda v: low <= v <= high, of)
        found.append((f"{text} between {literal(low)} and {literal(high)}", between))
    else:
        found.append((text, of))
        found.append((f"{text} is true", lambda row: of(row) is True))
        found.append((f"{text} is not false", lambda row: of(row) is not False))
    if isinstance(low, str) and not {*"%_"} & {*low}:
        found.append((f"{text} like {literal(low + '%')}", lifted(lambda v: v.startswith(low), of)))
        unlike = lifted(lambda v: not v.startswith(low), of)
        found.append((f"{text} not like {literal(low + '%')}", unlike))
    return draw(st.sampled_from(found))


def bind(compare: Callable[[Any, Any], bool], value: Any) -> Callable[[Any], bool]:
    return lambda stored: compare(stored, value)


def negated(condition: Condition) -> Condition:
    text, truth = condition
    return f"not ({text})", lambda row: None if truth(row) is None else not truth(row)


def both(left: Condition, right: Condition) -> Condition:
    def truth(row: dict[str, Any]) -> bool | None:
        found = left[1](row), right[1](row)
        return False if False in found else None if None in found else True

    return f"({left[0]}) and ({right[0]})", truth


def either(left: Condition, right: Condition) -> Condition:
    def truth(row: dict[str, Any]) -> bool | None:
        found = left[1](row), right[1](row)
        return True if True in found else None if None in found else False

    return f"({left[0]} OR {right[0]})", truth


CONDITIONS = st.recursive(
    one_column(),
    lambda inner: st.one_of(
        inner.map(negated),
        st.tuples(inner, inner).map(lambda lr: both(*lr)),
        st.tuples(inner, inner).map(lambda lr: either(*lr)),
    ),
    max_leaves=6,
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            **{name: st.none() | st.sampled_from(each) for name, each in VALUES.items()},
            "s": st.none()
            | st.fixed_dictionaries(
                {
                    "a": st.none() | st.sampled_from([0, 1]),
                    "q.r": st.none() | st.sampled_from(TEXTS),
                }
            ),
        }
    ),
    max_size=8,
)


@pytest.mark.property
@given(condition=CONDITIONS, rows=ROWS)
def test_rows_are_those_for_which_the_text_is_true(condition, rows):
    text, truth = condition
    table = pa.Table.from_pylist([row | {"at": at} for at, row in enumerate(rows)],
                                 pa.schema([*SCHEMA, ("at", pa.int32())]))  # fmt: skip
    kept = RowFilter.of(text, table.schema).keep(table)["at"].to_pylist()
    assert kept == [at for at, row in enumerate(rows) if truth(row) is True]


def test_texts_mean_the_same_as_triples(subtests):
    rows = pa.table({"n": [1, 2, 3, None], "t": ["a", "b", "ab", None], "date": [1, 2, 3, 4]})
    for text, triples in [
        ("n > 1 and t = 'b'", [("n", ">", 1), ("t", "=", "b")]),
        ("n = 1 or t = 'b'", [[("n", "=", 1)], [("t", "=", "b")]]),
        ("N > 1".lower(), [("n", ">", 1)]),
        ("n in (1, 3)", [("n", "in", [1, 3])]),
        ("n = 1 or n > 1 and t = 'b'", [[("n", "=", 1)], [("n", ">", 1), ("t", "=", "b")]]),
        ("not n = 1 and date < 4", [("n", "!=", 1), ("date", "<", 4)]),
        ("n between 1 and 2 and t = 'b'", [("n", ">=", 1), ("n", "<=", 2), ("t", "=", "b")]),
        ("2 < n", [("n", ">", 2)]),
        ("n >= - -2", [("n", ">=", 2)]),
        ("n > 1.5e0", [("n", ">", 1.5)]),
        ("`t` == 'a' -- why", [("t", "=", "a")]),
        ('"date" <> 4', [("date", "!=", 4)]),
        ("date <= 2", [("date", "<=", 2)]),
        ("t like 'a'", [("t", "=", "a")]),
        ("((n)) = (1)", [("n", "=", 1)]),
        ("n = n", [("n", ">", 0)]),
        ("true", [("date", ">", 0)]),
    ]:
        with subtests.test(text=text):
            kept = RowFilter.of(text, rows.schema).keep(rows)
            assert kept == RowFilter.of(triples, rows.schema).keep(rows)
            assert kept.num_rows > 0


def test_partitions_are_pruned_as_by_triples(subtests):
    paths = [f"s={s}/n={n}" for s in ("a", "ab", "b") for n in (1, 2, 10)]
    table = config("s", "n", hive_style=True)
    for text, expected in [
        ("s = 'a' and n = 1", paths[:1]),
        ("s like 'a%' and n in (1, 10)", [*paths[:3:2], *paths[3:6:2]]),
        ("not (s < 'b' or n > 5)", paths[6:8]),
        ("s not in ('a', 'b')", paths[3:6]),
        ("n between 2 and 3 and x > 0", paths[1::3]),
        ("s is null", []),
        ("x > 0 or s = 'b'", paths),
    ]:
        with subtests.test(text=text):
            row_filter = RowFilter.of(text, PARTITIONED)
            kept = matching_partitions(paths, row_filter, PARTITIONED, table)
            assert [path for path in paths if path in kept] == expected
    fixed = RowFilter.of("s in ('a', 'b') and n = 1", PARTITIONED)
    assert fixed_partitions(fixed, PARTITIONED, table) == ("s=a/n=1", "s=b/n=1")


def test_row_groups_are_skipped_as_by_triples(subtests):
    """Each group has two rows."""
    n, t = [1, 2, 3, 4, None, 6], ["a", "ab", "b", "ba", "c", None]
    rows = pa.table({"n": pa.array(n, pa.int32()), "t": t})
    for text, expected in [
        ("n in (3, 9)", [1]),
        ("n not in (1, 2)", [0, 1, 2]),  # 1.5 might be between the bounds
        ("n between 5 and 9", [2]),
        ("t like 'b%'", [1]),
        ("not (n < 3 or t = 'c')", [1, 2]),
        ("n > 2.5 and t < 'c'", [1]),
        ("n = 7", []),
        ("n is null", [2]),
    ]:
        with subtests.test(text=text):
            row_filter = RowFilter.of(text, rows.schema)
            assert groups(rows, row_filter.condition, rows.schema) == expected


REFUSED = [
    ("", "has no condition; allowed: comparisons"),
    ("   ", "has no condition"),
    ("-- nothing", "has no condition"),
    ("n", "'n' at character 1 is a column of the type int32; allowed alone: a boolean column"),
    ("D = 1", r"no column 'D'.*\(at character 1 of the filter\) \(did you mean 'd'"),
    ("n = 1 and größ = 'a'", r"no column 'größ'.*at character 11.*did you mean 'größe'"),
    ("s.A = 1", "column 's' is struct<.*has no field 'A'.*did you mean 'a'"),
    ("n.a = 1", "column 'n' is int32 and has no field 'a'"),
    ("a.b = 1", "no column 'a'"),
    ("s = 1", "'s' is struct.*can't be compared with 1.*fields in it .at character 5"),
    ("n = 'a'", "'n', which is int32, with 'a'; allowed: whole numbers .*at character 5"),
    ("n = 1.5", "with 1.5; no value of this type equals it"),
    ("d = 'today'", "'d', which is date32.day., with 'today'; allowed: dates"),
    ("d = '2024-02-30'", "with '2024-02-30'; allowed: dates"),
    ("d = date '2024-02-30'", "at character 10 is no date; allowed: such as '2024-01-02'"),
    ("d = timestamp '2024-01-02 01:00:00'", "with 2024-01-02T01:00:00; no value"),
    ("größe = date '2024-01-02'", "which is string, with 2024-01-02; allowed: text"),
    ("n = null", "'NULL' at character 5 is compared, which is true for no row; allowed: is null"),
    ("n in (1, null)", "'NULL' at character 10 is compared"),
    ("n in ()", "has a query or an empty list"),
    ("n in (select 1)", "has a query or an empty list"),
    ("n = 1; drop table t", "';' at character 6 isn't supported"),
    ("n = 1 union select 2", "'union' at character 7 is unexpected"),
    ("n =\n1 1", "'1' at character 7 is unexpected"),
    ("n = 1 or 1 = 1", "'1 = 1' at character 10 compares no column"),
    ("größe = '' or '1'='1'", "compares no column"),
    ("lower(größe) = 'a'", r"'LOWER\(größe\)' at character 1 isn't supported; allowed: comp"),
    ("n > 1 and n + 1 = 2", r"'\+' at character 13 isn't supported"),
    ("case when n = 1 then true end", "isn't supported"),
    ("cast(n as text) = 'a'", "'CAST.n AS TEXT.' at character 1 isn't supported"),
    ("n = cast('1' as int)", "isn't supported"),
    ("d = current_date", "'CURRENT_DATE' at character 5 isn't supported"),
    ("n = ?", r"'\?' at character 5 isn't supported"),
    ("n = n2", "no column 'n2'"),
    ("n = x", "column 'n', which is int32, with 'x', which is double; allowed: columns of one t"),
    ("n is true", "'n IS TRUE' at character 1 isn't supported"),
    ("größe like '%a'", "has the pattern '%a'; allowed: 'beginning%'"),
    ("größe like 'a_'", "has the pattern 'a_'"),
    ("größe like 'a_%'", "has the pattern 'a_%'"),
    (r"größe like 'a\%'", "has the pattern .*; allowed: 'beginning%' without backslashes"),
    (r"größe like 'a\b'", "has the pattern .*without backslashes"),
    ("d like '2024%'", "is on the type date32.day.; allowed: a text column"),
    ("größe ilike 'a%'", "ILIKE.* isn't supported"),
    ("größe like 'a%' escape 'b'", "ESCAPE.* isn't supported"),
    ("n between symmetric 2 and 1", "isn't supported"),
    ("exists (select 1)", "isn't supported"),
    ("*", r"'\*' at character 1 isn't supported"),
    ("n[1] = 2", r"'\[' at character 2 isn't supported"),
    ("{ : } union lateral int", "'{' at character 1 isn't supported"),
    ("größe || 'a' = 'b'", r"'\|\|' at character 7 isn't supported"),
    ("n::text = 'a'", "'::' at character 2 isn't supported"),
    ("n <=> 1", "'<=>' at character 3 isn't supported"),
    ("b = \x00", r"no column '\\x00'"),
    ("größe = 'a", "quotes or a comment in it have no end"),
    ("n = 1 /* a", "quotes or a comment in it have no end|is unexpected"),
    ("(n = 1", "is unexpected"),
    ("n = 1)", "'.' at character 6 is unexpected"),
    ("n >", "is unexpected"),
    ("and", "is unexpected"),
    ("n = 1e99999", "allowed: whole numbers"),
    ("n = 1e", "'1e' at character 5 is no number; allowed: such as 1, -2.5, 1e3"),
    ("n = -1e9999999999999999999", "at character 6 is no number"),
    ("if = 1", "isn't an SQL condition: '1' at character 6 is unexpected"),
    ("n = " + "9" * 9999, "allowed: whole numbers"),
    ("n" + ".n" * 99 + " = 1", "column 'n' is int32 and has no field"),
    ("n" + ".n" * 999 + " = 1", "nested too deeply"),
    ("(" * 25 + "n = 1" + ")" * 25, "more than 24 levels of parentheses and 'not' at character 25"),
    ("not " * 25 + "b", "more than 24 levels"),
    ("n = " + "- " * 25 + "1", "more than 24 levels"),
    ("(" * 2_000, "more than 24 levels"),
    ("[" * 2_000, r"'\[' at character 1 isn't supported"),
    ("case when " * 500, "nested too deeply"),
    ("a" * 1_000_000, "a text of 1000000 characters; allowed: up to 65536"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[text[:30] for text, _ in REFUSED])
def test_what_is_refused(text, message, caplog):
    with pytest.raises(InputError, match=message) as refused:
        RowFilter.of(text, SCHEMA)
    assert len(str(refused.value)) < 1000
    assert caplog.records == []


WORDS = [
    "n",
    "x",
    "größe",
    "b",
    "s",
    "`s`.`q.r`",
    "1",
    "-2",
    "1.5",
    "'a'",
    "'a%'",
    "''",
    "date",
    "timestamp",
    "true",
    "null",
    "and",
    "or",
    "not",
    "in",
    "between",
    "like",
    "is",
    "(",
    ")",
    ",",
    "=",
    "<>",
    "<",
    "<=>",
    "+",
    "-",
    "*",
    "||",
    "::",
    ".",
    ";",
    "?",
    ":",
    "@",
    "[",
    "]",
    "{",
    "}",
    "case",
    "when",
    "then",
    "end",
    "cast",
    "as",
    "int",
    "select",
    "from",
    "union",
    "exists",
    "interval",
    "current_date",
    "lower(",
    "any",
    "array",
    "struct",
    "x'1f'",
    "escape",
    "similar",
    "to",
    "~",
    "lambda",
    "->",
    "coalesce(",
    "try_cast(",
    "values",
    "lateral",
    "unnest(",
    "if(",
    "row",
    "unknown",
    "\\",
    "🙂",
]


@pytest.mark.property
@given(words=st.lists(st.sampled_from(WORDS), max_size=9), between=st.sampled_from(["", " "]))
def test_any_text_is_a_condition_or_refused(words, between):
    text = between.join(words)
    found: RowFilter | str
    try:
        found = RowFilter.of(text, SCHEMA)
    except InputError as refused:
        found = str(refused)
    assert isinstance(found, RowFilter) or "filter" in found


@pytest.mark.property
def test_the_longest_and_the_deepest_text():
    values = ", ".join(map(str, range(10_000, 20_000)))[: LONGEST - 20].rpartition(",")[0]
    rows = pa.table({"n": [9_999, 10_000, None]})
    assert RowFilter.of(f"n not in ({values})", rows.schema).keep(rows).num_rows == 1
    either = " or ".join(f"n = {n}" for n in range(10_000, 11_000))
    assert RowFilter.of(either, rows.schema).keep(rows).num_rows == 1
    deep = "(not " * (MOST_LEVELS // 2) + "n = 10000" + ")" * (MOST_LEVELS // 2)
    assert RowFilter.of(deep, rows.schema).keep(rows).num_rows == 1


@pytest.mark.property
def test_without_sqlglot_the_command_that_installs_it_is_named():
    code = (
        "import sys; sys.modules['sqlglot'] = None\n"
        "import pyarrow as pa\n"
        "from strandline.read.filter.row_filter import RowFilter\n"
        "RowFilter.of([('n', '>', 1)], pa.schema([('n', 'int32')]))\n"
        "RowFilter.of('n > 1', pa.schema([('n', 'int32')]))\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'strandline[sql]'" in found.stderr
    assert "ConfigError: filter is the text 'n > 1'" in found.stderr
