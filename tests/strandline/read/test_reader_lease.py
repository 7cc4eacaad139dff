"""Readers' leases: the suite on each storage, their content, their expiry, damaged ones."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from strandline.read.state.reader_lease import (
    CLOCK_PATH,
    LEASE_FOLDER,
    Lease,
    Leases,
    checked_ttl,
    held_from,
)
from tests.conformance.lease_suite import ONE, LeaseSuite
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables.small_table import SmallTable
from timeline.errors import InputError, StorageUnavailableError
from timeline.instant import COMMIT, LOG_COMPACTION
from timeline.storage.base import Storage
from timeline.storage.fsspec_storage import FsspecStorage
from timeline.storage.local import LocalStorage

GRAIN_MS = 2_000
"""How much longer than its time to live a lease counts, as storages' times are coarse."""


class TestLocal(LeaseSuite):
    @pytest.fixture
    def storage(self, tmp_path) -> Storage:
        return LocalStorage(str(tmp_path / "t"))


class TestFsspec(LeaseSuite):
    @pytest.fixture
    def storage(self) -> Storage:
        return FsspecStorage(f"memory://{uuid.uuid4()}/table")


@pytest.mark.property
@pytest.mark.s3
class TestS3(LeaseSuite):
    @pytest.fixture
    def storage(self, s3) -> Storage:
        return s3.storage()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def storage(clock) -> MemoryStorage:
    return MemoryStorage(now_ms=clock.now_ms)


def test_a_lease_expires_after_its_time_to_live_and_is_swept(storage, clock):
    leases = Leases(storage, clock)
    leases.create(ONE)
    clock.advance(600_000 + GRAIN_MS)
    assert [each.id for each in leases.live(sweep=True)] == [ONE.id]
    clock.advance(1)
    assert leases.live() == ()
    assert leases.live(sweep=True) == ()
    assert set(storage.files) == {CLOCK_PATH}


def test_a_renewal_begins_its_time_to_live_again(storage, clock):
    leases = Leases(storage, clock)
    leases.create(ONE)
    for _ in range(3):
        clock.advance(400_000)
        assert leases.renew(ONE)
        assert len(leases.live(sweep=True)) == 1
    clock.advance(700_000)
    assert leases.live(sweep=True) == ()


@pytest.mark.parametrize("step", ["read", "replace"])
def test_one_that_is_renewed_while_the_cleaner_looks_is_held(storage, clock, step):
    """Between the list and the storage's time, for which other leases are read and a file written.

    A short lease is renewed several times meanwhile, and has expired by the time that was listed.
    """
    leases = Leases(storage, clock)
    leases.create(replace(ONE, ttl_s=10.0))
    assert len(leases.live(sweep=True)) == 1
    leases.create(replace(ONE, id="dead", ttl_s=10.0))
    clock.advance(5_000)
    assert leases.renew(replace(ONE, ttl_s=10.0))
    clock.advance(8_000)
    leases.create(replace(ONE, id="new"))  # read by the next list

    def renew(kind: str, path: str) -> None:
        if kind == step and not path.endswith(ONE.id):
            for _ in range(2):
                assert leases.renew(replace(ONE, ttl_s=10.0))
                clock.advance(8_000)

    storage.fail.append(renew)
    assert [each.id for each in leases.live(sweep=True)] == sorted([ONE.id, "new"])
    storage.fail.clear()
    assert {each.id for each in leases.all()} == {ONE.id, "new"}


def test_an_expired_lease_that_cannot_be_deleted_is_left(storage, clock, caplog):
    leases = Leases(storage, clock)
    leases.create(ONE)
    clock.advance(700_000)

    def refuse(kind: str, path: str) -> None:
        if kind == "delete":
            raise StorageUnavailableError("read-only")

    storage.fail.append(refuse)
    assert leases.live(sweep=True) == ()
    assert "read-only" in caplog.text
    assert f"{LEASE_FOLDER}/{ONE.id}" in storage.files


def test_a_storage_that_tells_no_times_ends_no_lease(clock):
    leases = Leases(MemoryStorage(), clock)
    leases.create(ONE)
    clock.advance(10**9)
    assert len(leases.live(sweep=True)) == 1


def test_each_lease_is_read_once(storage, clock):
    leases = Leases(storage, clock)
    leases.create(ONE)
    for _ in range(3):
        leases.live(sweep=True)
    counted = storage.calls.snapshot()
    assert (counted["list", "other"], counted["read", "other"]) == (3, 1)


