"""A driver that upserts into a table and looks into it from every kind of Python worker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import pandas_udf
from pyspark.sql.types import StringType

from executor_proxy import connect
from fsview.model.file_system_view import FileSystemView
from strandline.write.client import WriteClient
from tests.spark.cluster import driver
from tests.spark.cluster.driver import REGIONS

COLUMNS = "id string, region string, ts long"


@pandas_udf(StringType())
def label(ids: pd.Series, times: pd.Series) -> pd.Series:
    return ids + "@" + times.astype(str)


def unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def rows(spark: SparkSession, time: int, keys: range) -> DataFrame:
    """Return rows that a pandas UDF and an Arrow function have made in executors."""
    data = [(f"k{key}", REGIONS[key % 3], time) for key in keys]
    plain = spark.createDataFrame(data, COLUMNS).repartition(2)
    named = plain.withColumn("name", label("id", "ts"))
    return named.mapInArrow(unchanged, named.schema)


def by_kind(spark: SparkSession, view: FileSystemView) -> dict[str, dict[str, int]]:
    """Count the base files of each region in tasks of each kind, with the view they carry."""

    def count(region: str) -> int:
        return len(view.latest_base_files(region))

    def in_arrow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            counts = [count(region) for region in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_arrays(
                [batch.column(0), pa.array(counts, pa.int32())], ["region", "files"]
            )

    @pandas_udf("int")
    def in_pandas(regions: pd.Series) -> pd.Series:
        return regions.map(count)

    context = spark.sparkContext
    carried = context.broadcast(view)
    # One task each: with worker reuse off, each starts a Python that imports Arrow and pandas.
    frame = spark.createDataFrame([(region,) for region in REGIONS], "region string").coalesce(1)
    spread = context.parallelize(REGIONS, 2)
    return {
        "arrow": dict(frame.mapInArrow(in_arrow, "region string, files int").collect()),
        "pandas": dict(frame.select("region", in_pandas("region")).collect()),
        "closure": dict(spread.map(lambda region: (region, count(region))).collect()),
        "broadcast": dict(
            spread.map(
                lambda region: (region, len(carried.value.latest_base_files(region)))
            ).collect()
        ),
    }


def workers(spark: SparkSession) -> list[tuple[int, int, str]]:
    """Return process, parent process and network of the workers of six tasks."""
    spread = spark.sparkContext.parallelize(range(6), 6)
    return spread.map(
        lambda _: (os.getpid(), os.getppid(), os.readlink("/proc/self/ns/net"))
    ).collect()


def run(spark: SparkSession, base: str, options: dict[str, str]) -> dict[str, Any]:
    with WriteClient(spark, base, {**driver.OPTIONS, **options}) as client:
        service = client.service
        assert service is not None
        write = driver.summary(client.upsert(rows(spark, 2, range(6, 15))))
        view = connect(service.url, base, token=service.token, fallback=False)
        return {
            "write": write,
            "files": {region: len(view.latest_base_files(region)) for region in REGIONS},
            "counted": by_kind(spark, view),
            "workers": workers(spark),
            "network": os.readlink("/proc/self/ns/net"),
            "url": service.url,
            "local_url": service.local_url,
            "status": service.status(),
        }


def main() -> None:
    spec = driver.specification()
    reports = {}
    for session in spec["sessions"]:
        spark = driver.start(session["name"], session["master"], session["settings"])
        try:
            reports[session["name"]] = run(spark, session["base"], session["options"])
        finally:
            spark.stop()
    driver.write_report(spec["report"], reports)


if __name__ == "__main__":
    main()
