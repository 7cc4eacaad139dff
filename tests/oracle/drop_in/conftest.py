"""A running service of ours, and the log of Hudi's driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oracle.driver_log import driver_log
from tests.oracle.drop_in.service import Service, served
from tests.oracle.hudi import Hudi


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with served(tmp_path) as service:
        yield service


@pytest.fixture
def log(hudi: Hudi, tmp_path: Path) -> Iterator[Path]:
    with driver_log(hudi, tmp_path / "driver.log") as path:
        yield path
