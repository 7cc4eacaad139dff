"""A Spark stream into a Hudi table: each micro-batch is one commit, and is committed once.

Run it with ``spark-submit examples/stream.py LANDING BASE_PATH CHECKPOINT`` or with ``python``. It
ends when every file in LANDING is committed; run it again after adding files there.
"""

import json
import sys

from pyspark.sql import SparkSession

from strandline import Table, stream

OPTIONS = {
    "hoodie.table.name": "sensors",
    "hoodie.datasource.write.recordkey.field": "sensor",
    "hoodie.datasource.write.partitionpath.field": "site",
    # The newest reading of a sensor stays, in whichever order the files arrive.
    "hoodie.table.ordering.fields": "at",
    # Each query that writes the table has an identifier of its own.
    "hoodie.datasource.write.streaming.checkpoint.identifier": "readings",
}


def show(progress: stream.BatchProgress) -> None:
    result = progress.result
    if result is None:  # Spark repeats a batch that it hadn't recorded when the query ended
        print(f"batch {progress.batch}: committed before")
    else:
        print(f"batch {progress.batch}: {result.rows_inserted} new, {result.rows_updated} updated")


def main(landing: str, base_path: str, checkpoint: str) -> None:
    spark = SparkSession.builder.appName("sensors").getOrCreate()
    source = spark.readStream.schema("sensor string, site string, at long, celsius double")
    readings = source.option("maxFilesPerTrigger", 1).json(landing)
    query = stream.write(
        readings,
        base_path,
        OPTIONS,
        checkpoint=checkpoint,
        # Without this trigger the stream runs until it is stopped.
        trigger={"availableNow": True},
        progress=show,
    )
    query.awaitTermination()
    table = Table(base_path)
    recorded = table.commit_metadata().extra_metadata["_hudi_streaming_sink_checkpoint"]
    print("last batch:", json.loads(recorded)["readings"])
    print(table.to_arrow(["sensor", "at", "celsius"]).sort_by("sensor").to_pylist())
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python examples/stream.py LANDING BASE_PATH CHECKPOINT")
    main(*sys.argv[1:])
