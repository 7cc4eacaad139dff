"""What is told of a change: it comes back as it was, in JSON by each encoder."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from fsview.files.group import NO_FILES
from fsview.record.journal import journal_entry_of, read_journal_entry
from fsview.snapshot.timeline_change import Step, TimelineChange
from fsview.sync.metadata_reader import snapshot_of
from fsview.sync.timeline_diff import read_change
from tests.kit.tables import golden
from timeline.encoding.json_text import dumps, loads, plain_dumps, plain_loads
from timeline.instant import COMMIT, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.timeline import Timeline


@pytest.mark.parametrize("scenario", golden.scenarios())
def test_changes_of_recorded_tables(scenario: str) -> None:
    told = 0
    steps = golden.steps(scenario)
    for first, second in pairwise(steps):
        old = snapshot_of(TableMetaClient.open(golden.GoldenStorage(scenario, first)))
        client = TableMetaClient.open(golden.GoldenStorage(scenario, second))
        change = read_change(client, old, client.active_timeline())
        if isinstance(change, TimelineChange):
            told += len(change.steps)
            news = journal_entry_of(change, {"p=2", "p=1"}, old.active)
            for encode, decode in ((dumps, loads), (plain_dumps, plain_loads)):
                found, unclear = read_journal_entry(decode(encode(news)), old.active)
                assert told_files(found) == told_files(change)
                assert unclear == {"p=1", "p=2"}
                assert found.active.hash == change.active.hash
                again = journal_entry_of(found, unclear, old.active)
                assert decode(dumps(again)) == decode(dumps(news))
    assert told


def told_files(change: TimelineChange) -> TimelineChange:
    """Return a change in which no files are of no partition."""

    def plain(step: Step) -> Step:
        partitions = {
            p: c if c.added else replace(c, added=NO_FILES)
            for p, c in step.delta.partitions.items()
        }
        return replace(step, delta=replace(step.delta, partitions=partitions))

    return replace(change, steps=tuple(map(plain, change.steps)))


def test_an_instant_that_completed_anew_is_told() -> None:
    """It equals the former one, but has another completion time."""
    before, after = (
        Timeline.of([Instant("20240101000000000", COMMIT, State.COMPLETED, completed)])
        for completed in ("20240101000001000", "20240101000002000")
    )
    assert before == after
    news = journal_entry_of(TimelineChange(after, (Step("1", after[0]),)), (), before)
    found, _ = read_journal_entry(loads(dumps(news)), before)
    assert [i.completion_time for i in found.active] == ["20240101000002000"]
    assert found.steps[0].instant.completion_time == "20240101000002000"
