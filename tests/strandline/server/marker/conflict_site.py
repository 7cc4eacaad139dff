"""A table with writers and a conflict detector that runs in the calling thread."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import replace
from typing import TypeVar

from strandline.server.marker.conflict import ConflictOptions
from strandline.server.marker.conflict_watch import ConflictDetector
from strandline.server.marker.file import directory_path
from strandline.server.marker.heartbeat import HEARTBEAT_FOLDER
from strandline.server.marker.registry import MarkerService
from strandline.server.table_threads import TableThreads
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.formats.marker_name import create
from tests.kit.tables.small_table import SmallTable
from timeline.storage.base import Storage
from timeline.storage.table_id import TableId

T = TypeVar("T")
ON = ConflictOptions(enabled=True)
COMMITS_TOO = replace(ON, checks_commits=True)
GROUP = ("2024-01-01", "f1")
OTHER = ("2024-01-01", "f2")


class Inline(TableThreads):
    """A pool that runs its work at once, on the caller's thread."""

    def __init__(self) -> None:
        super().__init__("inline", 1)

    def submit(self, table: Hashable, work: Callable[[], T]) -> Future[T]:
        done: Future[T] = Future()
        done.set_result(work())
        return done


class Site:
    """Tables at ``/memory/<name>``, one clock, and a service with early conflicts.

    Args:
        options: How conflicts are detected.
        beside: Another service of the same tables.
    """

    def __init__(self, options: ConflictOptions = ON, *, beside: Site | None = None) -> None:
        self.tables: dict[str, SmallTable] = {} if beside is None else beside.tables
        self.table = self.add("t") if beside is None else beside.table
        self.clock = self.table.clock
        self.detector = ConflictDetector(options, self.clock, pool=Inline())
        self.markers = MarkerService(
            self._table_of,
            conflicts=options,
            clock=self.clock,
            detector=self.detector,
            is_one_of_many=beside is not None,
        )

    def add(self, name: str) -> SmallTable:
        self.tables[f"/memory/{name}"] = made = SmallTable()
        return made

    def _table_of(self, base_path: str) -> tuple[TableId, Storage]:
        return TableId.of(base_path), self.tables[base_path].storage

    def announce(
        self,
        instant: str,
        group: tuple[str, str] = GROUP,
        *,
        number: int = 0,
        refusable: bool = True,
        table: str = "t",
    ) -> bool:
        directory = f"/memory/{table}/{directory_path(instant)}"
        name = marker(group, instant, number)
        return create(self.markers, directory, name, refusable=refusable).result(PATIENCE_S)

    def look(self) -> None:
        self.detector.run_due()

    def look_later(self) -> None:
        self.clock.advance(30_000)
        self.look()


def marker(group: tuple[str, str], instant: str, number: int = 0) -> str:
    return f"{group[0]}/{group[1]}_0-{number}-1_{instant}.parquet.marker.MERGE"


def heartbeat(table: SmallTable, instant: str) -> None:
    table.storage.replace(f"{HEARTBEAT_FOLDER}/{instant}", b"")


def other_writer(site: Site, group: tuple[str, str] = GROUP) -> str:
    """Begin an older write that announces a file of a group; return its instant."""
    begun = site.table.begin([]).instant.requested_time
    heartbeat(site.table, begun)
    assert site.announce(begun, group, refusable=False)
    return begun
