"""Tables of every version and type that all of Hudi's actions are done to at random, followed, and
asked about their past."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fsview.local import LocalView
from tests.kit.model import archiving, cleaning, services, undoing, writes
from tests.kit.model.asking import Pin, Watcher, plan_differences, questions, shape
from tests.kit.model.table import SLOTS, ModelTable, Write
from tests.kit.model.truth import Group, Truth
from timeline.errors import ViewBehindError
from timeline.instant import INDEXING, SCHEMA_COMMIT, State

PARTITIONS = ("a", "p/b")
partitions = st.sampled_from(PARTITIONS)
slots = st.tuples(partitions, st.integers(0, SLOTS - 1))
some_slots = st.lists(slots, min_size=1, max_size=4, unique=True)
hows = st.lists(st.sampled_from(["base", "log", "grow", "cdc"]), min_size=4, max_size=4)
which = st.integers(0, 3)


class Held:
    """A view that somebody keeps, and the answers it gave."""

    def __init__(self, view: LocalView, truth: Truth, loaded: set[str]) -> None:
        self.view = view
        self.truth = truth
        self.loaded = loaded
        self.given: dict[tuple[str, str, tuple[object, ...]], object] = {}


class TableMachine(RuleBasedStateMachine):
    """Incremental ≡ rebuilt ≡ model; what a client saw, it sees again or is refused."""

    @initialize(
        version=st.sampled_from([6, 8, 9]),
        table_type=st.sampled_from(["COPY_ON_WRITE", "MERGE_ON_READ"]),
        retained=st.sampled_from([4, 64]),
    )
    def make(self, version: int, table_type: str, retained: int) -> None:
        self.table = ModelTable(version, table_type)
        self.retained = retained
        self.watcher = Watcher(self.table, retained)
        self.pins: list[Pin] = []
        self.held: list[Held] = []
        self.restoring_to = ""
        self.regressed: Write | None = None
        writes.complete(self.table, self.begin([(p, n) for p in PARTITIONS for n in (0, 1)], []))

    # Writers.

    def begin(self, chosen: list[tuple[str, int]], how: list[str], *, leftover: bool = False):
        groups = [self.table.group(*slot) for slot in chosen]
        allowed = [group for group in groups if writes.may_write(self.table, group)]
        how = how or ["base"] * len(allowed)
        return writes.begin(self.table, list(zip(allowed, how, strict=False)), leftover=leftover)

    @precondition(lambda self: not self.regressed and not self.restoring)
    @rule(chosen=some_slots, how=hows)
    def write(self, chosen: list[tuple[str, int]], how: list[str]) -> None:
        writes.complete(self.table, self.begin(chosen, how))

    @precondition(lambda self: not self.restoring)
    @rule(chosen=some_slots, how=hows, leftover=st.booleans())
    def write_begins(self, chosen: list[tuple[str, int]], how: list[str], leftover: bool) -> None:
        if len(self.table.writes) < 4:
            self.begin(chosen, how, leftover=leftover)

    def pending(self, *operations: str) -> list[Write]:
        """Return what is in flight and may complete, of some operations or of any."""
        return [
            write
            for write in self.table.writes
            if write.instant.state is State.INFLIGHT
            and (not operations or write.operation in operations)
            and write is not self.regressed
        ]

    @precondition(lambda self: self.pending() and not self.regressed and not self.restoring)
    @rule(number=which)
    def completes(self, number: int) -> None:
        found = self.pending()
        writes.complete(self.table, found[number % len(found)])

    @precondition(lambda self: not self.regressed and not self.restoring)
    @rule(
        chosen=st.lists(partitions, min_size=1, max_size=2, unique=True),
        operation=st.sampled_from(
            ["INSERT_OVERWRITE", "INSERT_OVERWRITE_TABLE", "DELETE_PARTITION"]
        ),
        at_once=st.booleans(),
    )
    def overwrite(self, chosen: list[str], operation: str, at_once: bool) -> None:
        if operation == "INSERT_OVERWRITE_TABLE":
            chosen = list(PARTITIONS)
        there = [group for p in chosen for group in self.table.live_groups(p)]
        there = [group for group in there if self.table.concerning(group) <= {"COMPACT"}]
        new = [] if operation == "DELETE_PARTITION" else chosen
        if there:
            write = writes.begin_overwrite(self.table, there, new, operation)
            if at_once:
                writes.complete(self.table, write)

    # Table services.

    @precondition(lambda self: self.table.merges_on_read and not self.restoring)
    @rule(chosen=some_slots, logs_only=st.booleans())
    def compaction_requested(self, chosen: list[tuple[str, int]], logs_only: bool) -> None:
        groups = self.existing(chosen)
        groups = [group for group in groups if services.may_compact(self.table, group)]
        if groups:
            services.request_compaction(self.table, groups, logs_only=logs_only)

    @precondition(lambda self: not self.restoring)
    @rule(chosen=some_slots)
    def clustering_requested(self, chosen: list[tuple[str, int]]) -> None:
        groups = self.existing(chosen)
        groups = [group for group in groups if services.may_cluster(self.table, group)]
        if groups:
            services.request_clustering(self.table, groups)

    def existing(self, chosen: list[tuple[str, int]]) -> list[Group]:
        groups = [self.table.group(*slot) for slot in chosen]
        return [group for group in groups if self.table.exists(group)]

    @precondition(lambda self: self.requested() and not self.restoring)
    @rule(number=which)
    def service_starts(self, number: int) -> None:
        found = self.requested()
        services.start(self.table, found[number % len(found)])

    def requested(self) -> list[Write]:
        return [w for w in self.table.writes if w.instant.state is State.REQUESTED]

    @precondition(lambda self: self.pending("COMPACT") and not self.restoring)
    @rule(number=which)
    def compaction_taken_back(self, number: int) -> None:
        found = self.pending("COMPACT")
        services.take_back(self.table, found[number % len(found)])

    @precondition(lambda self: self.droppable() and not self.restoring)
    @rule(number=which)
    def plan_gone(self, number: int) -> None:
        found = self.droppable()
        services.drop(self.table, found[number % len(found)])

    def droppable(self) -> list[Write]:
        return [w for w in self.table.writes if services.may_drop(self.table, w)]

    @rule()
    def indexed(self) -> None:
        states = (State.REQUESTED, State.INFLIGHT, State.COMPLETED)
        self.table.put_state(INDEXING, self.table.tick(), *states)

    @rule()
    def schema_committed(self) -> None:
        states = (State.REQUESTED, State.INFLIGHT, State.COMPLETED)
        self.table.put_state(SCHEMA_COMMIT, self.table.tick(), *states)

    # Cleans, archival.

    @precondition(lambda self: self.table.under_way is None and not self.regressed)
    @rule(at_once=st.booleans())
    def clean(self, at_once: bool) -> None:
        files = cleaning.to_clean(self.table)
        if files:
            cleaning.begin_clean(self.table, files)
            if at_once:
                cleaning.finish_clean(self.table)

    @precondition(lambda self: self.is_under_way("clean"))
    @rule()
    def clean_ends(self) -> None:
        cleaning.finish_clean(self.table)

    @precondition(lambda self: not self.regressed and not self.restoring)
    @rule(seen=st.booleans())
    def archived(self, seen: bool) -> None:
        instants = archiving.to_archive(self.table)
        if instants:
            if seen:
                self.watcher.view.sync()
            archiving.archive(self.table, instants)

    # Undoing.

    def is_under_way(self, kind: str) -> bool:
        return self.table.under_way is not None and self.table.under_way.kind == kind

    @property
    def restoring(self) -> bool:
        return self.is_under_way("restore")

    def failing(self) -> list[Write]:
        """Return what may be rolled back; what was committed once, first."""
        if self.regressed:
            return [self.regressed]
        return self.pending("UPSERT", "INSERT_OVERWRITE", "CLUSTER", "DELETE_PARTITION")

    @precondition(lambda self: self.table.under_way is None and self.failing())
    @rule(number=which, at_once=st.booleans(), append=st.booleans(), unsaid=st.booleans())
    def rolled_back(self, number: int, at_once: bool, append: bool, unsaid: bool) -> None:
        found = self.failing()
        undoing.begin_rollback(self.table, found[number % len(found)])
        self.regressed = None
        if at_once:
            undoing.finish_rollback(self.table, append=append, unsaid=unsaid)

    @precondition(lambda self: self.is_under_way("rollback"))
    @rule(append=st.booleans(), unsaid=st.booleans())
    def rollback_ends(self, append: bool, unsaid: bool) -> None:
        undoing.finish_rollback(self.table, append=append, unsaid=unsaid)

    @precondition(lambda self: not self.regressed and not self.restoring)
    @rule()
    def undo_begins(self) -> None:
        newest = undoing.newest_undoable(self.table)
        if newest is not None:
            self.watcher.storage.note()
            undoing.uncomplete(self.table, newest)
            self.watcher.storage.note()
            self.regressed = newest

    @precondition(lambda self: self.table.done and not self.restoring and not self.regressed)
    @rule(number=which)
    def saved(self, number: int) -> None:
        times = sorted(set(self.table.done) - set(self.table.saved), reverse=True)
        if times:
            undoing.save(self.table, times[number % len(times)])

    @precondition(lambda self: self.table.saved and not self.restoring)
    @rule(number=which)
    def savepoint_deleted(self, number: int) -> None:
        times = sorted(self.table.saved)
        undoing.delete_savepoint(self.table, times[number % len(times)])

    @precondition(lambda self: self.table.saved and not self.regressed)
    @rule(number=which)
    def restore_begins(self, number: int) -> None:
        times = sorted(self.table.saved, reverse=True)
        time = times[number % len(times)]
        if undoing.may_restore(self.table, time):
            undoing.begin_restore(self.table, time)
            self.watcher.storage.note()
            self.restoring_to = time

    @precondition(lambda self: self.restoring)
    @rule(append=st.booleans())
    def restore_ends(self, append: bool) -> None:
        undoing.finish_restore(self.table, self.restoring_to, append=append)

    @rule(version=st.sampled_from([6, 8, 9]), likely=st.integers(0, 4))
    def written_anew(self, version: int, likely: int) -> None:
        if likely == 4:
            self.table.write_anew(version)
            self.regressed = None
            writes.complete(self.table, self.begin([("a", 0)], []))

    # The service.

    @rule()
    def sync(self) -> None:
        self.watcher.view.sync()

    @rule(partition=partitions)
    def load(self, partition: str) -> None:
        """Ask for a partition while the table may have moved on since the last sync."""
        with suppress(ViewBehindError):  # where the answer names a file that is gone
            self.watcher.view.newest().latest_base_files(partition)

    @rule(synced=st.booleans())
    def pin(self, synced: bool) -> None:
        if synced:
            self.watcher.view.sync()
        self.pins.append(Pin.of(self.table))

    @rule(loaded=st.sets(partitions))
    def hold(self, loaded: set[str]) -> None:
        view = self.watcher.view.sync()
        self.held.append(Held(view, self.table.truth.copy(), loaded))
        self.ask_held(self.held[-1], loaded)
        del self.held[:-4]

    # What must hold.

    @invariant()
    def held_views_say_what_they_said(self) -> None:
        for held in self.held:
            self.ask_held(held, held.loaded)

    def ask_held(self, held: Held, asked: set[str]) -> None:
        """Ask a held view; what it answered once it must answer again."""
        as_of = max(held.truth.completed, default="0")
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
                elif answer == getattr(held.truth, name)(partition, *arguments):
                    held.given[key] = answer

    @invariant()
    def pinned_clients_see_what_they_saw(self) -> None:
        for pin in self.pins[-2:]:
            self.ask_pinned(self.watcher, pin, "followed")

    @rule()
    def a_server_that_was_started_later_answers_as_well(self) -> None:
        for pin in self.pins[-6:]:
            self.ask_pinned(Watcher(self.table), pin, "fresh")

    def ask_pinned(self, watcher: Watcher, pin: Pin, told: str) -> None:
        try:
            view = watcher.view.at(pin.last_instant, pin.timeline_hash)
        except ViewBehindError:
            event(f"{told}: refused")
            return
        assert pin.generation == self.table.generation or told == "followed"
        event(f"{told}: answered")
        self.right_or_refused(watcher, view, pin.truth)

    def right_or_refused(self, watcher: Watcher, view: LocalView, truth: Truth) -> None:
        """Where nothing but cleans came since, the newest may be said instead."""
        only_cleaned = truth.moves == self.table.truth.moves
        as_of = max(truth.completed, default="0")
        for partition in PARTITIONS:
            for wrong in watcher.differences(view, truth, partition, as_of):
                assert wrong[1] is None or only_cleaned, wrong

    @rule()
    def nobody_goes_on_from_what_was_undone(self) -> None:
        self.watcher.view.sync()
        for pin in self.pins:
            gone = {*pin.truth.completed, *pin.truth.compactions} & self.table.undone
            if gone or pin.generation != self.table.generation:
                with pytest.raises(ViewBehindError):
                    self.watcher.view.at(pin.last_instant, pin.timeline_hash)

    @rule(chosen=st.sets(partitions, min_size=1))
    def followed_is_rebuilt_is_the_model(self, chosen: set[str]) -> None:
        truth = self.table.truth
        fresh = Watcher(self.table)
        sizes_lost = self.table.under_way is not None
        for told, watcher in (("followed", self.watcher), ("fresh", fresh)):
            view = watcher.view.sync()
            for as_of in (max(truth.completed), sorted(truth.completed)[-2:][0]):
                for partition in sorted(chosen):
                    for wrong in watcher.differences(view, truth, partition, as_of):
                        refused = wrong[1] is None and sizes_lost
                        assert refused, (told, *wrong)
            for wrong in plan_differences(view, truth):
                raise AssertionError((told, *wrong))

    def teardown(self) -> None:
        if not hasattr(self, "table"):
            return
        if self.is_under_way("clean"):
            cleaning.finish_clean(self.table)
        if self.is_under_way("rollback"):
            undoing.finish_rollback(self.table)
        if self.restoring:
            undoing.finish_restore(self.table, self.restoring_to)
        self.followed_is_rebuilt_is_the_model(set(PARTITIONS))
        self.nobody_goes_on_from_what_was_undone()
        for held in self.held:
            self.right_or_refused(self.watcher, held.view, held.truth)
        if self.table.generation == 0:
            counted = self.watcher.metrics.as_json()
            assert self.watcher.metrics.get("reloads") == 0, counted
            # A rollback that doesn't say how long its logs are makes them be listed again.
            again = self.watcher.metrics.get("partition_reloads")
            listed = {p: self.watcher.storage.listed[p] for p in PARTITIONS}
            few = self.retained == 4  # a load that finds more steps than are kept lists again
            assert few or sum(listed.values()) <= len(PARTITIONS) + again, listed


TestTable = TableMachine.TestCase
TestTable.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
