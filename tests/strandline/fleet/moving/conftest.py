"""For all tests of moves: a fleet of two groups."""

from __future__ import annotations

import pytest

from tests.strandline.fleet.moving.moved_servers import Servers


@pytest.fixture
def servers() -> Servers:
    return Servers()
