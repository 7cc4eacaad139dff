"""One Spark session for the tests that write with it; a failed task is tried once more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def spark() -> Iterator:
    pytest.importorskip("pyspark")
    from demo.spark import start_session

    session = start_session("strandline-tests", "local[2,2]")
    yield session
    session.stop()
