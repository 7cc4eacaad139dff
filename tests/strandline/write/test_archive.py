"""Archival after a write: by itself, never in the way of writers and readers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from fsview.local_view import LocalView
from fsview.table_view import TableView
from strandline import Table
from strandline.read.state.reader_lease import LEASE_FOLDER
from strandline.write.client import WriteClient
from tests.kit.storage.hooked_storage import HookedStorage
from tests.strandline.write.tables import client, row, table
from timeline.errors import LockError
from timeline.storage.local import LocalStorage

LOCKS = "org.apache.hudi.client.transaction.lock"
OPTIONS = {
    "clean__commits__retained": 2,
    "keep__min__commits": 3,
    "keep__max__commits": 5,
}


def names(view: LocalView) -> list[str]:
    """Return the names of all base files."""
    groups = view.all_file_groups("eu")
    return sorted(
        each.base_file.name for group in groups for each in group.slices if each.base_file
    )


@pytest.mark.property
@pytest.mark.parametrize("version", ["6", "8", "9"])
def test_views_readers_and_writers_go_on_across_it(tmp_path: Path, version: str):
    base = tmp_path / "t"
    storage = LocalStorage(str(base))
    with client(base, write__table__version=version, clean__automatic="true", **OPTIONS) as c:
        c.upsert(table(row("a", ts=0)))
        view = LocalView.synced(TableView(storage))
        archived = 0
        for n in range(1, 14):
            result = c.upsert(table(row("a", ts=n), row(f"b{n}", ts=n)))
            assert not result.warnings
            archived += 0 if result.archive is None else len(result.archive.instants)
            view.sync()
            assert names(view) == names(LocalView.synced(TableView(storage)))
        assert archived > 10
        assert Table(base).scan().to_arrow().num_rows == 14
        earliest = Table(base).earliest_instant()
        assert Table(base).scan(as_of=earliest).to_arrow().num_rows
        assert Table(base).incremental(earliest).to_arrow().num_rows
    history = Table(base).history()
    assert history.column("action").to_pylist().count("commit") == 14
    assert sum(history.column("archived").to_pylist()) == archived


@pytest.mark.property
def test_of_two_archivers_at_once_each_instant_is_archived_by_one(tmp_path: Path):
    base = tmp_path / "t"
    with client(base, archive__automatic="false") as c:
        for n in range(12):
            c.upsert(table(row("a", ts=n)))
    given = {
        **OPTIONS,
        "archive__automatic": "false",
        "write__concurrency__mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
        "write__lock__provider": f"{LOCKS}.InProcessLockProvider",
        "write__lock__wait_time_ms_between_retry": "5",
    }
    with client(base, **given) as one, client(base, **given) as two, ThreadPoolExecutor(2) as pool:
        start = Barrier(2)

        def archived(each: WriteClient) -> list[str]:
            start.wait()
            done = each.archive()
            return [] if done is None else [i.requested_time for i in done.instants]

        moved = sorted(pool.map(archived, (one, two)))
    assert moved[0] == []
    assert len(moved[1]) == 9
    history = Table(base).history()
    assert history.num_rows == 12
    assert history.column("archived").to_pylist().count(True) == 9


@pytest.mark.property
@pytest.mark.parametrize("operation", ["upsert", "archive"])
def test_a_table_is_opened_again_if_its_commits_are_archived_before_they_are_read(
    tmp_path: Path, operation: str
):
    base = tmp_path / "t"
    given = {
        **OPTIONS,
        "archive__automatic": "false",
        "write__lock__provider": f"{LOCKS}.InProcessLockProvider",
    }
    storage = HookedStorage(base)
    with client(base, **given) as first, client(base, storage, **given) as second:
        for n in range(12):
            first.upsert(table(row("a", ts=n)))
        archived = []

        def after(called: str, path: str) -> None:
            if called == "list" and path.endswith("timeline") and not archived:
                archived.append(first.archive())

        storage.hooks[1] = after
        if operation == "archive":
            assert second.archive() is None
        else:
            assert second.upsert(table(row("b", ts=1))).rows_inserted == 1
    assert [len(each.instants) for each in archived] == [9]
    assert Table(base).to_arrow().num_rows == (1 if operation == "archive" else 2)


@pytest.mark.property
def test_without_the_lock_nothing_is_archived_nor_cleaned(tmp_path: Path):
    """Another writer may have it by then, and archive, or roll back what the plan relies on."""
    storage = HookedStorage(tmp_path / "t")

    def lose_at(kind: str, ending: str) -> None:
        def before(called: str, path: str) -> None:
            if called == kind and path.endswith(ending):
                (tmp_path / "t/.hoodie/lock").unlink()

        storage.hooks[0] = before

    given = {
        **OPTIONS,
        "clean__automatic": "false",
        "archive__automatic": "false",
        "write__concurrency__mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
        "write__lock__provider": f"{LOCKS}.FileSystemBasedLockProvider",
    }
    with client(tmp_path / "t", storage, **given) as c:
        for n in range(9):
            c.upsert(table(row("a", ts=n)))
        before = {path.name for path in (tmp_path / "t").rglob("*") if path.is_file()}
        lose_at("list", LEASE_FOLDER)
        with pytest.raises(LockError, match="was lost during archiving"):
            c.archive()
        lose_at("create", ".clean.requested")
        with pytest.raises(LockError, match="was lost during cleaning"):
            c.clean()
        storage.hooks[0] = None
        left = {path.name for path in (tmp_path / "t").rglob("*") if path.is_file()}
        assert before <= left
        assert not [name for name in left if ".clean" in name]
        assert c.clean().files_deleted == 6
        assert c.archive().instants


@pytest.mark.property
def test_it_is_left_out_if_it_is_not_automatic(tmp_path: Path):
    with client(tmp_path / "t", archive__automatic="false", **OPTIONS) as c:
        for n in range(8):
            assert c.upsert(table(row("a", ts=n))).archive is None
        done = c.archive()
        assert done is not None
        assert done.instants
        assert c.archive() is None
        c.upsert(table(row("a", ts=9)))


@pytest.mark.property
def test_a_clean_that_holds_it_back_is_looked_up_once(tmp_path: Path) -> None:
    """No write lists the timeline, nor reads the clean, for an archival that finds nothing."""
    base = tmp_path / "t"
    with client(base, archive__automatic="false", clean__commits__retained="1") as other:
        for n in range(3):
            other.upsert(table(row("a", ts=n)))
        assert other.clean() is not None
    # Cleans nothing by itself, so the earliest commit that the clean retained stays where it is.
    with client(base, keep__min__commits=3, keep__max__commits=5, clean__commits__retained=2) as c:
        results = [c.upsert(table(row("a", ts=n))) for n in range(3, 15)]
        looks = [
            {kind: n for (kind, cause), n in each.storage_calls.items() if cause == "archive"}
            for each in results
        ]
        # One archival, up to what the clean retained.
        assert [each.archive is not None for each in results].count(True) == 1
        assert [bool(each) for each in looks].count(True) == 1
        # A new clean moves the mark, and the archiver continues.
        assert c.clean() is not None
        assert c.upsert(table(row("a", ts=20))).archive is not None
