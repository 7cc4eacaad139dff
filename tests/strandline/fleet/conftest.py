"""A table of two partitions, three servers that look it up, and servers by memberships alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.tables.small_table import SmallTable
from tests.strandline.fleet.fixed_fleet import A, FixedFleet, fixed_fleet
from tests.strandline.fleet.hooked_state import Meanwhile
from tests.strandline.fleet.rosters import Servers
from timeline.storage.local import LocalStorage


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    found = SmallTable(LocalStorage(str(tmp_path / "t")))
    found.write(A, ("p=2", "b-0"))
    return found


@pytest.fixture
def fleet(table: SmallTable) -> Iterator[FixedFleet]:
    with fixed_fleet(table.storage.base_path) as servers:
        yield servers


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    running = Servers(tmp_path / "fleet.db")
    with running.opened:
        yield running


@pytest.fixture
def hooked(servers: Servers) -> Meanwhile:
    """A client of the servers' store whose requests can fail."""
    return Meanwhile(servers.client())
