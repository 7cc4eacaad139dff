"""A small table with a cleaner, as the tests of cleans use it."""

from __future__ import annotations

from fsview.local_view import LocalView
from fsview.table_view import TableView
from strandline.table_services.clean.policy import CleanSettings
from strandline.table_services.clean.run import Cleaner
from tests.kit.tables.small_table import SmallTable
from timeline.instant import CLEAN, Instant, State

A, B = ("p=1", "a-0"), ("p=2", "b-0")
"""Two file groups, each by its partition and id."""


class Subject:
    """A table, its view and a cleaner, as a driver has them."""

    def __init__(self, table: SmallTable, retained: int = 2, parallelism: int = 1) -> None:
        self.table = table
        self.settings = CleanSettings(retained=retained, parallelism=parallelism)
        self.tables = TableView(table.storage)
        self.restart()

    def restart(self) -> None:
        self.view = LocalView.synced(self.tables)
        self.cleaner = Cleaner(self.table.meta, self.view, self.table.times, self.settings)

    def clean(self):
        self.view.sync()
        self.table.clock.advance(1000)
        return self.cleaner.run()

    def calls(self) -> dict[str, int]:
        counted = self.table.storage.calls.snapshot()
        return {kind: n for (kind, cause), n in counted.items() if cause == "clean"}


def cleans(table: SmallTable, state: State = State.COMPLETED) -> list[Instant]:
    return [i for i in table.meta.active_timeline() if i.action == CLEAN and i.state is state]
