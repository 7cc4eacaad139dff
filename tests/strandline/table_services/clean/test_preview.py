"""What a clean would delete, and why a file is still there, or gone."""

from __future__ import annotations

import pytest

from strandline.table_services.clean.plan import Rule
from strandline.table_services.clean.policy import (
    KEEP_LATEST_COMMITS,
    KEEP_LATEST_FILE_VERSIONS,
    CleanSettings,
)
from strandline.table_services.clean.preview import CLEANABLE_SCHEMA, preview, why
from tests.kit.tables.small_table import SmallTable
from tests.strandline.table_services.clean.subject import A, B, Subject, cleans
from timeline.errors import InputError
from timeline.instant import State

YOUNG = "nothing in the table is old enough for KEEP_LATEST_COMMITS (2)"


@pytest.fixture
def subject() -> Subject:
    return Subject(SmallTable())


def path(group: tuple[str, str], time: str) -> str:
    partition, file_id = group
    return f"{partition}/{file_id}_0-0-0_{time}.parquet"


def seen(subject: Subject):
    subject.view.sync()
    return preview(subject.cleaner.planner, subject.table.meta.active_timeline())


def told(subject: Subject, file: str):
    subject.view.sync()
    meta = subject.table.meta
    return why(subject.cleaner.planner, meta.active_timeline(), file)


def test_a_preview_has_what_the_clean_deletes_then(subject):
    table = subject.table
    times = [table.write(A, B) for _ in range(4)]
    before = dict(table.storage.files)
    found = seen(subject)
    assert table.storage.files == before
    assert (found.policy, found.earliest) == (KEEP_LATEST_COMMITS, times[2])
    assert found.files.schema == CLEANABLE_SCHEMA
    reason = f"superseded by the slice of {times[1]}, which retained readers use in its place"
    assert [(row["partition"], row["file"], row["reason"]) for row in found.files.to_pylist()] == [
        (group[0], path(group, times[0]).rpartition("/")[2], reason) for group in (A, B)
    ]
    done = subject.clean()
    assert done.files_deleted == found.files.num_rows
    assert done.bytes_deleted == found.bytes > 0
    assert seen(subject).files.num_rows == 0


def test_a_preview_shows_what_pending_cleans_are_going_to_delete(subject):
    table = subject.table
    times = [table.write(A) for _ in range(4)]
    pending, _ = table.begin_clean(table.to_clean()[:1])
    reason = f"the pending clean {pending.requested_time} will delete it"
    assert seen(subject).files.to_pylist() == [
        {
            "partition": A[0],
            "file": path(A, times[0]).rpartition("/")[2],
            "bytes": None,
            "reason": reason,
        }
    ]
    found = told(subject, path(A, times[0]))
    assert (found.is_there, found.goes, found.reason) == (True, True, reason)


def test_nothing_goes_before_the_policy_says_so(subject):
    time = subject.table.write(A)
    found = seen(subject)
    assert (found.earliest, found.files.num_rows) == ("", 0)
    assert told(subject, path(A, time)).reason == YOUNG


@pytest.mark.parametrize("commits", [1, 5])
def test_a_file_of_a_pending_write_names_the_write(subject, commits):
    """Whether or not the table has something that is old enough for the policy."""
    for _ in range(commits):
        subject.table.write(A)
    pending = subject.table.begin([A, B])
    time = pending.instant.requested_time
    reason = (
        f"belongs to the pending write {time}; the next write rolls it back, unless it still runs"
    )
    for group in (A, B):
        found = told(subject, path(group, time))
        assert (found.is_there, found.goes, found.reason) == (True, False, reason)


def test_each_file_has_its_reason(subject):
    table = subject.table
    saved = table.write(A)
    table.savepoint(saved)
    old, read, kept, newest = (table.write(A) for _ in range(4))
    pending = table.begin([A])
    for file, goes, reason in [
        (path(A, saved), False, f"the savepoint {saved} names a file of its slice"),
        (path(A, old), True, f"superseded by the slice of {read}, which retained readers"),
        (path(A, read), False, f"the newest slice of its file group before {kept}"),
        (path(A, kept), False, f"it began at or after {kept}"),
        (f"/memory/t/{path(A, newest)}", False, f"it began at or after {kept}"),
    ]:
        found = told(subject, file)
        assert (found.is_there, found.goes) == (True, goes)
        assert found.reason.startswith(reason)
    assert pending.paths


def test_a_file_of_a_group_that_was_replaced_has_a_reason_as_long_as_it_is_there(subject):
    table = subject.table
    first = table.write(A, B)
    replaced = table.write(("p=1", "c-0"), replaces=[A])
    assert told(subject, path(A, first)).reason == YOUNG
    table.write(B)
    found = told(subject, path(A, first))
    assert (found.is_there, found.goes) == (True, False)
    assert found.reason == (
        f"its file group was replaced at or after {replaced}, the earliest instant to retain"
    )
    table.write(B)
    found = told(subject, path(A, first))
    assert (found.is_there, found.goes, found.reason) == (True, True, Rule.REPLACED.value)


def test_by_versions_the_number_is_the_reason():
    subject = Subject(SmallTable())
    subject.settings = CleanSettings(policy=KEEP_LATEST_FILE_VERSIONS, versions=2)
    subject.restart()
    times = [subject.table.write(A) for _ in range(3)]
    assert told(subject, path(A, times[0])).reason == "2 newer slices of its file group stay"
    assert told(subject, path(A, times[1])).reason == "one of the newest 2 slices of its file group"
    found = seen(subject)
    assert (found.policy, found.earliest) == (KEEP_LATEST_FILE_VERSIONS, "")


def test_a_file_that_is_gone_names_the_clean_that_deleted_it(subject):
    table = subject.table
    times = [table.write(A) for _ in range(4)]
    clean = subject.clean()
    for _ in range(3):
        table.write(A)
        subject.clean()
    subject.restart()
    found = told(subject, path(A, times[0]))
    assert (found.is_there, found.goes) == (False, True)
    assert found.reason == (
        f"the clean {clean.instant} deleted it, which retained the files that readers at"
        f" {times[2]} or later need"
    )
    assert len(cleans(table, State.COMPLETED)) > 1


@pytest.mark.parametrize(
    ("file", "match"),
    [
        ("p=1/nothing.txt", "has no name of a data file; allowed: base and log files"),
        ("../t2/a-0_0-0-0_1.parquet", "is no path below"),
        ("s3://elsewhere/t/a-0_0-0-0_1.parquet", "isn't below"),
        ("p=1/c-0_0-0-0_20240101000000000.parquet", "has no file 'c-0.*' in partition 'p=1'"),
    ],
)
def test_what_is_no_file_of_the_table_is_refused(subject, file, match):
    subject.table.write(A)
    with pytest.raises(InputError, match=match):
        told(subject, file)


def test_of_a_lost_file_the_commit_that_wrote_it_is_told(subject):
    table = subject.table
    time = table.write(A, B)
    table.write(B)
    del table.storage.files[path(A, time)]
    subject.restart()
    with pytest.raises(InputError, match=f"the commit {time} wrote it, and no clean"):
        told(subject, path(A, time))
