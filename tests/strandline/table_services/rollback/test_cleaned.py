"""A rollback must not undo a commit whose predecessors' files were cleaned: rows would be lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.table_api.table import Table
from strandline.write.client import WriteClient
from tests.kit.tables.memory_dir import memory, tmp_path  # noqa: F401
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
