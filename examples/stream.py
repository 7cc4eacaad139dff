"""A Spark stream into a Hudi table: each micro-batch is one commit (``foreachBatch``).

Run it with ``spark-submit examples/stream.py LANDING BASE_PATH CHECKPOINT`` or with ``python``. It
ends when every file in LANDING is committed; run it again after adding files there.
"""

import sys

from pyspark.sql import DataFrame, SparkSession

from strandline import Table, WriteClient

OPTIONS = {
    "hoodie.table.name": "sensors",
    "hoodie.datasource.write.recordkey.field": "sensor",
    "hoodie.datasource.write.partitionpath.field": "site",
    # The newest reading of a sensor stays, in whichever order the files arrive.
    "hoodie.table.ordering.fields": "at",
}


def main(landing: str, base_path: str, checkpoint: str) -> None:
    spark = SparkSession.builder.appName("sensors").getOrCreate()
    source = spark.readStream.schema("sensor string, site string, at long, celsius double")
    readings = source.option("maxFilesPerTrigger", 1).json(landing)
    # One client for the whole stream: its service follows the table from commit to commit.
    with WriteClient(spark, base_path, OPTIONS) as client:

        def commit(rows: DataFrame, batch: int) -> None:
            # After a crash Spark repeats the last batch. Upserting the same rows again is harmless.
            result = client.upsert(rows, extra_metadata={"batch": str(batch)})
            print(f"batch {batch}: {result.rows_inserted} new, {result.rows_updated} updated")

        sink = readings.writeStream.foreachBatch(commit).option("checkpointLocation", checkpoint)
        # Without this trigger the stream runs until it is stopped.
        sink.trigger(availableNow=True).start().awaitTermination()
    table = Table(base_path)
    print("last batch:", table.commit_metadata().extra_metadata["batch"])
    print(table.to_arrow(["sensor", "at", "celsius"]).sort_by("sensor").to_pylist())
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python examples/stream.py LANDING BASE_PATH CHECKPOINT")
    main(*sys.argv[1:])
