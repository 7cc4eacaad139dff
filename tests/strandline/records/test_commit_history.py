"""What is kept of a table's commits, however many a client writes."""

from __future__ import annotations

import pytest

from strandline.records.commit_history import CommitHistory
from tests.kit.storage.memory_storage import MemoryStorage
from tests.strandline.write.tables import client, row, table
from timeline.clock import SystemClock
from timeline.instant import COMMIT, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CommitMetadata
from timeline.timeline import Timeline


def completed(number: int) -> Instant:
    time = f"{20240101000000000 + number}"
    return Instant(time, COMMIT, State.COMPLETED, time)


def table_in_memory() -> TableMetaClient:
    storage = MemoryStorage("/memory/t", now_ms=SystemClock().now_ms)
    with client("/memory/t", storage) as c:
        c.upsert(table(row("a")))
    return TableMetaClient.open(storage)


def test_commits_that_left_the_timeline_are_forgotten() -> None:
    meta, history = table_in_memory(), CommitHistory()
    metadata = CommitMetadata(extra_metadata={"schema": "text"})
    for number in range(1000):
        history.remember(completed(number), metadata)
    active = meta.active_timeline()
    assert history.avro_schema(meta, active)
    assert set(history._facts) == set(active)


@pytest.mark.property
def test_completion_times_are_forgotten_when_they_are_many() -> None:
    meta, history = table_in_memory(), CommitHistory()
    instants = [completed(number) for number in range(20_001)]
    timeline = Timeline(tuple(instants))
    times = [each.requested_time for each in instants]
    assert len(history.completion_times(meta, timeline, times)) == len(times)
    assert dict(history.completion_times(meta, timeline, times[-2:])) == {
        time: time for time in times[-2:]
    }
