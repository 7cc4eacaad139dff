"""Golden tables on disk for the services of this folder's tests."""

from __future__ import annotations

import pytest

from tests.kit.servers.golden_services import GoldenLake


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> GoldenLake:
    return GoldenLake(tmp_path_factory.mktemp("lake"))
