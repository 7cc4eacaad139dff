"""The cleaner against a naive model, on histories of writes, replacements and failures."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsview.local_view import LocalView
from fsview.table_view import TableView
from strandline.table_services.clean.policy import POLICIES, CleanSettings, retention
from strandline.table_services.clean.run import Cleaner
from tests.kit.tables.small_model import Write
from tests.kit.tables.small_table import SmallTable
from timeline.errors import StorageUnavailableError

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
)


class Machine:
    """Does the steps; checks after each clean."""

    def __init__(self, version: int, policy: str, retained: int) -> None:
        self.table = SmallTable(version=version)
        self.settings = CleanSettings(
            policy=policy, retained=retained, hours=retained, versions=retained, parallelism=1
        )
        self.tables = TableView(self.table.storage)
        self.pending: list[Write] = []
        self.fresh = 0
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
                groups.add((partition, here[which] if which < len(here) else self.new_id()))
            table.write(*sorted(groups))
        elif name == "replace":
            old = [(said[0], file_id) for file_id in table.partitions().get(said[0], [])]
            if old:
                table.write((said[0], self.new_id()), replaces=old)
        elif name == "savepoint" and model.writes and model.writes[-1] not in model.saved:
            table.savepoint(model.writes[-1])
        elif name == "unsave" and model.saved:
            table.drop_savepoint(min(model.saved))
        elif name == "begin":
            self.pending.append(table.begin([(said[0], self.new_id())]))
        elif name == "complete" and self.pending:
            table.complete(self.pending.pop(0))
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

    def new_id(self) -> str:
        self.fresh += 1
        return f"f{self.fresh:03d}-0"

    def clean(self, *, fully: bool = True) -> None:
        self.view.sync()
        self.table.clock.advance(1000)
        self.cleaner.run()
        self.check(fully=fully)

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
        since = table.times.ago(self.settings.hours * 3_600_000)
        kept = retention(table.meta.active_timeline(), self.settings, since)
        if kept is None:
            return
        if kept.earliest is None:
            assert model.read_at(model.writes[-1]) <= there
            if fully:
                assert there == model.to_keep_versions(kept.versions) | under_way
            return
        earliest = kept.earliest
        # "a reader at any timeline that ends at E or later finds every file that its view names"
        for time in model.writes:
            if time >= earliest.requested_time:
                assert model.read_at(time) <= there
        # Looking only at what changed since leaves just what looking at everything would.
        if fully:
            keep = model.to_keep(earliest.requested_time) | under_way
            assert keep <= there
            assert there <= keep | model.may_stay(earliest.requested_time)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("version", [6, 9])
@settings(max_examples=100, deadline=None)
@given(retained=st.integers(1, 3), steps=st.lists(step, max_size=25))
def test_the_cleaner_leaves_just_what_the_model_keeps(version, policy, retained, steps):
    machine = Machine(version, policy, retained)
    for each in steps:
        machine.do(*each)
    machine.do("write", [("p=1", 0)])
    machine.clean()
