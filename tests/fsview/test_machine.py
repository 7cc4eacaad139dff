"""A table that is written, cleaned and rolled back at random, followed, and asked about its
past."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fsview.local import LocalView
from fsview.metrics import Metrics
from fsview.rebuilt import differences_from_rebuilt
from fsview.table_view import TableView
from tests.kit.view_model import DataFile, Group, ModelTable, Shown, Truth
from timeline.errors import ViewBehindError
from timeline.instant import Instant

PARTITIONS = ("a", "b")
GROUPS = [(partition, f"f{n}-0") for partition in PARTITIONS for n in range(3)]
groups = st.lists(st.sampled_from(GROUPS), min_size=1, max_size=4, unique=True)


def shown(view: LocalView, partition: str, as_of: str | None = None) -> Shown:
    """Return file id → (name, size) of the newest base files."""
    if as_of is None:
        files = view.latest_base_files(partition)
    else:
        files = view.latest_base_files_before_or_on(partition, as_of)
    return {file.file_id: (file.name, file.size) for file in files}


@dataclass
class Pin:
    """A client that stays where it is."""

    last_instant: str
    timeline_hash: str
    truth: Truth


class TableMachine(RuleBasedStateMachine):
    """Incremental ≡ rebuilt ≡ model; what a client saw, it sees again or is refused."""

    @initialize(version=st.sampled_from([6, 9]), retained=st.sampled_from([3, 64]))
    def make(self, version: int, retained: int) -> None:
        self.table = ModelTable(version)
        self.metrics = Metrics()
        self.view = TableView(self.table.storage, metrics=self.metrics, retained_snapshots=retained)
        self.pins: list[Pin] = []
        self.cleaning: tuple[Instant, list[DataFile]] | None = None
        self.regressed = False
        self.table.complete(self.table.begin(GROUPS[:4]))

    def live(self, chosen: list[Group]) -> list[Group]:
        """Give groups that were replaced another name: a file id is never used again."""
        gone = self.table.truth.replaced()
        named = []
        for partition, file_id in chosen:
            new = file_id
            while (partition, new) in gone:
                new += "n"
            named.append((partition, new))
        return named

    # What writers do.

    @rule(chosen=groups, leftover=st.booleans())
    def write_begins(self, chosen: list[Group], leftover: bool) -> None:
        if len(self.table.pending) < 2:
            self.table.begin(self.live(chosen), leftover=leftover)

    @rule(chosen=groups)
    def write(self, chosen: list[Group]) -> None:
        self.table.complete(self.table.begin(self.live(chosen)))

    @rule(partition=st.sampled_from(PARTITIONS), anew=st.booleans())
    def overwrite(self, partition: str, anew: bool) -> None:
        under_way = {(f.partition, f.file_id) for w in self.table.pending for f in w.files}
        there = [(partition, key) for key in self.table.truth.latest(partition)]
        there = [group for group in there if group not in under_way]
        if there:
            new = [(partition, f"o{self.table.tick()}-0")] if anew else []
            self.table.complete(self.table.begin(new, there))

    @precondition(lambda self: self.table.pending and not self.regressed)
    @rule()
    def write_completes(self) -> None:
        self.table.complete(self.table.pending[0])

    @precondition(lambda self: self.table.pending)
    @rule()
    def rolled_back(self) -> None:
        """What was committed once is rolled back first: it can't be completed again."""
        undone = [w for w in self.table.pending if w.instant.requested_time in self.table.undone]
        self.table.roll_back((undone or self.table.pending)[0])
        self.regressed = False

    @precondition(lambda self: not self.table.pending and not self.cleaning)
    @rule()
    def undo_begins(self) -> None:
        newest = self.table.newest_committed()
        if newest is not None and len(self.table.truth.committed) > 1:
            self.table.uncomplete(newest)
            self.regressed = True

    @precondition(lambda self: self.cleaning is None and not self.regressed)
    @rule()
    def clean_begins(self) -> None:
        files = self.table.to_clean()
        if files:
            self.cleaning = self.table.begin_clean(files)

    @precondition(lambda self: self.cleaning)
    @rule()
    def clean_ends(self) -> None:
        assert self.cleaning is not None
        self.table.finish_clean(*self.cleaning)
        self.cleaning = None

    # What the service does.

    @rule()
    def sync(self) -> None:
        self.view.sync()

    @rule(partition=st.sampled_from(PARTITIONS))
    def load(self, partition: str) -> None:
        """Ask for a partition while the table may have moved on since the last sync."""
        with suppress(ViewBehindError):  # where the answer names a file that is gone
            self.view.newest().latest_base_files(partition)

    @rule()
    def pin(self) -> None:
        timeline = self.view.sync().snapshot.client_timeline
        last = timeline.last
        time = "0" if last is None else last.requested_time
        self.pins.append(Pin(time, timeline.hash, self.table.truth.copy()))

    # What must hold.

    @invariant()
    def pinned_clients_see_what_they_saw(self) -> None:
        for pin in self.pins[-3:]:
            try:
                view = self.view.at(pin.last_instant, pin.timeline_hash)
            except ViewBehindError:
                continue
            for partition in PARTITIONS:
                for as_of in (None, pin.last_instant):
                    try:
                        seen = shown(view, partition, as_of)
                    except ViewBehindError:
                        continue
                    right = pin.truth.latest(partition, as_of)
                    assert seen == right or self.only_cleaned(pin), (partition, seen, right)

    def only_cleaned(self, pin: Pin) -> bool:
        """Whether the answer may be the newest's: nothing but cleans happened since."""
        return pin.truth.committed == self.table.truth.committed

    @rule()
    def nobody_goes_on_from_what_was_undone(self) -> None:
        self.view.sync()
        for pin in self.pins:
            if self.table.undone & pin.truth.committed.keys():
                with pytest.raises(ViewBehindError):
                    self.view.at(pin.last_instant, pin.timeline_hash)

    @precondition(lambda self: self.cleaning is None)
    @rule()
    def followed_is_rebuilt_is_the_model(self) -> None:
        held = self.view.sync()
        fresh = TableView(self.table.storage).newest()
        for partition in PARTITIONS:
            right = self.table.truth.latest(partition)
            assert shown(held, partition) == shown(fresh, partition) == right
            names = self.table.truth.all_names(partition)
            assert [file.name for file in held.all_base_files(partition)] == names
            assert [file.name for file in fresh.all_base_files(partition)] == names
        found = differences_from_rebuilt(held.snapshot, self.table.storage)
        assert not found, str(found)

    @precondition(lambda self: self.cleaning)
    @rule()
    def a_running_clean_makes_no_wrong_answer(self) -> None:
        for view in (self.view.sync(), TableView(self.table.storage).newest()):
            for partition in PARTITIONS:
                right = self.table.truth.latest(partition)
                with suppress(ViewBehindError):  # names a file whose size nobody knows any more
                    assert shown(view, partition) == right
                names = self.table.truth.all_names(partition)
                with suppress(ViewBehindError):
                    assert [file.name for file in view.all_base_files(partition)] == names

    def teardown(self) -> None:
        if self.cleaning is not None:
            self.clean_ends()
        self.followed_is_rebuilt_is_the_model()
        self.nobody_goes_on_from_what_was_undone()
        assert self.metrics.get("reloads") == 0


TestTable = TableMachine.TestCase
TestTable.settings = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
