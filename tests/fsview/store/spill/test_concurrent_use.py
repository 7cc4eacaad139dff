"""A spillable store under concurrent reads, writes and removals."""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

from fsview.store.base import Handle, StoredChunk
from fsview.store.budget import Account, Budget
from fsview.store.spill.residency import resident_cost
from tests.conformance.store_machine import content
from tests.fsview.store.spill.spilling import COST, SIZE, Spilling, spilling
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.stores import blobs_of
from timeline.errors import StoreError

T = TypeVar("T")


def in_thread(work: Callable[[], T]) -> Callable[[], T]:
    """Start work in a thread; the function returned waits for its result."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as exc:
            errors.append(exc)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def outcome() -> T:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "it waits for a lock"
        if errors:
            raise errors[0]
        return results[0]

    return outcome


def test_readers_do_not_wait_for_a_write() -> None:
    made = spilling(resident=20, among=40)
    chunks = made.commit(0, 30)
    oldest = Handle(chunks[10].handle)
    made.file.writing.clear()
    made.answers.add(resident_cost(SIZE))
    writer = in_thread(made.budget.make_room)
    assert made.file.waiting.wait(PATIENCE_S)
    resident = in_thread(chunks[29].read)
    spilled = in_thread(chunks[0].read)
    leaving = in_thread(lambda: made.store.get(oldest))
    assert resident() == content(29, SIZE)
    assert spilled() == content(0, SIZE)
    assert leaving() == content(10, SIZE)
    made.file.writing.set()
    writer()
    made.file.reads.clear()
    assert chunks[10].read() == content(10, SIZE)
    assert made.file.reads == []  # it was used while it was written, so another went
    assert made.budget.used <= made.budget.limit_bytes


def test_a_blob_forgotten_while_it_is_written_leaves_no_trace() -> None:
    made = spilling(resident=20, among=20)
    chunks = made.commit(0, 20)
    made.file.writing.clear()
    made.answers.add(SIZE)
    writer = in_thread(made.budget.make_room)
    assert made.file.waiting.wait(PATIENCE_S)
    chunks.clear()
    in_thread(made.store.collect)
    made.file.writing.set()
    writer()
    made.store.collect()
    assert made.records.used == 0
    assert made.area.status()["file_bytes"] == 0


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_blob_that_cant_be_written_while_others_use_or_forget_it(forgotten: bool) -> None:
    made = spilling(resident=20, among=20)
    chunks = made.commit(0, 20)
    made.file.writing.clear()
    made.file.write_error = OSError(errno.ENOSPC, "No space left on device")
    made.answers.add(SIZE)
    writer = in_thread(made.budget.make_room)
    assert made.file.waiting.wait(PATIENCE_S)
    if forgotten:
        chunks.pop(0)
        in_thread(lambda: made.area.index.forget(made.area.forgotten))()
    else:
        assert chunks[0].read() == content(0, SIZE)
    made.file.writing.set()
    writer()
    assert made.records.used == len(chunks) * COST
    assert len({chunk.read() for chunk in chunks}) == len(chunks)


def test_reading_what_is_forgotten_meanwhile_is_never_another_blob() -> None:
    made = spilling(resident=2, among=20)
    chunks = made.commit(0, 20)
    handle = chunks[0].handle
    made.file.reading.clear()
    reader = in_thread(lambda: made.store.get(handle))
    assert made.file.waiting.wait(PATIENCE_S)
    chunks.clear()
    new = made.commit(100, 20)
    made.file.reading.set()
    with pytest.raises(StoreError, match=f"no blob {handle}"):
        reader()
    assert [chunk.read() for chunk in new] == [content(n, SIZE) for n in range(100, 120)]


class WatchedAccount(Account):
    """Remembers the most that the whole budget held."""

    def __init__(self, budget: WatchedBudget) -> None:
        super().__init__("records")
        self.budget = budget

    __slots__ = ("budget",)

    def add(self, size: int) -> None:
        super().add(size)
        self.budget.most = max(self.budget.most, self.budget.used)


class WatchedBudget(Budget):
    most = 0

    def account(self, name: str, evict: Callable[[int], int] | None = None) -> Account:
        account = WatchedAccount(self)
        self._accounts += (account,)
        return account


@pytest.mark.property
def test_budget_is_kept_under_load_of_ten_times_as_much() -> None:
    """Four threads commit, forget, and read each other's partitions, all at once."""
    made = Spilling(0, WatchedBudget(1 << 20))
    shared: list[list[tuple[int, StoredChunk]]] = [[] for _ in range(4)]

    def work(seed: int) -> int:
        order, total = random.Random(seed), 0
        for n in range(100):
            numbers = [seed * 10_000 + n * 10 + k for k in range(order.randrange(1, 12))]
            new = made.store.commit(
                blobs_of([content(number, 4000 + number % 500) for number in numbers])
            )
            total += sum(chunk.size for chunk in new)
            shared[seed].extend(zip(numbers, new, strict=True))
            for _ in range(20):
                number, chunk = order.choice(shared[order.choice([seed, 0])] or shared[seed])
                assert chunk.read() == content(number, 4000 + number % 500)
        return total

    totals = [in_thread(lambda seed=seed: work(seed)) for seed in range(4)]
    assert sum(total() for total in totals) > 9 * made.budget.limit_bytes
    assert made.budget.used <= made.budget.limit_bytes
    assert isinstance(made.budget, WatchedBudget)
    assert made.budget.most <= 1.1 * made.budget.limit_bytes
    for numbered in shared:
        for number, chunk in numbered:
            assert chunk.read() == content(number, 4000 + number % 500)
    shared.clear()
    del numbered, chunk
    made.store.collect()
    assert (made.records.used, len(made.file.content)) == (0, 0)
