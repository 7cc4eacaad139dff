"""The order of rows in the files of a bulk insert."""

from __future__ import annotations

import random

import pyarrow.parquet as pq
import pytest

from strandline.write.engine.local import LocalEngine
from strandline.write.tasks.placement import AssignTask, InsertShares
from tests.strandline.write.tables import client, row, table
from tests.strandline.write.tasks.test_assign_task import COLUMNS, assigned, tagged
from timeline.errors import ConfigError

ROWS = 600
# So that 100 rows fit into a file.
SIZES = {"parquet__max__file__size": 100_000, "copyonwrite__record__size__estimate": 1000}


def shuffled(regions):
    keys = [f"k{number:04}" for number in range(ROWS - 1)] + ["\U0001f600"]
    random.Random(1).shuffle(keys)
    return table(*(row(key, regions[n % len(regions)]) for n, key in enumerate(keys)))


def written(base, rows, mode, operation="bulk_insert", tasks=3):
    """Return the keys of each file by partition, in the order of the file."""
    options = {**SIZES, "bulkinsert__sort__mode": mode}
    with client(base, engine=LocalEngine(tasks), **options) as c:
        getattr(c, operation)(rows)
    found = {}
    for path in base.rglob("*.parquet"):
        keys = pq.read_table(path, columns=["id"], partitioning=None)["id"].to_pylist()
        found.setdefault(path.parent.name, []).append(keys)
    assert sum(len(keys) for files in found.values() for keys in files) == ROWS
    return found


def test_rows_keep_their_order_by_default(tmp_path):
    rows = shuffled(["eu"])
    order = {key: at for at, key in enumerate(rows["id"].to_pylist())}
    for files in written(tmp_path, rows, "NONE").values():
        assert len(files) == 6
        for keys in files:
            assert [order[key] for key in keys] == sorted(order[key] for key in keys)


def test_rows_of_each_file_are_sorted(tmp_path):
    for files in written(tmp_path, shuffled(["eu", "us"]), "PARTITION_SORT").values():
        assert len(files) == 3
        assert all(keys == sorted(keys) for keys in files)
        ranges = sorted((keys[0], keys[-1]) for keys in files)
        assert ranges[0][1] > ranges[1][0]


def test_files_of_a_partition_have_disjoint_ranges(tmp_path):
    for files in written(tmp_path, shuffled(["eu", "us"]), "GLOBAL_SORT").values():
        assert len(files) == 3
        files.sort()
        assert [key for keys in files for key in keys] == sorted(
            key for keys in files for key in keys
        )
        assert all(80 <= len(keys) <= 120 for keys in files)


def test_a_partition_of_one_key_is_no_trouble(tmp_path):
    rows = table(*(row("a") for _ in range(ROWS)))
    assert list(written(tmp_path, rows, "GLOBAL_SORT")) == ["eu"]


@pytest.mark.parametrize("operation", ["insert", "upsert"])
def test_other_operations_are_not_sorted(tmp_path, operation):
    files = written(tmp_path, shuffled(["eu"]), "GLOBAL_SORT", operation)["eu"]
    assert not any(keys == sorted(keys) for keys in files)


def test_keys_are_searched_among_the_least_keys_of_buckets():
    inserts = {
        "p": InsertShares((3, 4, 5), (0.3, 0.6, 1.0), ("f", "m")),
        "q": InsertShares((6,), (1.0,)),
    }
    task = AssignTask(COLUMNS, (), inserts, (0,) * 7)
    found = assigned(task, tagged([*"pppppq"], [*"aflmz", "x"]))
    assert [each["_strandline_bucket"] for each in found] == [3, 4, 4, 5, 5, 6]


def test_modes_of_hudi_that_arent_built_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="allowed: NONE, PARTITION_SORT, GLOBAL_SORT"):
        client(tmp_path, bulkinsert__sort__mode="PARTITION_PATH_REPARTITION")
