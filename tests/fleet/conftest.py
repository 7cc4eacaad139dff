"""One Spark session, with Hudi's bundle, for the jobs that run while faults happen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.oracle.hudi import HUDI, Hudi, hudi_session


@pytest.fixture(scope="session")
def hudi(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Hudi]:
    master = request.config.getoption("--spark-master")
    with hudi_session(tmp_path_factory.mktemp("warehouse"), HUDI, master) as session:
        yield session


@pytest.fixture(scope="session")
def spark(hudi: Hudi) -> SparkSession:
    return hudi.spark
