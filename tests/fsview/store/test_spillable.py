from __future__ import annotations

import pytest

from fsview.store.budget import Budget
from fsview.store.spillable import SpillableStore, SpillArea
from tests.conformance.store_suite import OpenStore, StoreSuite


def area_of(limit: int) -> SpillArea:
    budget = Budget(limit)
    return SpillArea(None, budget.account("records"), budget)


@pytest.fixture(params=[1, 20_000, 1 << 30])
def open_store(request: pytest.FixtureRequest) -> OpenStore:
    area = area_of(request.param)
    return lambda _: SpillableStore(area)


class TestSpillableStore(StoreSuite):
    """The promises of every store, kept with all, some and no blobs in the file."""
