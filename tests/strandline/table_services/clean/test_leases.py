"""Cleans and readers' leases: what stays by each policy, and races of readers and cleaners."""

from __future__ import annotations

import contextlib
from collections import Counter
from functools import cache

import pytest

from fsview.local_view import LocalView
from fsview.table_view import TableView
from strandline.read.state.held_lease import HeldLease
from strandline.read.state.reader_lease import HELD_FROM, LEASE_FOLDER, Lease, Leases
from strandline.table_services.archive.policy import ArchiveSettings
from strandline.table_services.archive.run import Archiver
from strandline.table_services.clean.plan import Rule
from strandline.table_services.clean.policy import (
    KEEP_LATEST_COMMITS,
    KEEP_LATEST_FILE_VERSIONS,
    POLICIES,
    CleanSettings,
)
from strandline.table_services.clean.run import Cleaner
from tests.kit.concurrency.every_order import every_order
from tests.kit.storage.faulty_storage import Crash, Effect, Fault, FaultyStorage, distinct_calls
from tests.kit.tables.small_table import SmallTable
from tests.strandline.table_services.clean.subject import A, B, Subject, cleans, whole_plan
from timeline.errors import InputError, LeaseError, StrandlineError
from timeline.instant import CLEAN, State
from timeline.meta_client import TableMetaClient

TTL_S = 600.0


def subject_of(
    policy: str, version: int = 9, table: SmallTable | None = None, **chosen: object
) -> Subject:
    """A table of which a clean leaves the newest state alone."""
    subject = Subject(table or SmallTable(version=version))
    subject.settings = CleanSettings(
        policy=policy, retained=1, hours=1, versions=1, parallelism=1, **chosen
    )
    subject.restart()
    return subject


def write(subject: Subject, *groups: tuple[str, str]) -> str:
    """Write, an hour later than the last write."""
    subject.table.clock.advance(3_600_000)
    return subject.table.write(*(groups or (A, B)))


def pin(subject: Subject, as_of: str | None = None) -> Lease:
    """Create a lease that nobody renews."""
    table = subject.table
    timeline = table.meta.active_timeline().filter(lambda i: i.requested_time <= (as_of or "~"))
    lease = Lease.at(f"{table.clock.now_ms():032d}", timeline, 604_800.0, "a test")
    leases_of(table).create(lease)
    return lease


def leases_of(table: SmallTable) -> Leases:
    return Leases(table.storage, table.clock)


def old_files(subject: Subject) -> set[str]:
    """Return the files that aren't of the newest state."""
    model = subject.table.model
    return subject.table.data_files() - model.read_at(model.writes[-1])


