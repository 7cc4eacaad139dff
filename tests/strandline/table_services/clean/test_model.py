"""The cleaner against a naive model, on histories of writes, replacements and failures."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsview.local_view import LocalView
from fsview.table_view import TableView
from strandline.read.state.held_lease import HeldLease
from strandline.read.state.reader_lease import Lease, Leases
from strandline.table_services.clean.policy import POLICIES, CleanSettings, retention
from strandline.table_services.clean.run import Cleaner
from tests.kit.short_runs import examples
from tests.kit.tables.small_model import Write
from tests.kit.tables.small_table import SmallTable
from timeline.errors import InputError, StorageUnavailableError

pytestmark = pytest.mark.property

PARTITIONS = ("p=1", "p=2", "p=3")

write = st.tuples(
    st.just("write"),
    st.lists(st.tuples(st.sampled_from(PARTITIONS), st.integers(0, 2)), min_size=1),
)
step = st.one_of(
    write,
    write,
    write,
    st.tuples(st.just("replace"), st.sampled_from(PARTITIONS)),
    st.tuples(st.just("savepoint")),
    st.tuples(st.just("unsave")),
    st.tuples(st.just("begin"), st.sampled_from(PARTITIONS)),
    st.tuples(st.just("complete")),
    st.tuples(st.just("roll back")),
    st.tuples(st.just("clean")),
    st.tuples(st.just("clean badly"), st.integers(0, 3)),
    st.tuples(st.just("restart")),
    st.tuples(st.just("an hour")),
    st.tuples(st.just("pin"), st.integers(0, 4)),
    st.tuples(st.just("pin"), st.integers(0, 4)),
    st.tuples(st.just("unpin"), st.integers(0, 4)),
    st.tuples(st.just("reader dies"), st.integers(0, 4)),
)


TTL_S = 1800.0


@dataclass
class Reader:
    """A reader with a lease, and the files that it reads."""

    lease: Lease
    files: set[str]
    lives: bool = True


class Machine:
    """Does the steps; checks after each clean."""

    def __init__(self, version: int, policy: str, retained: int) -> None:
        self.table = SmallTable(version=version)
        self.settings = CleanSettings(
            policy=policy, retained=retained, hours=retained, versions=retained, parallelism=1
        )
        self.tables = TableView(self.table.storage)
        self.pending: list[Write] = []
        self.readers: list[Reader] = []
        self.fresh = 0
        # Whether a lease or a pending write ended since the last clean that was due; whether one is
        # due; up to where was cleaned.
        self.freed, self.is_due, self.cleaned_to = False, True, ""
        self.restart()

    def restart(self) -> None:
        """A new driver: nothing is remembered."""
        self.tables = TableView(self.table.storage)
        self.view = LocalView.newest(self.tables)
        self.cleaner = Cleaner(self.table.meta, self.view, self.table.times, self.settings)

    def do(self, name: str, *said) -> None:
        table, model = self.table, self.table.model
        if name == "write":
            live = table.partitions()
            groups = set()
            for partition, which in said[0]:
                here = live.get(partition, [])
                file_id = here[which] if which < len(here) else self.new_id()
                groups.add((partition, file_id if self.is_free(file_id) else self.new_id()))
            table.write(*sorted(groups))
            self.is_due = True
        elif name == "replace":
            old = [(said[0], file_id) for file_id in table.partitions().get(said[0], [])]
            if old and all(map(self.is_free, (file_id for _, file_id in old))):
                table.write((said[0], self.new_id()), replaces=old)
                self.is_due = True
        elif name == "savepoint" and model.writes and model.writes[-1] not in model.saved:
            table.savepoint(model.writes[-1])
        elif name == "unsave" and model.saved:
            table.drop_savepoint(min(model.saved))
        elif name == "begin":
            self.pending.append(table.begin([(said[0], self.new_id())]))
        elif name == "begin an update":
            here = [
                file_id for file_id in table.partitions().get(said[0], []) if self.is_free(file_id)
            ]
            if here:
                self.pending.append(table.begin([(said[0], here[0])]))
        elif name == "complete" and self.pending:
            table.complete(self.pending.pop(0))
            self.freed = True  # it has held the earliest instant, and no clean is due for it
        elif name == "roll back" and self.pending:
            table.take_back(self.pending.pop())
        elif name == "clean":
            self.clean()
        elif name == "clean badly":
            self.clean_badly(said[0])
        elif name == "restart":
            self.restart()
        elif name == "an hour":
            table.clock.advance(3_600_000)
        elif name == "pin":
            self.pin(said[0])
        elif name == "unpin" and self.readers:
            reader = self.readers.pop(said[0] % len(self.readers))
            self.leases.delete(reader.lease.id)
            self.freed = True
        elif name == "reader dies" and self.readers:
            self.readers[said[0] % len(self.readers)].lives = False

    def pin(self, ago: int) -> None:
        """Pin the newest state, or that of an earlier write, if that can be read."""
        model = self.table.model
        if not model.writes:
            return
        time = model.writes[-min(ago, len(model.writes))] if ago else None
        with contextlib.suppress(InputError):
            held = HeldLease.acquire(self.table.meta, time, TTL_S, self.table.clock)
            held._stopping.set()  # renewed by this machine
            self.readers.append(Reader(held.lease, model.read_at(held.lease.instant)))

    @property
    def leases(self) -> Leases:
        return Leases(self.table.storage, self.table.clock)

    def is_free(self, file_id: str) -> bool:
        """Whether no pending write updates a group; two would conflict."""
        return all(file_id != group[1] for write in self.pending for group in write.groups)

    def new_id(self) -> str:
        self.fresh += 1
        return f"f{self.fresh:03d}-0"

    def clean(self, *, fully: bool = True) -> None:
        for reader in self.readers:
            if reader.lives:
                assert self.leases.renew(reader.lease)
        self.view.sync()
        self.table.clock.advance(1000)
        self.cleaner.run()
        # What a lease has held, or a pending write, goes with the next clean that is due.
        live = {lease.id for lease in self.leases.live()}
        assert live >= {reader.lease.id for reader in self.readers if reader.lives}
        self.freed |= any(reader.lease.id not in live for reader in self.readers)
        self.readers = [reader for reader in self.readers if reader.lease.id in live]
        fully = fully and (self.is_due or not self.freed)
        self.check(fully=fully)
        if self.is_due:
            self.freed = self.is_due = False

    def clean_badly(self, spare: int) -> None:
        """Let one delete fail; the file stays, recorded as failed."""
        left = [spare]

        def refuse(kind: str, path: str) -> None:
            if kind == "delete" and path.endswith(".parquet"):
                left[0] -= 1
                if left[0] == -1:
                    raise StorageUnavailableError("slow down")

        self.table.storage.fail.append(refuse)
        self.clean(fully=False)
        self.table.storage.fail.clear()

    def check(self, *, fully: bool) -> None:
        table, model = self.table, self.table.model
        there = table.data_files()
        under_way = {path for pending in self.pending for path in pending.paths}
        assert under_way <= there
        for saved in model.saved.values():
            assert saved <= there
        for reader in self.readers:
            assert reader.files <= there
        since = table.times.hours_ago(self.settings.hours)
        timeline = table.meta.active_timeline()
        kept = retention(timeline, self.settings, since)
        leases = [reader.lease for reader in self.readers]
        kept = kept and kept.held_by(leases, timeline)
        if kept is None:
            return
        if kept.earliest is None:
            assert model.read_at(model.writes[-1]) <= there
            held: set[str] = set()
            for lease in leases:
                oldest = min(each.earliest for each in leases)
                held |= model.held_versions(lease.earliest, lease.instant, oldest=oldest)
            if fully:
                assert there <= model.to_keep_versions(kept.versions) | under_way | held
                assert there >= model.to_keep_versions(kept.versions) | under_way
            return
        earliest = kept.earliest.requested_time
        # A reader of a savepoint may hold what comes after it, of which some has gone before.
        self.cleaned_to = max(self.cleaned_to, earliest)
        # "a reader at any timeline that ends at E or later finds every file that its view names"
        for time in model.writes:
            if time >= self.cleaned_to:
                assert model.read_at(time) <= there
        # Looking only at what changed since leaves just what looking at everything would.
        if fully:
            keep = model.to_keep(earliest) | under_way
            assert model.to_keep(self.cleaned_to) | under_way <= there
            assert there <= keep | model.may_stay(earliest)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("version", [6, 9])
@settings(max_examples=examples(100))
@given(retained=st.integers(1, 3), steps=st.lists(step, max_size=25))
def test_the_cleaner_leaves_just_what_the_model_keeps(version, policy, retained, steps):
    machine = Machine(version, policy, retained)
    for each in steps:
        machine.do(*each)
    machine.do("write", [("p=1", 0)])
    machine.clean()


a_write = st.tuples(
    st.just("write"), st.tuples(st.sampled_from(PARTITIONS[:2]), st.just(0)).map(lambda one: [one])
)
lease_step = st.one_of(
    a_write,
    a_write,
    a_write,
    st.tuples(st.just("replace"), st.just("p=1")),
    st.tuples(st.just("begin an update"), st.just("p=1")),
    st.tuples(st.just("complete")),
    st.tuples(st.just("clean")),
    st.tuples(st.just("clean")),
    st.tuples(st.just("pin"), st.integers(0, 2)),
    st.tuples(st.just("unpin"), st.integers(0, 2)),
    st.tuples(st.just("restart")),
)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=examples(300))
@given(retained=st.integers(1, 2), steps=st.lists(lease_step, min_size=10, max_size=25))
def test_what_readers_hold_stays_and_goes_afterwards(policy, retained, steps):
    """As above, with few groups, so that most readers hold what the policy doesn't."""
    machine = Machine(9, policy, retained)
    for each in steps:
        machine.do(*each)
    machine.readers and machine.do("unpin", 0)
    machine.do("write", [("p=3", 0)])
    machine.clean()
