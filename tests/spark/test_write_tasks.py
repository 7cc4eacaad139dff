"""On PySpark's default settings, and by executors, a write runs as many tasks as its work needs."""

from __future__ import annotations

import pytest

from benchmarks.write_tasks import one_partition, small_upsert

pytestmark = pytest.mark.spark


@pytest.mark.covering
def test_an_upsert_of_few_rows_runs_few_tasks(spark, tmp_path):
    found = small_upsert(spark, tmp_path / "t", 0)
    assert found.bound.value == 12
    assert found.met, found.values


def test_rows_of_an_unpartitioned_table_are_written_on_all_cores(spark, tmp_path):
    assert spark.sparkContext.defaultParallelism > 1
    found = one_partition(spark, tmp_path / "t", 0)
    assert found.met, found.values
