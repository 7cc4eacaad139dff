"""One Spark session with Hudi's bundle for all oracle tests, and a table of ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oracle.hudi import Hudi, hudi_session
from tests.oracle.tables import FIRST, ours, writer


@pytest.fixture(scope="session")
def hudi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hudi]:
    with hudi_session(tmp_path_factory.mktemp("warehouse")) as session:
        yield session


@pytest.fixture
def path(tmp_path: Path, version: int) -> Path:
    """A table of ours with the first rows."""
    with writer(tmp_path / "rides", ours(version)) as client:
        client.insert(FIRST)
    return tmp_path / "rides"
