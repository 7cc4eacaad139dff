"""Whatever Hudi's writers and services do to a table, and where they stop, no fault is found."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import invariant, precondition

from strandline.table_services.doctor.examination import examine
from tests.kit.short_runs import examples
from tests.kit.tables.model.acting import ActingMachine

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
        assert [each for each in found if each not in expected] == []


TestSoundTable = SoundTable.TestCase
TestSoundTable.settings = settings(max_examples=examples(8), stateful_step_count=20)
