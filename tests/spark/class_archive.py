"""Archive the classes that Spark's JVMs load: with them they start in half the CPU time.

    python -m tests.spark.class_archive FILE

``tox`` makes the file once in an environment, and has every JVM of the environment use it
(``JDK_JAVA_OPTIONS``). Java goes on without one that is missing, or of other jars.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa

from demo.spark import start_session

ENDS_WITHIN_S = 300


def archive(file: Path) -> None:
    """Run what most tests run; the JVM writes its classes when it ends."""
    # The JVM that writes an archive can't use one.
    os.environ.pop("JDK_JAVA_OPTIONS", None)
    options = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit={file}"
    session = start_session(
        "class-archive", conf={"spark.driver.extraJavaOptions": f"{options} -Xlog:disable"}
    )
    rows = session.createDataFrame([(n, str(n)) for n in range(10)], "n long, name string")
    kept = rows.repartition(2).mapInArrow(lambda batches: batches, rows.schema).persist()
    assert kept.count() == rows.count()
    kept.groupBy("name").count().join(rows, "name").sort("n").collect()
    assert pa.Table.from_batches(kept._collect_as_arrow()).num_rows == kept.count()
    kept.unpersist()
    gateway = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    # The JVM ends when its standard input does.
    gateway.proc.communicate(timeout=ENDS_WITHIN_S)
    # A Java that lacks the archive of its own classes makes none: it is asked once.
    file.touch()


if __name__ == "__main__":
    (given,) = map(Path, sys.argv[1:])
    # PySpark 4 can't be installed on Python 3.10.
    if not given.exists() and find_spec("pyspark"):
        archive(given)
