"""Which instants count for a read."""

from __future__ import annotations

import pytest

from strandline.read.committed import CommittedInstants
from timeline.instant import COMMIT, RESTORE, SAVEPOINT, Instant, State
from timeline.timeline import Timeline


def completed(time, action=COMMIT):
    return Instant(time, action, State.COMPLETED, time)


@pytest.mark.parametrize(
    ("instants", "archived"),
    [
        ([completed("5"), completed("7")], {"3": True, "6": False}),
        # Between the commit of a savepoint and the next one others are archived.
        ([completed("5"), completed("5", SAVEPOINT), completed("9")], {"3": True, "7": True}),
        # A restore to the savepoint has left no other commit.
        (
            [completed("5"), completed("5", SAVEPOINT), completed("9", RESTORE)],
            {"3": True, "7": False},
        ),
        ([], {"3": False}),
    ],
)
def test_archived_instants_count(instants, archived):
    committed = CommittedInstants(Timeline.of(instants))
    assert {time: committed.has(time) for time in archived} == archived
    assert all(committed.has(each.requested_time) for each in instants if each.action == COMMIT)
