"""A marker service on a local table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.server.marker.registry import MarkerService
from tests.strandline.server.marker.marker_service import Tables
from timeline.table.config import CONFIG_PATH


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A directory that passes for a table, with properties that can't be read."""
    properties = tmp_path / "t" / CONFIG_PATH
    properties.parent.mkdir(parents=True)
    properties.write_text("damaged")
    return tmp_path / "t"


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


@pytest.fixture
def service(tables: Tables) -> Iterator[MarkerService]:
    service = MarkerService(tables)
    yield service
    service.close()
