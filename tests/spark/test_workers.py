"""Python processes of executors, which Spark uses for one task after another."""

from __future__ import annotations

import gc
import os
import sys
from pkgutil import get_importer
from zipimport import zipimporter

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from strandline import LocalEngine, WriteClient
from strandline.spark import read
from strandline.write.engine.spark import SparkEngine

pytestmark = pytest.mark.spark

SEEN = pa.schema(
    [("process", pa.int64()), ("archives", pa.list_(pa.string())), ("frozen", pa.int64())]
)
OPTIONS = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"}


def archives_then_more(batches):
    """Yield what ``archives`` does, and then have finders of all archives."""
    yield from archives(batches)
    for path in sys.path:
        get_importer(path)


def archives(batches):
    """Yield the process, and the paths for which it has finders of archives."""
    for batch in batches:
        assert batch.num_rows == 1
    of_zips = [
        path for path, each in sys.path_importer_cache.items() if isinstance(each, zipimporter)
    ]
    row = {"process": os.getpid(), "archives": of_zips, "frozen": gc.get_freeze_count()}
    yield pa.RecordBatch.from_pylist([row], SEEN)


def test_a_process_has_no_finders_of_archives_when_it_is_used_again(spark):
    """They would cost the next task 70 ms or more; and its modules are frozen."""
    engine = SparkEngine(spark)
    found = {}
    for _ in range(100):
        rows = engine.transform(engine.from_driver([pa.table({"a": [1]})]), archives, SEEN)
        (row,) = engine.collect(rows).to_pylist()
        if row["process"] in found:
            break
        found[row["process"]] = row["archives"]
    assert row["process"] in found
    assert row["archives"] == []
    assert row["frozen"] > 0


def test_a_process_that_has_read_a_table_has_no_finders_of_archives(spark, tmp_path):
    with WriteClient(LocalEngine(), tmp_path / "t", OPTIONS) as client:
        client.insert(pa.table({"id": ["a"]}))
    frame = read(spark, tmp_path / "t")
    probe = spark.range(0, 1, 1, 1).mapInArrow(archives_then_more, from_arrow_schema(SEEN))
    had_archives = set()
    for _ in range(100):
        (row,) = probe.collect()
        if row.process in had_archives and not row.archives:
            break
        had_archives.add(row.process)
        assert frame.count()
    assert row.process in had_archives
    assert not row.archives
