"""Archives instants of a ``LogTable``, also later ones than some that stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from tests.kit.tables.model import archiving
from tests.kit.tables.model.table import ModelTable
from tests.strandline.read.logs.log_table import LogTable
from timeline.instant import Instant, State
from timeline.meta_client import TableMetaClient
from timeline.storage.base import Storage


class Archived:
    """What ``tests.kit.tables.model.archiving`` uses of a table."""

    def __init__(self, meta: TableMetaClient, storage: Storage) -> None:
        self.meta = meta
        self.storage = storage
        self.done: dict[str, object] = {}

    def remove(self, asked: Instant, *states: State) -> None:
        for state in states:
            self.meta.delete_instant_file(replace(asked, state=state))


def archive(table: LogTable, times: Sequence[str]) -> None:
    """Move the completed instants of some requested times to the archive, in one file."""
    table.clock.advance(2000)
    active = table.meta.active_timeline().completed()
    found = [each for each in active if each.requested_time in times]
    assert len(found) == len(times)
    archiving.archive(cast("ModelTable", Archived(table.meta, table.storage)), found)
