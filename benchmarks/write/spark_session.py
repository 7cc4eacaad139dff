"""Spark sessions of the benchmark's sides."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.java.server import HUDI
from benchmarks.object_store.s3_server import CREDENTIALS
from demo.spark import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BUNDLE: Final = f"org.apache.hudi:hudi-spark3.5-bundle_2.12:{HUDI}"
_OURS: Final = {"spark.driver.memory": "2g", "spark.driver.extraJavaOptions": "-XX:+UseParallelGC"}
"""A JVM with both compilers, as in a job: ``start_session`` starts those of short runs."""
_HUDI: Final = {
    "spark.jars.packages": _BUNDLE,
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
}
_MASTER: Final = "local[{}]"


def plain_settings(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session for this package; ``conf`` has those of both sides."""
    return {**_OURS, **conf}


def hudi_settings(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session with Hudi's bundle (``STRANDLINE_IVY_DIR``)."""
    ivy = os.environ.get("STRANDLINE_IVY_DIR")
    kept = {"spark.jars.ivy": ivy} if ivy else {}
    return {**_OURS, **_HUDI, **kept, **conf}


def plain_session(conf: Mapping[str, str]) -> SparkSession:
    """Return a session of ``plain_settings``."""
    return start_session("benchmark", _master(), plain_settings(conf))


def hudi_session(conf: Mapping[str, str]) -> SparkSession:
    """Return a session of ``hudi_settings``; Ivy fetches the bundle."""
    return start_session("benchmark", _master(), hudi_settings(conf))


def s3_session(endpoint: str) -> SparkSession:
    """Return a session with Hudi and S3A on an S3 API server, whose jars Ivy fetches (280 MB)."""
    credentials = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
    s3a = {
        "endpoint": endpoint,
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "access.key": CREDENTIALS["key"],
        "secret.key": CREDENTIALS["secret"],
        "aws.credentials.provider": credentials,
        # Hudi 1.2.0 leaves streams of its metadata table open; after some 30 commits all of S3A's
        # 96 connections are taken.
        "connection.maximum": "2000",
    }
    packages = f"{_BUNDLE},org.apache.hadoop:hadoop-aws:{_hadoop_version()}"
    return hudi_session(
        {
            "spark.sql.shuffle.partitions": "4",
            "spark.jars.packages": packages,
            **{f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()},
        }
    )


def _hadoop_version() -> str:
    """Return the version of Hadoop's client in PySpark, which S3A must have, too."""
    import pyspark  # noqa: PLC0415 - only a session needs it

    jar = next(Path(pyspark.__path__[0]).glob("jars/hadoop-client-api-*.jar"))
    return jar.stem.removeprefix("hadoop-client-api-")


def completed_tasks(session: SparkSession) -> int:
    """Return how many tasks the executors have completed."""
    context = session.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()  # the store hears of tasks later than the driver
    store = context.statusStore()
    executors = store.executorList(False)
    return sum(executors.apply(at).completedTasks() for at in range(executors.size()))


def _master() -> str:
    return _MASTER.format(os.cpu_count())


_ALWAYS: Final = "hoodie.metadata.enable=false,hoodie.compact.inline.max.delta.commits=1"


def compaction_call(base: object) -> str:
    """Return the statement by which Hudi plans a compaction of a table and executes it."""
    call = f"call run_compaction(op => 'scheduleAndExecute', path => '{base}'"
    return f"{call}, options => '{_ALWAYS}')"
