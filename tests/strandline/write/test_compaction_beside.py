"""Compactions beside other parts: inline after writes, markers, the service, a view."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from fsview.local_view import open_view as local_view
from fsview.model.file_system_view import FileSystemView
from strandline import Table
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import reader
from tests.strandline.write.faults.fault_scenarios import LOCK
from tests.strandline.write.logged_table import (
    LOGS,
    compactions,
    optimized,
    rows,
)
from tests.strandline.write.tables import client, row, table
from timeline.instant import State
from timeline.storage.local import LocalStorage

INLINE = {"compact__inline": "true", "compact__inline__max__delta__commits": 2}


@pytest.fixture
def base(written, tmp_path) -> Path:
    """A copy of that table."""
    return Path(shutil.copytree(written, tmp_path / "t"))


@pytest.mark.property
def test_inline_compactions_follow_the_trigger(tmp_path):
    base = tmp_path / "t"
    with client(base, **LOGS, **INLINE) as c:
        results = [c.upsert(table(row("a", ts=ts))) for ts in range(1, 7)]
    assert [each.compaction is not None for each in results] == [False, True] * 3
    assert all(each.warnings == () for each in results[1:])
    assert results[1].seconds["compact"] > 0
    assert optimized(base) == rows(base)
    with client(base, **LOGS, **{**INLINE, "compact__inline": "false"}) as c:
        assert [c.upsert(table(row("a", ts=ts))).compaction for ts in range(7, 10)] == [None] * 3


def test_unset_it_is_on_if_compactions_are_not_left_to_others(base):
    more = {"compact__inline__max__delta__commits": 1}
    with client(base, **LOGS, datasource__compaction__async__enable="false", **more) as c:
        assert c.upsert(table(row("a", ts=5))).compaction is not None
    with client(base, **LOGS, **more) as c:
        assert c.upsert(table(row("a", ts=6))).compaction is None


@pytest.mark.property
def test_inline_plans_are_left_to_another_job(base):
    options = {**INLINE, "compact__inline": "false", "compact__schedule__inline": "true"}
    with client(base, **LOGS, **options) as c:
        first, second = c.upsert(table(row("a", ts=5))), c.upsert(table(row("a", ts=6)))
    assert first.planned_compaction is not None
    # All groups with logs are taken by the plan.
    assert (second.planned_compaction, first.compaction, second.compaction) == (None, None, None)
    with client(base, **LOGS, **INLINE) as c:
        done = c.upsert(table(row("a", ts=7))).compaction
    assert done.finished == (first.planned_compaction,)
    assert optimized(base) == rows(base)


@pytest.mark.property
def test_a_compaction_that_fails_fails_no_write(base):
    failing = []

    def fail(kind, path):
        if kind == "create" and path.endswith(".MERGE") and not failing:
            failing.append(path)
            raise OSError("no space left")

    options = {**LOGS, **INLINE}
    with client(base, HookedStorage(base, fail), **options) as c:
        result = c.upsert(table(row("a", ts=5)))
        assert any("compacting failed" in each for each in result.warnings)
        assert compactions(base) == [State.INFLIGHT]
        again = c.upsert(table(row("a", ts=6)))
    assert again.compaction is not None
    assert ([each["ts"] for each in optimized(base)], rows(base)[0]["ts"]) == ([5, 3], 6)
    assert reader.leftovers(base) == []


@pytest.mark.property
def test_inline_compactions_are_followed_by_clean_and_archive(tmp_path):
    options = {
        **LOGS,
        **INLINE,
        "clean__automatic": "true",
        "clean__commits__retained": 2,
        "keep__min__commits": 4,
        "keep__max__commits": 5,
    }
    base = tmp_path / "t"
    with client(base, **options) as c:
        results = [c.upsert(table(row("a", ts=ts), row("b", "us", ts=ts))) for ts in range(20)]
    assert any(each.clean for each in results)
    assert any(each.archive for each in results)
    assert all(each.warnings == () for each in results[1:])
    assert [each["ts"] for each in rows(base)] == [19, 19]
    assert len(reader.timeline_names(base)) < 60


def test_copy_on_write_tables_are_not_compacted_inline(tmp_path):
    with client(tmp_path / "t", **INLINE) as c:
        for ts in range(4):
            result = c.upsert(table(row("a", ts=ts)))
            assert (result.compaction, result.planned_compaction) == (None, None)
            assert not any("compact" in each for each in result.warnings)


@pytest.mark.property
def test_the_service_knows_plans_and_new_base_files(base):
    with client(base, **LOGS, embed__timeline__server="true", **INLINE) as c:
        assert c.service
        planned = c.schedule_compaction()
        result = c.upsert(table(row("a", ts=7)))
        assert (result.compaction.instant, result.compaction.file_groups) == (planned, 2)
        results = [c.upsert(table(row("a", ts=ts), row("d", ts=1))) for ts in (8, 9)]
        assert results[0].compaction.logs == 2
        assert (results[1].fallbacks, results[1].warnings) == ((), ())
        assert c.compact() is not None
    assert optimized(base) == rows(base)
    assert [each["ts"] for each in rows(base)] == [9, 3, 1]


def test_markers_of_a_compaction_are_no_early_conflict(base):
    options = {
        **LOGS,
        **LOCK,
        "write__concurrency__mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
        "write__concurrency__early__conflict__detection__enable": "true",
        "clean__failed__writes__policy": "LAZY",
    }
    markers, written = [], []

    def write_between(kind, path):
        if kind == "create" and path.endswith(".MERGE"):
            markers.append(path)
            if len(markers) == 2:
                with client(base, **options) as other:
                    written.append(other.upsert(table(row("a", ts=9), row("c", "us", ts=9))))

    with client(base, HookedStorage(base, write_between), **options) as c:
        c.compact()
    assert written[0].rows_updated == 2
    assert Table(base).to_arrow()["ts"].to_pylist() == [9, 9]


@pytest.mark.property
def test_a_view_follows_a_compaction_that_is_undone_and_executed_again(base):
    failed = []

    def fail(kind, path):
        if kind == "create" and path.endswith(".MERGE") and not failed:
            failed.append(path)
            raise OSError("no space left")

    options = {**LOGS, "embed__timeline__server": "true"}
    with client(base, HookedStorage(base, fail), **options) as c, open_view(base) as view:
        assert c.service
        with pytest.raises(OSError, match="no space left"):
            c.compact()
        c.upsert(table(row("a", ts=7)))
        before = served(c, base)
        done = c.compact()
        assert len(done.finished) == 1
        assert served(c, base) == before == rows(base)
        result = c.upsert(table(row("a", ts=8)))
        assert (result.fallbacks, result.rows_updated) == ((), 1)
        assert [each["ts"] for each in served(c, base)] == [8, 3]
        # One that saw each state, and a new one.
        view.sync()
        with open_view(base) as fresh:
            assert names_of(view) == names_of(fresh)


def names_of(view: FileSystemView) -> list[tuple]:
    """Return what the slices of a view are made of."""
    slices = [each for partition in ("eu", "us") for each in view.all_file_slices(partition)]
    return [
        (s.base_instant, s.base_file and s.base_file.name, [log.name for log in s.log_files])
        for s in slices
    ]


@contextmanager
def open_view(base) -> Iterator[FileSystemView]:
    view = local_view(LocalStorage(str(base)))
    view.load_all_partitions()
    with closing(view):
        yield view


def served(c, base) -> list[dict]:
    """Return the rows of the slices that a client's service names."""
    location = c._context.embedded.newest_location()
    found = Table(base, service=location.urls[0], token=location.token).to_arrow()
    found = found.drop_columns(list(reader.META)).to_pylist()
    return sorted(found, key=lambda each: (each["id"], each["region"]))
