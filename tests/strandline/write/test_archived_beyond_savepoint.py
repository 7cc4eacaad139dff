"""Tables whose commits were archived after one that a savepoint keeps."""

from __future__ import annotations

from typing import cast

import pytest

from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables.model import archiving
from tests.kit.tables.model.table import ModelTable
from tests.strandline.read.state.archiving import Archived
from tests.strandline.write.tables import client, row, table
from timeline.clock import SystemClock
from timeline.errors import UnsupportedTableError
from timeline.instant import SAVEPOINT, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import SavepointMetadata

BASE = "/memory/t"


def saved_table(version: int, archived: slice) -> tuple[MemoryStorage, list[str]]:
    """Return a table of four commits, the first with a savepoint, some of the others archived."""
    storage = MemoryStorage(BASE, now_ms=SystemClock().now_ms)
    with client(BASE, storage, write__table__version=version, parquet__small__file__limit=0) as c:
        times = [c.insert(table(row(key))).instant for key in "abcd"]
    meta = TableMetaClient.open(storage)
    saved = meta.transition_to_inflight(Instant(times[0], SAVEPOINT, State.REQUESTED))
    meta.complete(saved, SavepointMetadata(), str(int(times[-1]) + 999))
    active = meta.active_timeline().completed()
    found = [i for i in active if i.requested_time in times[archived] and i.action != SAVEPOINT]
    if found:
        archiving.archive(cast("ModelTable", Archived(meta, storage)), found)
    return storage, times


@pytest.mark.parametrize("version", [6, 8, 9])
def test_keys_that_can_not_be_found_are_not_looked_up(
    subtests: pytest.Subtests, version: int
) -> None:
    storage, times = saved_table(version, slice(1, 3))
    refused = rf"2 writes from {times[1]} on were archived while a savepoint keeps {times[0]}"
    with client(BASE, storage, write__table__version=version) as c:
        for write in (c.upsert, c.delete, c.insert_overwrite, c.insert_overwrite_table):
            with subtests.test(write=write.__name__):
                before = dict(storage.files)
                with pytest.raises(UnsupportedTableError, match=refused):
                    write(table(row("b", ts=5)))
                assert storage.files == before
        assert c.insert(table(row("e"))).rows_inserted == 1


@pytest.mark.parametrize("archived", [slice(0, 0), slice(0, 1)])
def test_what_was_archived_before_is_no_obstacle(archived: slice) -> None:
    storage, _ = saved_table(9, archived)
    with client(BASE, storage) as c:
        assert c.upsert(table(row("b", ts=5))).rows_updated == 1
