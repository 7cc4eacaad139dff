"""Cleans of more files than a plan may have: parts, their series, and what is withdrawn."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import cache, partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsview.local_view import LocalView, open_view
from fsview.table_view import TableView
from strandline.table_services.archive.policy import ArchiveSettings
from strandline.table_services.archive.run import Archiver
from strandline.table_services.clean.parts import PART, Before, Part, part_of
from strandline.table_services.clean.plan import KEPT_VERSIONS, SAVEPOINTED
from strandline.table_services.clean.planner import TOGETHER
from strandline.table_services.clean.policy import (
    KEEP_LATEST_COMMITS,
    KEEP_LATEST_FILE_VERSIONS,
    CleanSettings,
)
from strandline.table_services.clean.run import Cleaner
from tests.kit.short_runs import examples
from tests.kit.storage.faulty_storage import Effect, Fault, distinct_calls
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables.small_table import SmallTable
from tests.strandline.table_services.clean.subject import (
    Subject,
    cleans,
    faulty_clean,
    planned_parts,
    whole_plan,
)
from timeline.errors import (
    CorruptMetadataError,
    LockError,
    StorageUnavailableError,
    StrandlineError,
)
from timeline.instant import CLEAN, ROLLBACK, Instant
from timeline.metadata.instant_metadata import InstantInfo, RollbackMetadata, RollbackPlan

GROUPS = [(f"p={n}", f"f{n}-0") for n in range(7)]
LIMITED = CleanSettings(retained=2, parallelism=1, part_files=3)


def subject_of(table: SmallTable | None = None, **chosen: object) -> Subject:
    """A table on which seven files, of seven partitions, can go: three parts."""
    subject = Subject(table or SmallTable())
    subject.settings = CleanSettings(**{"retained": 2, "parallelism": 1, "part_files": 3, **chosen})
    for _ in range(4):
        subject.table.write(*GROUPS)
    subject.restart()
    return subject


def requested(subject: Subject, parts: int) -> list[Instant]:
    """Put the first parts on the timeline, as a cleaner that crashes then."""
    timeline = subject.table.meta.active_timeline()
    made: list[Instant] = []
    for part in planned_parts(subject.cleaner.planner, timeline):
        if len(made) == parts:
            break
        subject.table.clock.advance(1000)
        now = subject.table.times.next()
        first = made[0].requested_time if made else now
        planned = part.requested(first, before_of(subject, timeline))
        made.append(subject.table.meta.create_requested(CLEAN, now, planned.plan))
    return made


def before_of(subject: Subject, timeline):
    done = [i for i in timeline.completed() if i.action == CLEAN]
    return Before.of(timeline, subject.table.meta.read(done[-1]) if done else None)


def test_a_new_view_has_loaded_all_partitions_before_a_part_is_requested():
    """A listing beside pending cleans has to read the plans of all of them."""
    table = SmallTable()
    groups = [(f"p={n}", f"f{n}-0") for n in range(TOGETHER + 20)]
    for _ in range(4):
        table.write(*groups)
    table.begin(groups[:1])  # so that partitions are listed
    view = open_view(table.storage)
    limited = replace(LIMITED, part_files=50)
    done = Cleaner(table.meta, view, table.times, limited).run()
    assert len(done.parts) == 3
    made = table.storage.calls.snapshot()
    assert made["list", "lookup"] == len(groups)
    assert ("read", "lookup") not in made


@pytest.mark.parametrize("version", [6, 9])
def test_a_clean_of_many_files_is_several_cleans(version):
    subject = subject_of(SmallTable(version=version))
    table = subject.table
    first, *_, earliest, _ = table.model.writes
    done = subject.clean()
    assert table.data_files() == table.model.to_keep(earliest)
    assert (done.files_deleted, done.earliest_commit_to_retain) == (7, earliest)
    assert done.bytes_deleted > 0
    assert done.parts == tuple(i.requested_time for i in cleans(table))
    assert done.instant == done.parts[-1]
    plans = [table.meta.read_plan(i) for i in cleans(table)]
    sizes = [sum(map(len, plan.file_paths_to_be_deleted_per_partition.values())) for plan in plans]
    assert sizes == [3, 3, 1]
    series = done.parts[0]
    assert [plan.extra_metadata[PART] for plan in plans] == [
        f"{series}/1",
        f"{series}/2",
        f"{series}/3/last",
    ]
    # Only the last one has the new earliest instant; the others that of no clean before them.
    kept = [plan.earliest_instant_to_retain.timestamp for plan in plans]
    assert kept == [first, first, earliest]
    said = [table.meta.read(i) for i in cleans(table)]
    assert [each.earliest_commit_to_retain for each in said] == kept
    seen = [each.last_completed_commit_timestamp for each in said]
    assert seen == ["", "", table.model.writes[-1]]
    assert subject.clean() is None


def test_the_parts_after_a_clean_repeat_what_it_retained():
    subject = subject_of()
    table = subject.table
    saved = table.model.writes[-1]
    table.savepoint(saved)
    before = subject.clean()
    table.drop_savepoint(saved)
    for _ in range(3):
        table.write(*GROUPS)
    later = table.model.writes[-1]
    table.savepoint(later)
    done = subject.clean()
    said = [table.meta.read(i) for i in cleans(table) if i.requested_time in done.parts]
    assert [each.earliest_commit_to_retain for each in said[:-1]] == (
        [before.earliest_commit_to_retain] * (len(said) - 1)
    )
    assert {each.extra_metadata[SAVEPOINTED] for each in said[:-1]} == {f"{saved},{later}"}
    assert said[-1].extra_metadata[SAVEPOINTED] == later


def test_file_versions_have_no_earliest_instant_in_any_part():
    subject = subject_of(policy=KEEP_LATEST_FILE_VERSIONS, versions=2)
    subject.clean()
    said = [subject.table.meta.read(i) for i in cleans(subject.table)]
    assert len(said) == 5  # 14 files
    assert {each.earliest_commit_to_retain for each in said} == {""}
    # After a part that isn't the last, the next clean must look at the whole table.
    assert [KEPT_VERSIONS in each.extra_metadata for each in said] == [False] * 4 + [True]


def test_all_parts_are_requested_before_a_file_goes():
    subject = subject_of()
    states: list[int] = []

    def look(kind: str, path: str) -> None:
        if kind == "delete" and path.endswith(".parquet"):
            folder = subject.table.storage.files
            states.append(sum(path.endswith("clean.requested") for path in folder))

    subject.table.storage.fail.append(look)
    subject.clean()
    assert states == [3] * 7


def test_what_fits_into_one_part_is_an_ordinary_clean():
    subject = subject_of(part_files=7)
    done = subject.clean()
    assert done.parts == ()
    (plan,) = map(subject.table.meta.read_plan, cleans(subject.table))
    assert PART not in plan.extra_metadata


@pytest.mark.parametrize("reached", [0, 1, 2])
def test_a_whole_series_is_finished_in_order(reached):
    subject = subject_of()
    table = subject.table
    made = requested(subject, 3)
    for instant in made[:reached]:
        table.meta.transition_to_inflight(instant)
    subject.restart()
    done = subject.clean()
    assert [i.requested_time for i in cleans(table)] == [i.requested_time for i in made]
    ended = [i.completion_time for i in cleans(table)]
    assert ended == sorted(ended)
    assert done.files_deleted == 7
    assert done.parts == tuple(i.requested_time for i in made)
    assert table.data_files() == table.model.to_keep(table.model.writes[-2])


@pytest.mark.parametrize("there", [1, 2])
def test_an_incomplete_series_is_withdrawn_before_anything_is_deleted(there):
    subject = subject_of()
    table = subject.table
    made = {i.requested_time for i in requested(subject, there)}
    calls: list[str] = []
    table.storage.fail.append(lambda kind, path: calls.append(path) if kind == "delete" else None)
    subject.restart()
    done = subject.clean()
    assert all(path.endswith(".clean.requested") for path in calls[:there])
    assert calls[:there] == sorted(calls[:there], reverse=True)
    assert made.isdisjoint(i.requested_time for i in table.meta.active_timeline())
    assert done.files_deleted == 7
    assert done.finished == ()
    assert table.data_files() == table.model.to_keep(table.model.writes[-2])


def test_a_part_that_another_cleaner_has_begun_is_finished_although_others_are_missing():
    """Hudi finishes each pending clean; the next clean of ours plans the rest."""
    subject = subject_of()
    table = subject.table
    begun, other = requested(subject, 2)
    table.meta.transition_to_inflight(begun)
    first = table.meta.read_plan(begun).file_paths_to_be_deleted_per_partition
    gone = next(iter(first.values()))[0].file_path.rpartition("/")[2]
    table.storage.delete(f"{next(iter(first))}/{gone}")
    subject.restart()
    done = subject.clean()
    assert done.finished == (begun.requested_time,)
    times = {i.requested_time for i in table.meta.active_timeline()}
    assert begun.requested_time in times
    assert other.requested_time not in times
    assert table.data_files() == table.model.to_keep(table.model.writes[-2])


def test_parts_are_withdrawn_if_one_cannot_be_requested():
    subject = subject_of()
    table = subject.table
    before = set(table.storage.files)
    left = [2]

    def refuse(kind: str, path: str) -> None:
        if kind == "create" and path.endswith(".clean.requested"):
            left[0] -= 1
            if left[0] < 0:
                raise StorageUnavailableError("slow down")

    table.storage.fail.append(refuse)
    with pytest.raises(StorageUnavailableError):
        subject.clean()
    assert set(table.storage.files) == before


def test_what_an_earlier_part_failed_to_delete_is_tried_again(subtests):
    for restarts in (False, True):
        with subtests.test(restarts=restarts):
            subject = subject_of()
            table = subject.table

            def refuse(kind: str, path: str) -> None:
                if kind == "delete" and path.startswith("p=0/"):
                    raise StorageUnavailableError("slow down")

            table.storage.fail.append(refuse)
            done = subject.clean()
            assert (done.files_deleted, done.files_failed) == (6, 1)
            said = [table.meta.read(i).partition_metadata for i in cleans(table)]
            assert len(said[0]["p=0"].failed_delete_files) == 1
            table.storage.fail.clear()
            if restarts:
                subject.restart()
            assert subject.clean().files_deleted == 1
            assert table.data_files() == table.model.to_keep(table.model.writes[-2])
            assert subject.clean() is None


@pytest.mark.parametrize("version", [6, 9])
def test_a_replacecommit_stays_whose_files_an_earlier_part_failed_to_delete(version):
    """Else the group would be live again."""
    table = SmallTable(version=version)
    subject = Subject(table)
    subject.settings = CleanSettings(retained=1, parallelism=1, part_files=1)
    subject.restart()
    table.write(*GROUPS[:3])
    table.write(("p=0", "new-0"), replaces=GROUPS[:1])
    for _ in range(3):
        table.write(*GROUPS[1:3])

    def refuse(kind: str, path: str) -> None:
        if kind == "delete" and path.startswith("p=0/"):
            raise StorageUnavailableError("slow down")

    table.storage.fail.append(refuse)
    done = subject.clean()
    assert (len(done.parts), done.files_failed) == (5, 1)
    table.storage.fail.clear()
    few = ArchiveSettings(keep_min=1, keep_max=2, parallelism=1)
    for _ in range(2):
        Archiver(table.meta, table.times, few, subject.settings).run()
        view = LocalView.newest(TableView(table.storage))
        assert [found.file_id for found in view.latest_file_slices("p=0")] == ["new-0"]
        table.write(*GROUPS[1:3])
        subject.clean()
    assert not any("f0-0" in path for path in table.data_files())


@pytest.mark.parametrize(
    "text", ["", "x", "20240101000000000", "20240101000000000/0", "x/1", "2024/1/first", "2024/01"]
)
def test_a_garbled_mark_of_a_part_is_an_error_that_names_the_file(text):
    subject = subject_of()
    table = subject.table
    (instant,) = requested(subject, 1)
    plan = table.meta.read_plan(instant)
    table.meta.delete_instant_file(instant)
    plan = replace(plan, extra_metadata={PART: text})
    table.meta.create_requested(CLEAN, instant.requested_time, plan)
    before = dict(table.storage.files)
    with pytest.raises(CorruptMetadataError, match=f"{table.meta.path_of(instant)}.*{PART}"):
        subject.clean()
    assert table.storage.files == before


def test_a_mark_of_a_part_is_read_as_it_was_written():
    for part in (Part("20240101000000000", 1, is_last=False), Part("2024", 12, is_last=True)):
        assert part_of({PART: str(part)}, "a plan") == part
    assert part_of({}, "a plan") is None


# Two cleaners.


def test_a_second_cleaner_finishes_what_the_first_has_requested():
    """Under one lock: the first died, or its lock was lost."""
    subject = subject_of()
    table = subject.table
    made = requested(subject, 3)
    other = LocalView.newest(TableView(table.storage))
    table.clock.advance(1000)
    done = Cleaner(table.meta, other, table.times, LIMITED).run()
    assert done.parts == tuple(i.requested_time for i in made)
    with contextlib.suppress(StrandlineError):
        subject.clean()
    assert table.data_files() == table.model.to_keep(table.model.writes[-2])
    assert all(i.is_completed for i in table.meta.active_timeline() if i.action == CLEAN)


# Plans whose files became live again.


def test_a_file_that_a_rollback_made_live_again_stays():
    """With one version a pending clean names what a reader needs once the newest write is gone."""
    subject = subject_of(policy=KEEP_LATEST_FILE_VERSIONS, versions=1, part_files=100)
    table = subject.table
    made = requested(subject, 1)
    roll_back_newest(table)
    subject.restart()
    done = subject.clean()
    assert done.instant == made[0].requested_time
    newest = table.model.writes[-1]
    assert table.model.read_at(newest) == table.data_files()
    said = table.meta.read(cleans(table)[0]).partition_metadata
    assert all(newest not in "".join(each.delete_path_patterns) for each in said.values())
    assert done.files_deleted == 14


def test_a_live_file_of_a_half_deleted_partition_stays():
    subject = subject_of(policy=KEEP_LATEST_FILE_VERSIONS, versions=1, part_files=100)
    table = subject.table
    made = requested(subject, 1)
    table.meta.transition_to_inflight(made[0])
    table.storage.delete(f"p=0/f0-0_0-0-0_{table.model.writes[0]}.parquet")
    roll_back_newest(table)
    subject.restart()
    done = subject.clean()
    newest = table.model.writes[-1]
    assert made[0].requested_time in (*done.finished, done.instant)
    assert table.model.read_at(newest) == table.data_files()


@pytest.mark.parametrize("part_files", [3, 100])
def test_a_cleaner_that_has_lost_its_lock_deletes_nothing(part_files):
    """Another writer, which has the lock by then, may roll back what the plan relies on."""
    subject = subject_of(
        policy=KEEP_LATEST_FILE_VERSIONS, versions=1, part_files=part_files, retained=1
    )
    table = subject.table
    undone: list[bool] = []

    def come(kind: str, path: str) -> None:
        if kind == "create" and path.endswith(".clean.requested") and not undone:
            undone.append(True)
            roll_back_newest(table)

    def check() -> None:
        if undone:
            raise LockError("it was lost")

    table.storage.fail.append(come)
    meta, settings = table.meta, subject.settings
    cleaner = Cleaner(meta, subject.view, table.times, settings, check_lock=check)
    with pytest.raises(LockError):
        cleaner.run()
    table.storage.fail.clear()
    assert not [i for i in meta.active_timeline() if i.action == CLEAN]
    subject.restart()
    subject.clean()
    assert table.model.read_at(table.model.writes[-1]) == table.data_files()


def roll_back_newest(table: SmallTable) -> None:
    """Roll back the newest completed write."""
    newest = table.model.writes[-1]
    write = table.model.committed[newest]
    action = write.instant.action
    plan = RollbackPlan(InstantInfo(newest, action), ())
    rollback = table.meta.create_requested(ROLLBACK, table.tick(), plan)
    rollback = table.meta.transition_to_inflight(rollback)
    table.uncomplete(write)
    table.take_back(write)
    said = RollbackMetadata(
        rollback.requested_time,
        commits_rollback=(newest,),
        instants_rollback=(InstantInfo(newest, action),),
    )
    table.meta.complete(rollback, said, table.tick())


# Crashes.


def prepared(version: int) -> SmallTable:
    return _made(version).copy()


@cache
def _made(version: int) -> SmallTable:
    table = SmallTable(MemoryStorage(), version=version)
    for _ in range(4):
        table.write(*GROUPS)
    table.clock.advance(1000)
    return table


clean = partial(faulty_clean, settings=LIMITED)
LOG = clean(prepared(9), []).log
FAULTS = [(at, effect) for effect in Effect for at in distinct_calls(LOG, effect)]


def test_the_faults_reach_each_step():
    kinds = [kind for kind, _ in LOG]
    assert kinds.count("create") == 9
    assert len(FAULTS) >= 60


@pytest.mark.property
@pytest.mark.parametrize("version", [6, 9])
def test_after_a_fault_at_any_call_the_next_clean_makes_it_good(subtests, version):
    for at, effect in FAULTS:
        with subtests.test(at=at, effect=effect):
            table = prepared(version)
            clean(table, [Fault(at, effect)])
            check_after(table)


@pytest.mark.property
@pytest.mark.parametrize("reached", [1, 2, 3])
def test_a_fault_at_any_call_of_the_resumption_is_made_good_too(subtests, reached):
    subject = Subject(prepared(9))
    subject.settings = LIMITED
    subject.restart()
    made = requested(subject, reached)
    if reached == 3:
        subject.table.meta.transition_to_inflight(made[0])
    subject.table.clock.advance(1000)

    log = clean(subject.table.copy(), []).log
    faults = [(at, kind) for kind in Effect for at in distinct_calls(log, kind)]
    for at, effect in faults:
        with subtests.test(at=at, effect=effect):
            table = subject.table.copy()
            clean(table, [Fault(at, effect)])
            check_after(table)


def check_after(table: SmallTable) -> None:
    earliest = table.model.writes[-2]
    for kept in table.model.writes[-2:]:
        assert table.model.read_at(kept) <= table.data_files()
    table.clock.advance(1000)
    clean(table, [])
    table.clock.advance(1000)
    clean(table, [])
    done = [i for i in table.meta.active_timeline() if i.action == CLEAN]
    assert all(instant.is_completed for instant in done)
    assert table.data_files() == table.model.to_keep(earliest)


# The parts together are the whole plan.


@pytest.mark.property
@settings(max_examples=examples(60))
@given(
    writes=st.lists(
        st.lists(st.sampled_from([(f"p={p}", f"f{p}{f}-0") for p in range(4) for f in range(3)])),
        max_size=8,
    ),
    limit=st.integers(1, 9),
    policy=st.sampled_from([KEEP_LATEST_COMMITS, KEEP_LATEST_FILE_VERSIONS]),
)
def test_the_parts_union_is_the_whole_plan(writes, limit, policy):
    subject = Subject(SmallTable())
    subject.settings = CleanSettings(
        policy=policy, retained=1, versions=1, parallelism=1, part_files=limit
    )
    for write in writes:
        subject.table.write(*sorted(set(write)))
    subject.restart()
    timeline = subject.table.meta.active_timeline()
    whole = whole_plan(subject.cleaner.planner, timeline)
    parts = [*planned_parts(subject.cleaner.planner, timeline)]
    if whole is None:
        assert parts == []
        return
    assert [part.number for part in parts] == [*range(1, len(parts) + 1)]
    assert [part.is_last for part in parts] == [False] * (len(parts) - 1) + [True]
    assert all(part.planned.files == limit for part in parts[:-1])
    assert sum(part.planned.files for part in parts) == whole.files
    assert sum(part.planned.bytes for part in parts) == whole.bytes
    together: dict[str, tuple] = {}
    for part in parts:
        for partition, files in part.planned.plan.file_paths_to_be_deleted_per_partition.items():
            together[partition] = (*together.get(partition, ()), *files)
    assert together == whole.plan.file_paths_to_be_deleted_per_partition