def test_one_that_is_released_while_it_is_listed_is_left_out(storage, clock):
    leases = Leases(storage, clock)
    leases.create(ONE)

    def release(kind: str, path: str) -> None:
        if kind == "read":
            storage.files.pop(f"{LEASE_FOLDER}/{ONE.id}")

    storage.fail.append(release)
    assert leases.all() == ()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[" * 100_000,
        b"\xff",
        b'{"version": 1}',
        ONE.to_bytes().replace(b'"version": 1', b'"version": 2'),
        ONE.to_bytes().replace(b"600.0", b'"600"'),
        ONE.to_bytes().replace(b"600.0", b"NaN"),
        ONE.to_bytes().replace(b"600.0", b"1e9"),
        ONE.to_bytes().replace(b'"20260131120000000"', b"20260131120000000"),
        ONE.to_bytes().replace(b"20260131120000000", b"2026-01-31"),
        ONE.to_bytes().replace(b"20260131120000000", b"20260131130000000"),
        b" " * (1 << 20) + ONE.to_bytes(),
        replace(ONE, holder="\ud800").to_bytes(),
        replace(ONE, holder="me\n\x1b[31m").to_bytes(),
    ],
)
def test_what_is_no_lease_holds_everything_for_ever_and_is_named(
    tmp_path, clock, caplog, content: bytes
):
    storage = LocalStorage(str(tmp_path))
    storage.create(f"{LEASE_FOLDER}/{ONE.id}", content)
    storage.create(f"{LEASE_FOLDER}/{'2' * 32}", ONE.to_bytes())
    leases = Leases(storage, ManualClock(10**14))
    for _ in range(2):
        (found,) = [each for each in leases.live() if each.id == ONE.id]
        assert found.problem
        assert held_from([found]) == ""
    assert f"{LEASE_FOLDER}/{ONE.id} holds all files of the table" in caplog.text
    assert leases.delete(ONE.id)


def test_files_that_are_being_written_are_no_leases(storage, clock):
    storage.create(f"{LEASE_FOLDER}/.{ONE.id}.{uuid.uuid4()}", b"half")
    storage.create(f"{LEASE_FOLDER}/folder/file", b"")
    assert Leases(storage, clock).all() == ()


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "../x", "a/b", "a\0b"])
def test_what_cannot_be_an_id_is_refused(storage, clock, name):
    with pytest.raises(InputError, match="is no id of a lease"):
        Leases(storage, clock).delete(name)


def test_a_name_that_is_not_printable_is_shown_escaped(storage, clock, caplog):
    storage.create(f"{LEASE_FOLDER}/a\n\x1b[31m", b"{}")
    (found,) = Leases(storage, clock).live()
    assert str(found).startswith(r"'a\n\x1b[31m', which can't be read")
    assert "\x1b" not in caplog.text


@pytest.mark.parametrize("ttl", [9.9, 0, -1, 604_801, float("nan"), float("inf"), "60", None, True])
def test_a_time_to_live_out_of_range_is_refused(ttl):
    with pytest.raises(InputError, match=r"ttl is .*; allowed: 10 to 604800 seconds"):
        checked_ttl(ttl)


def test_a_lease_names_the_write_before_the_oldest_pending_one():
    table = SmallTable()
    a, b = ("p=1", "a-0"), ("p=2", "b-0")

    def lease(until: str = "9" * 17) -> tuple[str, str]:
        seen = table.meta.active_timeline().filter(lambda i: i.requested_time <= until)
        found = Lease.at("x", seen, 60.0, "me")
        return found.earliest, found.instant

    assert lease() == ("", "")
    first = table.begin([a])
    assert lease() == ("", "")
    second = table.write(b)
    assert lease() == ("", second)
    table.complete(first)
    assert lease() == (second, second)
    table.begin([a])
    third = table.write(b)
    assert lease() == (second, third)
    assert lease(second) == (second, second)


@pytest.mark.parametrize(("action", "counts"), [(COMMIT, True), (LOG_COMPACTION, False)])
def test_a_pending_log_compaction_replaces_nothing(action, counts):
    table = SmallTable()
    first = table.write(("p=1", "a-0"))
    table.meta.create_requested(action, table.tick())
    second = table.write(("p=2", "b-0"))
    found = Lease.at("x", table.meta.active_timeline(), 60.0, "me")
    assert (found.earliest, found.instant) == (first if counts else second, second)
