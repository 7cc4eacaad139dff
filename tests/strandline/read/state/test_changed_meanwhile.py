"""Recorded tables that are at the next step from some storage call on, whichever it is.

A scan that is planned and read meanwhile has the rows before, or those after, or says what to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from strandline.read.scan import Scan
from tests.kit.short_runs import quick_runs
from tests.kit.tables.filled_golden import Files, FilledStorage, files, midway
from timeline.errors import PathNotFoundError, StrandlineError
from timeline.meta_client import TableMetaClient

CHANGES = {
    "a compaction": ("mor_basic_v6", 8, 9),
    "a compaction and a clean": ("mor_basic_v9", 10, 11),
    "a clustering": ("replace_mor_v9", 5, 6),
    "a clean of replaced groups": ("replace_cow_v9", 11, 12),
    "a deletion of a partition": ("replace_cow_v9", 7, 8),
    "a restore of logs": ("savepoint_mor_v6", 7, 8),
    "a restore": ("savepoint_cow_v9", 4, 5),
    "a rollback by commands": ("rollback_mor_v6", 4, 5),
    "a rollback": ("rollback_mor_v9", 4, 5),
    "all that is done in two hours": ("archival_cow_v6", 4, 9),
    "a clean by the metadata table": ("mdt_mor_v9", 10, 11),
}
UNDER_WAY = [name for name in CHANGES if "rollback" in name or "restore" in name]


class Times:
    """The times of a table's writes, in the middle and of the last."""

    def __init__(self, now: Files) -> None:
        meta = TableMetaClient.open(FilledStorage(now))
        writes = [*meta.active_timeline().write_timeline().completed()]
        by_completion = meta.config.layout_version > 1
        done = sorted(i.completion_time if by_completion else i.requested_time for i in writes)
        self.since, self.until = done[len(done) // 2], done[-1]
        self.as_of = writes[-1].requested_time
        self.earlier = writes[len(writes) // 2].requested_time


def rows(scan: Scan) -> list[str]:
    return sorted(map(repr, scan.to_arrow().select(range(5)).to_pylist()))


READS: dict[str, Callable[[TableMetaClient, Times], Any]] = {
    "rows": lambda meta, _: rows(Scan.of(meta, threads=1)),
    "count": lambda meta, _: Scan.of(meta, threads=1).count(),
    "as_of": lambda meta, at: rows(Scan.of(meta, as_of=at.as_of, threads=1)),
    "earlier": lambda meta, at: rows(Scan.of(meta, as_of=at.earlier, threads=1)),
    "since": lambda meta, at: rows(Scan.of_range(meta, at.since, threads=1)),
    "until": lambda meta, at: rows(Scan.of_range(meta, at.since, at.until, threads=1)),
}


def outcome(storage: FilledStorage, read: Callable[..., Any], times: Times) -> Any:
    """Return what is read, or the type and message of the error."""
    try:
        return read(TableMetaClient.open(storage), times)
    except StrandlineError as error:
        return type(error), str(error)


def is_alike(before: Files, after: Files, kind: str, path: str) -> bool:
    """Return whether a call is answered alike by both tables."""
    if kind == "list":
        here, there = (FilledStorage(each).list(path) for each in (before, after))
        return here == there
    if kind == "stat":
        here_, there_ = (FilledStorage(each).stat(path) for each in (before, after))
        return here_ == there_
    return before.get(path) == after.get(path)


def check(before: Files, after: Files, read: Callable[..., Any]) -> Counter[str]:
    """Change the table before each call in turn; return what was read how often.

    A change before a call that is answered alike is the same as one before the next call.
    """
    times, found = Times(before), Counter[str]()
    undisturbed = FilledStorage(before)
    first = outcome(undisturbed, read, times)
    last = outcome(FilledStorage(after), read, times)
    for nth, (kind, path) in enumerate(undisturbed.log, 1):
        if is_alike(before, after, kind, path):
            found["alike"] += 1
            continue
        storage = FilledStorage(before)

        def change(kind: str, path: str, storage=storage, nth=nth) -> None:
            if len(storage.log) == nth:
                storage.now = after

        with storage.before(change):
            got = outcome(storage, read, times)
        assert storage.log[nth - 1] == (kind, path)
        if got == first:
            found["before"] += 1
        elif got == last:
            found["after"] += 1
        else:
            assert got[0] is PathNotFoundError, f"before call {nth}, {storage.log[nth - 1]}: {got}"
            assert "make the scan again" in got[1]
            found["refused"] += 1
            # The files are those of ``last`` then, whatever was read before: once is enough.
            assert found["refused"] > 1 or outcome(storage, read, times) == last
    assert found.total() > found["alike"]
    return found


@pytest.mark.parametrize("read", quick_runs(["rows"], READS))
@pytest.mark.parametrize("change", quick_runs(["a restore"], CHANGES))
def test_the_rows_before_or_after_or_an_error(change: str, read: str) -> None:
    scenario, before, after = CHANGES[change]
    found = check(files(scenario, before), files(scenario, after), READS[read])
    assert found.total() > 4


@pytest.mark.parametrize("half", quick_runs([0], [0, 1]))
@pytest.mark.parametrize("read", quick_runs(["rows"], ["rows", "as_of", "since", "until"]))
@pytest.mark.parametrize("change", quick_runs(["a restore"], UNDER_WAY))
def test_a_removal_under_way(change: str, read: str, half: int) -> None:
    """Of what it undoes some files are there, which a listing shows beside what is left."""
    scenario, before, after = CHANGES[change]
    start = files(scenario, before)
    found = check(start, midway(start, files(scenario, after), half), READS[read])
    assert found.total() > 4


@pytest.mark.property
def test_every_file_has_rows_of_its_own() -> None:
    """Or a mixture could look like the rows of one step."""
    for scenario, before, after in CHANGES.values():
        for step in (before, after):
            meta = TableMetaClient.open(FilledStorage(files(scenario, step)))
            keys = Scan.of(
                meta, columns=["_hoodie_record_key", "_hoodie_partition_path"]
            ).to_arrow()
            assert len({*map(repr, keys.to_pylist())}) == keys.num_rows > 2
