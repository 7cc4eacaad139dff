"""What the tests of the proxy share."""

from __future__ import annotations

from pathlib import Path

import pytest

from executor_proxy.worker_state import start_anew
from tests.kit.tables.small_table import SmallTable
from timeline.storage.local import LocalStorage


@pytest.fixture(autouse=True)
def _new_worker() -> None:
    """Let no test see what another found out about an address or a table."""
    start_anew()


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    """Return a table of one commit to two partitions."""
    found = SmallTable(LocalStorage(str(tmp_path / "t")))
    found.write(("p=1", "a-0"), ("p=2", "b-0"))
    return found
