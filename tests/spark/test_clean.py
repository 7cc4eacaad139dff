"""A clean on Spark deletes many files in tasks."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from strandline.table_services.clean.execution import delete_files
from strandline.write.client import WriteClient
from strandline.write.engine.spark import SparkEngine
from strandline.write.tasks.delete_task import delete_on
from tests.kit.tables import reader
from timeline.storage.local import LocalStorage

pytestmark = [pytest.mark.spark, pytest.mark.covering]


def test_tasks_delete_and_return_what_they_could_not(spark, tmp_path):
    files = [("eu", f"{n}.parquet") for n in range(1200)]
    for partition, name in files[:30]:
        (tmp_path / partition).mkdir(exist_ok=True)
        (tmp_path / partition / name).touch()
    held = ("eu", "held.parquet")
    (tmp_path / "eu" / "held.parquet" / "file").mkdir(parents=True)  # a folder isn't deleted
    storage, counts = LocalStorage(str(tmp_path)), []
    by_threads = delete_files(storage, [held], 1)
    failed = delete_on(SparkEngine(spark), storage, 1)([*files, held], counts.append)
    assert [*failed] == [*by_threads]
    assert not [path for path in tmp_path.rglob("*.parquet") if path.is_file()]
    assert counts == [1201]


def options(**more):
    return {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "region",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.clean.commits.retained": "1",
        "hoodie.clean.parallelism": "1",
        **more,
    }


def frame(spark, ts):
    rows = [(f"{region}{n}", region, ts) for region in ("eu", "us", "asia") for n in range(20)]
    return spark.createDataFrame(rows, "id string, region string, ts long")


def stored(base):
    return {(each["id"], each["ts"]) for each in reader.rows(base)}


def few_are_many(client):
    """Make a client delete any number of files in tasks."""
    client._context = replace(client._context, driver_deletes=0)


def jobs(spark):
    """Return description and group of each job that the JVM remembers."""
    found = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    each = [found.apply(n) for n in range(found.size())]
    options = [(job.description(), job.jobGroup()) for job in each]
    return [tuple(o.get() if o.isDefined() else None for o in pair) for pair in options]


def test_tasks_delete_the_files_of_a_clean(spark, tmp_path):
    """End to end: planned by the driver, deleted in tasks, completed by the driver."""
    base, counts = tmp_path / "t", []
    with WriteClient(spark, base, options(**{"hoodie.clean.automatic": "false"})) as client:
        for ts in range(4):
            client.upsert(frame(spark, ts))
        few_are_many(client)
        preview = client.clean(dry_run=True)
        held = preview.files.to_pylist()[0]
        path = base / held["partition"] / held["file"]
        path.unlink()
        (path / "folder").mkdir(parents=True)  # which no task can delete
        done = client.clean(progress=lambda deleted, total: counts.append((deleted, total)))
        assert preview.files.num_rows == 6
        assert (done.files_deleted, done.files_failed) == (5, 1)
        assert counts == [(6, 6)]
        shutil.rmtree(path)
        client.upsert(frame(spark, 4))
        assert client.clean().files_failed == 0
    assert len(list(base.rglob("*.parquet"))) == 6
    assert stored(base) == {(row[0], 4) for row in frame(spark, 4).collect()}


def test_a_clean_beside_the_next_write_deletes_in_tasks_outside_its_job_group(spark, tmp_path):
    base, context = tmp_path / "t", spark.sparkContext
    given = options(**{"hoodie.clean.async.enabled": "true"})
    context.setJobGroup("batch", "of the caller")
    context.setLocalProperty("spark.scheduler.pool", "cleans")
    try:
        with WriteClient(spark, base, given) as client:
            few_are_many(client)
            results = [client.upsert(frame(spark, ts)) for ts in range(4)]
            assert [each.clean is not None for each in results] == [False, False, False, True]
            assert results[-1].clean.files_deleted == 3
            assert not [warning for each in results for warning in each.warnings]
        assert context.getLocalProperty("spark.jobGroup.id") == "batch"
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.scheduler.pool"):
            context.setLocalProperty(name, None)
    # The last one ended before the client was closed.
    found = [group for description, group in jobs(spark) if description == f"clean of {base}"]
    assert found == [None, None]
    assert stored(base) == {(row[0], 3) for row in frame(spark, 3).collect()}
    assert len(list(base.rglob("*.parquet"))) == 6
