"""Cleaner, archiver and readers' leases on tables of every version and type, on which all of Hudi's
actions happen: what somebody needs stays, all else goes, and ``why`` says so.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from fsview.local_view import LocalView
from fsview.table_view import TableView
from strandline.read.state.held_lease import HeldLease
from strandline.read.state.reader_lease import Lease, Leases, held_from
from strandline.read.state.slice_source import ListedSlices
from strandline.table_services.archive.policy import ArchiveSettings
from strandline.table_services.archive.run import Archiver
from strandline.table_services.clean.policy import NO_LIMIT, POLICIES, CleanSettings
from strandline.table_services.clean.preview import preview, why
from strandline.table_services.clean.run import Cleaner
from tests.kit.storage.faulty_storage import Crash
from tests.kit.tables.model import services, writes
from tests.kit.tables.model.acting import (
    PARTITIONS,
    ActingMachine,
    hows,
    partitions,
    some_slots,
    which,
)
from tests.strandline.table_services.clean import naive
from tests.strandline.table_services.clean.naive import COMMITS, VERSIONS, Policy
from timeline.errors import InputError, LeaseError, StorageUnavailableError
from timeline.instant import CLEAN, Instant, State
from timeline.metadata.instant_metadata import CleanMetadata

pytestmark = pytest.mark.property

Busy = tuple[bool, str, int]
"""Whether all that pends is ended; what begins and stays pending; how many writes follow."""
PENDING = ("", "", "write", "COMPACT", "LOG_COMPACT", "CLUSTER")
busy = st.tuples(
    st.booleans(),
    st.sampled_from([*PENDING, *(f"{each}, replaced" for each in PENDING[3:])]),
    st.integers(0, 4),
)
HOUR_MS = 3_600_000
TTL_S = 1800.0


@dataclass
class Reader:
    """A reader with a lease.

    Attributes:
        held: The lease.
        files: The files that it reads.
        lives: Whether it renews the lease.
    """

    held: HeldLease
    files: set[str]
    lives: bool = True

    @property
    def lease(self) -> Lease:
        return self.held.lease


class CleaningMachine(ActingMachine):
    """All of Hudi's actions, but that this package cleans and archives."""

    overwritten = frozenset({"COMPACT", "LOG_COMPACT", "CLUSTER"})
    # The cleaner's marks and the archive are of one table of one version.
    written_anew = None
    upgraded = None
    make = None
    no_file_touched = None

    @initialize(
        kind=st.sampled_from(
            [
                (6, "COPY_ON_WRITE"),
                (6, "MERGE_ON_READ"),
                (8, "COPY_ON_WRITE"),
                (8, "MERGE_ON_READ"),
                (9, "MERGE_ON_READ"),
            ]
        ),
        change_data=st.booleans(),
        policy=st.builds(
            Policy, st.sampled_from(POLICIES), st.integers(1, 3), st.sampled_from([0, 0, 1, 2])
        ),
        part_files=st.sampled_from([1, 2, 5, 200_000]),
        keep=st.tuples(st.integers(1, 3), st.integers(1, 2)),
        ahead_s=st.sampled_from([0, 0, 86_400, -86_400]),
    )
    def start(
        self,
        kind: tuple[int, str],
        change_data: bool,
        policy: Policy,
        part_files: int,
        keep: tuple[int, int],
        ahead_s: int,
    ) -> None:
        ActingMachine.make(self, *kind, change_data, retained=4)
        self.policy = policy
        self.settings = CleanSettings(
            policy=policy.name,
            retained=policy.number,
            hours=policy.number,
            versions=policy.number,
            max_to_clean=policy.step or NO_LIMIT,
            parallelism=1,
            part_files=part_files,
        )
        self.archiving = ArchiveSettings(
            keep_min=keep[0], keep_max=sum(keep), merged_files=2, manifests=1, parallelism=1
        )
        clock, storage = self.table.clock, self.table.storage
        if self.table.meta.config.layout_version > 1:
            # Completion times of layout 1 are the storage's.
            storage._now_ms = lambda: clock.now_ms() + ahead_s * 1000
        self.readers: list[Reader] = []
        self.removed: dict[str, str] = {}
        self.cleaned_to = ""
        self.restarted()
        if policy.name == VERSIONS and part_files < 3:
            self.pinned(0)

    # Writes, without second base files of late attempts: a view shows one of the two.

    @precondition(lambda self: self.may_begin())
    @rule(chosen=some_slots, how=hows, times=st.integers(1, 3))
    def write(self, chosen: list[tuple[str, int]], how: list[str], times: int) -> None:
        super().write(chosen, how, times)

    @precondition(lambda self: self.may_begin() and self.table.writes)
    @rule(number=which, leftovers=st.booleans())
    def goes_on(self, number: int, leftovers: bool) -> None:
        super().goes_on(number, leftovers)

    def is_busy(self, busy: Busy, chosen: list[tuple[str, int]], how: list[str]) -> bool:
        """End what pends, and write some times; return whether anything was written."""
        ends, begins, times = busy
        if not self.may_begin():
            return False
        if ends:
            for write in tuple(self.table.writes):
                if write.instant.state is State.REQUESTED:
                    services.start(self.table, write)
                writes.complete(self.table, write)
        if begins and len(self.table.writes) < 4:
            self.pends(begins, chosen, how)
        for _ in range(times):
            writes.complete(self.table, self.begin(chosen, how))
        return times > 0

    def pends(self, what: str, chosen: list[tuple[str, int]], how: list[str]) -> None:
        """Begin a write, or request a service, some groups of which are replaced then."""
        service, _, replaced = what.partition(", ")
        if service == "write":
            self.begin(chosen, how)
            return
        writes.complete(self.table, self.begin(chosen, ["log"] * len(chosen)))
        if service == "CLUSTER":
            self.clustering(chosen, State.REQUESTED, leftovers=False)
        elif self.table.merges_on_read:
            is_of_logs = service == "LOG_COMPACT"
            self.compaction(chosen, is_of_logs, State.REQUESTED, leftovers=False)
        if replaced:
            self.overwrite([chosen[0][0]], "DELETE_PARTITION", at_once=True, leftovers=False)

    # Cleans.

    @rule()
    def restarted(self) -> None:
        """A new driver: nothing is remembered."""
        self.view = LocalView.newest(TableView(self.table.storage))
        self.cleaner = Cleaner(self.table.meta, self.view, self.table.times, self.settings)

    def may_clean(self) -> bool:
        """Whether no write is being undone; a writer finishes that before it cleans."""
        return not self.regressed and self.table.under_way is None

    @precondition(lambda self: self.may_clean())
    @rule(busy=busy, chosen=some_slots, how=hows)
    def clean(self, busy: Busy, chosen: list[tuple[str, int]], how: list[str]) -> None:
        """Clean; after a write, which makes it due, just what the rules keep is left."""
        is_due = self.is_busy(busy, chosen, how)
        self.renew()
        self.table.clock.advance(1000)
        timeline = self.table.meta.active_timeline()
        had_pending = any(i.action == CLEAN for i in timeline.pending())
        since = self.earliest_now()
        self.view.sync()
        shown = preview(self.cleaner.planner, timeline)
        shown_paths = {f"{row['partition']}/{row['file']}" for row in shown.files.to_pylist()}
        before = self.clean_times()
        there = self.files_there()
        self.cleaner.run()
        gone = there - self.files_there()
        new = [i for i in self.cleans() if i.requested_time not in before]
        assert not any(i.action == CLEAN for i in self.table.meta.active_timeline().pending())
        if new and not had_pending:
            if not self.is_skewed:
                assert gone == shown_paths & there
            assert self.read(new[-1]).earliest_commit_to_retain == (since or "")
        self.settle(gone, since)
        if is_due and not had_pending:
            self.nothing_is_left(since)

    @precondition(lambda self: self.may_clean())
    @rule(
        call=st.integers(0, 12),
        fails=st.sampled_from(["crash", "delete"]),
        busy=busy,
        chosen=some_slots,
        how=hows,
        then=st.sampled_from(["", "undone", "undone", "saved"]),
    )
    def clean_badly(
        self,
        call: int,
        fails: str,
        busy: Busy,
        chosen: list[tuple[str, int]],
        how: list[str],
        then: str,
    ) -> None:
        """Clean with a process that dies at a call, or a delete that fails; then clean again."""
        self.is_busy(busy, chosen, how)
        self.renew()
        self.table.clock.advance(1000)
        left = [call if fails == "crash" else call % 2]
        failed: list[str] = []

        def refuse(kind: str, path: str) -> None:
            if fails == "delete" and not (kind == "delete" and not path.startswith(".hoodie")):
                return
            left[0] -= kind != "read"
            if left[0] == -1 and fails == "crash":
                raise Crash
            if left[0] == -1:
                failed.append(path.rpartition("/")[0])
                raise StorageUnavailableError("slow down")

        since, there = self.earliest_now(), self.files_there()
        self.view.sync()
        self.table.storage.fail.append(refuse)
        try:
            self.cleaner.run()
        except Crash:
            event("crashed")
        finally:
            self.table.storage.fail.clear()
        if fails == "crash":
            self.restarted()
        self.settle(there - self.files_there(), since)
        if failed:  # the next clean looks at the partition, though nothing else is new there
            others = [(each, 0) for each in PARTITIONS if each not in failed]
            event("a delete failed")
            self.clean((True, "", 1), others, ["base"])
        elif self.pending_times() and then:
            self.changes(then)
            event(f"cleaned again when it was {then}")
            self.clean((False, "", 0), chosen, how)

    def changes(self, then: str) -> None:
        """Have slices read again that a pending clean deletes."""
        if then == "saved":
            self.savepoint(number=3, delete=False)
        for _ in range(2 if then == "undone" else 0):
            if self.may_begin() and self.may_clean():
                self.newest_undone(looked=0)

    def settle(self, gone: set[str], since: str | None) -> None:
        """Check that nothing that somebody needs is gone, then forget what is."""
        table = self.table
        if self.policy.name != VERSIONS and gone:
            self.cleaned_to = max(self.cleaned_to, since or "", *self.planned_to())
        # A log of a failed rollback, which no instant names, goes with its slice.
        needed = naive.under_way(table) - set(table.unnamed)
        needed |= naive.planned(table) | naive.read_at(table)
        needed |= {path for _, paths in table.saved.values() for path in paths}
        for reader in self.readers:
            needed |= reader.files & table.truth.files.keys()
        if self.policy.name != VERSIONS:
            for time in (time for time in table.done if time >= self.cleaned_to):
                needed |= naive.read_at(table, time)
        assert not gone & needed, sorted(gone & needed)
        for path in gone:
            table.files.pop(path, None)
            table.truth.files.pop(path, None)
            table.unnamed.pop(path, None)
            self.removed[path] = max(self.clean_times() | self.pending_times())
        event(f"files deleted: {bool(gone)}")

    def planned_to(self) -> set[str]:
        """Return the earliest instants of the cleans on the timeline."""
        found = {self.read(i).earliest_commit_to_retain for i in self.cleans()}
        for each in self.table.meta.active_timeline().pending():
            if each.action == CLEAN:
                first = self.table.meta.read_plan(each).earliest_instant_to_retain
                found.add("" if first is None else first.timestamp)
        return found

    def nothing_is_left(self, since: str | None) -> None:
        """Check that all is gone that the rules don't keep."""
        if since is None and self.policy.name != VERSIONS:
            return
        leases = self.live()
        if self.policy.name == VERSIONS and held_from(leases) == "":
            return
        keep = naive.stays(self.table, self.policy, since or "", leases)
        left = self.table.truth.files.keys() - keep - naive.under_way(self.table)
        left -= naive.overlooked(self.table) if self.is_by_instant else set()
        assert not left, sorted(left)
        event("nothing is left")

    def earliest_now(self) -> str | None:
        if self.policy.name == VERSIONS:
            return None
        found = self.cleans()
        known = self.read(found[-1]).earliest_commit_to_retain if found else ""
        return naive.earliest(self.table, self.policy, self.live(), known)

    def cleans(self) -> list[Instant]:
        timeline = self.table.meta.active_timeline().completed()
        return [i for i in timeline if i.action == CLEAN]

    def clean_times(self) -> set[str]:
        return {i.requested_time for i in self.cleans()}

    def pending_times(self) -> set[str]:
        pending = self.table.meta.active_timeline().pending()
        return {i.requested_time for i in pending if i.action == CLEAN}

    def read(self, clean: Instant) -> CleanMetadata:
        metadata = self.table.meta.read(clean)
        assert isinstance(metadata, CleanMetadata)
        return metadata

    def files_there(self) -> set[str]:
        names = self.table.storage.files
        return {p for p in names if not p.startswith(".hoodie") and "hoodie_partition" not in p}

    @property
    def is_skewed(self) -> bool:
        """Whether a preview may take a lease for expired or not: it asks this machine's clock."""
        table = self.table
        return table.storage._now_ms() != table.clock.now_ms() and bool(self.leases.all())

    # Readers.

    @property
    def leases(self) -> Leases:
        return Leases(self.table.storage, self.table.clock)

    def live(self) -> tuple[Lease, ...]:
        """Return the leases that hold: those that haven't expired by the storage's clock.

        A cleaner whose own clock is behind doesn't ask for the storage's.
        """
        clocks = self.table.storage._now_ms(), self.table.clock.now_ms()
        return tuple(each for each in self.leases.all() if not each.is_expired(min(clocks)))

    def renew(self) -> None:
        for reader in self.readers:
            if reader.lives:
                assert self.leases.renew(reader.lease)
        live = {lease.id for lease in self.live()}
        self.readers = [reader for reader in self.readers if reader.lease.id in live]

    @precondition(lambda self: self.may_clean() and len(self.readers) < 3)
    @rule(ago=st.integers(0, 3))
    def pinned(self, ago: int) -> None:
        """Pin the newest state, or that of an earlier write, if that can be read."""
        completed, _ = naive.writes_on(self.table)
        time = completed[-min(ago, len(completed))] if ago and completed else None
        with suppress(InputError, LeaseError):
            held = HeldLease.acquire(self.table.meta, time, TTL_S, self.table.clock)
            held._stopping.set()  # this machine renews it
            held._thread.join()
            files = naive.read_at(self.table, time or "~")
            self.readers.append(Reader(held, files))
            event("pinned")

    @precondition(lambda self: self.readers)
    @rule(number=which, how=st.sampled_from(["released", "revoked", "dies"]))
    def reader_ends(self, number: int, how: str) -> None:
        reader = self.readers[number % len(self.readers)]
        if how == "dies":
            reader.lives = False
        else:
            self.readers.remove(reader)
            self.leases.delete(reader.lease.id)

    @rule()
    def an_hour_passes(self) -> None:
        self.renew()
        self.table.clock.advance(HOUR_MS)
        for reader in self.readers:
            if reader.lives:  # each third of its time
                self.leases.renew(reader.lease)

    # Archival.

    @precondition(lambda self: self.may_clean())
    @rule(busy=busy, chosen=some_slots, how=hows)
    def archived(self, busy: Busy, chosen: list[tuple[str, int]], how: list[str]) -> None:
        self.is_busy(busy, chosen, how)
        self.renew()
        table = self.table
        since = held_from(self.live())
        before = table.meta.active_timeline()
        pending = [i.requested_time for i in before.pending()]
        completed, _ = naive.writes_on(table)
        archiver = Archiver(table.meta, table.times, self.archiving, self.settings, since)
        done = archiver.run()
        if done is None:
            return
        event("archived")
        for instant in done.instants:
            table.done.pop(instant.requested_time, None)
        gone = [i.requested_time for i in done.instants if i.requested_time in completed]
        kept = [time for time in completed if time not in gone]
        # A prefix of the writes.
        assert not gone or max(gone) < min(kept)
        assert len(kept) >= min(self.archiving.keep_min, len(completed))
        last = max(gone, default="")
        assert last < min(table.saved, default="~")
        assert last < (since or "~")
        if pending and gone:
            assert any(last < time < pending[0] for time in kept)
        found = self.cleans()
        if found and self.read(found[-1]).earliest_commit_to_retain:
            assert last < self.read(found[-1]).earliest_commit_to_retain

    @invariant()
    def no_replaced_group_is_live_again(self) -> None:
        """A replacecommit is on the timeline as long as any of its files is there."""
        table = getattr(self, "table", None)
        if table is None or self.restoring or self.regressed:
            return
        active = {i.requested_time for i in table.meta.active_timeline().completed()}
        for time, groups in table.truth.replaced_by.items():
            there = [f.path for f in table.truth.files.values() if f.group in groups]
            if there:
                assert time in active, there

    # Questions.

    @precondition(lambda self: self.may_clean())
    @rule(ago=st.integers(0, 5))
    def read_as_of(self, ago: int) -> None:
        """A reader finds every file, at the newest instant and at any that is retained."""
        table = self.table
        times = sorted(time for time in table.done if time >= self.cleaned_to)
        time = times[-min(ago, len(times))] if ago and times else "9" * 17
        if time != "9" * 17 and self.policy.name == VERSIONS:
            return
        found = {
            f"{each.partition}/{name}"
            for each in ListedSlices(table.meta).slices(None, time)
            for name in each.sizes
        }
        there = self.files_there()
        read = naive.read_at(table, time) - naive.under_way(table)
        assert read <= found
        assert found <= there

    @precondition(lambda self: self.may_clean())
    @rule(partition=partitions)
    def why_is_it_there(self, partition: str) -> None:
        """``why`` gives for each file what the rules say; for a deleted one, its clean."""
        table = self.table
        timeline = table.meta.active_timeline()
        if self.pending_times():
            return
        self.renew()
        since = naive.earliest(table, self.policy_now, (), "") if self.is_by_instant else None
        leases = self.live()
        held = naive.earliest(table, self.policy_now, leases, "") if self.is_by_instant else None
        everything = self.is_by_instant and (since is None or held is None)
        everything |= not self.is_by_instant and held_from(leases) == ""
        keep = naive.stays(table, self.policy, held or "", leases)
        self.view.sync()
        for path, file in table.truth.files.items():
            if file.partition != partition:
                continue
            said = why(self.cleaner.planner, timeline, path)
            assert said.is_there
            if not self.is_skewed and not self.policy.step:
                assert said.goes == (not everything and path not in keep), said
        for path in [p for p in self.removed if p.rpartition("/")[0] == partition][-3:]:
            said = why(self.cleaner.planner, timeline, path)
            assert not said.is_there
            assert "the clean " in said.reason

    @property
    def is_by_instant(self) -> bool:
        return self.policy.name != VERSIONS

    @property
    def policy_now(self) -> Policy:
        return Policy(self.policy.name, self.policy.number)

    def teardown(self) -> None:
        if not hasattr(self, "readers"):
            return
        if self.table.under_way is not None:
            self.clean_or_undoing_ends(append=False, unsaid=False)
        if self.may_clean():
            for _ in range(2):
                self.clean((True, "", 1), [("a", 0)], ["base"])


TestCleaning = CleaningMachine.TestCase
TestCleaning.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,  # the same everywhere: what is found at random is kept as a case of its own
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@given(st.just((6, "MERGE_ON_READ")))  # events are recorded within a test of hypothesis only
@settings(max_examples=1)
def test_logs_of_a_compaction_that_a_restore_has_undone_are_not_read(kind: tuple[int, str]) -> None:
    """In version 6 they stay, with the name of an instant that isn't on the timeline any more."""
    state = CleaningMachine()
    policy = Policy(COMMITS, 1)
    state.start(kind=kind, change_data=False, policy=policy, part_files=1, keep=(1, 1), ahead_s=0)
    state.savepoint(delete=False, number=0)
    state.clean_badly(
        busy=(False, "COMPACT", 1), call=0, chosen=[("a", 2)], fails="crash", how=["base"], then=""
    )
    state.restored(append=False, at_once=True)
    assert any(".log." in path for path in state.files_there())
    state.read_as_of(ago=0)
    state.teardown()
