"""An archival on a disk that is full at any of its writes, for a moment or until it ends."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import product

import pytest

from strandline.table_services.archive.run import ArchiveResult
from tests.kit.outcomes import outcome_of
from tests.kit.storage.full_disk import FullDisk, Left
from tests.kit.tables.small_table import SmallTable
from tests.strandline.table_services.archive.test_archive_crash import (
    SETTINGS,
    active,
    archive,
    archived,
    times_archived,
    written,
)
from timeline.errors import CorruptMetadataError, StorageUnavailableError

ALWAYS = 10**6
"""More than all writes of a run."""


def prepared(version: int) -> SmallTable:
    """Return a table that was archived once, so that the next archival merges files."""
    table = SmallTable(FullDisk(), version=version)
    written(table, 8)
    assert archive(table.meta, table) is not None
    written(table, 4)
    table.storage.fill(())
    return table


def writes_of(version: int) -> list[str]:
    table = prepared(version)
    archive(table.meta, table)
    return table.storage.written


def cases() -> Iterator[tuple[int, Collection[int], Left]]:
    for version in (6, 9):
        for at, left in product(range(1, len(writes_of(version)) + 1), Left):
            yield version, range(at, at + 1), left
            yield version, range(at, ALWAYS), left


CASES = list(cases())


def test_each_write_of_an_archival_is_among_them():
    names = [path.rpartition("/")[2] for path in writes_of(9)]
    assert [name.partition("_")[0].isdigit() for name in names] == [True, False, False] * 2
    assert len(writes_of(6)) == 1


@pytest.mark.property
def test_no_instant_is_lost_and_the_next_archival_goes_on(subtests):
    for version, full, left in CASES:
        with subtests.test(version=version, full=full, left=left):
            table = prepared(version)
            before = active(table) | archived(table)
            table.storage.fill(full, left)
            with pytest.raises(StorageUnavailableError, match="No space left on device"):
                archive(table.meta, table)
            torn = table.storage.written[full.start - 1]
            table.storage.fill(())
            if left is not Left.TORN:
                assert active(table) | archived(table) == before
            repaired = again(table, torn)
            assert left is Left.TORN or not repaired
            assert active(table) | archived(table) == before
            assert not active(table) & archived(table)
            assert set(times_archived(table).values()) == {1}
            assert len(table.meta.active_timeline().write_timeline()) <= SETTINGS.keep_max


def again(table: SmallTable, torn: str) -> bool:
    """Archive until it works; return whether a torn file had to go, which the error names."""
    repaired = False
    while (found := outcome_of(lambda: archive(table.meta, table))) is not None:
        if isinstance(found, CorruptMetadataError):
            assert torn in found.message
            table.storage.delete(torn)
            repaired = True
        else:
            assert isinstance(found, ArchiveResult)
    return repaired
