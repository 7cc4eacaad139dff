"""Filters of scans: rows are those of the whole table, filtered by pyarrow afterwards."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import product

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline import Table
from strandline.read.filter.row_filter import RowFilter
from strandline.records.file.base_file import stored_rows
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables import golden
from tests.strandline.read.logs.log_table import SCHEMA, LogTable, row
from timeline.errors import InputError
from timeline.storage.local import LocalStorage

TABLES = [
    *("cow_basic_v9", "nonpart_cow_v6", "multi_mor_v6"),
    *(pytest.param(name, marks=pytest.mark.product) for name in ("hive_cow_v9", "mor_basic_v6")),
]
FLOATS = pa.schema([("x", pa.float64()), ("n", pa.int32())])


@pytest.fixture(scope="module", params=TABLES)
def read(request, tmp_path_factory) -> Iterator[tuple[Table, pa.Table]]:
    """A real table, and its rows."""
    table = Table(golden.build_final(request.param, tmp_path_factory.mktemp(request.param)))
    return table, table.to_arrow()


@pytest.fixture(scope="module")
def scans(read) -> st.SearchStrategy[tuple[pc.Expression, list[str]]]:
    """Conditions and columns, which take longer to make than to draw."""
    _, rows = read
    columns = st.lists(st.sampled_from(rows.schema.names), unique=True)
    return st.tuples(conditions(rows), columns)


def conditions(rows: pa.Table) -> st.SearchStrategy[pc.Expression]:
    """Comparisons of columns with values that occur in them, joined by and, or and not."""
    names = [field.name for field in rows.schema if not pa.types.is_nested(field.type)]
    values = {name: pc.unique(rows[name]).drop_null().to_pylist()[:20] for name in names}
    names = [name for name in names if values[name]]

    @st.composite
    def comparison(draw: st.DrawFn) -> pc.Expression:
        name = draw(st.sampled_from(names))
        column = pc.field(name)
        kind = rows.schema.field(name).type
        value = pa.scalar(draw(st.sampled_from(values[name])), kind)
        make = draw(
            st.sampled_from(
                [
                    lambda: column == value,
                    lambda: column != value,
                    lambda: column < value,
                    lambda: column >= value,
                    lambda: column.is_null(),
                    lambda: column.isin(pa.array([value.as_py(), None], kind)),
                ]
            )
        )
        return make()

    return st.recursive(
        comparison(),
        lambda inner: st.one_of(
            inner.map(lambda a: ~a),
            st.tuples(inner, inner).map(lambda ab: ab[0] & ab[1]),
            st.tuples(inner, inner).map(lambda ab: ab[0] | ab[1]),
        ),
        max_leaves=4,
    )


@pytest.mark.property
@given(data=st.data())
def test_filtered_and_projected_rows_are_those_of_the_whole_table(read, scans, data):
    table, rows = read
    condition, columns = data.draw(scans)
    scan = table.scan(columns, condition)
    expected = rows.filter(condition)
    assert scan.count() == expected.num_rows
    if columns:
        assert scan.to_arrow() == expected.select(columns)


def test_triples_mean_the_expression(read):
    table, rows = read
    low, high = pc.min_max(rows["id"]).as_py().values()
    both = [("id", ">", low), ("id", "<", high)]
    assert table.scan(filter=both).to_arrow() == rows.filter(
        (pc.field("id") > low) & (pc.field("id") < high)
    )
    one_of = [[("id", "=", low)], [("id", "in", [high])]]
    assert table.scan(["ts"], one_of).to_arrow().num_rows == 2


def test_rows_of_logs_are_filtered_after_they_are_merged(tmp_path):
    table = LogTable(LocalStorage(str(tmp_path)))
    table.base([row("a", 1, "old"), row("b", 1, "old")])
    table.rows_log(row("b", 2, "new"))
    scanned = Table(tmp_path).scan
    assert scanned(["id"], pc.field("v") == "old").to_arrow()["id"].to_pylist() == ["a"]
    assert scanned(["id"], pc.field("v") == "new").to_arrow()["id"].to_pylist() == ["b"]
    assert scanned(filter=pc.field("v") == "old", read_optimized=True).count() == 2


def test_the_columns_of_a_filter():
    schema = pa.schema(
        [*(pa.field(f"c{i}", pa.int32()) for i in range(9)), ("s", pa.struct([("x", pa.int8())]))]
    )
    condition = (pc.field("c7") > 1) | (pc.field("s", "x") == 2) & pc.field("c1").is_valid()
    assert RowFilter.of(condition, schema).columns == ("c1", "c7", "s")
    assert RowFilter.of(pc.scalar(True), schema).columns == ()


def test_the_columns_of_a_filter_are_found_whatever_their_names_are() -> None:
    odd = ["a", "a) in b", "b", "FieldRef.Name(b) in"]
    schema = pa.schema([(name, pa.int64()) for name in odd])
    for name in odd:
        assert RowFilter.of(pc.field(name) > 1, schema).columns == (name,)
    both = (pc.field(odd[1]) > 1) & (pc.field("b") > 1)
    assert RowFilter.of(both, schema).columns == ("a) in b", "b")


REFUSED = [
    (7, "filter is 7; allowed: a list of triples.*SQL text"),
    (b"id = 1", "filter is b'id = 1'; allowed"),
    ([], r"filter is \[\]; allowed"),
    ([[]], r"filter is \[\[\]\]; allowed"),
    ([7], r"filter is \[7\]; allowed"),
    ([("id", "=", "a"), 7], "where 7 is no triple"),
    ([(7, "=", "a")], "where 7 is no column; allowed: a name, or names"),
    ([("id", "~", "a")], "'id' by '~' with 'a'; allowed: =, ==, !=, <, <=, >, >=, in, not in"),
    ([("id", ["="], "a")], r"'id' by \['='\] with 'a'; allowed: ="),
    ([("id", "in", 7)], r"'id' by 'in' with 7; allowed: a list"),
    ([("id", "in", "ab")], r"'id' by 'in' with 'ab'; allowed: a list"),
    ([[("ts", ">", 1)], [("id", "not in", "ab")]], r"by 'not in' with 'ab'"),
    ([("id", "=", None)], r"by '=' with None, which .* no row; .*field\('id'\).is_null\(\)"),
    ([[("ts", ">", 1)], [("id", "!=", None)]], r"by '!=' with None.*others ~pyarrow"),
    ([("id", "=")], r"filter is \[\('id', '='\)\]"),
    ([("Id", "=", "a")], "no column 'Id'.*did you mean 'id'"),
    (pc.field("idd") == "a", "did you mean 'id'"),
    (
        pc.field("ts") == "a",
        r"\(ts == \"a\"\) doesn't suit the table, in which ts is int64: .*",
    ),
    ([("id", "=", 7)], "column 'id', which is string, with 7; allowed: text"),
    ([[("ts", "=", 1)], [("v", ">", 2)]], "column 'v', which is string, with 2"),
    ([("ts", "=", 2**70)], "which is int64, with 1180591620717411303424; allowed: whole numbers"),
    (pc.scalar("x").cast("int64") == pc.field("ts"), "in which ts is int64: .*'x'"),
    (pc.field("ts"), "must evaluate to bool"),
    (pc.field(1) == 1, r"\(FieldPath\(1\) == 1\) has a column by its position"),
]


def test_filters_that_are_refused(subtests):
    for given_filter, message in REFUSED:
        with subtests.test(given_filter=given_filter), pytest.raises(InputError, match=message):
            RowFilter.of(given_filter, SCHEMA)


@pytest.mark.parametrize("with_log", [False, True])
def test_a_value_that_the_filter_can_not_cast(with_log, tmp_path):
    table = LogTable(LocalStorage(str(tmp_path)))
    table.base([row("a", 1, "old")])
    if with_log:
        table.rows_log(row("a", 2, "old"))
    scan = Table(tmp_path).scan(["id"], pc.field("v").cast(pa.int64()) > 3)
    with pytest.raises(InputError, match="which v is string: Failed to parse string: 'old'"):
        scan.to_arrow()


def test_a_value_of_a_path_that_the_filter_can_not_cast(tmp_path):
    table = LogTable(LocalStorage(str(tmp_path)))
    table.base([row("a", 1, "old")])
    with pytest.raises(InputError, match="p is string: Failed to parse string: 'p'"):
        Table(tmp_path).scan(["id"], pc.field("p").cast(pa.int64()) > 3).to_arrow()


@pytest.mark.parametrize("name", ["_hoodie_partition_path", "_hoodie_record_key"])
def test_meta_columns_that_a_table_does_not_store(name, tmp_path):
    properties = {"hoodie.populate.meta.fields": "false"}
    table = LogTable(LocalStorage(str(tmp_path)), properties=properties)
    file = io.BytesIO()
    pq.write_table(pa.table({"id": ["a"], "p": ["p"]}), file)
    instant = table.begin()
    path = f"p/f-0_0-0-0_{instant.requested_time}.parquet"
    table.storage.create(path, file.getvalue())
    table.complete(instant, path, len(file.getvalue()))
    scanned = Table(tmp_path).scan
    assert scanned(["id"], pc.field("p") == "p").to_arrow().to_pylist() == [{"id": "a"}]
    stores_none = rf"on \['{name}'\].*populate\.meta\.fields=false.*columns are \['p'\]"
    with pytest.raises(InputError, match=stores_none):
        scanned(["id"], (pc.field("p") == "p") & (pc.field(name) == "p"))


def test_text_that_looks_like_a_position_is_text():
    for condition in (
        pc.field("id") == 'a "FieldPath(1)',
        pc.field("id").isin(['a"', "FieldPath(1)"]),
    ):
        assert RowFilter.of(condition, SCHEMA).columns == ("id",)


def test_a_position_beside_text_with_a_quote_is_refused():
    with pytest.raises(InputError, match="by its position"):
        RowFilter.of(pc.field("id").isin(['"']) & (pc.field(1) == 1), SCHEMA)


def test_long_texts_in_a_list_may_have_any_characters(subtests):
    """pyarrow's text of such an expression ends within a character."""
    for letter, before in product(["é", "€", "🙂"], ["", "a", "aa", "aaa"]):
        with subtests.test(letter=letter, before=before):
            value = before + letter * 100
            condition = pc.field("id").isin([value, "b"])
            assert RowFilter.of(condition, SCHEMA).columns == ("id",)
            rows = pa.table({"id": [value, "a", "b"]})
            assert RowFilter.of(condition, rows.schema).keep(rows)["id"].to_pylist() == [value, "b"]
            with pytest.raises(InputError, match=r"is_in\(ts[\s\S]*ts is int64"):
                RowFilter.of(pc.field("ts").isin([value]), SCHEMA)


def groups(rows: pa.Table, condition: pc.Expression, columns: pa.Schema) -> list[int]:
    """Return the row groups, of two rows each, of a file that may match."""
    file = io.BytesIO()
    pq.write_table(rows, file, row_group_size=2)
    storage = MemoryStorage()
    storage.create("f", file.getvalue())
    with stored_rows(storage, "f") as stored:
        return list(stored.groups_that_may_match(condition, columns))


def test_row_groups_are_skipped_by_statistics():
    rows = pa.table({"x": [1.0, 2.0, 3.0, float("nan")], "n": pa.array([1, 2, 3, 4], pa.int32())})
    n, x = FLOATS.field("n"), FLOATS.field("x")
    assert groups(rows, pc.field("n") > 2, pa.schema([n])) == [1]
    assert groups(rows, pc.field("n") > 4, pa.schema([n])) == []
    # A range leaves out NaN, for which this is true.
    assert groups(rows, ~(pc.field("x") <= 3), pa.schema([x])) == [0, 1]
    # Stored with another type, or not at all.
    assert groups(rows, pc.field("n") > 4, pa.schema([("n", pa.int64())])) == [0, 1]
    assert groups(rows, pc.field("m") > 4, pa.schema([("m", pa.int32())])) == [0, 1]
