"""Rows that are computed twice, with other results: the write fails cleanly, or is right."""

from __future__ import annotations

import shutil

import pytest

from strandline.write.tasks.columns import RowCount, refuse_changed
from tests.kit.engines.forgetful_engine import ForgetfulEngine
from tests.kit.tables import reader
from tests.strandline.write.tables import client, row, table
from timeline.errors import RowsChangedError

BEFORE = table(row("a"), row("b"), row("c", "us"))
FIRST = (row("a", ts=2), row("c", "us", 2), row("d"), row("e", "us"))
OTHER = {
    "a row more": (*FIRST, row("f")),
    "a row less": FIRST[1:],
    "no rows": (),
    "another new key": (*FIRST[:2], row("x"), FIRST[3]),
    "another stored key": (row("b", ts=2), *FIRST[1:]),
    "another partition": (*FIRST[:3], row("e", "asia")),
    "partitions swapped": (*FIRST[:2], row("d", "us"), row("e", "eu")),
    "the row twice": (*FIRST[:3], FIRST[2]),
    "a row without a key": (*FIRST, row(None)),
}
MATCHED = ("upsert", "delete")
# What isn't matched is read twice: to count it and to write it.
UNMATCHED = {"insert": 2, "bulk_insert": 2}
# An upsert reads its rows to count them, to join them to the stored keys, and to write them, as
# nothing is cached. If tasks can't have whole partitions, each join also reads them to search keys;
# the last of these passes isn't among the cases.
PASSES = {
    "whole partitions": {**dict.fromkeys(MATCHED, 3), **UNMATCHED},
    "keys moved": {**dict.fromkeys(MATCHED, 4), **UNMATCHED},
}
CORES = {"whole partitions": 1, "keys moved": 3}
"""The partition with two of the three stored files is too much for one of three tasks."""
# When a delete has been tagged, rows whose key isn't stored don't matter any more.
TAGGED_DELETES = ("a row less", "no rows", "another stored key", "a row without a key")


def marked(*case):
    """Return a case with its mark: `tox -e quick` tries one change in each pass."""
    is_short = case[-1] == "a row less"
    return pytest.param(*case, marks=() if is_short else pytest.mark.property)


CASES = [
    marked(way, operation, changed_in, other)
    for way, passes in PASSES.items()
    for operation, last in passes.items()
    for changed_in in range(2, last + 1)
    for other in (TAGGED_DELETES if (operation, changed_in) == ("delete", last) else OTHER)
    if way == "whole partitions" or operation in MATCHED
]


@pytest.fixture(scope="module")
def stored(memory):
    """A table with the rows before, in three files."""
    path = memory / "before"
    with client(path) as c:
        for number in range(BEFORE.num_rows):
            c.bulk_insert(BEFORE.slice(number, 1))
    return path


@pytest.fixture
def base(stored, tmp_path):
    """A copy of that table: copying takes a twentieth of the time of writing it."""
    return shutil.copytree(stored, tmp_path / "t")


@pytest.mark.property
@pytest.mark.parametrize(("way", "operation", "changed_in", "other"), CASES)
def test_other_rows_in_a_later_pass_are_not_committed(base, way, operation, changed_in, other):
    stored = reader.rows(base)
    engine = ForgetfulEngine(CORES[way])
    with client(base, engine=engine) as c:
        with pytest.raises(RowsChangedError, match="the frame's rows changed during the write"):
            getattr(c, operation)(
                lambda run: table(*(OTHER[other] if run >= changed_in else FIRST))
            )
        assert engine.runs >= changed_in
        assert reader.rows(base) == stored
        assert len(reader.committed(base)) == BEFORE.num_rows
    with client(base) as c:
        c.upsert(table(*FIRST))
    assert len(reader.rows(base)) == 5
    assert reader.leftovers(base) == []


@pytest.mark.parametrize("way", PASSES)
@pytest.mark.parametrize("operation", [*MATCHED, *UNMATCHED])
def test_other_values_of_the_same_keys_are_written_once(base, way, operation):
    inserting = "insert" in operation
    rows = (row("d"), row("e", "us")) if inserting else FIRST
    engine = ForgetfulEngine(CORES[way])
    with client(base, engine=engine) as c:
        getattr(c, operation)(lambda run: table(*({**each, "name": f"run {run}"} for each in rows)))
    searches_again = way == "keys moved" and operation in MATCHED
    assert engine.runs == PASSES[way][operation] + searches_again
    written = [each["id"] for each in reader.rows(base) if each["name"].startswith("run")]
    assert written == ([] if operation == "delete" else [each["id"] for each in rows])


def test_rows_of_one_key_count_each(base):
    """Before they are combined, as a lost one may be the newest."""
    twice = (row("a", ts=2), row("a", ts=3))
    with client(base, engine=ForgetfulEngine()) as c, pytest.raises(RowsChangedError):
        c.upsert(lambda run: table(*(twice if run < 2 else twice[:1])))


def test_the_order_of_rows_does_not_count(base):
    with client(base, engine=ForgetfulEngine()) as c:
        c.upsert(lambda run: table(*(FIRST if run < 2 else FIRST[::-1])))
    assert len(reader.rows(base)) == 5


def test_a_difference_names_the_partition():
    with pytest.raises(RowsChangedError, match="in partition 'b' 3 rows were counted, then 0"):
        refuse_changed({"a": RowCount(1, 7), "b": RowCount(3, 9)}, {"a": RowCount(1, 7)})
    with pytest.raises(RowsChangedError, match="in partition 'a' 1 rows have other keys"):
        refuse_changed({"a": RowCount(1, 7)}, {"a": RowCount(1, 8)})
