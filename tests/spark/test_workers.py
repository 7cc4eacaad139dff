"""Python processes of executors, which Spark uses for one task after another."""

from __future__ import annotations

import gc
import os
import sys
from pkgutil import get_importer
from zipfile import ZipFile
from zipimport import zipimporter

import pyarrow as pa
import pytest

from strandline import LocalEngine, Table, WriteClient
from strandline.spark import task_rows, task_slices
from strandline.write.engine.spark import SparkEngine

pytestmark = [pytest.mark.spark, pytest.mark.covering]

SEEN = pa.schema(
    [("process", pa.int64()), ("archives", pa.list_(pa.string())), ("frozen", pa.int64())]
)
OPTIONS = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"}


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


def test_a_process_that_has_read_rows_has_no_finders_of_archives(spark, tmp_path):
    """Here it is this one: which of its processes Spark uses next is its own affair."""
    with WriteClient(LocalEngine(), tmp_path / "t", OPTIONS) as client:
        client.insert(pa.table({"id": ["a"]}))
    archive = str(tmp_path / "modules.zip")
    with ZipFile(archive, "w") as file:
        file.writestr("module.py", "")
    assert isinstance(get_importer(archive), zipimporter)
    scan = Table(tmp_path / "t").scan()
    (slices,) = task_slices(scan)
    assert sum(rows.num_rows for rows in task_rows(scan, slices)) == 1
    assert archive not in sys.path_importer_cache
    assert gc.get_freeze_count() > 0
