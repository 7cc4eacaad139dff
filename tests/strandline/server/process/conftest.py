"""Fixtures for tests of services in processes of their own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.server.process.shared_service import SharedService
from tests.kit.tables import golden
from tests.strandline.server.process.services import BrokenStart


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("lake")
    golden.build("cow_basic_v9", 7, lake / "one")
    golden.build("cow_basic_v6", 3, lake / "two")
    return lake


@pytest.fixture
def broken_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BrokenStart:
    # Patched: the child imports what its driver imports.
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return BrokenStart(tmp_path)


@pytest.fixture(autouse=True)
def _no_shared_services() -> Iterator[None]:
    yield
    assert not SharedService._shared
