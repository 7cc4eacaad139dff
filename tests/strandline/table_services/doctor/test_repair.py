"""Repairs: what is fixable is gone afterwards, and nothing else has changed, whatever happens."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from fsview.local_view import open_view
from fsview.model.file_group import BaseFile, FileGroup, FileSlice, LogFile
from fsview.query.sums import NEWEST
from strandline.commit.lock.base import LockProvider, LockRetries, TableLock
from strandline.read.scan import Scan
from strandline.table_services.doctor.examination import examine
from strandline.table_services.doctor.picture import DAY_MS
from strandline.table_services.doctor.repair import Repair, repair, repairs_table
from tests.kit.storage.faulty_storage import Crash, Effect, Fault, FaultyStorage, distinct_calls
from tests.strandline.table_services.doctor.planted import PLANTS, Recorded, beside
from timeline.errors import CorruptMetadataError, LockError, StrandlineError
from timeline.meta_client import TableMetaClient
from timeline.storage.base import Storage

NO_LOCK = TableLock(None)
FIXABLE = [plant for plant in PLANTS if plant.fixable]
TOGETHER = {
    "cow_basic_v9": [plant for plant in FIXABLE if plant.scenario == "cow_basic_v9"],
    "mor_basic_v6": [plant for plant in FIXABLE if plant.scenario == "mor_basic_v6"],
}
AS_OF = {"max_instant": NEWEST}
QUESTIONS: dict[str, dict[str, Any]] = {
    "latest_base_files": {},
    "latest_base_files_before_or_on": AS_OF,
    "all_base_files": {},
    "latest_file_slices": {},
    "latest_file_slices_including_inflight": {},
    "latest_file_slices_before_or_on": {**AS_OF, "include_pending_compaction": True},
    "latest_merged_file_slices_before_or_on": AS_OF,
    "latest_uncompacted_file_slices": {},
    "all_file_slices": {},
    "all_file_groups": {},
    "all_replaced_file_groups": {},
}


def names(answer: Any) -> list[Any]:
    """Return what an answer says, without modification times."""
    found: list[Any] = []
    for each in answer:
        if isinstance(each, FileGroup):
            found.append((each.file_id, names(each.slices)))
        elif isinstance(each, FileSlice):
            base = None if each.base_file is None else each.base_file.name
            found.append((each.file_id, each.base_instant, base, names(each.log_files)))
        else:
            assert isinstance(each, BaseFile | LogFile)
            found.append((each.name, each.size))
    return found


def answers(storage: Storage) -> dict[tuple[str, str], list[Any]]:
    with contextlib.closing(open_view(storage)) as view:
        return {
            (partition, name): names(view.ask(name, partition=partition, **arguments))
            for partition in view.partitions()
            for name, arguments in QUESTIONS.items()
        }


def rows(storage: Storage) -> list[dict[str, Any]]:
    found = Scan.of(TableMetaClient.open(storage)).to_arrow()
    return found.sort_by([("_hoodie_record_key", "ascending")]).to_pylist()


@cache
def sound(scenario: str) -> tuple[dict[tuple[str, str], list[Any]], list[dict[str, Any]]]:
    table = Recorded(scenario)
    return answers(table.storage), rows(table.storage)


@pytest.mark.property
@pytest.mark.parametrize("plant", FIXABLE, ids=lambda plant: plant.id)
def test_a_repair_makes_the_table_as_it_was(plant):
    table = Recorded(plant.scenario)
    planted = plant.plant(table)
    done = repair(table.storage, NO_LOCK, table.clock)
    assert {each.name for each in done} == planted
    assert all(each.done for each in done), done
    assert not [each for each in examine(table.storage, table.clock) if each.fixable]
    assert (answers(table.storage), rows(table.storage)) == sound(plant.scenario)
    assert repair(table.storage, NO_LOCK, table.clock) == ()


def broken(scenario: str) -> Recorded:
    """Return a table with all fixable faults that this scenario has plants of."""
    table = Recorded(scenario)
    for plant in TOGETHER[scenario]:
        # One of the properties' two faults, and the partition's file first: later files count.
        if plant.code != "properties-checksum-missing":
            plant.plant(table)
    return table


@pytest.mark.property
@pytest.mark.parametrize("scenario", TOGETHER)
def test_all_of_it_is_repaired_at_once(scenario):
    table = broken(scenario)
    assert len({each.code for each in examine(table.storage, table.clock)}) >= 4
    done = repair(table.storage, NO_LOCK, table.clock)
    assert all(each.done for each in done), done
    assert examine(table.storage, table.clock) == ()
    assert (answers(table.storage), rows(table.storage)) == sound(scenario)
    assert repairs_table(done).column("name").to_pylist() == [each.name for each in done]


@cache
def log_of_a_repair(scenario: str) -> list[tuple[str, str]]:
    table = broken(scenario)
    storage = FaultyStorage(table.storage)
    repair(storage, NO_LOCK, table.clock)
    return storage.log


CHANGING = {"create", "replace", "delete", "delete_tree"}


def cases(scenario: str) -> list[tuple[int, Effect]]:
    """Return each fault at a call that changes something, and at every twentieth of the others."""
    log = log_of_a_repair(scenario)
    found = [
        (at, effect)
        for effect in Effect
        for at in distinct_calls(log, effect)
        if log[at - 1][0] in CHANGING or at % 20 == 0
    ]
    assert len(found) >= 25
    return found


@pytest.mark.property
@pytest.mark.parametrize("scenario", TOGETHER)
def test_whatever_call_fails_the_next_repair_finishes(scenario, subtests):
    right, _ = sound(scenario)
    for at, effect in cases(scenario):
        with subtests.test(at=at, call=log_of_a_repair(scenario)[at - 1], effect=effect):
            table = broken(scenario)
            storage = FaultyStorage(table.storage, [Fault(at, effect)])
            with contextlib.suppress(Crash, StrandlineError):
                repair(storage, NO_LOCK, table.clock)
            still = {each.code for each in examine(table.storage, table.clock)}
            if not still & {"properties-checksum-wrong", "partition-metadata-missing"}:
                shown = answers(table.storage)
                for question in (key for key in right if "latest_file_slices" in key):
                    assert shown[question] == right[question]
            repair(table.storage, NO_LOCK, table.clock)
            assert examine(table.storage, table.clock) == ()
            assert answers(table.storage) == right


# What isn't touched.


def orphan_in(table: Recorded, *, time_days: float = 2, mtime_days: float = 2) -> str:
    path = table.bases()[-1]
    other = beside(path, time=table.time(time_days))
    if time_days > 0:
        table.roll_back(time_days)
    return table.put(other, table.data(path), mtime_days)


@pytest.mark.parametrize("ages", [(0.9, 0.9), (2, 0.9), (0.9, 2), (-2, 2)])
def test_files_and_instants_younger_than_a_day_stay(ages):
    table = Recorded("cow_basic_v9")
    path = orphan_in(table, time_days=ages[0], mtime_days=ages[1])
    (found,) = examine(table.storage, table.clock)
    assert (found.code, found.names, found.fixable) == ("orphan-file", (path,), False)
    assert repair(table.storage, NO_LOCK, table.clock) == ()
    assert path in table.storage.files


@pytest.mark.parametrize("state", ["commit.requested", "inflight"])
def test_files_of_pending_instants_stay(state):
    table = Recorded("cow_basic_v9")
    path = orphan_in(table)
    table.put(f"{table.folder()}/{table.time()}.{state}", b"")
    assert "orphan-file" not in {each.code for each in examine(table.storage, table.clock)}
    repair(table.storage, NO_LOCK, table.clock)
    assert path in table.storage.files


def test_while_a_rollback_pends_no_data_file_is_deleted():
    table = Recorded("cow_basic_v9")
    path = orphan_in(table)
    table.put(f"{table.folder()}/{table.time(0.1)}.rollback.requested", b"", 0.1)
    assert [each.fixable for each in examine(table.storage, table.clock)] == [False]
    assert repair(table.storage, NO_LOCK, table.clock) == ()
    assert path in table.storage.files


class CountedLock(LockProvider):
    """A lock that is acquired only some times."""

    name = "CountedLock"
    is_shared = True

    def __init__(self, times: int) -> None:
        self.left, self.held = times, 0

    def try_lock(self, timeout_s: float) -> bool:
        self.left -= 1
        self.held += self.left >= 0
        return self.left >= 0

    def unlock(self) -> None:
        """Do nothing."""

    def is_held(self) -> bool:
        return True

    def describe(self) -> str:
        return "a test"


def with_heartbeats(count: int) -> Recorded:
    table = Recorded("cow_basic_v9")
    for n in range(count):
        table.put(f".hoodie/.heartbeat/{table.time(2 + n / 1e6)}", b"")
    return table


def test_the_lock_is_given_back_after_some_files():
    table = with_heartbeats(501)
    provider = CountedLock(9)
    done = repair(table.storage, TableLock(provider, LockRetries(), lambda _: None), table.clock)
    assert all(each.done for each in done)
    assert (len(done), provider.held) == (501, 3)


def test_what_was_done_before_the_lock_is_lost_is_told():
    table = with_heartbeats(300)
    lock = TableLock(CountedLock(1), LockRetries(), lambda _: None)
    done = repair(table.storage, lock, table.clock)
    assert [each.done for each in done] == [True] * 250 + [False] * 50
    assert all(each.failed and "a test" in each.what for each in done[250:])
    assert len(table.paths(".heartbeat/")) == 50


def test_what_was_done_before_the_timeline_is_lost_is_told(caplog: pytest.LogCaptureFixture):
    table = with_heartbeats(260)
    acquired = []

    def fail(kind: str, path: str) -> None:
        if path == table.folder():
            raise CorruptMetadataError("the table has no timeline any more")

    def lose() -> None:
        acquired.append(True)
        if len(acquired) == 2:
            table.storage.fail.append(fail)

    with caplog.at_level("INFO", "strandline.table_services.doctor.repair"):
        done = repair(table.storage, locked(lose), table.clock)
    assert [each.done for each in done] == [True] * 250 + [False] * 10
    assert all(each.failed for each in done[250:])
    assert caplog.text.count(" is deleted: heartbeat-left") == 250


def test_a_partition_without_named_files_gets_no_metadata_any_more():
    table = Recorded("cow_basic_v9")
    path = table.bases()[-1]
    folder = path.rpartition("/")[0]
    del table.storage.files[f"{folder}/.hoodie_partition_metadata"]
    heartbeat = table.put(f".hoodie/.heartbeat/{table.time()}", b"")

    def clean() -> None:
        for each in table.paths(f"{folder}/"):
            del table.storage.files[each]

    done = repair(table.storage, locked(clean), table.clock)
    assert {each.name: each.done for each in done} == {
        f"{folder}/.hoodie_partition_metadata": False,
        heartbeat: True,
    }


class MeanwhileLock(LockProvider):
    """A lock before whose acquisition something happens; it can be lost."""

    name = "MeanwhileLock"
    is_shared = True

    def __init__(self, happens: Callable[[], object], *, is_lost: bool = False) -> None:
        self._happens, self._is_lost = happens, is_lost

    def try_lock(self, timeout_s: float) -> bool:
        self._happens()
        return True

    def unlock(self) -> None:
        """Do nothing."""

    def is_held(self) -> bool:
        return not self._is_lost

    def describe(self) -> str:
        return "a test"


def locked(happens: Callable[[], object], *, is_lost: bool = False) -> TableLock:
    return TableLock(MeanwhileLock(happens, is_lost=is_lost), LockRetries(), lambda _: None)


def request(table: Recorded) -> str:
    return table.put(f"{table.folder()}/{table.time()}.commit.requested", b"")


def test_a_file_that_becomes_legitimate_before_the_lock_is_acquired_stays():
    table = Recorded("cow_basic_v9")
    path = orphan_in(table)
    done = repair(table.storage, locked(lambda: request(table)), table.clock)
    assert [(each.done, each.name) for each in done] == [(False, path)]
    assert path in table.storage.files


def test_a_file_that_becomes_legitimate_while_another_is_deleted_stays():
    table = Recorded("cow_basic_v9")
    first, second = orphan_in(table), orphan_in(table, time_days=2.5)
    gone = []

    def come(kind: str, path: str) -> None:
        if kind == "delete" and not gone:
            gone.append(path)
            other = 2.5 if path == first else 2
            table.put(f"{table.folder()}/{table.time(other)}.commit.requested", b"")

    table.storage.fail.append(come)
    done = repair(table.storage, NO_LOCK, table.clock)
    assert {each.name: each.done for each in done} == {
        path: path in gone for path in (first, second)
    }
    assert len(gone) == 1


def test_a_file_that_is_written_again_stays():
    table = Recorded("cow_basic_v9")
    path = orphan_in(table)
    table.put(f".hoodie/.heartbeat/{table.time()}", b"")

    def beat() -> None:
        table.put(path, b"new", 0)
        table.put(f".hoodie/.heartbeat/{table.time()}", b"", 0)

    done = repair(table.storage, locked(beat), table.clock)
    assert [each.done for each in done] == [False, False]


def test_after_the_lock_is_lost_nothing_more_is_deleted():
    table = Recorded("cow_basic_v9")
    path = orphan_in(table)
    with pytest.raises(LockError):
        repair(table.storage, locked(lambda: None, is_lost=True), table.clock)
    assert path in table.storage.files


def test_a_file_that_can_not_be_deleted_is_told_and_the_others_are_deleted():
    table = broken("cow_basic_v9")
    log = log_of_a_repair("cow_basic_v9")
    at = next(at for at, (kind, _) in enumerate(log, 1) if kind == "delete")
    storage = FaultyStorage(table.storage, [Fault(at, Effect.ERROR_BEFORE)])
    done = repair(storage, NO_LOCK, table.clock)
    (failed,) = (each for each in done if not each.done)
    assert "injected" in failed.what
    assert isinstance(failed, Repair)


def test_another_writer_that_changes_the_properties_is_left_alone():
    table = Recorded("cow_basic_v9")
    table.change_properties(hoodie_table_name="renamed")
    kept = table.data(".hoodie/hoodie.properties")
    backup = ".hoodie/hoodie.properties.backup"
    done = repair(table.storage, locked(lambda: table.put(backup, b"x")), table.clock)
    assert [each.done for each in done] == [False]
    assert table.data(".hoodie/hoodie.properties") == kept
    assert table.data(backup) == b"x"


def test_markers_and_heartbeats_of_running_writes_stay():
    table = Recorded("cow_basic_v9")
    stem = f"{table.folder()}/{table.time(3)}"
    table.put(f"{stem}.commit.requested", b"")
    table.put(f"{stem}.inflight", b"")
    kept = [
        table.put(f".hoodie/.heartbeat/{table.time(3)}", b""),
        table.put(f".hoodie/.temp/{table.time(3)}/p/x.marker.CREATE", b""),
    ]
    repair(table.storage, NO_LOCK, table.clock)
    assert all(path in table.storage.files for path in kept)
    assert table.clock.now_ms() - table.storage.files[kept[0]][1] >= DAY_MS


def test_without_a_readable_archive_no_file_is_an_orphan():
    """A savepoint may keep an older commit on the timeline, and the archive has those between."""
    table = Recorded("archival_cow_v9")
    path = orphan_in(table)
    assert "orphan-file" in {each.code for each in examine(table.storage, table.clock)}
    for manifest in table.paths("manifest_"):
        table.put(manifest, b"{")
    assert {each.code for each in examine(table.storage, table.clock)} == {"broken-archive"}
    assert repair(table.storage, NO_LOCK, table.clock) == ()
    assert path in table.storage.files


def test_two_orphans_of_one_group_and_instant_are_orphans():
    table = Recorded("cow_basic_v9")
    first = orphan_in(table)
    second = table.put(beside(first, token="7-77-777"), table.data(first))
    found = examine(table.storage, table.clock)
    assert {(each.code, each.names) for each in found} == {
        ("orphan-file", (path,)) for path in (first, second)
    }
    done = repair(table.storage, NO_LOCK, table.clock)
    assert sum(each.bytes for each in done) == sum(each.bytes for each in found)
