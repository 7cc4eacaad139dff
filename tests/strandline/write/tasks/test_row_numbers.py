"""Rows are numbered in the order of the caller's batch, and equal ones are combined by that."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from strandline.records.key.generator import KeyGenerator
from strandline.records.merge_rule import ROW_NUMBER
from strandline.write.engine.local import LocalEngine
from strandline.write.tasks.columns import keyed_schema
from strandline.write.tasks.key_task import PROBLEM_SCHEMA, KeyTask, ProblemTask, bad_rows
from tests.kit.engines.scrambled_engine import ScrambledEngine
from tests.kit.tables import reader
from tests.strandline.write.tables import client, row, table
from timeline.errors import StorageUnavailableError

COLUMNS = pa.schema([("id", pa.string()), ("n", pa.int64())])
GENERATOR = KeyGenerator(("id",), (), "NON_PARTITION")


def keyed(engine, parts, task=None):
    """Return the keyed rows of tables of (id, n), each a part in batches of two rows."""
    tables = [pa.table({"id": ids, "n": range(len(ids))}, schema=COLUMNS) for ids in parts]
    tables = [pa.Table.from_batches(each.to_batches(2), schema=COLUMNS) for each in tables]
    task = task or KeyTask(COLUMNS, GENERATOR, engine.attempt)
    return engine.collect(engine.transform(engine.from_driver(tables), task, keyed_schema(COLUMNS)))


def test_numbers_ascend_over_parts_batches_and_bad_rows():
    rows = keyed(LocalEngine(1), [["a", None, "b", "c", "d"], [], ["e", "f", ""]])
    good = rows.filter(rows["id"].is_valid())
    found = dict(zip(good["id"].to_pylist(), good[ROW_NUMBER].to_pylist(), strict=True))
    assert list(found.values()) == sorted(found.values())
    assert found == {"a": 0, "b": 2, "c": 3, "d": 4, "e": 2 << 33, "f": (2 << 33) + 1}


def test_a_bad_row_is_all_null():
    rows = keyed(LocalEngine(1), [["a", None, "b", ""]]).to_pylist()
    assert sorted(row["id"] or "" for row in rows) == ["", "", "a", "b"]
    assert all(set(row.values()) == {None} for row in rows if not row["id"])


def problems_of(*parts):
    engine = LocalEngine(1)
    tables = [pa.table({"id": ids, "n": range(len(ids))}, schema=COLUMNS) for ids in parts]
    task = ProblemTask(KeyTask(COLUMNS, GENERATOR, engine.attempt))
    return engine.collect(engine.transform(engine.from_driver(tables), task, PROBLEM_SCHEMA))


def test_bad_rows_are_named_with_their_number():
    found = problems_of(["a", None, "b", ""], [], [None, "c"])
    assert "'id' is null or empty in 3 of 6 rows; nothing" in str(bad_rows(found, 3, 6))


@pytest.mark.parametrize("parts", [(["a", None],), (["a"],), ()])
def test_bad_rows_that_are_others_when_read_again_are_counted_all_the_same(parts):
    error = bad_rows(problems_of(*parts) if parts else PROBLEM_SCHEMA.empty_table(), 2, 6)
    assert "a key is missing, an ordering value, or text isn't UTF-8 in 2 of 6 rows" in str(error)


def test_a_task_that_runs_again_numbers_rows_as_before():
    engine = LocalEngine(1, task_retries=2, cores=1)
    made = []

    def twice(batches):
        for batch in KeyTask(COLUMNS, GENERATOR, engine.attempt)(batches):
            made.append(batch[ROW_NUMBER].to_pylist())
            if len(made) == 2:
                raise StorageUnavailableError("not now")
            yield batch

    rows = keyed(engine, [["x"], ["a", "b", "c"]], twice)
    assert made[1] == made[2]
    assert rows[ROW_NUMBER].to_pylist() == [0, 1 << 33, (1 << 33) + 1, (1 << 33) + 2]


@pytest.mark.parametrize(
    "options",
    [
        {"index__type": "SIMPLE"},
        {"index__type": "BUCKET", "bucket__index__num__buckets": "2"},
        {"index__type": "GLOBAL_BLOOM"},
        {"index__type": "SIMPLE", "combine__before__insert": "true"},
        {"index__type": "BUCKET", "combine__before__insert": "true"},
    ],
    ids=lambda options: ", ".join(options.values()),
)
@pytest.mark.parametrize("mode", ["EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"])
def test_files_hold_the_last_of_equal_rows_and_no_number(tmp_path, options, mode):
    operation = "insert" if "combine__before__insert" in options else "upsert"
    numbers = random.Random(0).choices(range(8), k=60)
    rows = [row(f"k{key}", name=f"{key} at {at}") for at, key in enumerate(numbers)]
    options = {**options, "write__record__merge__mode": mode}
    with client(tmp_path / "t", engine=ScrambledEngine(1), **options) as c:
        getattr(c, operation)(table(*rows))
    found = reader.rows(tmp_path / "t")
    assert {each["id"]: each["name"] for each in found} == {
        each["id"]: each["name"] for each in rows
    }
    assert len(found) == len(set(numbers))
    assert not [name for name in found[0] if name.startswith("_strandline")]


def test_a_bulk_insert_carries_no_number_to_its_files(tmp_path):
    with client(tmp_path / "t", engine=ScrambledEngine(1)) as c:
        c.bulk_insert(table(row("a"), row("a", name="again")))
    found = reader.rows(tmp_path / "t", unique=False)
    assert len(found) == 2
    assert not [name for name in found[0] if name.startswith("_strandline")]
