"""Partitions and snapshots that Hypothesis draws."""

from __future__ import annotations

from hypothesis import strategies as st

from fsview.files.partition import PartitionVersion
from fsview.model.file_group import BaseFile, CompactionOperation
from fsview.model.file_name import parse_data_file
from fsview.snapshot.snapshot import Snapshot
from timeline.completion import CompletionTimes
from timeline.instant import CLUSTERING, COMMIT, Instant, State
from timeline.table.config import TableConfig
from timeline.timeline import Timeline

TIMES = ("20261121150000", *(f"2026112115000000{n}" for n in range(1, 6)))
IDS = (
    *(f"0000000{n}-1111-2222-3333-44444444444{n}-0" for n in range(4)),
    "aaaaaaaa-1111-2222-3333-444444444444",
    "any text",
)
EXTENSIONS = (".parquet", ".orc")

base_names = st.builds(
    "{}_{}-{}-0_{}{}".format,
    st.sampled_from(IDS),
    st.integers(0, 3),
    st.sampled_from(["7", "0007"]),
    st.sampled_from(TIMES),
    st.sampled_from(EXTENSIONS),
)
log_names = st.builds(
    ".{}_{}.log.{}_0-1-0".format, st.sampled_from(IDS), st.sampled_from(TIMES), st.integers(1, 2)
)


@st.composite
def versions(draw: st.DrawFn) -> PartitionVersion:
    partition = draw(st.sampled_from(["", "dt=2026-11-21", 'a b/ü"%s@name@', "@partition@"]))
    names = draw(st.sets(st.one_of(base_names, base_names, log_names), max_size=24))
    numbers = st.integers(0, 2**40)
    files = [
        parse_data_file(partition, name, draw(numbers), draw(st.just(0) | numbers), EXTENSIONS)
        for name in sorted(names)
    ]
    drawn = [file for file in files if file is not None]
    there = draw(st.integers(0, len(drawn)))
    version = PartitionVersion.of(partition, [*others_in(partition), *drawn[:there]])
    runs = draw(st.integers(1, 4))
    for n in range(runs):
        version = version.with_changes(drawn[there + n :: runs])
    return version


def others_in(partition: str) -> list[BaseFile]:
    """Return files of other groups, which make room for runs."""
    found = []
    for n in range(12):
        file_id = f"0000000{n:x}-0000-2222-3333-444444444444-0"
        found += [
            BaseFile(partition, f"{file_id}_0-1-2_{time}.parquet", 7, 0, file_id, time)
            for time in TIMES[1:4]
        ]
    return found


@st.composite
def snapshots(draw: st.DrawFn, partition: str) -> Snapshot:
    version = draw(st.sampled_from([6, 9]))
    states = draw(st.lists(st.sampled_from(State), min_size=6, max_size=6))
    done = [
        Instant(time, COMMIT, state, time if state is State.COMPLETED else None)
        for time, state in zip(TIMES, states, strict=True)
        if draw(st.booleans())
    ]
    clustering = draw(st.none() | st.sampled_from(TIMES))
    if clustering is not None and all(i.requested_time != clustering for i in done):
        done.append(Instant(clustering, CLUSTERING, State.INFLIGHT))
    timeline = Timeline.of(done)
    groups = st.dictionaries(st.sampled_from(IDS), st.sampled_from(TIMES), max_size=2)
    pending = {
        (partition, file_id): CompactionOperation(partition, file_id, time, time)
        for file_id, time in draw(groups).items()
    }
    completion = CompletionTimes.of(timeline, version)
    completion.read_archive("", lambda *_: {})  # and nothing is there
    return Snapshot(
        TableConfig.create(name="t", version=version),
        timeline,
        completion,
        pending_compaction=pending,
        replaced={partition: draw(groups)},
    )
