"""Spillable stores with budgets of a number of blobs, for tests."""

from __future__ import annotations

from fsview.store.base import StoredChunk
from fsview.store.budget import Budget
from fsview.store.spill.area import SpillableStore, SpillArea
from fsview.store.spill.residency import BLOB_OVERHEAD_BYTES, resident_cost
from tests.conformance.store_machine import content
from tests.fsview.store.blob_file import FaultyFile
from tests.kit.servers.stores import blobs_of

SIZE = 1000
COST = BLOB_OVERHEAD_BYTES + resident_cost(SIZE)


class Spilling:
    """A store, and all that it is made of."""

    def __init__(self, limit: int, budget: Budget | None = None) -> None:
        self.file = FaultyFile()
        self.budget = budget or Budget(limit)
        self.answers = self.budget.account("answers")
        self.records = self.budget.account("records")
        self.area = SpillArea(None, self.records, self.budget, self.file)
        self.store = SpillableStore(self.area)

    def commit(self, first: int, count: int, size: int = SIZE) -> list[StoredChunk]:
        return self.store.commit(blobs_of([content(n, size) for n in range(first, first + count)]))


def spilling(resident: int, among: int) -> Spilling:
    """A budget for a number of resident blobs of ``SIZE`` among a number of all blobs."""
    cost = resident * resident_cost(SIZE) + among * BLOB_OVERHEAD_BYTES
    return Spilling(cost + SIZE // 2)
