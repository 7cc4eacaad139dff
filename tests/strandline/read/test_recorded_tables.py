"""Every recorded table, at every time: drawn filters and columns of the rows that Spark read."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline import Table
from tests.kit.servers.s3_server import S3Server, s3_server
from tests.kit.short_runs import examples
from tests.kit.tables import golden
from tests.kit.tables.products import TELLING
from tests.strandline.read.state.test_earlier_instants import STOPPED

pytestmark = pytest.mark.property

SCENARIOS = golden.scenarios()
ON_S3 = [
    pytest.param(name, marks=[] if name in TELLING else [pytest.mark.product]) for name in SCENARIOS
]
COMPARE = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
Row = dict[str, Any]


@dataclass(frozen=True)
class Reading:
    """One way to scan a table.

    Attributes:
        asked: Arguments of ``Table.scan``.
        rows: What Spark read.
    """

    asked: dict[str, Any]
    rows: list[Row]


@dataclass(frozen=True)
class Condition:
    """A condition for a scan, and what it says of a row: true, false, or null."""

    expression: pc.Expression
    holds: Callable[[Row], bool | None]

    def __repr__(self) -> str:
        return str(self.expression)

    def __and__(self, other: Condition) -> Condition:
        def both(row: Row) -> bool | None:
            sides = (self.holds(row), other.holds(row))
            return False if False in sides else None if None in sides else True

        return Condition(self.expression & other.expression, both)

    def __invert__(self) -> Condition:
        def other(row: Row) -> bool | None:
            held = self.holds(row)
            return None if held is None else not held

        return Condition(~self.expression, other)

    def __or__(self, other: Condition) -> Condition:
        either = ~(~self & ~other)
        return Condition(self.expression | other.expression, either.holds)


def readings(scenario: str) -> list[Reading]:
    """Return all that Spark read of a table, each time with rows."""
    truth = golden.truth(scenario)
    found = [Reading({}, truth["snapshot"])]
    if "read_optimized" in truth:
        found.append(Reading({"read_optimized": True}, truth["read_optimized"]))
    for instant, rows in truth["as_of"].items():
        if isinstance(rows, list) and (scenario, instant) not in STOPPED:
            found.append(Reading({"as_of": instant}, rows))
    return found


def compared(name: str, value: Any, compare: Callable[[Any, Any], bool]) -> Condition:
    column = pc.field(name)
    if value is None:
        return Condition(column.is_null(), lambda row: row[name] is None)
    return Condition(
        compare(column, value),
        lambda row: None if row[name] is None else compare(row[name], value),
    )


def conditions(rows: list[Row]) -> st.SearchStrategy[Condition]:
    """Comparisons of columns with values that occur in them, or null, joined."""
    values = {name: sorted({row[name] for row in rows} - {None}) for name in rows[0]}
    comparison = st.sampled_from(sorted(values)).flatmap(
        lambda name: st.builds(
            compared,
            st.just(name),
            st.sampled_from([*values[name], None]),
            st.sampled_from(COMPARE),
        )
    )
    return st.recursive(
        comparison,
        lambda inner: st.one_of(
            inner.map(operator.invert),
            st.builds(operator.and_, inner, inner),
            st.builds(operator.or_, inner, inner),
        ),
        max_leaves=4,
    )


Drawn = tuple[Reading, list[str], Condition | None]
"""What is read, the columns, and which rows."""


def scans(scenario: str) -> st.SearchStrategy[Drawn]:
    """Scans of a table. Made once for all examples: making it takes longer than many a scan."""
    return st.one_of(
        [
            st.tuples(
                st.just(reading),
                st.lists(st.sampled_from(sorted(reading.rows[0])), min_size=1, unique=True),
                st.none() | conditions(reading.rows),
            )
            for reading in readings(scenario)
        ]
    )


def check(table: Table, drawn: Drawn) -> None:
    """Compare the rows of a scan with those of the truth that match."""
    reading, columns, condition = drawn
    kept = [row for row in reading.rows if condition is None or condition.holds(row)]
    expression = None if condition is None else condition.expression
    scan = table.scan(columns, expression, **reading.asked)
    found = [tuple(row[name] for name in columns) for row in scan.to_arrow().to_pylist()]
    assert sorted(found, key=repr) == sorted(
        (tuple(row[name] for name in columns) for row in kept), key=repr
    )
    assert scan.count() == len(kept)


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


def test_there_are_rows_of_every_table() -> None:
    assert all(golden.has_final_table(scenario) for scenario in SCENARIOS)
    assert sum(len(readings(scenario)) for scenario in SCENARIOS) > 120


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_local(scenario: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    table = Table(golden.build_final(scenario, tmp_path_factory.mktemp(scenario)))

    @settings(max_examples=examples(40))
    @given(scans(scenario))
    def checked(drawn: Drawn) -> None:
        check(table, drawn)

    checked()


@pytest.mark.parametrize("scenario", ON_S3)
def test_on_an_object_store(
    scenario: str, s3: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    base: Path = golden.build_final(scenario, tmp_path_factory.mktemp(scenario))
    storage = s3.single_try(base)
    table = Table(storage.base_path, s3.options)

    @settings(max_examples=5)
    @given(scans(scenario))
    def checked(drawn: Drawn) -> None:
        check(table, drawn)

    checked()
    s3.drop(storage)
