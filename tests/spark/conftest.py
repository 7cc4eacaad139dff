"""One Spark session for the tests that write with it; a failed task is tried once more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from demo.spark import start_session


@pytest.fixture(scope="session")
def spark() -> Iterator:
    session = start_session("strandline-tests", "local[2,2]")
    yield session
    session.stop()
