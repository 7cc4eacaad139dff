"""Whatever Hudi's writers and services do to a table, and where they stop, no fault is found."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import invariant, precondition

from strandline.table_services.doctor.examination import examine
from tests.kit.short_runs import examples
from tests.kit.tables.model.acting import ActingMachine
from timeline.metadata.instant_metadata import CleanMetadata

pytestmark = pytest.mark.property


class SoundTable(ActingMachine):
    """Its logs have no blocks, so that their ends say nothing, and its base files no footers."""

    @precondition(lambda self: hasattr(self, "table"))
    @invariant()
    def nothing_is_wrong(self) -> None:
        found = examine(self.table.storage, self.table.clock, deep=True)
        empty = "last block", "footer can't be read"
        found = tuple(f for f in found if not any(what in f.what for what in empty))
        late = {*self.table.doubles, *self.table.doubles.values()}
        expected = [each for each in found if each.code == "duplicate-base-file"]
        assert {name for each in expected for name in each.names} <= late
        # A clean that was planned before a savepoint deletes what that protects, and one that ran
        # before a completed write is undone has deleted what the state before that write had.
        missing = [each for each in found if each.code == "missing-file"]
        cleaned = self._cleaned() if missing else set()
        expected += [
            each
            for each in missing
            if ("a savepoint protects it" in each.what or self._has_undone())
            and {path_name(*each.names)} <= cleaned
        ]
        assert [each for each in found if each not in expected] == []

    def _has_undone(self) -> bool:
        instants = self.table.meta.active_timeline().instants
        return bool(self.regressed) or any(each.action == "rollback" for each in instants)

    def _cleaned(self) -> set[str]:
        """Return the names of the files that cleans of the timeline have deleted."""
        meta = self.table.meta
        cleans = [i for i in meta.active_timeline().completed() if i.action == "clean"]
        read = [meta.read(instant) for instant in cleans]
        return {
            path_name(path)
            for clean in read
            if isinstance(clean, CleanMetadata)
            for done in clean.partition_metadata.values()
            for path in done.success_delete_files
        }


def path_name(path: str) -> str:
    return path.rpartition("/")[2]


TestSoundTable = SoundTable.TestCase
TestSoundTable.settings = settings(max_examples=examples(8), stateful_step_count=20)
