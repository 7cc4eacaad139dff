"""One Spark session with PySpark's default settings for the tests that write with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from demo.spark import start_session
from tests.spark.class_archive import class_archive, java_options

ROOT: Final = Path(__file__).parents[2]
DEFAULTS: Final = {
    "spark.sql.execution.arrow.pyspark.enabled": "false",
    "spark.sql.shuffle.partitions": "200",
}
"""Spark's own values of settings that ``start_session`` changes."""
CLUSTER: Final = {
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.memory": "512m",
    "spark.executorEnv.PYTHONPATH": str(ROOT),
    # All executors take part from the first task on.
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
}
"""With executors in processes of their own."""


@pytest.fixture(scope="session", autouse=True)
def archived_classes() -> Iterator[None]:
    """Have all JVMs, of all processes, start from an archive of classes."""
    with pytest.MonkeyPatch.context() as m:
        archive = class_archive()
        if archive is not None:
            m.setenv("JDK_JAVA_OPTIONS", java_options(archive))
        yield


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator:
    """The session of ``--spark-master``; a failed task is tried again."""
    master = request.config.getoption("--spark-master")
    settings = DEFAULTS | (CLUSTER if master.startswith("local-cluster") else {})
    session = start_session("strandline-tests", master, settings)
    yield session
    session.stop()
