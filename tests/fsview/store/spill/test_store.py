from __future__ import annotations

import errno
import json
import logging
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from fsview.store.base import Handle, StoredChunk
from fsview.store.budget import Account, Budget
from fsview.store.spill.area import SpillArea
from fsview.store.spill.free_space import UNIT_BYTES
from fsview.store.spill.residency import BLOB_OVERHEAD_BYTES, resident_cost
from fsview.store.spill.store import SpillableStore
from tests.conformance.store_suite import OpenStore, StoreMachine, StoreSuite, blobs, content
from tests.fsview.store.blob_file import FaultyFile
from tests.kit.patience import PATIENCE_S
from timeline.errors import StoreError, StoreFullError

T = TypeVar("T")

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
        return self.store.commit([content(n, size) for n in range(first, first + count)])


def spilling(resident: int, among: int) -> Spilling:
    """A budget for a number of resident blobs of ``SIZE`` among a number of all blobs."""
    cost = resident * resident_cost(SIZE) + among * BLOB_OVERHEAD_BYTES
    return Spilling(cost + SIZE // 2)


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
    theirs = other.commit([content(n, SIZE) for n in range(100, 120)])
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


# Disks that are full or fail.


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG])
def test_a_full_disk_keeps_what_is_there_and_nothing_new(code: int) -> None:
    made = spilling(resident=20, among=60)
    chunks = made.commit(0, 40)
    made.file.write_error = OSError(code, "told to fail")
    used, status = made.records.used, made.store.status()
    with pytest.raises(StoreFullError, match="told to fail"):
        made.commit(100, 20)
    assert made.records.used <= used
    assert made.store.status() == status | {"resident_bytes": made.store.status()["resident_bytes"]}
    for _ in range(2):
        assert [chunk.read() for chunk in chunks] == [content(n, SIZE) for n in range(40)]
    assert made.budget.used <= made.budget.limit_bytes
    made.file.write_error = None
    chunks += made.commit(40, 20)
    assert [chunk.read() for chunk in chunks] == [content(n, SIZE) for n in range(60)]
    assert made.area.status()["failure"] is None


def test_a_full_disk_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fsview")
    made = spilling(resident=20, among=60)
    chunks = made.commit(0, 20)
    for streak in range(1, 3):
        made.file.write_error = OSError(errno.ENOSPC, "No space left on device")
        for n in range(5):
            with pytest.raises(StoreFullError):
                made.commit(n, 20)
        assert made.area.status()["failed_writes"] >= 5 * streak
        assert "No space left" in made.area.status()["failure"]
        made.file.write_error = None
        chunks += made.commit(20 * streak, 10)
    said = [record.levelname for record in caplog.records if "spilled" in record.message]
    assert said == ["WARNING", "INFO"] * 2


def test_a_failure_keeps_no_chunk_alive() -> None:
    made = spilling(resident=20, among=24)
    chunks = made.commit(0, 24)
    made.file.write_error = OSError(errno.ENOSPC, "No space left on device")
    while chunks:
        chunks.pop(0).read()
    made.store.collect()
    assert made.store.status()["blobs"] == 0
    assert "No space left" in made.area.status()["failure"]


def test_what_exceeds_the_budget_in_other_accounts_isnt_the_disks_fault() -> None:
    made = spilling(resident=2, among=20)
    made.file.write_error = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(StoreFullError):
        made.commit(0, 10)
    made.answers.add(2 * made.budget.limit_bytes)
    made.file.write_error = None
    assert made.store.commit([]) == []
    (chunk,) = made.commit(0, 1)
    assert chunk.read() == content(0, SIZE)
    assert made.store.commit([]) == []


def test_a_blob_that_fits_the_disk_in_part_leaves_the_rest_readable() -> None:
    made = spilling(resident=20, among=60)
    made.file.capacity = 10 * SIZE + SIZE // 2
    chunks: list[StoredChunk] = []

    def fill() -> None:
        while True:
            chunks.extend(made.commit(len(chunks), 1))

    with pytest.raises(StoreFullError):
        fill()
    assert 25 <= len(chunks) <= 35
    assert [chunk.read() for chunk in chunks] == [content(n, SIZE) for n in range(len(chunks))]
    del chunks[::2]
    chunks += made.commit(1000, 5)
    assert chunks[-1].read() == content(1004, SIZE)


def test_reading_goes_on_in_memory_when_there_is_space_again() -> None:
    made = spilling(resident=20, among=41)
    chunks = made.commit(0, 20)
    made.answers.add(10 * resident_cost(SIZE))
    made.budget.make_room()
    made.answers.add(-10 * resident_cost(SIZE))
    chunks += made.commit(20, 10)  # half of what is resident has no copy in the file
    made.file.write_error = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(StoreFullError):
        made.commit(100, 15)
    made.file.write_error = None
    for _ in range(100):
        chunks[0].read()
        chunks[1].read()
    assert made.area.status()["failure"] is None
    made.file.reads.clear()
    chunks[0].read()
    assert made.file.reads == []


