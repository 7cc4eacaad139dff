"""JSON made straight from rows equals that of the query and the wire format, byte for byte."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsview.files.partition import PartitionVersion
from fsview.files.row import UNKNOWN_SIZE
from fsview.model.file_name import parse_data_file
from fsview.query.latest_json import NEWEST, newest_as_json, newest_in_columns
from fsview.snapshot.snapshot import Snapshot
from fsview.wire.column_form import write_columns
from fsview.wire.json_form import PathForms
from tests.fsview.query.drawn import EXTENSIONS, IDS, TIMES, snapshots, versions
from timeline.completion import CompletionTimes
from timeline.instant import COMMIT, Instant, State
from timeline.table.config import TableConfig
from timeline.timeline import Timeline

HOME = PathForms.of("/t")


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
