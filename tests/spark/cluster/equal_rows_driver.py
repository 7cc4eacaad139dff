"""A driver that upserts equal rows of each key from many partitions, with each kind of index."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from strandline.table_api.table import Table
from strandline.write.client import WriteClient
from tests.spark.cluster import driver

KEYS, ROWS = 200, 2000


def rows(spark: SparkSession) -> DataFrame:
    """Return rows whose name is their number in the frame; those of a key lie far apart."""
    columns = f"cast(id % {KEYS} as string) id", "'eu' region", "1L ts", "cast(id as string) name"
    return spark.range(0, ROWS, 1, 8).selectExpr(*columns)


def run(spark: SparkSession, base: str, index: str, mode: str) -> list[int]:
    """Return the numbers of the rows that are left after an insert and an update of all keys."""
    options = {
        "hoodie.index.type": index,
        **({"hoodie.bucket.index.num.buckets": "2"} if index == "BUCKET" else {}),
        "hoodie.write.record.merge.mode": mode,
        "hoodie.embed.timeline.server": "false",
    }
    with WriteClient(spark, base, {**driver.OPTIONS, **options}) as client:
        for _ in range(2):
            client.upsert(rows(spark))
    return sorted(map(int, Table(base).to_arrow()["name"].to_pylist()))


def main() -> None:
    spec = driver.specification()
    spark = driver.start("equal rows", spec["master"], spec["settings"])
    try:
        found = {
            index: run(spark, f"{spec['base']}/{index}", index, mode)
            for index, mode in spec["cases"]
        }
    finally:
        spark.stop()
    driver.write_report(spec["report"], found)


if __name__ == "__main__":
    main()
