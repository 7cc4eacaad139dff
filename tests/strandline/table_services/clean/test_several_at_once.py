"""Two cleaners, an archiver and a reader with a lease at once, in every order of a few turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

import pytest

from fsview.local_view import LocalView
from fsview.table_view import TableView
from strandline.commit.lock.base import TableLock
from strandline.read.state.held_lease import HeldLease
from strandline.read.state.reader_lease import Leases, held_from
from strandline.table_services.archive.policy import ArchiveSettings
from strandline.table_services.archive.run import Archiver, ArchiveResult
from strandline.table_services.clean.policy import CleanSettings
from strandline.table_services.clean.run import Cleaner
from tests.kit.concurrency.every_order import OrderedLock, Turns, every_order
from tests.kit.tables.small_table import SmallTable
from timeline.errors import InputError, LeaseError
from timeline.instant import CLEAN

A, B = ("p=1", "a-0"), ("p=2", "b-0")
CLEANS = CleanSettings(retained=1, parallelism=1)
ARCHIVAL = ArchiveSettings(keep_min=1, keep_max=2, parallelism=1)

Key = tuple[str, str]


class Several:
    """A table on which a clean and an archival are due, and what happens to it at once."""

    def __init__(self, version: int) -> None:
        table = self.table = SmallTable(version=version)
        for _ in range(4):
            table.write(A, B)
        self.cleaner(TableLock())()
        for _ in range(2):
            table.write(A, B)
        table.clock.advance(1000)
        self.read_at = table.model.writes[-2]
        self.files = table.model.read_at(self.read_at)
        self.before = self.instants()
        self.held: HeldLease | None = None

    def start(self, turns: Turns) -> list[Callable[[], object]]:
        holders: list[object] = []

        def lock() -> TableLock:
            return TableLock(OrderedLock(turns, holders))

        def before(kind: str, path: str) -> None:
            # What is read never changes, so it doesn't matter when.
            if kind not in ("read", "stat"):
                turns(kind, path)

        self.table.storage.fail.append(before)
        return [self.cleaner(lock()), self.cleaner(lock()), lambda: self.archive(lock()), self.pin]

    def cleaner(self, lock: TableLock) -> Callable[[], object]:
        """Return a cleaner that releases the lock while it deletes files."""
        table = self.table
        view = LocalView.synced(TableView(table.storage))
        view.load_partitions(["p=1", "p=2"])

        def clean() -> object:
            with lock.held("cleaning"):
                view.sync()
                check = lock.check
                return Cleaner(
                    table.meta, view, table.times, CLEANS, lock=lock, check_lock=check
                ).run()

        return clean

    def archive(self, lock: TableLock) -> ArchiveResult | None:
        table = self.table
        with lock.held("archiving"):
            since = held_from(Leases(table.storage, table.clock).live(sweep=True))
            return Archiver(
                table.meta, table.times, ARCHIVAL, CLEANS, since, check_lock=lock.check
            ).run()

    def pin(self) -> object:
        try:
            self.held = HeldLease.acquire(self.table.meta, self.read_at, 600.0, self.table.clock)
        except (InputError, LeaseError):
            return "refused"
        return "held"

    def instants(self) -> Counter[Key]:
        """Return how often each completed instant is on the timeline or in the archive."""
        meta = self.table.meta
        found = (meta.active_timeline(), meta.archived_timeline().timeline)
        return Counter(
            (i.requested_time, i.action) for each in found for i in each if i.is_completed
        )

    def check(self) -> None:
        """Check that nobody has lost anything, and that a clean and an archival end it."""
        table = self.table
        table.storage.fail.clear()
        assert self.before.keys() <= self.instants().keys()
        assert not any(i.action == CLEAN for i in table.meta.active_timeline().pending())
        if self.held is not None:
            assert self.files <= table.data_files()
            active = {i.requested_time for i in table.meta.active_timeline().completed()}
            assert self.read_at in active
            self.held.check()
            self.held.release()
        table.clock.advance(1000)
        table.write(A, B)
        self.cleaner(TableLock())()
        self.archive(TableLock())
        assert set(self.instants().values()) == {1}
        assert table.data_files() == table.model.to_keep(table.model.writes[-1])


ACTORS = ("cleaner", "other cleaner", "archiver", "reader")


def raced(version: int, actors: Collection[str], preemptions: int) -> Counter[tuple[object, ...]]:
    """Run some actors in every order; return how often each had something to do, or was refused."""
    runs: list[Several] = []

    def start(turns: Turns) -> list[Callable[[], object]]:
        runs.append(Several(version))
        works = zip(ACTORS, runs[-1].start(turns), strict=True)
        return [work for name, work in works if name in actors]

    outcomes: Counter[tuple[object, ...]] = Counter()
    for choices, results in every_order(start, preemptions):
        assert not [each for each in results if isinstance(each, Exception)], (choices, results)
        runs.pop().check()
        outcomes[
            tuple(each if isinstance(each, str) else each is not None for each in results)
        ] += 1
    return outcomes


@pytest.mark.property
@pytest.mark.parametrize("version", [6, 9])
def test_two_cleaners_an_archiver_and_a_reader_in_each_sequence(version):
    outcomes = raced(version, ACTORS, preemptions=0)
    assert sum(outcomes.values()) >= 24


@pytest.mark.property
@pytest.mark.parametrize(
    "actors", [("cleaner", "other cleaner", "reader"), ("cleaner", "archiver", "reader")]
)
def test_three_of_them_with_each_interruption(actors):
    outcomes = raced(9, actors, preemptions=1)
    assert sum(outcomes.values()) >= 100
    assert {"held", "refused"} == {read for *_, read in outcomes}


@pytest.mark.product
@pytest.mark.parametrize("version", [6, 9])
def test_all_of_them_with_each_interruption(version):
    outcomes = raced(version, ACTORS, preemptions=1)
    assert sum(outcomes.values()) >= 1000
