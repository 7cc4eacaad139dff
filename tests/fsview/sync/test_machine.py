"""Tables of every version and type, changed at random by all of Hudi's actions, followed, and asked
about their past.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from fsview.check.partition_checker import removals_pending
from fsview.local_view import LocalView
from tests.kit.tables.model.acting import PARTITIONS, partitions, which
from tests.kit.tables.model.asking import Pin, Watcher, plan_differences, questions, said, shape
from tests.kit.tables.model.moving import MOVES, MovingMachine
from tests.kit.tables.model.truth import Truth
from tests.kit.tables.rebuilt import differences_from_rebuilt
from timeline.errors import ViewBehindError
from timeline.instant import CLEAN

pytestmark = pytest.mark.property

moves = st.lists(st.tuples(st.sampled_from(MOVES), which), min_size=1, max_size=3)


class Held:
    """A view that is kept, and the answers it gave."""

    def __init__(self, view: LocalView, truth: Truth, loaded: set[str]) -> None:
        self.view = view
        self.truth = truth
        self.loaded = loaded
        self.given: dict[tuple[str, str, tuple[object, ...]], object] = {}


class TableMachine(MovingMachine):
    """Incremental ≡ rebuilt ≡ model; a client gets the same answer again or is refused."""

    def __init__(self) -> None:
        super().__init__()
        self.pins: list[Pin] = []
        self.held: list[Held] = []
        self.listed_anew = 0  # how often a service began that knew nothing

    def note(self) -> None:
        """See ``ActingMachine``; a pin may mean the newest timeline again."""
        super().note()
        now = Pin.of(self.table)
        for pin in self.pins:
            if pin.timeline_hash == now.timeline_hash:
                pin.versions = now.versions

    # Between two calls.

    @rule(partition=partitions, moves=moves, calls=st.integers(0, 6), every=st.booleans())
    def moves_on_during_a_load(
        self, partition: str, moves: list[tuple[str, int]], calls: int, every: bool
    ) -> None:
        """Load a partition, or all, into another server while the table moves on, so many calls
        after the partition was listed; at once: before the timeline is."""
        self.load_while(partition, lambda: self.move_on(moves), calls, every=every)

    @precondition(lambda self: self.restoring)
    @rule(partition=partitions, calls=st.integers(0, 6), every=st.booleans())
    def restore_goes_on_during_a_load(self, partition: str, calls: int, every: bool) -> None:
        self.load_while(partition, lambda: self.restore_goes_on(append=False), calls, every=every)

    @precondition(lambda self: self.table.writes)
    @rule()
    def loaded_while_others_write(self) -> None:
        """Load all into another server, with whatever lies there of writes in flight."""
        watcher = self.start_service()
        LocalView.newest(watcher.view).load_all_partitions()
        self.late = [*self.late[-1:], watcher]

    def load_while(
        self, partition: str, then: Callable[[], None], calls: int, *, every: bool
    ) -> None:
        watcher = self.start_service()
        before, truth = LocalView.synced(watcher.view), self.table.truth.copy()
        watcher.storage.then[partition] = then
        watcher.storage.calls_until_then = calls
        with suppress(ViewBehindError):  # where few snapshots are kept
            if every:
                before.load_all_partitions()
            else:
                LocalView.newest(watcher.view).load_partitions([partition])
        watcher.storage.nothing_more()
        self.right_or_refused(watcher, before, truth)
        self.late = [*self.late[-1:], watcher]
        self.as_the_model("loaded late", watcher, {partition})

    @rule(partition=partitions, moves=moves, number=which)
    def moves_on_during_a_check(
        self, partition: str, moves: list[tuple[str, int]], number: int
    ) -> None:
        watcher = [self.watcher, *self.late][number % (1 + len(self.late))]
        watcher.storage.then[partition] = lambda: self.move_on(moves)
        checked = watcher.view.check(partition)
        watcher.storage.nothing_more()
        event(f"check: {checked.outcome}")
        assert checked.outcome != "different", str(checked.differences)

    # The service.

    @rule(partition=st.sampled_from([None, *PARTITIONS]))
    def look(self, partition: str | None) -> None:
        """Sync, or ask for a partition while the table may have moved on since the last sync."""
        if partition is None:
            self.watcher.view.sync()
        else:
            with suppress(ViewBehindError):  # where the answer names a file that is gone
                LocalView.newest(self.watcher.view).latest_base_files(partition)

    @rule(synced=st.booleans())
    def pin(self, synced: bool) -> None:
        if synced:
            self.watcher.view.sync()
        self.pins.append(Pin.of(self.table))

    @rule(loaded=st.sets(partitions))
    def hold(self, loaded: set[str]) -> None:
        view = LocalView.synced(self.watcher.view)
        self.held.append(Held(view, self.table.truth.copy(), loaded))
        self.as_the_model("held", self.watcher, loaded)
        self.ask_held(self.held[-1], loaded)
        del self.held[:-4]

    # What must hold.

    @invariant()
    def held_views_say_what_they_said(self) -> None:
        for held in self.held:
            self.ask_held(held, held.loaded)

    def ask_held(self, held: Held, asked: set[str]) -> None:
        """Ask a held view; what it answered once it must answer again.

        Where nothing but cleans came since, it may answer as the newest does for as long.
        """
        as_of = max(held.truth.completed, default="0")
        for_now = self.watcher.view.newest_if_only_cleaned(held.view.snapshot) is not None
        for partition in sorted(asked):
            for name, arguments in questions(as_of):
                try:
                    answer = shape(getattr(held.view, name)(partition, *arguments))
                except ViewBehindError:
                    answer = None
                key = partition, name, arguments
                before = held.given.get(key)
                if before is not None:
                    assert answer == before, (key, answer, before)
                elif answer is not None and not for_now:
                    held.given[key] = answer

    @invariant()
    def pinned_clients_see_what_they_saw(self) -> None:
        for pin in self.pins[-2:]:
            self.ask_pinned(self.watcher, pin, "followed")

    @rule()
    def a_server_that_was_started_later_answers_as_well(self) -> None:
        for pin in self.pins[-6:]:
            if pin.versions == self.table.versions:  # who comes later can't know of an upgrade
                self.ask_pinned(Watcher(self.table), pin, "fresh")

    def ask_pinned(self, watcher: Watcher, pin: Pin, told: str) -> None:
        try:
            view = LocalView.at(watcher.view, pin.last_instant, pin.timeline_hash)
        except ViewBehindError:
            event(f"{told}: refused")
            return
        assert pin.generation == self.table.generation or told == "followed"
        event(f"{told}: answered")
        self.right_or_refused(watcher, view, pin.truth)

    def right_or_refused(self, watcher: Watcher, view: LocalView, truth: Truth) -> None:
        """If only cleans came since, the newest answer is right, too."""
        newest = LocalView.newest(watcher.view)
        since = (i for i in newest.snapshot.active.completed() if i not in view.snapshot.active)
        only_cleaned = all(instant.action == CLEAN for instant in since)
        as_of = max(truth.completed, default="0")
        for partition in PARTITIONS:
            for wrong in watcher.differences(view, truth, partition, as_of):
                if wrong[1] is not None:
                    assert only_cleaned, wrong
                    assert wrong[1] == said(newest, partition, as_of)[wrong[0]], wrong

    @rule()
    def nobody_goes_on_from_what_was_undone(self) -> None:
        self.watcher.view.sync()
        now = Pin.of(self.table)
        for pin in self.pins:
            gone = {*pin.truth.completed, *pin.truth.compactions} & self.table.undone
            anew = pin.generation != self.table.generation
            # Once all that came after an upgrade is undone, nobody can tell who comes from before.
            moved = pin.versions != now.versions and pin.timeline_hash != now.timeline_hash
            if gone or anew or moved:
                with pytest.raises(ViewBehindError):
                    self.watcher.view.at(pin.last_instant, pin.timeline_hash)

    @rule(chosen=st.sets(partitions, min_size=1))
    def followed_is_rebuilt_is_the_model(self, chosen: set[str]) -> None:
        self.as_the_model("followed", self.watcher, chosen)
        self.as_the_model("fresh", Watcher(self.table), chosen)
        for watcher in self.late:
            self.as_the_model("loaded late", watcher, chosen)

    def as_the_model(self, told: str, watcher: Watcher, chosen: set[str]) -> None:
        truth = self.table.truth
        sizes_lost = self.table.under_way is not None
        view = LocalView.synced(watcher.view)
        for as_of in (max(truth.completed), sorted(truth.completed)[-2:][0]):
            for partition in sorted(chosen):
                for wrong in watcher.differences(view, truth, partition, as_of):
                    refused = wrong[1] is None and sizes_lost
                    assert refused, (told, *wrong)
        for wrong in plan_differences(view, truth):
            raise AssertionError((told, *wrong))
        if not removals_pending(view.snapshot.active):
            found = differences_from_rebuilt(view.snapshot, self.table.storage)
            assert not found, (told, *map(str, found.found))

    def others_reloads(self) -> int:
        """Return how often other servers have made this one list partitions again."""
        return 0

    def teardown(self) -> None:
        if not hasattr(self, "table"):
            return
        if self.table.under_way is not None:
            self.clean_or_undoing_ends(append=False, unsaid=False)
        self.followed_is_rebuilt_is_the_model(set(PARTITIONS))
        self.nobody_goes_on_from_what_was_undone()
        for held in self.held:
            self.right_or_refused(self.watcher, held.view, held.truth)
        if self.table.generation == 0:
            counted = self.watcher.metrics.counts()
            reloads = self.watcher.metrics.get("reloads", cause="table-upgraded")
            assert reloads <= self.table.versions, counted
            # A restore deletes rollbacks that were under way when last seen, or were never seen.
            vanished = sum(
                self.watcher.metrics.get("reloads", cause=cause)
                for cause in ("plan-vanished", "instant-vanished")
            )
            assert not vanished or self.restoring_to, counted
            reloads += vanished
            assert self.watcher.metrics.get("reloads") == reloads, counted
            # A rollback that doesn't say how long its logs are makes them be listed again.
            again = self.watcher.metrics.get("partition_reloads")
            listed = {p: self.watcher.storage.listed[p] for p in PARTITIONS}
            few = self.retained == 4  # a load that finds more steps than are kept lists again
            once = len(PARTITIONS) * (self.listed_anew + 1 + reloads + self.others_reloads())
            assert few or sum(listed.values()) <= once + again, listed


TestTable = TableMachine.TestCase
TestTable.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,  # the same everywhere: what is found at random is kept as a case of its own
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
