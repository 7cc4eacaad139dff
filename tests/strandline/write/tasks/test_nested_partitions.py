"""Partitions that lie below one another, of which readers find only the upper one."""

from __future__ import annotations

import pytest

from strandline.write.tasks.write_task import refuse_nested_in_table
from tests.kit.short_runs import quick_runs
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import reader
from tests.strandline.write.refusals import refused
from tests.strandline.write.tables import client, row, table
from timeline.errors import InputError
from timeline.table.partition_metadata import read_partition_metadata, write_partition_metadata


def ids(base):
    return sorted(each["id"] for each in reader.rows(base))


@pytest.mark.parametrize("operation", ["insert", "upsert", "bulk_insert", "insert_overwrite"])
@pytest.mark.parametrize("upper", ["x", "x/y"])
def test_one_write_with_a_partition_below_another(base, operation, upper):
    rows = table(row("1", "x/y/z"), row("2", upper), row("3", "x/yz"))
    match = f"partition 'x/y/z' lies below partition '{upper}'.*; nothing was written"
    refused(base, InputError, match, rows, operation)


OPERATIONS = ["insert", "upsert", "bulk_insert", "insert_overwrite_table"]


@pytest.mark.parametrize("operation", quick_runs(["upsert"], OPERATIONS))
@pytest.mark.parametrize(
    ("stored", "new"),
    [("x", "x/y"), ("x", "x/y/z"), ("x/y", "x"), ("x/y/z", "x"), ("x/y/z", "x/y")],
)
def test_a_new_partition_below_or_above_a_stored_one(base, operation, stored, new):
    with client(base) as c:
        c.insert(table(row("1", stored)))
        below, above = sorted((stored, new), key=len, reverse=True)
        match = f"partition '{below}' lies below partition '{above}'.*; the write has failed"
        with pytest.raises(InputError, match=match) as refusal:
            getattr(c, operation)(table(row("2", new)))
        assert "partitionpath.urlencode=true" in refusal.value.hint
        assert ids(base) == ["1", "a", "b"]
        assert c.insert(table(row("3", stored))).rolled_back
    assert ids(base) == ["1", "3", "a", "b"]


def test_paths_that_only_begin_alike_are_siblings(base):
    with client(base) as c:
        c.insert(table(row("1", "x/y")))
        c.insert(table(row("2", "x/yz"), row("3", "x-y"), row("4", "w/x/y")))
        c.upsert(table(row("1", "x/y", ts=2), row("5", "x/z")))
    assert ids(base) == ["1", "2", "3", "4", "5", "a", "b"]


def test_encoded_values_give_no_nested_partitions(tmp_path):
    with client(tmp_path / "t", datasource__write__partitionpath__urlencode="true") as c:
        c.insert(table(row("1", "x"), row("2", "x/y")))
        c.insert(table(row("3", "x/y/z")))
    assert ids(tmp_path / "t") == ["1", "2", "3"]


def test_deletes_may_name_partitions_that_are_not_there(base):
    with client(base) as c:
        c.delete(table(row("a"), row("a", "eu/x")))
    assert ids(base) == ["b"]


@pytest.mark.parametrize(("stored", "new", "more"), [("eu", "asia", 0), ("eu/x", "asia/x", 1)])
def test_only_a_new_partition_is_compared_with_the_stored_ones(tmp_path, stored, new, more):
    with client(tmp_path / "t") as c:
        first = c.insert(table(row("1", stored))).storage_calls
        again = c.insert(table(row("2", stored))).storage_calls
        opened = c.insert(table(row("3", new))).storage_calls
    assert [each.get(("list", "table"), 0) for each in (first, again, opened)] == [0, 0, 1]
    assert opened["stat", "table"] == first["stat", "table"] + more


@pytest.mark.parametrize("partition", ["x", "x/y"])
def test_another_task_may_open_the_partition_at_the_same_time(tmp_path, partition):
    def other_task(kind, _):
        if kind == "list":
            write_partition_metadata(storage, partition, "20260101000000000")

    storage = HookedStorage(tmp_path, before=other_task)

    refuse_nested_in_table(storage, partition)

    assert read_partition_metadata(storage, partition) is not None
