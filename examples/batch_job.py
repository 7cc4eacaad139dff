"""A PySpark batch job: load orders into a Hudi table, then upsert a day's changes.

Run it with ``spark-submit examples/batch_job.py BASE_PATH`` or with ``python``.
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from strandline import Table, WriteClient

OPTIONS = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.recordkey.field": "order_id",
    "hoodie.datasource.write.partitionpath.field": "day",
    "hoodie.table.ordering.fields": "changed_at",
    "hoodie.cleaner.commits.retained": 3,
}


def orders(spark: SparkSession, first: int, last: int, state: str, changed_at: int) -> DataFrame:
    """Return orders by number; in a real job: ``spark.read`` of whatever arrived."""
    return spark.range(first, last).select(
        f.format_string("o-%06d", "id").alias("order_id"),
        f.format_string("2024-06-%02d", 1 + f.col("id") % 7).alias("day"),
        (f.col("id") * 25 % 9973).alias("cents"),
        f.lit(state).alias("state"),
        f.lit(changed_at).alias("changed_at"),
    )


def main(base_path: str) -> None:
    spark = SparkSession.builder.appName("orders").getOrCreate()
    # The client starts a timeline service for the job, which the job's tasks ask for files.
    with WriteClient(spark, base_path, OPTIONS) as client:
        client.bulk_insert(orders(spark, 0, 20_000, "open", changed_at=1))
        result = client.upsert(orders(spark, 19_000, 21_000, "paid", changed_at=2))
    print(f"{result.instant}: {result.rows_updated} updated, {result.rows_inserted} inserted")
    print(f"{len(result.fallbacks)} look-ups had to list storage")
    history = Table(base_path).history()
    print(history.select(["requested_time", "operation", "rows_updated"]).to_pylist())
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/batch_job.py BASE_PATH")
    main(sys.argv[1])
