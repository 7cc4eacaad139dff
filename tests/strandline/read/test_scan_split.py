"""``Scan.split``: scans that travel to tasks and together read the rows of one."""

from __future__ import annotations

import pickle
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from strandline import Table
from tests.kit.tables import golden
from timeline.errors import InputError

TABLES = [name for name in golden.scenarios() if golden.has_final_table(name)]


def sent(scan):
    return pickle.loads(pickle.dumps(scan))


@pytest.mark.parametrize("scenario", TABLES)
def test_a_scan_for_each_slice_reads_its_rows(scenario, tmp_path):
    scan = Table(golden.build_final(scenario, tmp_path)).scan()
    parts = scan.split(1)
    assert [part.plan().num_rows for part in parts] == [1] * scan.plan().num_rows
    assert pa.concat_tables(sent(part).to_arrow() for part in parts) == scan.to_arrow()


def test_the_share_of_columns_counts_those_of_the_filter_once(tmp_path):
    table = Table(golden.build_final("cow_basic_v9", tmp_path))
    names = table.schema().names
    share = 1 / len(names)
    assert table.scan().column_share == 1
    assert table.scan([]).column_share == 0
    assert table.scan(names[:1]).column_share == pytest.approx(share)
    for asked, filtered in ((names[:1], names[1]), ([], names[0]), (names[:2], names[0])):
        found = table.scan(asked, pc.field(filtered).is_valid()).column_share
        assert found == pytest.approx(share * len({*asked, filtered}))


def test_parts_are_filled_up_to_their_size(tmp_path):
    scan = Table(golden.build_final("mor_basic_v9", tmp_path)).scan()
    sizes = scan.plan()["bytes"].to_pylist()
    for size in (1, max(sizes), sizes[0] + sizes[1], sum(sizes)):
        parts = [part.plan()["bytes"].to_pylist() for part in scan.split(size)]
        assert [each for part in parts for each in part] == sizes
        assert all(sum(part) <= size or len(part) == 1 for part in parts)
        # None could have taken the first slice of the next.
        assert all(sum(a) + b[0] > size for a, b in pairwise(parts))


def test_columns_filter_and_instant_travel(tmp_path):
    table = Table(golden.build_final("mor_basic_v9", tmp_path))
    scan = table.scan(["_hoodie_record_key"], pc.field("_hoodie_partition_path") != "")
    part = sent(scan)
    assert part.instant == scan.instant
    assert part.to_arrow() == scan.to_arrow()
    assert part.schema == scan.schema


def test_a_limit_is_for_a_whole_scan(tmp_path):
    scan = Table(golden.build_final("cow_basic_v9", tmp_path)).scan(limit=3)
    assert sent(scan).to_arrow().num_rows == 3
    with pytest.raises(InputError, match="limit 3"):
        scan.split(1)


def test_sizes_that_are_none(subtests, tmp_path):
    scan = Table(golden.build_final("cow_basic_v9", tmp_path)).scan()
    for size in ["a", "128", 0, -1, 1.5, None, True]:
        allowed = f"size is {size!r}; allowed: a number of bytes from 1 on"
        with subtests.test(size=size), pytest.raises(InputError, match=allowed):
            scan.split(size)
