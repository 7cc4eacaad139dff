"""A small table with a cleaner, as the tests of cleans use it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from fsview.local_view import LocalView
from fsview.table_view import TableView
from strandline.table_services.clean.parts import PlannedPart
from strandline.table_services.clean.plan import PlannedClean
from strandline.table_services.clean.planner import CleanPlanner
from strandline.table_services.clean.policy import NO_LIMIT, CleanSettings
from strandline.table_services.clean.run import Cleaner
from tests.kit.storage.faulty_storage import Crash, Fault, FaultyStorage
from tests.kit.tables.small_table import SmallTable
from timeline.errors import StrandlineError
from timeline.instant import CLEAN, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.timeline import Timeline

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


def planned_parts(
    planner: CleanPlanner, timeline: Timeline, limit: int | None = None
) -> list[PlannedPart]:
    """Return the parts of what a clean would delete now, each of the settings' number of files."""
    bounds, limit = planner.bounds(timeline, due=True), limit or planner.settings.part_files
    return [] if bounds is None else list(planner._parts(timeline, bounds, limit))


def whole_plan(planner: CleanPlanner, timeline: Timeline) -> PlannedClean | None:
    """Return what a clean would delete now, in one part."""
    return next((part.planned for part in planned_parts(planner, timeline, NO_LIMIT)), None)


def cleans(table: SmallTable, state: State = State.COMPLETED) -> list[Instant]:
    return [i for i in table.meta.active_timeline() if i.action == CLEAN and i.state is state]


def faulty_clean(
    table: SmallTable, faults: Sequence[Fault], settings: CleanSettings, loaded: Sequence[str] = ()
) -> FaultyStorage:
    """Clean with a loaded view; only the cleaner's own calls go wrong, and all faults happen."""
    view = LocalView.newest(TableView(table.storage))
    view.load_partitions(loaded)
    storage = FaultyStorage(table.storage, faults)
    meta = TableMetaClient(storage, table.meta.config)
    with suppress(*((Crash, StrandlineError) if faults else ())):
        Cleaner(meta, view, table.times, settings).run()
    assert all(fault.at <= len(storage.log) for fault in faults)
    return storage
