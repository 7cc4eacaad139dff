"""A clean on a disk that is full at any of its writes, for a moment or for the rest of the run."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import product
from pathlib import Path

import pytest

from fsview.local_view import LocalView
from fsview.table_view import TableView
from strandline.table_services.clean.policy import CleanSettings
from strandline.table_services.clean.run import Cleaner
from tests.kit.outcomes import outcome_of
from tests.kit.storage.faulty_storage import Crash
from tests.kit.storage.full_disk import FullDisk, Left, file_size_limit
from tests.kit.tables.small_table import SmallTable
from timeline.errors import CorruptMetadataError, StorageUnavailableError
from timeline.instant import CLEAN
from timeline.storage.local import LocalStorage

A, B = ("p=1", "a-0"), ("p=2", "b-0")
ALWAYS = 10**6
"""More than all writes of a run."""


def prepared(version: int) -> SmallTable:
    table = SmallTable(FullDisk(), version=version)
    for _ in range(4):
        table.write(A, B)
    return table


def clean(table: SmallTable, part_files: int = 200_000) -> None:
    """Clean in a new process."""
    table.clock.advance(1000)
    view = LocalView.synced(TableView(table.storage))
    settings = CleanSettings(retained=2, parallelism=1, part_files=part_files)
    Cleaner(table.meta, view, table.times, settings).run()


def dies_before(table: SmallTable, ending: str, part_files: int) -> None:
    """Clean in a process that dies before it creates an instant's file."""

    def die(kind: str, path: str) -> None:
        if kind == "create" and path.endswith(ending):
            raise Crash

    table.storage.fail.append(die)
    with pytest.raises(Crash):
        clean(table, part_files)
    table.storage.fail.clear()


def writes_of(version: int, part_files: int, died: str) -> list[str]:
    table = begun(version, part_files, died)
    table.storage.fill(())
    clean(table, part_files)
    return table.storage.written


def begun(version: int, part_files: int, died: str) -> SmallTable:
    """Return a table, with a pending clean if a process died at the creation of such a file."""
    table = prepared(version)
    if died:
        dies_before(table, died, part_files)
    return table


def cases() -> Iterator[tuple[int, int, str, Collection[int], Left]]:
    for version, part_files, died in product([6, 9], [1, 200_000], ["", ".clean.inflight"]):
        count = len(writes_of(version, part_files, died))
        for at, left in product(range(1, count + 1), Left):
            yield version, part_files, died, range(at, at + 1), left
            yield version, part_files, died, range(at, ALWAYS), left


CASES = list(cases())


def test_each_write_of_a_clean_is_among_them():
    assert len(CASES) > 150
    written = writes_of(9, 1, "")
    assert sum(path.endswith(".clean.requested") for path in written) == 2
    assert {path.rpartition(".")[2] for path in written} >= {"requested", "inflight", "clean"}


@pytest.mark.property
def test_nothing_that_is_read_goes_and_the_next_clean_makes_it_good(subtests):
    repairs = 0
    for version, part_files, died, full, left in CASES:
        with subtests.test(version=version, parts=part_files, died=died, full=full, left=left):
            table = begun(version, part_files, died)
            earliest = table.model.writes[-2]
            table.storage.fill(full, left)
            with pytest.raises(StorageUnavailableError, match="No space left on device"):
                clean(table, part_files)
            for kept in table.model.writes[-2:]:
                assert table.model.read_at(kept) <= table.data_files()

            torn = table.storage.written[full.start - 1]
            table.storage.fill(())
            repaired = again(table, torn, part_files)
            assert left is Left.TORN or not repaired
            repairs += repaired
            found = [i for i in table.meta.active_timeline() if i.action == CLEAN]
            assert all(instant.is_completed for instant in found)
            assert table.data_files() == table.model.to_keep(earliest)
    assert repairs > 0


def again(table: SmallTable, torn: str, part_files: int) -> bool:
    """Clean until it works; return whether a torn file had to be deleted, which the error names."""
    error = outcome_of(lambda: clean(table, part_files))
    if error is None:
        return False
    assert isinstance(error, CorruptMetadataError)
    assert torn in error.message
    table.storage.delete(torn)
    clean(table, part_files)
    return True


def test_a_local_disk_without_room_is_told_and_is_as_before(tmp_path: Path):
    table = SmallTable(LocalStorage(str(tmp_path / "t")))
    for _ in range(4):
        table.write(A, B)
    before = sorted(tmp_path.rglob("*"))
    with file_size_limit(0), pytest.raises(StorageUnavailableError, match=r"\.clean\.requested"):
        clean(table)
    assert sorted(tmp_path.rglob("*")) == before
    clean(table)
    assert table.data_files() == table.model.to_keep(table.model.writes[-2])
