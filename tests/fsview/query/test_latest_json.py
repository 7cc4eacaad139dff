"""JSON made straight from rows equals that of the query and the wire format, byte for byte."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsview.files.partition import PartitionVersion
from fsview.files.row import UNKNOWN_SIZE
from fsview.model.file_group import BaseFile, CompactionOperation
from fsview.model.file_name import parse_data_file
from fsview.query.latest_json import NEWEST, newest_as_json, newest_in_columns
from fsview.snapshot.snapshot import Snapshot
from fsview.wire.column_form import write_columns
from fsview.wire.json_form import PathForms
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
HOME = PathForms.of("/t")

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


def arguments(name: str, time: str, *, pending: bool) -> Mapping[str, Any]:
    if not name.endswith("before_or_on"):
        return {}
    more = {"include_pending_compaction": pending} if "file_slices_before" in name else {}
    return {"max_instant": time} | ({} if "merged" in name else more)


@given(st.data(), versions(), st.sampled_from(TIMES), st.booleans())
def test_the_bytes_are_those_of_the_query(
    data: st.DataObject, version: PartitionVersion, time: str, pending: bool
) -> None:
    snapshot = data.draw(snapshots(version.partition))
    paths = PathForms.of(data.draw(st.sampled_from(["/t", "file:///lake/a b", "s3://b/t"])))
    for name, newest in NEWEST.items():
        asked = arguments(name, time, pending=pending)
        said = newest_as_json(snapshot, version, newest, asked, paths, plain_only=False)
        assert said == newest.encode(newest.query(snapshot, version, **asked), paths)
        plain = newest_as_json(snapshot, version, newest, asked, paths, plain_only=True)
        assert plain in {None, said}
        items = newest.query(snapshot, version, **asked)
        columns = newest_in_columns(snapshot, version, newest, asked, plain_only=False)
        assert columns == (None if said is None else write_columns(name, items))
        plain = newest_in_columns(snapshot, version, newest, asked, plain_only=True)
        assert plain in {None, columns}


def one_group(*names: str, size: int = 5) -> tuple[Snapshot, PartitionVersion]:
    timeline = Timeline.of([Instant(t, COMMIT, State.COMPLETED, t) for t in TIMES])
    files = [parse_data_file("p", name, size, 0, EXTENSIONS) for name in names]
    return (
        Snapshot(TableConfig.create(name="t"), timeline, CompletionTimes.of(timeline, 9)),
        PartitionVersion.of("p", [file for file in files if file is not None]),
    )


def test_base_files_alone_take_no_query(subtests: pytest.Subtests) -> None:
    for name in NEWEST:
        with subtests.test(name=name):
            snapshot, version = one_group(*(f"{IDS[0]}_0-1-0_{time}.parquet" for time in TIMES))
            asked = arguments(name, TIMES[3], pending=True)
            said = newest_as_json(snapshot, version, NEWEST[name], asked, HOME, plain_only=True)
            assert said is not None
            assert said.count(b'"fileId"') == (2 if NEWEST[name].of_slices else 1)


def test_what_isn_t_plain_or_looks_like_a_field_is_left_to_the_query() -> None:
    newest = NEWEST["latest_file_slices"]
    base = f"{IDS[0]}_0-1-0_{TIMES[1]}.parquet"

    def made(names: list[str], size: int, base_path: str) -> bytes | None:
        snapshot, version = one_group(*names, size=size)
        paths = PathForms.of(base_path)
        return newest_as_json(snapshot, version, newest, {}, paths, plain_only=True)

    assert made([base], 5, "/t") is not None
    assert made([base, f".{IDS[0]}_{TIMES[1]}.log.1_0-1-0"], 5, "/t") is None
    assert made([f"any text_0-1-0_{TIMES[1]}.parquet"], 5, "/t") is None
    assert made([base], UNKNOWN_SIZE, "/t") is None
    assert made([base], 5, "/t/@name@") is None
    assert made([base], 5, "/@partition@") is None
