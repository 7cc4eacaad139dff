"""An archival that fails at any of its storage calls, in every way, and the next archival."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from functools import cache
from itertools import product

import pytest

from strandline.table_services.archive.history_archive import HistoryWriter
from strandline.table_services.archive.policy import ArchiveSettings
from strandline.table_services.archive.run import Archiver, ArchiveResult
from strandline.table_services.clean.policy import CleanSettings
from tests.kit.storage.faulty_storage import Crash, Effect, Fault, FaultyStorage, distinct_calls
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables.small_table import SmallTable
from timeline.errors import CorruptMetadataError, LockError, StrandlineError
from timeline.meta_client import TableMetaClient

A, B = ("p=1", "a-0"), ("p=2", "b-0")
SETTINGS = ArchiveSettings(keep_min=4, keep_max=6, merged_files=2, manifests=1, parallelism=1)
CLEANS = CleanSettings(retained=1)

Key = tuple[str, str]


def written(table: SmallTable, writes: int) -> None:
    for _ in range(writes):
        table.write(A, B)
        table.finish_clean(*table.begin_clean(table.to_clean()))


def prepared(version: int, *, is_object_store: bool = False) -> SmallTable:
    """Return a table that was archived once, so that the next archival merges files."""
    return _made(version, is_object_store=is_object_store).copy()


@cache
def _made(version: int, *, is_object_store: bool) -> SmallTable:
    storage = MemoryStorage()
    storage.has_directories = not is_object_store
    table = SmallTable(storage, version=version)
    written(table, 8)
    assert archive(table.meta, table) is not None
    written(table, 4)
    return table


def archive(meta: TableMetaClient, table: SmallTable) -> ArchiveResult | None:
    table.clock.advance(1000)
    return Archiver(meta, table.times, SETTINGS, CLEANS).run()


def with_faults(table: SmallTable, faults: list[Fault]) -> FaultyStorage:
    storage = FaultyStorage(table.storage, faults)
    storage.has_directories = table.storage.has_directories
    meta = TableMetaClient(storage, table.meta.config)
    with contextlib.suppress(*((Crash, StrandlineError) if faults else ())):
        archive(meta, table)
    return storage


def active(table: SmallTable) -> set[Key]:
    return {(i.requested_time, i.action) for i in table.meta.active_timeline().completed()}


def archived(table: SmallTable) -> set[Key]:
    found = table.meta.archived_timeline().timeline.completed()
    return {(i.requested_time, i.action) for i in found}


def times_archived(table: SmallTable) -> Counter[Key]:
    """Return how often each completed instant is in the archive."""
    config = table.meta.config
    if config.layout_version == 1:
        found = table.meta.archived_timeline().timeline.completed()
        return Counter((i.requested_time, i.action) for i in found)
    writer = HistoryWriter(table.storage, config.archive_folder, SETTINGS)
    names = [entry.name for entry in writer.manifest().files]
    found: Counter[Key] = Counter()
    for name in names:
        with writer._opened(name) as file:
            rows = file.read(("instantTime", "action"))[0]
        found.update((row["instantTime"], row["action"]) for row in rows)
    return found


def logged(version: int, *, is_object_store: bool) -> list[tuple[str, str]]:
    return with_faults(prepared(version, is_object_store=is_object_store), []).log


@cache
def faults() -> list[tuple[int, bool, int, Effect]]:
    found = [
        (version, is_object_store, at, effect)
        for version, is_object_store in [(6, False), (8, False), (9, False), (9, True)]
        for log in [logged(version, is_object_store=is_object_store)]
        for effect in Effect
        for at in distinct_calls(log, effect)
    ]
    assert len(found) >= 100
    return found


@pytest.mark.property
def test_no_instant_is_lost_or_doubled(subtests):
    for version, is_object_store, at, effect in faults():
        with subtests.test(version=version, objects=is_object_store, at=at, effect=effect):
            table = prepared(version, is_object_store=is_object_store)
            before = active(table) | archived(table)
            with_faults(table, [Fault(at, effect)])
            assert active(table) | archived(table) == before

            while archive(table.meta, table) is not None:
                pass
            assert active(table) | archived(table) == before
            assert not active(table) & archived(table)
            assert set(times_archived(table).values()) == {1}
            assert len(table.meta.active_timeline().write_timeline()) <= SETTINGS.keep_max


@pytest.mark.property
def test_a_second_fault_while_the_first_is_made_good(subtests):
    firsts = [fault for fault in faults() if fault[3] is Effect.CRASH_BEFORE][::5]
    for (version, is_object_store, at, effect), second in product(firsts, range(1, 12, 3)):
        with subtests.test(version=version, objects=is_object_store, at=at, second=second):
            table = prepared(version, is_object_store=is_object_store)
            before = active(table) | archived(table)
            with_faults(table, [Fault(at, effect)])
            with_faults(table, [Fault(second, Effect.CRASH_AFTER)])
            assert active(table) | archived(table) == before
            while archive(table.meta, table) is not None:
                pass
            assert active(table) | archived(table) == before
            assert set(times_archived(table).values()) == {1}


def test_archived_instants_keep_content_and_plan(subtests):
    for version in (6, 8, 9):
        with subtests.test(version=version):
            table = SmallTable(MemoryStorage(), version=version)
            written(table, 12)
            contents = {i: table.meta.read(i) for i in table.meta.active_timeline().completed()}
            plans = {i: table.meta.read_plan(i) for i in contents if i.action == "clean"}
            done = archive(table.meta, table)
            assert done is not None
            reader = table.meta.archived_timeline()
            for instant in done.instants:
                assert reader.read(instant) == contents[instant]
                if instant in plans:
                    assert reader.read_plan(instant) == plans[instant]


def overtaken(at: int, *, checks: bool) -> tuple[set[Key], set[Key], Counter[Key]]:
    """Archive; before a call another archiver does, too, which has the lock by then.

    Returns:
        The instants after the other archival; those afterwards; how often each was archived.
    """
    table = prepared(9)
    ours = FaultyStorage(table.storage, [])
    there: list[set[Key]] = []

    def come(kind: str, path: str) -> None:
        if len(ours.log) == at and not there:
            there.append(set())
            written(table, 3)
            assert archive(table.meta, table) is not None
            there[0] = active(table) | archived(table)

    def check() -> None:
        if there and checks:
            raise LockError("it was lost")

    table.storage.fail.append(come)
    archiver = Archiver(
        TableMetaClient(ours, table.meta.config), table.times, SETTINGS, CLEANS, check_lock=check
    )
    with contextlib.suppress(StrandlineError):
        archiver.run()
    table.storage.fail.clear()
    return there[0], active(table) | archived(table), times_archived(table)


@pytest.mark.property
def test_an_archiver_that_has_lost_its_lock_loses_no_instant_that_another_archived(subtests):
    """It would write its manifest over the other's, or make an earlier one valid again."""
    log = logged(9, is_object_store=False)
    # Between a check and the next call nothing helps.
    calls = [
        at
        for at, (kind, path) in enumerate(log, 1)
        if not re.search(r"manifest|_version_", path) or kind in ("read", "stat", "list")
    ]
    assert len(calls) > 20
    is_lost = False
    for at in calls:
        with subtests.test(at=at):
            before, after, times = overtaken(at, checks=True)
            assert before <= after
            assert max(times.values()) == 1
            if not is_lost:
                before, after, _ = overtaken(at, checks=False)
                is_lost = not before <= after
    assert is_lost


@pytest.mark.parametrize("damage", [b"", b"{", b'{"files": [{"fileName": "x", "fileLen": 1}]}'])
def test_a_damaged_manifest_is_named(damage: bytes):
    table = prepared(9)
    number = int(table.storage.read(".hoodie/timeline/history/_version_"))
    table.storage.replace(f".hoodie/timeline/history/manifest_{number}", damage)
    before = active(table)
    with pytest.raises(CorruptMetadataError, match=f"manifest_{number}"):
        archive(table.meta, table)
    assert active(table) == before
