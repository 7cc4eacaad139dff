"""Columns of nested types: how deep they may be, and the names of their fields."""

import pyarrow as pa
import pytest

from strandline.records.schema.columns import check_nesting
from strandline.table_api.table import Table
from tests.strandline.write.tables import client, row, table
from timeline.errors import InputError

WRAPPERS = {
    "struct": lambda inner: pa.struct([pa.field("s", inner)]),
    "list": pa.list_,
    "large_list": pa.large_list,
    "fixed_list": lambda inner: pa.list_(inner, 2),
    "map": lambda inner: pa.map_(pa.string(), inner),
    "dictionary": lambda inner: pa.dictionary(pa.int8(), pa.struct([pa.field("s", inner)])),
}
DEEPEST = {"struct": 98, "dictionary": 98}


def nested(wrap, times):
    kind = pa.int32()
    for _ in range(times):
        kind = wrap(kind)
    return kind


def test_the_depth_of_columns_is_limited(subtests):
    for name in WRAPPERS:
        with subtests.test(name=name):
            deepest = DEEPEST.get(name, 49)
            check_nesting(pa.schema({"v": nested(WRAPPERS[name], deepest)}))
            for times in (deepest + 1, 200, 2_000):
                with pytest.raises(InputError, match="column 'v' is nested too deeply"):
                    check_nesting(pa.schema({"v": nested(WRAPPERS[name], times)}))


def with_column(kind):
    rows = table(row("a"))
    return rows.append_column("v", pa.nulls(1, kind))


@pytest.mark.property
@pytest.mark.parametrize("name", ["struct", "list", "large_list", "map"])
def test_the_deepest_columns_are_written_read_and_written_again(tmp_path, name):
    rows = with_column(nested(WRAPPERS[name], DEEPEST.get(name, 49)))
    with client(tmp_path / "t") as c:
        assert c.insert(rows).rows_inserted == 1
        assert c.upsert(rows).rows_updated == 1
    assert Table(str(tmp_path / "t")).to_arrow().num_rows == 1


@pytest.mark.parametrize("times", [99, 200, 1_000])
def test_nothing_is_written_of_deeper_columns(tmp_path, times):
    with client(tmp_path / "t") as c, pytest.raises(InputError, match="'v' is nested too deeply"):
        c.insert(with_column(nested(WRAPPERS["struct"], times)))
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("wrap", [lambda kind: kind, pa.list_, WRAPPERS["map"]])
def test_a_struct_with_two_fields_of_one_name_is_refused(tmp_path, wrap):
    twice = pa.struct([("x", pa.int32()), ("y", pa.int32()), ("x", pa.string())])
    with client(tmp_path / "t") as c, pytest.raises(InputError, match=r"'v'.* duplicate .*\['x'\]"):
        c.insert(with_column(wrap(twice)))
    assert not (tmp_path / "t").exists()
