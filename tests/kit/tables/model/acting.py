"""State machine whose rules are all of Hudi's actions on a table."""

from __future__ import annotations

from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.kit.tables.model import (
    archiving,
    cleaning,
    leftovers,
    services,
    undoing,
    upgrading,
    writes,
)
from tests.kit.tables.model.asking import Watcher
from tests.kit.tables.model.table import SLOTS, ModelTable, Write
from tests.kit.tables.model.truth import Group
from timeline.instant import INDEXING, SCHEMA_COMMIT, State

PARTITIONS = ("a", "p/b")
partitions = st.sampled_from(PARTITIONS)
slots = st.tuples(partitions, st.integers(0, SLOTS - 1))
some_slots = st.lists(slots, min_size=1, max_size=6, unique=True)
hows = st.lists(st.sampled_from(["base", "log", "grow", "cdc"]), min_size=6, max_size=6)
how_far = st.sampled_from(list(State))
which = st.integers(0, 3)
TOKENS = ("0-0-", "0-9-")
"""Write token prefixes of late attempts: they sort before and after ``0-1-``."""
tokens = st.sampled_from(("", *TOKENS))


class ActingMachine(RuleBasedStateMachine):
    """Applies actions to a table in any order that Hudi's writers allow.

    ``watcher`` and ``late`` are views that follow it; subclasses check their answers.
    """

    @initialize(
        version=st.sampled_from([6, 8, 9]),
        table_type=st.sampled_from(["COPY_ON_WRITE", "MERGE_ON_READ"]),
        change_data=st.booleans(),
        retained=st.sampled_from([4, 64]),
    )
    def make(self, version: int, table_type: str, change_data: bool, retained: int) -> None:
        self.table = ModelTable(version, table_type, change_data=change_data)
        self.retained = retained
        self.watcher = self.start_service()
        self.late: list[Watcher] = []
        self.restoring_to = ""
        self.regressed: Write | None = None
        writes.complete(self.table, self.begin([(p, n) for p in PARTITIONS for n in (0, 1)], []))

    def start_service(self) -> Watcher:
        """Return a view of the table that is followed from now on."""
        return Watcher(self.table, self.retained)

    overwritten: frozenset[str] = frozenset({"COMPACT"})
    """Pending operations on a group that don't keep it from being overwritten."""

    # Writers.

    def begin(
        self, chosen: list[tuple[str, int]], how: list[str], *, leftovers_in: str | None = None
    ) -> Write:
        groups = [self.table.group(*slot) for slot in chosen]
        allowed = [group for group in groups if writes.may_write(self.table, group)]
        how = how or ["base"] * len(allowed)
        wanted = list(zip(allowed, how, strict=False))
        return writes.begin(self.table, wanted, leftovers_in=leftovers_in)

    def may_begin(self) -> bool:
        """Whether writers and services may begin or complete something."""
        return not self.regressed and not self.is_under_way("restore")

    @precondition(lambda self: self.may_begin())
    @rule(chosen=some_slots, how=hows, times=st.integers(1, 3), late=tokens)
    def write(
        self, chosen: list[tuple[str, int]], how: list[str], times: int, late: str = ""
    ) -> None:
        for _ in range(times):
            writes.complete(self.table, self.begin(chosen, how), late=late)

    @precondition(lambda self: self.may_begin())
    @rule(chosen=some_slots, how=hows, leftovers_in=st.sampled_from([None, *PARTITIONS]))
    def write_begins(
        self, chosen: list[tuple[str, int]], how: list[str], leftovers_in: str | None
    ) -> None:
        if len(self.table.writes) < 4:
            self.begin(chosen, how, leftovers_in=leftovers_in)

    def pending(self, *operations: str) -> list[Write]:
        """Return the writes in flight that may complete, of some operations or of any."""
        return [
            write
            for write in self.table.writes
            if write.instant.state is State.INFLIGHT
            and (not operations or write.operation in operations)
            and write is not self.regressed
        ]

    @precondition(lambda self: self.may_begin() and self.table.writes)
    @rule(number=which, leftovers=st.booleans(), late=tokens)
    def goes_on(self, number: int, leftovers: bool = False, late: str = "") -> None:
        """Start what was requested, or complete what is in flight, in any order."""
        write = self.table.writes[number % len(self.table.writes)]
        if write.instant.state is State.REQUESTED:
            services.start(self.table, write, leftovers=leftovers)
        else:
            writes.complete(self.table, write, late=late)

    @precondition(lambda self: any(write.leftovers for write in self.table.writes))
    @rule()
    def left_over_goes(self) -> None:
        """Delete leftovers of failed task attempts before their writes complete."""
        for write in self.table.writes:
            leftovers.clear(self.table, write)

    @precondition(lambda self: self.may_begin())
    @rule(
        chosen=st.lists(partitions, min_size=1, max_size=2, unique=True),
        operation=st.sampled_from(
            ["INSERT_OVERWRITE", "INSERT_OVERWRITE_TABLE", "DELETE_PARTITION"]
        ),
        at_once=st.booleans(),
        leftovers=st.booleans(),
    )
    def overwrite(
        self, chosen: list[str], operation: str, at_once: bool, leftovers: bool = False
    ) -> None:
        if operation == "INSERT_OVERWRITE_TABLE":
            chosen = list(PARTITIONS)
        there = [group for p in chosen for group in self.table.live_groups(p)]
        there = [group for group in there if self.table.concerning(group) <= self.overwritten]
        new = [] if operation == "DELETE_PARTITION" else chosen
        if there:
            write = writes.begin_overwrite(self.table, there, new, operation, leftovers=leftovers)
            if at_once:
                writes.complete(self.table, write)

    # Table services.

    @precondition(lambda self: self.table.merges_on_read and self.may_begin())
    @rule(chosen=some_slots, logs_only=st.booleans(), far=how_far, leftovers=st.booleans())
    def compaction(
        self,
        chosen: list[tuple[str, int]],
        logs_only: bool,
        far: State,
        leftovers: bool = False,
    ) -> None:
        groups = self.existing(chosen)
        groups = [group for group in groups if services.may_compact(self.table, group)]
        if groups:
            asked = services.request_compaction(self.table, groups, logs_only=logs_only)
            self.bring(asked, far, leftovers=leftovers)

    @precondition(lambda self: self.may_begin())
    @rule(chosen=some_slots, far=how_far, leftovers=st.booleans())
    def clustering(
        self, chosen: list[tuple[str, int]], far: State, leftovers: bool = False
    ) -> None:
        groups = self.existing(chosen)
        groups = [group for group in groups if services.may_cluster(self.table, group)]
        if groups:
            asked = services.request_clustering(self.table, groups)
            self.bring(asked, far, leftovers=leftovers)

    def bring(self, write: Write, far: State, *, leftovers: bool) -> None:
        """Advance a requested write to a state."""
        if far is not State.REQUESTED:
            services.start(self.table, write, leftovers=leftovers)
        if far is State.COMPLETED:
            writes.complete(self.table, write)

    def existing(self, chosen: list[tuple[str, int]]) -> list[Group]:
        groups = [self.table.group(*slot) for slot in chosen]
        return [group for group in groups if self.table.exists(group)]

    @precondition(lambda self: self.table.truth.compactions and self.may_begin())
    @rule(number=which)
    def compaction_fails(self, number: int) -> None:
        """Return a compaction to requested, or drop its plan if it hasn't started."""
        found = [write for write in self.table.writes if write.operation == "COMPACT"]
        write = found[number % len(found)]
        if write.instant.state is State.INFLIGHT:
            services.take_back(self.table, write)
        elif services.may_drop(self.table, write):
            services.drop(self.table, write)

    @rule(action=st.sampled_from([INDEXING, SCHEMA_COMMIT]))
    def no_file_touched(self, action: str) -> None:
        self.table.put_state(action, self.table.tick(), *State)

    # Cleans, archival.

    @precondition(lambda self: self.table.under_way is None and not self.regressed)
    @rule(at_once=st.booleans())
    def clean(self, at_once: bool) -> None:
        files = cleaning.to_clean(self.table)
        if files:
            cleaning.begin_clean(self.table, files)
            if at_once:
                cleaning.finish_clean(self.table)

    @precondition(lambda self: self.may_begin())
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
        """Return the writes that may be rolled back, formerly committed ones first."""
        if self.regressed:
            return [self.regressed]
        return self.pending("UPSERT", "INSERT_OVERWRITE", "CLUSTER", "DELETE_PARTITION")

    @precondition(lambda self: self.table.under_way is None and self.failing())
    @rule(
        number=which,
        at_once=st.booleans(),
        append=st.booleans(),
        unsaid=st.booleans(),
        leftovers=st.booleans(),
    )
    def rolled_back(
        self, number: int, at_once: bool, append: bool, unsaid: bool, leftovers: bool = False
    ) -> None:
        found = self.failing()
        undoing.begin_rollback(self.table, found[number % len(found)])
        self.regressed = None
        if at_once:
            self.end_rollback(append=append, unsaid=unsaid, leftovers=leftovers)

    def end_rollback(self, *, append: bool, unsaid: bool, leftovers: bool) -> None:
        undoing.finish_rollback(self.table, append=append, unsaid=unsaid, leftovers=leftovers)

    @precondition(lambda self: self.may_begin())
    @rule(looked=st.integers(0, 3))
    def newest_undone(self, looked: int) -> None:
        """Roll back the newest completed write, with or without a sync in between."""
        newest = undoing.newest_undoable(self.table)
        if newest is None:
            return
        self.note()
        undoing.uncomplete(self.table, newest)
        self.note()
        self.regressed = newest
        if looked != 3:
            self.rolled_back(number=0, at_once=looked != 2, append=False, unsaid=False)

    @precondition(lambda self: self.may_begin())
    @rule(number=which, delete=st.booleans())
    def savepoint(self, number: int, delete: bool) -> None:
        times = sorted(set(self.table.done) - set(self.table.saved), reverse=True)
        if self.table.saved and delete:
            undoing.delete_savepoint(self.table, min(self.table.saved))
        elif times and len(self.table.saved) < 2:
            undoing.save(self.table, times[number % len(times)])

    @precondition(lambda self: self.table.saved and not self.regressed)
    @rule(at_once=st.booleans(), append=st.booleans())
    def restored(self, at_once: bool, append: bool) -> None:
        time = min(self.table.saved)
        if undoing.may_restore(self.table, time):
            undoing.begin_restore(self.table, time)
            self.note()
            self.restoring_to = time
            if at_once:
                undoing.finish_restore(self.table, time, append=append)

    @precondition(lambda self: self.restoring)
    @rule(append=st.booleans())
    def restore_goes_on(self, append: bool) -> None:
        undoing.restore_on(self.table, append=append)
        self.note()

    @precondition(lambda self: self.table.under_way is not None)
    @rule(append=st.booleans(), unsaid=st.booleans(), leftovers=st.booleans())
    def clean_or_undoing_ends(self, append: bool, unsaid: bool, leftovers: bool = False) -> None:
        if self.is_under_way("clean"):
            cleaning.finish_clean(self.table)
        elif self.is_under_way("rollback"):
            self.end_rollback(append=append, unsaid=unsaid, leftovers=leftovers)
        else:
            undoing.finish_restore(self.table, self.restoring_to, append=append)

    @rule(version=st.sampled_from([6, 8, 9]), number=st.integers(0, 7))
    def written_anew(self, version: int, number: int) -> None:
        if number == 5:  # now and then
            self.table.write_anew(version)
            self.regressed = None
            writes.complete(self.table, self.begin([("a", 0)], []))

    @precondition(lambda self: self.may_begin())
    @rule(version=st.sampled_from([6, 8, 9]), more=st.booleans())
    def upgraded(self, version: int, more: bool) -> None:
        """Upgrade or downgrade, as a writer does before it writes; with a write unseen before."""
        if upgrading.may_move(self.table, version):
            self.watcher.view.sync()  # so that one move at most is unseen
            for _ in range(more):
                self.write([("a", 0)], ["base"], times=1)
            upgrading.move(self.table, version)
            event("upgraded")
            self.write([("a", 1)], ["base"], times=1)

    # Who looks on.

    def note(self) -> None:
        """Record what is in flight now, which a sync may see."""
        for watcher in (self.watcher, *self.late):
            watcher.storage.note()
