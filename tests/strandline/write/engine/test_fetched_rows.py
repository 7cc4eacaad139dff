"""Rows that come to the driver before a task runs are keyed there, and written by either side."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.kit.engines.far_engine import FarEngine
from tests.kit.tables import reader
from tests.strandline.write.tables import client, row, stored, table
from timeline.errors import InputError

FIRST = table(row("a"), row("b", "us"))
NEXT = table(row("a", ts=2), row("b", "us", ts=2), row("c", "asia"))
KEYS = ["KeyTask", "KeyProfileTask"]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return stored(tmp_path / "t", FIRST)


def names(base: Path) -> list[str]:
    return sorted(each["name"] for each in reader.rows(base))


class FetchingEngine(FarEngine):
    """Executors whose rows come to the driver before a task runs.

    Attributes:
        fetches: How often they came.
        most: The estimate that they might have had the last time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fetches = self.most = 0

    def fetch(self, data, max_bytes: int) -> pa.Table:
        """Return the rows."""
        self.fetches += 1
        self.most = max_bytes
        return self.collect(data)


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({}, []),
        ({"strandline.write.driver.max.rows": 3}, []),
        ({"strandline.write.driver.max.rows": 2}, KEYS),
        ({"strandline.write.driver.max.bytes": 10}, KEYS),
        ({"strandline.write.driver.max.rewrite.bytes": 0}, ["AssignTask"]),
    ],
)
def test_rows_are_fetched_once_whoever_writes_them(base: Path, options, steps) -> None:
    engine = FetchingEngine()
    with client(base, engine=engine, **options) as c:
        result = c.upsert(NEXT)
    assert engine.fetches == 1
    assert engine.steps[: len(steps)] == steps
    assert result.written_by == ("executors" if steps else "driver")
    assert bool(engine.steps) == bool(steps)
    assert (result.rows_inserted, result.rows_updated) == (1, 2)
    assert names(base) == ["a@2", "b@2", "c@1"]
    assert reader.leftovers(base) == []


@pytest.mark.property
@pytest.mark.parametrize("operation", ["bulk_insert", "insert", "insert_overwrite"])
def test_more_rows_are_the_driver_s_where_no_keys_are_looked_up(base: Path, operation) -> None:
    """Ten times as many, also by the engine's estimate before it knows them."""
    options = {"strandline.write.driver.max.rows": 1}
    few, many = (table(*(row(f"{number}") for number in range(count))) for count in (10, 11))
    for rows, writer in ((few, "driver"), (many, "executors")):
        engine = FetchingEngine()
        with client(base, engine=engine, **options) as c:
            assert getattr(c, operation)(rows).written_by == writer
        assert engine.most == 10 << 20
    engine = FetchingEngine()
    with client(base, engine=engine, **options) as c:
        assert c.upsert(NEXT).written_by == "executors"
        assert engine.most == 2 << 20
        assert c.delete(FIRST).written_by == "executors"
        assert engine.most == 2 << 20


def test_nothing_is_fetched_for_a_driver_that_writes_nothing(base: Path) -> None:
    engine = FetchingEngine()
    with client(base, engine=engine, **{"strandline.write.driver.max.rows": 0}) as c:
        assert c.upsert(NEXT).written_by == "executors"
    assert engine.fetches == 0


def test_fetched_rows_that_can_not_be_written_are_refused(base: Path) -> None:
    found = pytest.raises(InputError, match="key column 'id' is null or empty in 1 of 2 rows")
    with client(base, engine=FetchingEngine()) as c, found:
        c.upsert(table(row("a"), row("")))
    assert names(base) == ["a@1", "b@1"]
