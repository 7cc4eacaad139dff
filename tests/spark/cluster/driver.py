"""What the drivers of these tests have in common; each is a process, as a JVM has one context.

A driver is a module of this folder, run by ``python -m`` or ``spark-submit`` with its specification
as JSON. It writes its report, JSON too, to the path that the specification names.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from demo.spark import java_home

ROOT = Path(__file__).resolve().parents[3]
OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "region",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.clean.automatic": "false",
    # All tasks run on executors.
    "strandline.write.driver.max.rows": "0",
}
REGIONS = ("asia", "eu", "us")
SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    # Both executors take part from the first task on.
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def environment(pyspark_home: str, version: str) -> dict[str, str]:
    """Return the environment of Spark's processes, which see this checkout only if told so."""
    unset = ("PYTHONPATH", "SPARK_LOCAL_IP", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    return {name: value for name, value in os.environ.items() if name not in unset} | {
        "JAVA_HOME": str(java_home(version)),
        "SPARK_HOME": pyspark_home,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        # Names are looked up only where a test says so.
        "SPARK_LOCAL_HOSTNAME": "localhost",
    }


def start(name: str, master: str | None, settings: Mapping[str, str]) -> SparkSession:
    """Start a session; ``spark-submit`` gives the master itself."""
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in {**SETTINGS, **settings}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def summary(result: Any) -> dict[str, Any]:
    """Return the sources of a write's look-ups, its fallbacks, and the causes of its list calls."""
    lists = {cause for kind, cause in result.storage_calls if kind == "list"}
    return {
        "sources": Counter(lookup.source for lookup in result.lookups),
        "fallbacks": [str(fallback) for fallback in result.fallbacks],
        "lists": sorted(lists),
    }


def specification() -> dict[str, Any]:
    return json.loads(sys.argv[1])


def write_report(path: str, report: Any) -> None:
    Path(path).write_text(json.dumps(report), "utf-8")
