"""A rollback must not undo a commit whose predecessors' files were cleaned: rows would be lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.table_api.table import Table
from strandline.write.client import WriteClient
from tests.kit.tables.memory_dir import memory, tmp_path  # noqa: F401
from tests.strandline.write.logged_table import BUCKETS, LOGS
from tests.strandline.write.tables import client, row, table
from timeline.errors import IllegalTransitionError


def written(c: WriteClient, ts: int) -> str:
    return c.upsert(table(row("a", ts=ts))).instant


def names(base: Path) -> list[str]:
    return Table(str(base)).to_arrow().column("name").to_pylist()


@pytest.mark.property
@pytest.mark.parametrize("version", [6, 8, 9])
def test_commits_whose_predecessor_was_cleaned_can_not_be_undone(
    tmp_path: Path,  # noqa: F811
    version: int,
) -> None:
    with client(tmp_path, clean__commits__retained=1, write__table__version=version) as c:
        times = [written(c, ts) for ts in range(4)]
        cleaned = c.clean()
        assert cleaned is not None
        c.rollback(times[3])
        assert names(tmp_path) == ["a@2"]
        with pytest.raises(IllegalTransitionError) as caught:
            c.rollback(times[2])
        for part in (times[2], f"clean {cleaned.instant}", times[1]):
            assert part in str(caught.value)
        assert names(tmp_path) == ["a@2"]
        last = written(c, 9)
        c.rollback(last)
        assert names(tmp_path) == ["a@2"]


def test_a_clean_that_is_pending_counts(tmp_path: Path) -> None:  # noqa: F811
    """It may have deleted files before its writer died, and the next writer finishes it."""
    with client(tmp_path, clean__commits__retained=1) as c:
        times = [written(c, ts) for ts in range(3)]
        assert c.clean() is not None
        c.rollback(times[2])
        for file in (tmp_path / ".hoodie" / "timeline").glob("*.clean"):
            file.unlink()
        with pytest.raises(IllegalTransitionError, match="clean"):
            c.rollback(times[1])
        assert names(tmp_path) == ["a@1"]


def test_new_file_groups_can_be_undone_whatever_was_cleaned(tmp_path: Path) -> None:  # noqa: F811
    with client(tmp_path, clean__commits__retained=1, parquet__small__file__limit=0) as c:
        for ts in range(3):
            written(c, ts)
        inserted = c.insert(table(row("b"))).instant
        assert c.clean() is not None
        c.rollback(inserted)
        assert names(tmp_path) == ["a@2"]


@pytest.mark.property
@pytest.mark.parametrize("version", [6, 9])
def test_a_compaction_of_logs_alone_that_were_cleaned_can_not_be_undone(
    tmp_path: Path,  # noqa: F811
    version: int,
) -> None:
    """As Flink writes them, and Hudi with its bucket index."""
    base = tmp_path / "t"
    options = {**BUCKETS, "write__table__version": version}
    with client(base, **options) as c:
        first = written(c, 1)
        written(c, 2)
    for path in [*base.rglob("*.parquet"), *base.rglob(f".hoodie/**/{first}*")]:
        path.unlink()
    policy = {"clean__policy": "KEEP_LATEST_FILE_VERSIONS", "clean__fileversions__retained": 1}
    with client(base, **options, **policy) as c:
        done = c.compact()
        assert done is not None
        cleaned = c.clean()
        assert cleaned is not None
        assert not list(base.rglob("*.log.*"))
        with pytest.raises(IllegalTransitionError, match=rf"clean {cleaned.instant} .*\.log\."):
            c.rollback(done.instant)
    assert names(base) == ["a@2"]


@pytest.mark.property
@pytest.mark.parametrize("version", [6, 9])
def test_a_compaction_whose_logs_are_there_can_be_undone(
    tmp_path: Path,  # noqa: F811
    version: int,
) -> None:
    base = tmp_path / "t"
    policy = {"clean__policy": "KEEP_LATEST_FILE_VERSIONS", "clean__fileversions__retained": 2}
    with client(base, **BUCKETS, write__table__version=version, **policy) as c:
        for ts in range(4):
            written(c, ts)
            done = c.compact()
        assert done is not None
        assert c.clean() is not None
        assert list(base.rglob("*.log.*"))
        c.rollback(done.instant)
    assert names(base) == ["a@3"]


@pytest.mark.property
def test_an_overwrite_of_a_group_that_a_compaction_left_out_can_not_be_undone(
    tmp_path: Path,  # noqa: F811
) -> None:
    """In version 6 a log of a later write has the time of the compaction, which has no file."""
    base = tmp_path / "t"
    with client(base, **LOGS, write__table__version=6) as c:
        c.upsert(table(row("a"), row("b")))
        written(c, 2)
        planned = c.schedule_compaction()
        written(c, 3)
        overwritten = c.insert_overwrite(table(row("z"))).instant
        assert c.compact_planned() is not None
        with pytest.raises(IllegalTransitionError, match=f"compaction {planned} has left out"):
            c.rollback(overwritten)
    assert names(base) == ["z@1"]