@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("policy", POLICIES)
def test_what_a_reader_reads_stays_until_its_lease_ends(policy, version):
    subject = subject_of(policy, version)
    table = subject.table
    for _ in range(3):
        write(subject)
    lease = pin(subject)
    files = table.model.read_at(lease.instant)
    for _ in range(4):
        write(subject)
        subject.clean()
        assert files <= table.data_files()
    if policy == KEEP_LATEST_FILE_VERSIONS:
        assert table.data_files() == files | table.model.read_at(table.model.writes[-1])
    else:
        assert table.data_files() == table.model.to_keep(lease.earliest)
    leases_of(table).delete(lease.id)
    write(subject, A)
    subject.clean()
    assert not files & table.data_files()
    assert len(old_files(subject)) == (0 if policy == KEEP_LATEST_FILE_VERSIONS else 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_write_that_was_pending_supersedes_nothing_that_is_read(policy):
    subject = subject_of(policy)
    table = subject.table
    first = write(subject)
    late = table.begin([A])
    newest = write(subject, B)
    lease = pin(subject)
    assert (lease.earliest, lease.instant) == (first, newest)
    files = table.model.read_at(newest)
    table.complete(late)
    for _ in range(3):
        write(subject, B)
        subject.clean()
        assert files <= table.data_files()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_replaced_group_stays_for_its_reader(policy):
    subject = subject_of(policy)
    table = subject.table
    write(subject)
    lease = pin(subject)
    files = table.model.read_at(lease.instant)
    for n in range(3):
        table.clock.advance(3_600_000)
        old = ("p=1", "a-0") if n == 0 else ("p=1", f"c{n - 1}-0")
        table.write(("p=1", f"c{n}-0"), replaces=[old])
        subject.clean()
        assert files <= table.data_files()
        if policy == KEEP_LATEST_FILE_VERSIONS:
            assert len(table.data_files()) == 3
    leases_of(table).delete(lease.id)
    write(subject, B)
    write(subject, B)
    subject.clean()
    assert not any("/a-0_" in path for path in table.data_files())


@pytest.mark.parametrize("policy", POLICIES)
def test_why_names_the_lease_that_keeps_a_file(policy):
    subject = subject_of(policy)
    table = subject.table
    write(subject)
    lease = pin(subject)
    for _ in range(3):
        write(subject)
    subject.view.sync()
    found = {
        fate.found.base_instant: fate
        for fate in subject.cleaner.planner.fates(table.meta.active_timeline(), "p=1")
    }
    first, *_, newest = table.model.writes
    assert found[first].rule is Rule.LEASE
    assert found[first].reason == (
        f"held by the lease {lease.id} of a test, which reads at {lease.instant}"
    )
    assert found[newest].rule in (Rule.RETAINED, Rule.VERSION)
    leases_of(table).delete(lease.id)
    assert subject.cleaner.planner.fates(table.meta.active_timeline(), "p=1")[-1].rule.deletes


@pytest.mark.parametrize("policy", POLICIES)
def test_a_damaged_lease_holds_everything_and_is_named(policy, caplog):
    subject = subject_of(policy)
    table = subject.table
    for _ in range(4):
        write(subject)
    table.storage.create(f"{LEASE_FOLDER}/damaged", b"{")
    before = table.data_files()
    assert subject.clean() is None
    table.clock.advance(10**9)
    assert subject.clean() is None
    assert table.data_files() == before
    write(subject)
    assert f"{LEASE_FOLDER}/damaged holds all files of the table" in caplog.text
    subject.view.sync()
    fates = subject.cleaner.planner.fates(table.meta.active_timeline(), "p=1")
    held = [fate.reason for fate in fates if fate.rule is Rule.LEASE]
    assert held
    assert set(held) == {"held by the lease damaged, which can't be read and so holds everything"}
    leases_of(table).delete("damaged")
    assert subject.clean().files_deleted > 0


def test_the_lease_that_holds_everything_is_logged(caplog):
    subject = subject_of(KEEP_LATEST_COMMITS)
    for _ in range(3):
        write(subject)
    pin(subject)  # by id before the other
    subject.table.storage.create(f"{LEASE_FOLDER}/whole", b"{")
    caplog.set_level("INFO")
    assert subject.clean() is None
    assert "nothing is cleaned while there is the lease whole, which can't be read" in caplog.text


@pytest.mark.parametrize("policy", POLICIES)
def test_a_lease_whose_holder_died_expires(policy):
    subject = subject_of(policy)
    table = subject.table
    write(subject)
    HeldLease.acquire(table.meta, None, TTL_S, table.clock)._stopping.set()
    for _ in range(3):
        table.write(A, B)
    subject.clean()
    assert len(table.data_files()) >= 4
    table.clock.advance(3_600_000)
    write(subject)
    subject.clean()
    write(subject)
    subject.clean()
    assert leases_of(table).all() == ()
    assert len(old_files(subject)) <= 2


def test_leases_are_listed_once_for_a_plan_and_once_when_it_was_requested():
    subject = subject_of(KEEP_LATEST_COMMITS)
    for _ in range(3):
        write(subject)
    lists: list[str] = []
    subject.table.storage.fail.append(
        lambda kind, path: lists.append(path) if kind == "list" and path == LEASE_FOLDER else None
    )
    subject.view.sync()
    whole_plan(subject.cleaner.planner, subject.table.meta.active_timeline())
    assert len(lists) == 1
    assert subject.clean() is not None
    assert len(lists) == 3
    assert subject.clean() is None  # none is due, so that nobody asks for leases
    assert len(lists) == 3


def test_a_dry_run_deletes_no_expired_lease():
    subject = subject_of(KEEP_LATEST_COMMITS)
    for _ in range(3):
        write(subject)
    pin(subject)
    subject.table.clock.advance(10**9)
    before = dict(subject.table.storage.files)
    timeline = subject.table.meta.active_timeline()
    subject.view.sync()
    assert whole_plan(subject.cleaner.planner, timeline) is not None
    subject.cleaner.planner.fates(timeline, "p=1")
    assert subject.table.storage.files == before


def test_file_versions_examine_again_what_a_lease_held():
    subject = subject_of(KEEP_LATEST_FILE_VERSIONS)
    table = subject.table
    write(subject)
    lease = pin(subject)
    write(subject, A)
    write(subject, ("p=3", "d-0"))
    write(subject, ("p=3", "d-0"))
    subject.clean()
    assert table.meta.read(cleans(table)[-1]).extra_metadata[HELD_FROM] == lease.earliest
    assert old_files(subject) == {f"p=1/a-0_0-0-0_{lease.instant}.parquet"}
    leases_of(table).delete(lease.id)
    subject.restart()
    write(subject, ("p=3", "d-0"))
    subject.clean()
    assert old_files(subject) == set()
    assert HELD_FROM not in table.meta.read(cleans(table)[-1]).extra_metadata


def test_a_replacecommit_stays_whose_files_a_lease_has_held():
    """Else the group would be live again, until the next clean."""
    subject = subject_of(KEEP_LATEST_FILE_VERSIONS)
    table = subject.table
    write(subject)
    lease = pin(subject)
    table.clock.advance(3_600_000)
    table.write(("p=1", "c-0"), replaces=[A])
    for _ in range(3):
        write(subject, B)
    subject.clean()
    assert table.model.read_at(lease.instant) & table.data_files()
    leases_of(table).delete(lease.id)

    def live_after_archival() -> set[str]:
        few = ArchiveSettings(keep_min=1, keep_max=2, parallelism=1)
        Archiver(table.meta, table.times, few, subject.settings).run()
        view = LocalView.newest(TableView(table.storage))
        return {found.file_id for found in view.latest_file_slices("p=1")}

    assert live_after_archival() == {"c-0"}
    for _ in range(2):
        write(subject, B)
    subject.clean()
    assert old_files(subject) == set()
    assert live_after_archival() == {"c-0"}
    assert len(table.meta.active_timeline().write_timeline()) == 1


# Races.


class Reader:
    """A reader that pins a table and reads its files once it may."""

    def __init__(self, table: SmallTable, as_of: str | None) -> None:
        self.table, self.as_of = table, as_of
        self.files: set[str] = set()
        self.held: HeldLease | None = None

    def pin(self) -> str:
        try:
            held = HeldLease.acquire(self.table.meta, self.as_of, TTL_S, self.table.clock)
        except (InputError, LeaseError):
            return "refused"
        self.held = held
        return "held"

    def check(self) -> None:
        """Check that nothing of what it reads is gone."""
        if self.held is not None:
            lease = self.held.lease
            if lease.earliest == lease.instant:  # it saw nothing pending
                self.files = self.table.model.read_at(lease.instant)
            assert self.files <= self.table.data_files()
            self.held.release()


@cache
def raced_table(*, pending: bool) -> SmallTable:
    """Return a table with old files, and perhaps a pending write."""
    subject = subject_of(KEEP_LATEST_COMMITS)
    write(subject)
    if pending:
        subject.table.begin([A])
    write(subject, B)
    if not pending:
        write(subject)
    return subject.table


class Race:
    """A cleaner, a reader of what it would delete, and perhaps a write that completes."""

    def __init__(self, policy: str, *, pending: bool) -> None:
        self.subject = subject_of(policy, table=raced_table(pending=pending).copy())
        table = self.table = self.subject.table
        self.late = table.pending[0] if pending else None
        read_at = table.model.writes[-1 if pending else -2]
        self.reader = Reader(table, None if pending else read_at)
        self.reader.files = table.model.read_at(read_at)
        self.subject.view.sync()
        self.subject.view.load_partitions(["p=1", "p=2"])

    def clean(self) -> str:
        return "nothing" if self.subject.cleaner.run() is None else "cleaned"

    def complete(self) -> str:
        assert self.late is not None
        return self.table.complete(self.late)

    def start(self, before) -> list:
        self.table.storage.fail.append(before)
        actors = [self.reader.pin, self.clean]
        return actors if self.late is None else [*actors, self.complete]


def raced(policy: str, *, pending: bool) -> Counter[tuple[object, ...]]:
    """Run a race in every order; return how often it came out in which way."""
    races: list[Race] = []

    def start(before):
        races.append(Race(policy, pending=pending))
        return races[-1].start(before)

    outcomes: Counter[tuple[object, ...]] = Counter()
    for choices, results in every_order(start, preemptions=2):
        race = races.pop()
        race.table.storage.fail.clear()
        assert results[0] in ("held", "refused"), (choices, results)
        assert results[1] in ("cleaned", "nothing"), (choices, results)
        race.reader.check()
        outcomes[tuple(results[:2])] += 1
        # What was withdrawn is planned again.
        assert cleans(race.table, State.REQUESTED) == []
    return outcomes


@pytest.mark.property
@pytest.mark.parametrize("policy", POLICIES)
def test_reader_and_cleaner_in_every_order(policy):
    outcomes = raced(policy, pending=False)
    assert outcomes["refused", "cleaned"] > 0
    assert sum(n for (read, _), n in outcomes.items() if read == "held") > 0
    assert sum(outcomes.values()) >= 50


@pytest.mark.property
@pytest.mark.parametrize("policy", POLICIES)
def test_reader_cleaner_and_a_write_that_was_pending_in_every_order(policy):
    outcomes = raced(policy, pending=True)
    assert sum(n for (read, _), n in outcomes.items() if read == "held") > 0
    assert sum(outcomes.values()) >= 100


def test_a_cleaner_whose_clock_is_ahead_finds_a_lease_that_comes_in_between():
    """The storage's times count, though the lease has expired by this machine's clock."""
    subject = subject_of(KEEP_LATEST_COMMITS)
    table = subject.table
    table.storage._now_ms = lambda: table.clock.now_ms() - 86_400_000
    subject.restart()
    for _ in range(4):
        write(subject)
    files = table.model.read_at(table.model.writes[0])
    readers: list[Reader] = []

    def come(kind: str, path: str) -> None:
        if kind == "create" and path.endswith(".clean.requested") and not readers:
            readers.append(Reader(table, table.model.writes[0]))
            assert readers[0].pin() == "held"

    table.storage.fail.append(come)
    subject.clean()
    table.storage.fail.clear()
    assert files <= table.data_files()
    readers[0].check()


# A lease at each call, and crashes.


def cleaning(
    subject: Subject, faults: list[Fault], *, pins_at: int | None = None, as_of: str = ""
) -> tuple[FaultyStorage, Reader]:
    """Clean, with faults of the cleaner's calls; a reader comes before one of them."""
    table = subject.table
    storage = FaultyStorage(table.storage, faults)
    reader = Reader(table, as_of)
    if as_of:
        reader.files = table.model.read_at(as_of)
    inside: list[bool] = []

    def come(kind: str, path: str) -> None:
        if pins_at is not None and len(storage.log) >= pins_at and not inside:
            inside.append(True)
            reader.pin()

    view = LocalView.newest(TableView(table.storage))
    view.load_partitions(["p=1", "p=2", "p=3"])
    table.storage.fail.append(come)
    meta = TableMetaClient(storage, table.meta.config)
    with contextlib.suppress(*((Crash, StrandlineError) if faults else ())):
        Cleaner(meta, view, table.times, subject.settings).run()
    table.storage.fail.clear()
    return storage, reader


def prepared(policy: str) -> Subject:
    """Three parts, each of which deletes a file that a reader at the third write reads."""
    return subject_of(policy, table=table_of_three().copy(), part_files=2)


@cache
def table_of_three() -> SmallTable:
    subject = subject_of(KEEP_LATEST_COMMITS)
    for _ in range(4):
        write(subject, A, B, ("p=3", "c-0"))
    return subject.table


def length(policy: str) -> list[tuple[str, str]]:
    return cleaning(prepared(policy), [])[0].log


@pytest.mark.property
@pytest.mark.parametrize("policy", POLICIES)
def test_a_lease_that_comes_at_any_call_is_respected_or_refused(policy, subtests):
    log = length(policy)
    assert sum(path.endswith("clean.requested") for kind, path in log if kind == "create") >= 3
    seen: Counter[str] = Counter()
    for at in range(1, len(log) + 1):
        with subtests.test(at=at):
            subject = prepared(policy)
            pinned = subject.table.model.writes[-2]
            _, reader = cleaning(subject, [], pins_at=at, as_of=pinned)
            seen["held" if reader.held else "refused"] += 1
            assert not cleans(subject.table, State.REQUESTED)
            reader.check()
    assert min(seen["held"], seen["refused"]) >= 3


@pytest.mark.property
@pytest.mark.parametrize("policy", POLICIES)
def test_a_cleaner_that_dies_with_a_lease_is_followed_by_one_that_respects_it(policy, subtests):
    log = length(policy)
    cases = [
        (pins_at, at, effect)
        for pins_at in range(1, len(log) + 1, 4)
        for effect in (Effect.CRASH_BEFORE, Effect.ERROR_AFTER)
        for at in distinct_calls(log, effect)
        if at >= pins_at
    ][::3]
    assert len(cases) > 25
    held = 0
    for pins_at, at, effect in cases:
        with subtests.test(pins_at=pins_at, at=at, effect=effect):
            subject = prepared(policy)
            table = subject.table
            pinned = table.model.writes[-2]
            _, reader = cleaning(subject, [Fault(at, effect)], pins_at=pins_at, as_of=pinned)
            table.clock.advance(1000)
            cleaning(subject, [])
            held += reader.held is not None
            reader.check()
            for _ in range(2):
                write(subject, A, B, ("p=3", "c-0"))
                cleaning(subject, [])
            assert all(i.is_completed for i in table.meta.active_timeline() if i.action == CLEAN)
            left = 0 if policy == KEEP_LATEST_FILE_VERSIONS else 3
            assert len(old_files(subject)) <= max(left, 3)
    assert held > 5


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("state", [State.REQUESTED, State.INFLIGHT])
def test_a_pending_clean_that_would_break_a_lease(policy, state):
    """Requested, it is withdrawn. Begun, as one of Hudi's may be, it leaves what a reader needs."""
    subject = subject_of(policy)
    table = subject.table
    for _ in range(3):
        write(subject)
    subject.view.sync()
    planned = whole_plan(subject.cleaner.planner, table.meta.active_timeline())
    time = table.tick()
    instant = table.meta.create_requested(CLEAN, time, planned.plan)
    if state is State.INFLIGHT:
        table.meta.transition_to_inflight(
            instant, planned.plan if table.meta.config.version < 8 else None
        )
    lease = pin(subject, table.model.writes[0])
    files = table.model.read_at(lease.instant)
    subject.restart()
    done = subject.clean()
    assert files <= table.data_files()
    names = [i.requested_time for i in cleans(table)]
    if state is State.REQUESTED:
        assert time not in names
    else:
        assert time in names
        assert done.files_failed == 2
    leases_of(table).delete(lease.id)
    write(subject)
    subject.clean()
    assert not files & table.data_files()


def test_leases_that_keep_coming_leave_the_clean_to_the_next_one(caplog):
    subject = subject_of(KEEP_LATEST_COMMITS)
    table = subject.table
    for _ in range(6):
        write(subject)
    times = [*table.model.writes][:-1]

    def come(kind: str, path: str) -> None:
        if kind == "create" and path.endswith(".clean.requested"):
            table.clock.advance(1)
            pin(subject, times.pop())

    table.storage.fail.append(come)
    assert subject.clean() is None
    table.storage.fail.clear()
    assert cleans(table, State.REQUESTED) == cleans(table) == []
    assert len(times) == 2
    assert subject.clean().earliest_commit_to_retain == table.model.writes[2]
