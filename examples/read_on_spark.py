"""Query a Hudi table in Spark without Hudi's jar: its newest rows, and an earlier commit's.

Run it with ``spark-submit examples/read_on_spark.py BASE_PATH`` or with ``python``, on the table of
``batch_job.py``.
"""

import sys

import pyarrow.compute as pc
from pyspark.sql import SparkSession

from strandline import Table
from strandline.spark import read


def main(base_path: str) -> None:
    spark = SparkSession.builder.appName("orders").getOrCreate()
    # Tasks read these columns and rows only; Spark alone wouldn't know which the query uses.
    paid = read(spark, base_path, ["day", "cents"], filter=pc.field("state") == "paid")
    for row in paid.groupBy("day").sum("cents").orderBy("day").collect():
        print(row.day, row["sum(cents)"])
    first = Table(base_path).earliest_instant()
    then = read(spark, base_path, columns=[], as_of=first)
    print(f"as of {first}: {then.count()} orders")
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/read_on_spark.py BASE_PATH")
    main(sys.argv[1])
