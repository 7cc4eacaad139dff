"""Query a Hudi table in Spark without Hudi's jar.

Run it with ``spark-submit examples/read_on_spark.py BASE_PATH`` or with ``python``, on the table of
``batch_job.py``.
"""

import sys

import pyarrow.compute as pc
from pyspark.sql import SparkSession

from strandline.spark import read


def main(base_path: str) -> None:
    spark = SparkSession.builder.appName("orders").getOrCreate()
    # Tasks read these columns and rows only; Spark alone wouldn't know which the query uses.
    paid = read(spark, base_path, ["day", "cents"], filter=pc.field("state") == "paid")
    for row in paid.groupBy("day").sum("cents").orderBy("day").collect():
        print(row.day, row["sum(cents)"])
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/read_on_spark.py BASE_PATH")
    main(sys.argv[1])
