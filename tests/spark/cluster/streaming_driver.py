"""A structured-streaming driver that writes two tables, and whose service is killed twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from executor_proxy import connect
from fsview.model.file_system_view import FileSystemView
from strandline import TimelineService
from strandline.write.client import WriteClient
from tests.spark.cluster import driver
from tests.spark.cluster.driver import REGIONS

COLUMNS = "id string, region string, ts long, name string"


def stream(
    spark: SparkSession, feed: str, files: int, checkpoint: str, write: Callable[..., None]
) -> None:
    """Give ``write`` the files of the feed, ``files`` a batch; return when all are written."""
    rows = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", files).parquet(feed)
    sink = rows.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    query = sink.trigger(availableNow=True).start()
    query.awaitTermination()


def figures(service: TimelineService) -> dict[str, Any]:
    status = service.status()
    return {"url": service.url, "pid": status["pid"], "restarts": status["restarts"]}


def killing(frame: DataFrame, view: FileSystemView, pid: int, flag: str) -> DataFrame:
    """Return the same rows, whose first task kills the service between two look-ups."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        view.latest_base_files(REGIONS[0])
        try:
            os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            os.kill(pid, signal.SIGKILL)
        # This view never lists: it finds the service's next process, or the task fails.
        view.latest_base_files(REGIONS[1])
        yield from batches

    return frame.mapInArrow(run, frame.schema)


def one_client_for_all(spark: SparkSession, spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Write each batch to two tables; kill the service before batch 1 and in batch 2."""
    batches = []
    with (
        WriteClient(spark, spec["one"], driver.OPTIONS) as one,
        WriteClient(spark, spec["two"], driver.OPTIONS) as two,
    ):

        def write(frame: DataFrame, number: int) -> None:
            service = one.service
            assert service is not None
            assert service is two.service
            pid = service.status()["pid"]
            if number == 1:
                os.kill(pid, signal.SIGKILL)
            if number == 2:
                view = connect(service.url, spec["one"], token=service.token, fallback=False)
                frame = killing(frame, view, pid, spec["flag"])
            writes = [driver.summary(client.upsert(frame)) for client in (one, two)]
            batches.append({**figures(service), "writes": writes})

        stream(spark, spec["feed"], 1, spec["first"], write)
    return batches


def one_client_for_each(spark: SparkSession, spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Write each batch with a client of its own, whose service lingers for the next."""
    batches = []
    lingering = {"strandline.embed.timeline.server.linger.secs": "600"}

    def write(frame: DataFrame, number: int) -> None:
        with WriteClient(spark, spec["one"], {**driver.OPTIONS, **lingering}) as client:
            assert client.service is not None
            writes = [driver.summary(client.upsert(frame))]
            batches.append({**figures(client.service), "writes": writes})

    stream(spark, spec["feed"], 2, spec["second"], write)
    return batches


def main() -> None:
    spec = driver.specification()
    spark = driver.start("streaming", "local[2]", {"spark.driver.host": "127.0.0.1"})
    report = {
        "kept": one_client_for_all(spark, spec),
        "lingering": one_client_for_each(spark, spec),
    }
    spark.stop()
    driver.write_report(spec["report"], report)


if __name__ == "__main__":
    main()
