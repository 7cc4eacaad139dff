"""A spillable store on a disk that is full or fails."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from fsview.store.base import StoredChunk
from fsview.store.spill.blob_space import UNIT_BYTES
from fsview.store.spill.residency import BLOB_OVERHEAD_BYTES, resident_cost
from tests.conformance.store_machine import StoreMachine, blobs, content
from tests.fsview.store.spill.spilling import SIZE, Spilling, spilling
from tests.kit.servers.stores import blobs_of
from timeline.errors import StoreError, StoreFullError


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
            chunks = self.store.commit(blobs_of(new))
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
