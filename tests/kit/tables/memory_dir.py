"""Tables in memory where there is a file system for it: writes wait for the disk otherwise."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY = "/dev/shm"


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    """A directory for the tests of a module."""
    folder = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="strandline-", dir=folder) as path:
        yield Path(path)


@pytest.fixture
def tmp_path(memory: Path) -> Path:
    """A directory of the test's own, in place of pytest's on disk."""
    return Path(tempfile.mkdtemp(dir=memory))