def test_a_failed_read_names_file_and_offset_and_may_be_repeated() -> None:
    made = spilling(resident=2, among=20)
    chunks = made.commit(0, 20)
    made.file.read_error = OSError(errno.EIO, "Input/output error")
    with pytest.raises(StoreError, match=r"offset 0 of spilled/blobs: .*Input/output error"):
        chunks[0].read()
    assert chunks[-1].read() == content(19, SIZE)
    made.file.read_error = None
    assert chunks[0].read() == content(0, SIZE)
    assert made.area.status()["failed_reads"] == 1


def test_a_file_that_was_cut_is_an_error_of_what_is_lost() -> None:
    made = spilling(resident=2, among=20)
    chunks = made.commit(0, 20)
    del made.file.content[5 * SIZE :]
    assert chunks[0].read() == content(0, SIZE)
    with pytest.raises(StoreError, match=r"offset \d+ of spilled/blobs: the file ends after 0"):
        chunks[10].read()


def test_a_bit_that_flips_is_noticed() -> None:
    made = spilling(resident=2, among=20)
    chunks = made.commit(0, 20)
    offset = made.file.writes[7]
    made.file.content[offset + 500] ^= 1
    with pytest.raises(StoreError, match=rf"offset {offset} of spilled/blobs .*checksum"):
        chunks[7].read()
    assert chunks[6].read() == content(6, SIZE)
    assert chunks[8].read() == content(8, SIZE)


def test_a_file_that_cant_be_cut_is_used_again(caplog: pytest.LogCaptureFixture) -> None:
    made = spilling(resident=1, among=20)
    chunks = made.commit(0, 20)
    made.file.cut_error = OSError(errno.EIO, "Input/output error")
    chunks.clear()
    made.store.collect()
    assert "spilled/blobs can't be cut to 0 bytes" in caplog.text
    chunks = made.commit(20, 20)
    assert [chunk.read() for chunk in chunks] == [content(n, SIZE) for n in range(20, 40)]
    assert len(made.file.content) <= 20 * (SIZE + UNIT_BYTES)


# Threads.


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


def test_budget_is_kept_under_load_of_ten_times_as_much() -> None:
    """Four threads commit, forget, and read each other's partitions, all at once."""
    made = Spilling(0, WatchedBudget(1 << 20))
    shared: list[list[tuple[int, StoredChunk]]] = [[] for _ in range(4)]

    def work(seed: int) -> int:
        order, total = random.Random(seed), 0
        for n in range(100):
            numbers = [seed * 10_000 + n * 10 + k for k in range(order.randrange(1, 12))]
            new = made.store.commit([content(number, 4000 + number % 500) for number in numbers])
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


# Random steps with a disk that fails now and then.


class SpillMachine(StoreMachine):
    """Whatever the disk does, nothing kept is lost, and the counts are right."""

    def __init__(self, made: Spilling) -> None:
        self.made = made
        super().__init__(lambda _: made.store, Path())

    def teardown(self) -> None:
        self.live.clear()
        self.made.store.collect()
        assert self.made.records.used == 0
        assert len(self.made.file.content) == 0

    @rule(new=st.lists(blobs, max_size=6))
    def commit(self, new: list[bytes]) -> None:
        try:
            chunks = self.store.commit(new)
        except StoreFullError:
            assert self.made.file.write_error is not None
        else:
            self.keep(chunks, new)

    @rule(fails=st.booleans())
    def disk(self, fails: bool) -> None:
        self.made.file.write_error = OSError(errno.ENOSPC, "full") if fails else None

    @rule(size=st.integers(0, 50_000))
    def answers_take(self, size: int) -> None:
        self.made.answers.add(size - self.made.answers.used)
        self.made.budget.make_room()

    @invariant()
    def counts_are_those_of_the_model(self) -> None:
        self.store.collect()
        status = self.store.status()
        assert status["blobs"] == len(self.live)
        assert status["bytes"] == sum(len(blob) for _, blob in self.live.values())
        resident = self.made.area.index.resident
        assert status["resident_bytes"] == sum(map(len, resident.values()))
        assert self.made.records.used == (
            len(self.live) * BLOB_OVERHEAD_BYTES
            + sum(resident_cost(len(blob)) for blob in resident.values())
        )

    @invariant()
    def the_budget_is_kept(self) -> None:
        made = self.made
        resident = len(made.area.index.resident)
        assert made.budget.used <= made.budget.limit_bytes or not resident or self.disk_is_full()

    def disk_is_full(self) -> bool:
        return self.made.area.status()["failure"] is not None


@pytest.mark.property
@pytest.mark.parametrize("limit", [5_000, 60_000])
def test_random_steps_on_a_disk_that_fails(limit: int) -> None:
    run_state_machine_as_test(
        lambda: SpillMachine(Spilling(limit)),
        settings=settings(max_examples=40, stateful_step_count=30),
    )
