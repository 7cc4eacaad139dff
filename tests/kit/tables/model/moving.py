"""Actions on a table between two storage calls of a view."""

from __future__ import annotations

from tests.kit.tables.model import leftovers, writes
from tests.kit.tables.model.acting import PARTITIONS, TOKENS, ActingMachine
from tests.kit.tables.model.table import SLOTS
from timeline.instant import State

MOVES = (
    "complete",
    "write",
    "archive",
    "clean",
    "end",
    "roll back",
    "overwrite",
    "compact",
    "fail",
    "left over",
    "restore",
)
"""What may happen."""


class MovingMachine(ActingMachine):
    """Runs the actions named in ``MOVES`` if the table's state allows them."""

    def move_on(self, moves: list[tuple[str, int]]) -> None:
        """Run those of the actions that the table's state allows, without a sync in between."""
        for what, number in moves:
            self.move(what, number)

    def move(self, what: str, number: int) -> None:
        if what == "end" and self.restoring and number != 0:
            self.restore_goes_on(append=number == 1)
        elif what == "restore" and self.table.saved and not self.regressed:
            self.restored(at_once=number == 3, append=number == 1)
        elif what == "end" and self.table.under_way is not None:
            self.clean_or_undoing_ends(append=number == 1, unsaid=number == 2)
        elif what == "clean" and self.table.under_way is None and not self.regressed:
            self.clean(at_once=number != 3)
        elif what == "roll back" and self.table.under_way is None and self.failing():
            self.rolled_back(number, at_once=number != 3, append=number == 1, unsaid=number == 2)
        elif self.may_begin():
            self.begin_or_complete(what, number)

    def begin_or_complete(self, what: str, number: int) -> None:
        there = PARTITIONS[number % 2]
        chosen = [(there, slot) for slot in range(SLOTS)]
        pending = self.pending()
        if what == "complete" and pending:
            late = ("", "", *TOKENS)[number]
            writes.complete(self.table, pending[number % len(pending)], late=late)
        elif what == "left over" and pending:
            leftovers.clear(self.table, pending[number % len(pending)])
        elif what == "write":
            self.write(chosen[number:], ["base"] * SLOTS, times=1)
        elif what == "archive":
            self.archived(seen=False)
        elif what == "overwrite":
            self.overwrite([there], "DELETE_PARTITION", at_once=number != 3)
        elif what == "compact" and self.table.merges_on_read:
            self.compaction(chosen, logs_only=False, far=State.COMPLETED)
        elif what == "fail" and self.table.truth.compactions:
            self.compaction_fails(number)
