"""A driver for executors that have little: ``spark-submit`` gives them the packages as archives."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

from pyspark.sql import SparkSession

from executor_proxy import connect
from fsview.model.file_system_view import FileSystemView
from strandline import TimelineService
from strandline.write.client import WriteClient
from tests.spark.cluster import driver
from tests.spark.cluster.driver import REGIONS

PACKAGES = ("timeline", "fsview", "executor_proxy", "strandline")
INSTALLED = ("pyarrow", "numpy", "fsspec", "fastavro", "orjson", "pandas", "flask", "httptools")


def read(spark: SparkSession, view: FileSystemView) -> dict[str, dict[str, str]]:
    """Return the latest base files of each region, read by tasks that carry the view."""
    context = spark.sparkContext
    carried = context.broadcast(view)
    spread = context.parallelize(REGIONS, len(REGIONS))
    return {
        "closure": dict(spread.map(lambda it: (it, str(view.latest_base_files(it)))).collect()),
        "broadcast": dict(
            spread.map(lambda it: (it, str(carried.value.latest_base_files(it)))).collect()
        ),
    }


def importable(spark: SparkSession) -> list[Any]:
    """Return what the executors' Python can import, and from where."""

    def look(_: int) -> list[Any]:
        names = [name for name in (*PACKAGES, *INSTALLED) if find_spec(name) is not None]
        import executor_proxy

        return [names, executor_proxy.__file__, sys.prefix]

    seen = spark.sparkContext.parallelize(range(2), 2).map(look).collect()
    assert seen[0][0] == seen[1][0]
    return seen[0]


def main() -> None:
    spec = driver.specification()
    spark, base = driver.start("lean", None, {}), spec["base"]
    with TimelineService([base]) as service:
        view = connect(service.url, base, token=service.token, fallback=False)
        lost = connect(spec["dead"], base, token=service.token)
        report: dict[str, Any] = {
            "importable": importable(spark),
            "expected": {region: str(view.latest_base_files(region)) for region in REGIONS},
            "asked": read(spark, view),
            "listed": read(spark, lost),
        }
    # The tasks of a write need the fourth package, too.
    spark.sparkContext.addPyFile(spec["strandline"])
    rows = [(f"k{key}", REGIONS[key % 3], 2, f"k{key}@2") for key in range(6, 15)]
    frame = spark.createDataFrame(rows, "id string, region string, ts long, name string")
    with WriteClient(spark, base, driver.OPTIONS) as client:
        assert client.service is not None  # waited for, so that it answers
        report["write"] = driver.summary(client.upsert(frame))
    spark.stop()
    driver.write_report(spec["report"], report)


if __name__ == "__main__":
    main()
