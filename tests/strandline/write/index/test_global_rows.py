"""Where a global index sends rows, compared with what real Hudi made of the same rows."""

import pyarrow as pa
import pytest

from strandline.records.merge import REMOVES
from strandline.write.index.search import stored_value
from strandline.write.index.search_tagging import GlobalPlacement
from strandline.write.tasks.columns import FILE

PARTITIONS = ("a", "a", "b", "b", "c", "c")
"""Partitions of six stored files."""

SCHEMA = pa.schema(
    [
        ("ts", pa.int64()),
        ("_hoodie_is_deleted", pa.bool_()),
        ("_hoodie_record_key", pa.string()),
        ("_hoodie_partition_path", pa.string()),
        (FILE, pa.int32()),
        (stored_value(0), pa.int64()),
    ]
)


def joined(key, own, ts, stored=None, held=None, second=False, deleted=None):
    """A row as the join leaves it; ``stored`` is the partition of the file that holds its key."""
    file = None if stored is None else PARTITIONS.index(stored) + second
    return dict(zip(SCHEMA.names, [ts, deleted, key, own, file, held], strict=True))


def placed(*rows, moves=True, ordering=("ts",), **options):
    """Return (key, partition, file, whether it removes, ordering value) of each row placed."""
    table = pa.Table.from_pylist(list(rows), SCHEMA)
    found = GlobalPlacement(PARTITIONS, moves, ordering, **options).place(table)
    names = [f"_hoodie_{each}" for each in ("record_key", "partition_path")]
    columns = found.select([*names, FILE, REMOVES, "ts"]).to_pylist()
    return [tuple(row.values()) for row in columns]


def test_a_newer_row_moves_its_record():
    assert placed(joined("k", "b", 6, "a", 5)) == [
        ("k", "a", 0, True, 6),
        ("k", "b", None, False, 6),
    ]


def test_equal_ordering_values_move_too():
    assert len(placed(joined("k", "b", 5, "a", 5))) == 2


def test_a_late_row_goes_to_the_stored_one():
    assert placed(joined("k", "b", 4, "a", 5)) == [("k", "a", 0, False, 4)]


@pytest.mark.parametrize("ts", [4, 6])
def test_by_commit_time_every_row_moves_its_record(ts):
    assert len(placed(joined("k", "b", ts, "a", 5), ordering=())) == 2


@pytest.mark.parametrize("ts", [4, 6])
def test_without_moves_rows_go_to_the_stored_ones(ts):
    assert placed(joined("k", "b", ts, "a"), moves=False) == [("k", "a", 0, False, ts)]


@pytest.mark.parametrize(("own", "file"), [("a", 0), ("b", 2)])
def test_rows_in_their_own_partition_and_new_ones_stay(own, file):
    rows = [joined("k", own, 1, own, 5), joined("n", own, 1)]
    assert placed(*rows) == [("k", own, file, False, 1), ("n", own, None, False, 1)]


@pytest.mark.parametrize("options", [{"delete": True, "ordering": ()}, {}, {"ordering": ()}])
def test_deletes_go_to_the_stored_row(options):
    row = joined("k", "zz", 6, "a", 5, deleted=True)
    assert placed(row, **options) == [("k", "a", 0, False, 6)]


def test_of_rows_with_one_key_the_newest_decides_the_partition():
    rows = [joined("k", "a", 6, "b", 5), joined("k", "c", 7, "b", 5)]
    assert placed(*rows) == [("k", "b", 2, True, 7), ("k", "c", None, False, 7)]
    rows = [joined("n", "a", 1), joined("n", "b", 2), joined("n", "c", 1)]
    assert placed(*rows) == [("n", "b", None, False, 2)]


def test_a_record_in_two_other_partitions_is_inserted_once():
    """Hudi inserts it twice."""
    rows = [joined("k", "d", 9, "a", 5), joined("k", "d", 9, "c", 8)]
    assert placed(*rows) == [
        ("k", "a", 0, True, 9),
        ("k", "c", 4, True, 9),
        ("k", "d", None, False, 9),
    ]


def test_a_record_that_is_also_in_its_own_partition_is_updated_there():
    rows = [joined("k", "c", 9, "a", 5), joined("k", "c", 9, "c", 8)]
    assert placed(*rows) == [("k", "a", 0, True, 9), ("k", "c", 4, False, 9)]


def test_a_record_in_two_files_of_its_partition_is_updated_in_both():
    rows = [joined("k", "a", 9, "a", 5), joined("k", "a", 9, "a", 5, second=True)]
    assert [row[2] for row in placed(*rows)] == [0, 1]


def test_no_rows_are_no_trouble():
    assert placed() == []


def test_nulls_are_less_than_any_ordering_value():
    assert len(placed(joined("k", "b", 1, "a", None))) == 2
    assert placed(joined("k", "b", None, "a", 1)) == [("k", "a", 0, False, None)]
