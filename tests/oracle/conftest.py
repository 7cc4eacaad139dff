"""One Spark session with Hudi's bundle for all oracle tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.oracle.hudi import Hudi, hudi_session


@pytest.fixture(scope="session")
def hudi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hudi]:
    with hudi_session(tmp_path_factory.mktemp("warehouse")) as session:
        yield session
