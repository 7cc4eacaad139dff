"""A savepoint that another process makes while a clean is planned and carried out.

Hudi makes savepoints without the table's lock. It looks for a clean first, which may be pending.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from itertools import combinations

import pytest

from strandline.table_services.clean.policy import (
    KEEP_LATEST_FILE_VERSIONS,
    POLICIES,
    CleanSettings,
)
from tests.kit.storage.faulty_storage import Crash
from tests.kit.tables.small_table import SmallTable
from tests.strandline.table_services.clean.subject import A, B, Subject, cleans
from timeline.instant import CLEAN, State
from timeline.metadata.instant_metadata import CleanerPlan, CleanMetadata

HOUR_MS = 3_600_000


def prepared(policy: str, part_files: int) -> Subject:
    subject = Subject(SmallTable())
    subject.settings = CleanSettings(
        policy=policy, retained=1, hours=1, versions=1, parallelism=1, part_files=part_files
    )
    for _ in range(4):
        subject.table.clock.advance(HOUR_MS)
        subject.table.write(A, B)
    subject.table.clock.advance(1000)
    subject.restart()
    subject.view.load_partitions(["p=1", "p=2"])
    return subject


def save(table: SmallTable, time: str) -> bool:
    """Make a savepoint as Hudi does; return whether it isn't refused."""
    found = [i for i in table.meta.active_timeline() if i.action == CLEAN]
    if found and time < retained_by(table, found[-1]):
        return False
    table.savepoint(time)
    return True


def retained_by(table: SmallTable, clean) -> str:
    said = table.meta.read(clean) if clean.is_completed else table.meta.read_plan(clean)
    if isinstance(said, CleanMetadata) and said.earliest_commit_to_retain:
        return said.earliest_commit_to_retain
    if isinstance(said, CleanerPlan) and said.earliest_instant_to_retain:
        return said.earliest_instant_to_retain.timestamp
    return max(time for time in table.model.writes if time <= clean.requested_time)


def clean(subject: Subject, at: int, dies_at: int = 0) -> tuple[int, bool]:
    """Clean; a savepoint of the second write comes before a call, or the cleaner dies there.

    Returns:
        Number of the cleaner's calls; whether the savepoint was made.
    """
    table = subject.table
    calls, made, inside = 0, False, False

    def come(kind: str, path: str) -> None:
        nonlocal calls, made, inside
        if inside:
            return
        calls += 1
        if calls == dies_at:
            raise Crash
        if calls == at:
            inside = True
            made = save(table, table.model.writes[-3])
            inside = False

    table.storage.fail.append(come)
    with suppress(Crash):
        subject.cleaner.run()
    table.storage.fail.clear()
    return calls, made


def goes_on(subject: Subject) -> set[str]:
    """Write and clean in a new process; return the files that must stay then."""
    table, settings = subject.table, subject.settings
    table.clock.advance(HOUR_MS)
    table.write(A, B)
    subject.restart()
    subject.cleaner.run()
    by_versions = settings.policy == KEEP_LATEST_FILE_VERSIONS
    model = table.model
    return model.to_keep_versions(1) if by_versions else model.to_keep(model.writes[-1])


@pytest.mark.property
@pytest.mark.parametrize("part_files", [1, 200_000])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_savepoint_that_comes_at_any_call_keeps_its_files_or_is_refused(
    policy, part_files, subtests
):
    count, _ = clean(prepared(policy, part_files), at=0)
    seen: Counter[bool] = Counter()
    for at in range(1, count + 1):
        with subtests.test(at=at):
            subject = prepared(policy, part_files)
            table = subject.table
            files = table.model.read_at(table.model.writes[-3])
            _, made = clean(subject, at)
            seen[made] += 1
            assert not made or files <= table.data_files()
            assert cleans(table, State.REQUESTED) == []
            # It holds only its own files.
            assert goes_on(subject) == table.data_files()
    assert min(seen[True], seen[False]) >= 3


@pytest.mark.property
@pytest.mark.parametrize("policy", POLICIES)
def test_a_cleaner_that_dies_is_followed_by_one_that_keeps_the_files(policy, subtests):
    """The plan doesn't know of the savepoint, which may be older than the request."""
    count, _ = clean(prepared(policy, 1), at=0)
    for at, dies_at in list(combinations(range(1, count + 1), 2))[::7]:
        with subtests.test(at=at, dies_at=dies_at):
            subject = prepared(policy, 1)
            table = subject.table
            files = table.model.read_at(table.model.writes[-3])
            _, made = clean(subject, at, dies_at)
            assert not made or files <= table.data_files()
            keep = goes_on(subject)
            assert cleans(table, State.REQUESTED) == cleans(table, State.INFLIGHT) == []
            assert not made or files <= table.data_files()
            assert keep == table.data_files()
