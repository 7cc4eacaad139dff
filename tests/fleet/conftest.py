"""One Spark session for the jobs that run while faults happen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from demo.spark import start_session


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    session = start_session("strandline-fleet", request.config.getoption("--spark-master"))
    yield session
    session.stop()
