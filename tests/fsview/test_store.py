"""The memory store keeps what every store must."""

from __future__ import annotations

import pytest

from fsview.store import MemoryStore, Store
from tests.conformance.store_suite import StoreSuite


class TestMemoryStore(StoreSuite):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()
