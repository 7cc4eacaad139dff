"""Scans that read several slices at the same time."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from strandline import Table
from tests.kit.tables import golden
from tests.strandline.read.test_prefetch import running
from timeline.errors import InputError, PathNotFoundError

TABLES = ["multi_mor_v6", "mor_basic_v9", "cow_basic_v9"]


@pytest.mark.property
@pytest.mark.parametrize("scenario", TABLES)
def test_any_number_of_threads_gives_the_same_rows_in_the_same_order(scenario, tmp_path):
    table = Table(golden.build_final(scenario, tmp_path))
    one = table.scan(threads=1)
    assert len(one.slices) > 1
    rows = one.to_arrow()
    late = pc.field("id") > rows["id"][0]
    for threads in (2, 3, None):
        scan = table.scan(threads=threads)
        assert scan.to_arrow() == rows
        assert pa.table(scan.to_reader()) == rows
        assert scan.count() == rows.num_rows
        some = table.scan(["id"], late, threads=threads)
        assert some.to_arrow() == rows.filter(late).select(["id"])
        assert some.count() == some.to_arrow().num_rows
        assert table.scan(limit=3, threads=threads).to_arrow() == rows.slice(0, 3)
    assert running() == []


@pytest.mark.parametrize("threads", [1, 2])
def test_a_range_is_read_by_as_many(threads, tmp_path):
    table = Table(golden.build_final("multi_mor_v6", tmp_path))
    scan = table.incremental("earliest", threads=threads)
    if threads == 1:
        reader = scan.to_reader()
        reader.read_next_batch()
        assert running() == []
        reader.close()
    assert len(scan.slices) > 1
    assert scan.to_arrow() == table.to_arrow()
    assert running() == []


def test_a_reader_that_is_dropped_half_way_ends_its_threads(tmp_path):
    scan = Table(golden.build_final("multi_mor_v6", tmp_path)).scan(threads=2)
    reader = scan.to_reader()
    reader.read_next_batch()
    del reader
    assert running() == []


def test_a_file_that_is_gone_is_named_after_the_rows_before_it(tmp_path):
    base = golden.build_final("multi_mor_v6", tmp_path)
    scan = Table(base).scan(threads=2)
    *_, last = scan.plan().to_pylist()
    (base / (last["base_file"] or last["logs"][0])).unlink()
    reader = scan.to_reader()
    assert reader.read_next_batch() == next(iter(scan.of_slices(scan.slices[:1]).to_reader()))
    with pytest.raises(PathNotFoundError, match="which the scan at"):
        reader.read_all()
    with pytest.raises(PathNotFoundError, match=last["file_id"]):
        scan.count()
    assert running() == []


def test_a_limit_begins_no_slice_before_it_is_needed(tmp_path):
    base = golden.build_final("cow_basic_v9", tmp_path)
    scan = Table(base).scan(limit=1, threads=4)
    for found in scan.plan().to_pylist()[1:]:
        (base / found["base_file"]).unlink()
    assert scan.to_arrow().num_rows == scan.count() == 1


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", True])
def test_numbers_of_threads_that_are_none(threads, tmp_path):
    table = Table(golden.build_final("cow_basic_v9", tmp_path))
    message = f"threads is {threads!r}; allowed: None, or a number"
    with pytest.raises(InputError, match=message):
        table.scan(threads=threads)
    with pytest.raises(InputError, match=message):
        table.incremental("earliest", threads=threads)
