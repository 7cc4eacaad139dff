"""The spillable store: what is in memory and what is in the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsview.store.budget import Budget
from fsview.store.spill.area import SpillableStore, SpillArea
from fsview.store.spill.blob_space import UNIT_BYTES
from fsview.store.spill.residency import resident_cost
from tests.conformance.store_machine import OpenStore, content
from tests.conformance.store_suite import StoreSuite
from tests.fsview.store.spill.spilling import COST, SIZE, spilling
from tests.kit.servers.stores import blobs_of
from timeline.errors import StoreError


@pytest.fixture(params=[1, 20_000, 1 << 30])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    budget = Budget(request.param)
    area = SpillArea(tmp_path, budget.account("records"), budget)
    yield lambda _: SpillableStore(area)
    area.close()
    assert budget.used == 0


class TestSpillableStore(StoreSuite):
    """The promises of every store, kept with all, some and no blobs in the file."""


# What is in memory and what is in the file.


def test_nothing_is_written_within_the_budget() -> None:
    made = spilling(resident=20, among=20)
    chunks = made.commit(0, 20)
    assert [chunk.read() for chunk in chunks] == [content(n, SIZE) for n in range(20)]
    assert (made.file.writes, made.file.reads) == ([], [])
    assert made.records.used == 20 * COST
    assert made.store.status()["resident_bytes"] == 20 * SIZE


def test_the_least_recently_used_go_first() -> None:
    made = spilling(resident=20, among=24)
    chunks = made.commit(0, 20)
    for n in (0, 1, 2, 5):
        chunks[n].read()
    chunks += made.commit(20, 4)  # 3, 4, 6 and 7 go
    for n in (0, 1, 2, 5, *range(8, 24)):
        assert chunks[n].read() == content(n, SIZE)
    assert made.file.reads == []
    for count, n in enumerate((7, 6, 4, 3), 1):
        assert chunks[n].read() == content(n, SIZE)
        assert len(made.file.reads) == count


def test_what_is_read_back_stays_and_another_goes() -> None:
    made = spilling(resident=20, among=21)
    chunks = made.commit(0, 21)
    for _ in range(3):
        assert chunks[0].read() == content(0, SIZE)
    assert len(made.file.reads) == 1
    chunks[1].read()
    assert len(made.file.reads) == 2


def test_what_was_written_isnt_written_again() -> None:
    made = spilling(resident=20, among=40)
    chunks = made.commit(0, 40)
    for n in list(range(40)) * 3:
        assert chunks[n].read() == content(n, SIZE)
    assert len(made.file.writes) == 40
    assert made.area.status()["writes"] == 40


def test_a_large_blob_isnt_brought_back() -> None:
    made = spilling(resident=20, among=22)
    (large,) = made.commit(99, 1, size=5000)
    chunks = made.commit(0, 20)
    assert made.store.status()["resident_bytes"] <= 20 * SIZE
    for _ in range(2):
        assert large.read() == content(99, 5000)
    assert len(made.file.reads) == 2
    assert all(chunk.read() for chunk in chunks)
    assert len(made.file.reads) == 2


def test_other_accounts_push_records_out() -> None:
    made = spilling(resident=20, among=20)
    chunks = made.commit(0, 20)
    made.answers.add(10 * resident_cost(SIZE))
    made.budget.make_room()
    assert made.budget.used <= made.budget.limit_bytes
    assert made.store.status()["resident_bytes"] <= 12 * SIZE
    assert [chunk.read() for chunk in chunks] == [content(n, SIZE) for n in range(20)]


def test_what_was_forgotten_goes_before_anything_is_spilled() -> None:
    made = spilling(resident=20, among=20)
    chunks = made.commit(0, 20)
    del chunks[10:]
    made.answers.add(5 * SIZE)
    made.budget.make_room()
    assert made.file.writes == []
    assert made.store.status()["blobs"] == 10


# The file.


def test_room_in_the_file_is_used_again() -> None:
    made = spilling(resident=1, among=60)
    held = [made.commit(0, 20)]
    most = 0
    for round_ in range(50):
        held.append(made.commit(round_, 20, size=SIZE - round_))
        del held[0]
        most = max(most, made.area.status()["file_bytes"])
    assert most <= 3 * 20 * (SIZE + UNIT_BYTES)
    assert len(made.file.content) <= most


def test_the_end_of_the_file_is_cut_off() -> None:
    made = spilling(resident=1, among=40)
    first, second = made.commit(0, 20), made.commit(20, 20)
    before = len(made.file.content)
    del second
    made.store.collect()
    assert len(made.file.content) < before * 0.6
    del first
    made.store.collect()
    assert len(made.file.content) == 0
    assert made.area.status()["file_bytes"] == 0


def test_tables_share_the_budget_and_leave_alone() -> None:
    made = spilling(resident=10, among=40)
    other = SpillableStore(made.area)
    mine = made.commit(0, 20)
    theirs = other.commit(blobs_of([content(n, SIZE) for n in range(100, 120)]))
    with pytest.raises(StoreError, match=str(mine[0].handle)):
        other.get(mine[0].handle)
    with pytest.raises(StoreError, match=str(theirs[-1].handle)):
        made.store.get(theirs[-1].handle)
    made.store.close()
    assert other.status()["blobs"] == 20
    assert made.records.used <= 20 * COST
    assert [chunk.read() for chunk in theirs] == [content(n, SIZE) for n in range(100, 120)]
    made.area.close()
    made.area.close()
    assert made.records.used == 0
    assert len(made.file.content) == 0
    with pytest.raises(StoreError):
        theirs[0].read()


def test_status_of_the_area_is_fit_for_json() -> None:
    made = spilling(resident=10, among=20)
    chunks = made.commit(0, 20)
    chunks[0].read()
    status = json.loads(json.dumps(made.area.status()))
    assert status["failure"] is None
    assert status["reads"] == 1
    assert status["file_bytes"] == len(made.file.content)
    assert {"writes", "failed_writes", "failed_reads", "free_bytes"} <= set(status)
