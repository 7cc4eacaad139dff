"""Schemas: Spark's, Hudi's, and those that a write may have."""

import itertools
import json
import re

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.records.meta_fields import META_FIELDS, with_meta_fields, without_meta_fields
from strandline.records.schema.avro_schema import (
    arrow_to_avro,
    avro_to_arrow,
    avro_with_meta_fields,
)
from strandline.records.schema.columns import (
    column_of,
    conform,
    has_null_elements,
    is_utf8,
    nullable_inside,
    without_utf8,
)
from tests.kit.short_runs import examples
from timeline.errors import InputError, UnsupportedTableError

TABLE = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("n", pa.int64()),
        pa.field("x", pa.float64()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
    ]
)

PLAIN_TYPES = [
    pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(),
    pa.date32(), pa.timestamp("us"), pa.timestamp("us", tz="UTC"),
]  # fmt: skip

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)


def field_lists(types):
    return st.lists(
        st.builds(pa.field, NAMES, types, st.booleans()),
        min_size=1,
        max_size=4,
        unique_by=lambda field: field.name,
    )


DECIMALS = st.integers(1, 38).flatmap(
    lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s))
)
TYPES = st.recursive(
    st.sampled_from(PLAIN_TYPES) | DECIMALS,
    lambda inner: st.one_of(
        st.builds(lambda t, n: pa.list_(pa.field("element", t, n)), inner, st.booleans()),
        st.builds(lambda t, n: pa.map_(pa.string(), pa.field("value", t, n)), inner, st.booleans()),
        field_lists(inner).map(pa.struct),
    ),
    max_leaves=6,
)


@settings(max_examples=examples(150))
@given(field_lists(TYPES))
def test_what_is_written_is_read_back_and_is_avro(fields):
    schema = pa.schema(fields)
    avro = arrow_to_avro(schema, "t")
    assert avro_to_arrow(avro) == schema
    fastavro.parse_schema(json.loads(avro))


def test_types_are_spelled_as_spark_spells_them():
    """The names inside come from Spark 3.5's SchemaConverters under Hudi's record name."""
    schema = pa.schema(
        [
            pa.field("tiny", pa.int8(), nullable=False),
            pa.field("price", pa.decimal128(10, 2)),
            pa.field("tags", pa.large_list(pa.field("e", pa.large_string(), nullable=False))),
            pa.field("at", pa.timestamp("us", tz="Europe/Rome")),
            pa.field("local", pa.timestamp("us")),
            pa.field("s", pa.struct([pa.field("m", pa.map_(pa.string(), pa.decimal128(20, 0)))])),
        ]
    )
    avro = json.loads(arrow_to_avro(schema, "my-table"))
    assert (avro["name"], avro["namespace"]) == ("my__table_record", "hoodie.my__table")
    by_name = {field["name"]: field for field in avro["fields"]}
    assert by_name["tiny"] == {"name": "tiny", "type": "int"}
    assert by_name["price"] == {
        "name": "price",
        "type": [
            "null",
            {
                "type": "fixed",
                "name": "fixed",
                "namespace": "hoodie.my__table.my__table_record.price",
                "size": 5,
                "logicalType": "decimal",
                "precision": 10,
                "scale": 2,
            },
        ],
        "default": None,
    }
    assert by_name["tags"]["type"][1] == {"type": "array", "items": "string"}
    assert by_name["at"]["type"][1] == {"type": "long", "logicalType": "timestamp-micros"}
    assert by_name["local"]["type"][1] == {"type": "long", "logicalType": "local-timestamp-micros"}
    record = by_name["s"]["type"][1]
    assert (record["name"], record["namespace"]) == ("s", "hoodie.my__table.my__table_record")
    (inner,) = record["fields"]
    assert inner["type"][1]["values"][1]["namespace"] == "hoodie.my__table.my__table_record.s.m"


def test_a_decimal_takes_the_fewest_bytes(subtests):
    for precision, size in [(1, 1), (2, 1), (3, 2), (9, 4), (18, 8), (38, 16)]:
        with subtests.test(precision=precision):
            avro = json.loads(arrow_to_avro(pa.schema([("d", pa.decimal128(precision, 0))]), "t"))
            assert avro["fields"][0]["type"][1]["size"] == size


OTHER_TYPES = [
    pa.uint8(),
    pa.time64("us"),
    pa.duration("us"),
    pa.timestamp("ns"),
    pa.null(),
    pa.float16(),
    pa.dictionary(pa.int32(), pa.string()),
    pa.decimal256(40, 2),
    pa.date64(),
    pa.map_(pa.int32(), pa.string()),
    pa.struct([]),
    pa.list_(pa.uint16()),
]


def test_other_types_are_refused_by_column_and_type(subtests):
    for kind in OTHER_TYPES:
        with (
            subtests.test(kind=kind),
            pytest.raises(InputError, match=r"column 'c(\.element)?' has the type"),
        ):
            arrow_to_avro(pa.schema([("c", kind)]), "t")


def test_a_name_that_is_no_avro_name_is_refused():
    with pytest.raises(InputError, match="'dep delay'"):
        arrow_to_avro(pa.schema([("dep delay", pa.int64())]), "t")


def record(*fields, **more):
    return json.dumps({"type": "record", "name": "r", "namespace": "n", "fields": fields, **more})


def test_other_writers_avro_is_read():
    avro = record(
        {"name": "late_null", "type": ["long", "null"]},
        {"name": "bytes", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4}},
        {"name": "ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "wrapped", "type": {"type": {"type": "string", "avro.java.string": "String"}}},
        {"name": "p", "type": {"type": "record", "name": "P", "fields": []}},
        {"name": "again", "type": ["null", "P"]},
        {"name": "full", "type": "n.P"},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
    )
    point = pa.struct([])
    assert avro_to_arrow(avro) == pa.schema(
        [
            pa.field("late_null", pa.int64()),
            pa.field("bytes", pa.decimal128(4, 0), nullable=False),
            pa.field("ms", pa.timestamp("ms", tz="UTC"), nullable=False),
            pa.field("wrapped", pa.string(), nullable=False),
            pa.field("p", point, nullable=False),
            pa.field("again", point),
            pa.field("full", point, nullable=False),
            pa.field("uuid", pa.string(), nullable=False),
        ]
    )


def test_what_could_not_be_written_back_is_unsupported(subtests):
    for avro in [
        {"type": "enum", "name": "E", "symbols": ["A"]},
        {"type": "fixed", "name": "F", "size": 4},
        ["null", "int", "string"],
        {"type": "int", "logicalType": "time-millis"},
        {"type": "bytes", "logicalType": "decimal", "precision": 40},
        "nowhere.Named",
        "r",
    ]:
        with subtests.test(avro=avro), pytest.raises(UnsupportedTableError, match=r"at 'r\.odd'"):
            avro_to_arrow(record({"name": "odd", "type": avro}))


def test_meta_columns_come_first_and_once():
    full = with_meta_fields(with_meta_fields(TABLE))
    assert full.names == [*META_FIELDS, *TABLE.names]
    assert without_meta_fields(full) == TABLE
    avro = arrow_to_avro(full, "t")
    assert avro == arrow_to_avro(TABLE, "t")
    with_meta = avro_with_meta_fields(avro)
    assert [f["name"] for f in json.loads(with_meta)["fields"]] == full.names
    assert avro_with_meta_fields(with_meta) == with_meta


def test_columns_come_in_any_order_and_narrower():
    incoming = pa.schema(
        [
            ("_hoodie_commit_time", pa.string()),
            ("at", pa.timestamp("us", tz="Asia/Tokyo")),
            ("x", pa.float32()),
            ("n", pa.int16()),
            ("id", pa.large_string()),
        ]
    )
    rows = pa.table([["t"], [1], [0.5], [7], ["k"]], schema=incoming)
    want = pa.table([["k"], [7], [0.5], [1]], schema=TABLE)
    assert conform(rows, TABLE) == want
    assert conform(rows.to_batches()[0], TABLE) == want.to_batches()[0]
    assert conform(want, TABLE) is want


def test_nulls_where_the_table_has_none_are_refused():
    rows = pa.table({"id": pa.array(["k", None]), "n": [1, 2], "x": [0.0, 0.0], "at": [None, None]})
    with pytest.raises(InputError, match="column 'id' has 1 nulls"):
        conform(rows, TABLE)
    with pytest.raises(InputError, match="column 'id' is missing"):
        conform(rows.drop_columns(["id"]), TABLE)


def test_a_value_that_its_column_cannot_hold_is_refused():
    rows = pa.table({"n": [2**40]})
    with pytest.raises(InputError, match="column 'n' is int64 and doesn't fit int32"):
        conform(rows, pa.schema([("n", pa.int32())]))


@pytest.mark.parametrize("make", [pa.table, pa.record_batch])
def test_a_dotted_name_reaches_into_structs(make):
    rows = make({"s": pa.array([{"a": {"b": 1}}, None]), "s.x": pa.array([5, 6])})
    assert column_of(rows, "s.a.b").to_pylist() == [1, None]
    assert column_of(rows, "s.x").to_pylist() == [5, 6]
    for missing in ("s.c", "t.a", "s.a.b.c", "t"):
        with pytest.raises(InputError, match=f"no column '{missing}'"):
            column_of(rows, missing)


def required(kind, name="element"):
    return pa.field(name, kind, nullable=False)


INSIDE = {
    "list": (pa.list_(required(pa.string())), [["a"], None, ["b", None]], "x.element"),
    "large list": (pa.large_list(required(pa.string())), [[None], None], "x.element"),
    "map": (pa.map_(pa.string(), required(pa.int32(), "value")), [[("k", None)], None], "x.value"),
    "struct": (pa.struct([required(pa.int32(), "a")]), [{"a": 1}, None, {"a": None}], "x.a"),
    "struct in a list": (
        pa.list_(pa.field("element", pa.struct([required(pa.int32(), "a")]))),
        [[{"a": 1}, None], [{"a": None}]],
        "x.element.a",
    ),
    "list in a struct": (
        pa.struct([pa.field("a", pa.list_(required(pa.int32())))]),
        [{"a": None}, {"a": [1, None]}],
        "x.a.element",
    ),
}


def test_a_null_inside_a_column_that_allows_none_is_refused_by_name(subtests):
    for case, declared in itertools.product(INSIDE, [True, False]):
        with subtests.test(case=case, declared=declared):
            kind, values, column = INSIDE[case]
            schema = pa.schema([("x", kind)])
            given_type = kind if declared else nullable_inside(schema).field("x").type
            rows = pa.table({"x": pa.array([None, *values], given_type)})
            with pytest.raises(InputError, match=f"column '{re.escape(column)}' has 1 nulls"):
                conform(rows, schema)
            # The other rows' memory isn't looked at.
            assert conform(rows.slice(0, 1), schema).schema == schema


def test_a_new_table_is_nullable_inside(subtests):
    for case in INSIDE:
        with subtests.test(case=case):
            kind, values, _ = INSIDE[case]
            schema = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("x", kind)])
            table_schema = avro_to_arrow(arrow_to_avro(nullable_inside(schema), "t"))
            assert table_schema.field("id").nullable is False
            ids = pa.array(list("abc")[: len(values)])
            rows = pa.table([ids, pa.array(values, kind)], schema=schema)
            held = conform(rows, table_schema)
            held.validate(full=True)
            assert held["x"].to_pylist() == values


def text_of(*values):
    """Return a column of text with these bytes, UTF-8 or not."""
    offsets = pa.array([0, *itertools.accumulate(map(len, values))], pa.int32())
    data = pa.py_buffer(b"".join(values))
    return pa.StringArray.from_buffers(len(values), offsets.buffers()[1], data)


NO_UTF8 = text_of(b"a", b"\xff\xfe", "é".encode())


@pytest.mark.parametrize(
    "column",
    [
        NO_UTF8,
        pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), NO_UTF8),
        pa.StructArray.from_arrays([NO_UTF8], ["inner"]),
        pa.MapArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), NO_UTF8, pa.array([1, 2, 3])),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), NO_UTF8),
    ],
    ids=lambda column: str(column.type),
)
def test_text_that_is_not_utf8_is_found_wherever_it_is(column):
    assert not is_utf8(column)
    assert without_utf8(column).to_pylist() == [False, True, False]


def test_binary_columns_hold_any_bytes():
    assert is_utf8(pa.array([b"\xff", None]))


LISTS = pa.list_(pa.string())
MAPS = pa.map_(pa.string(), LISTS)


@pytest.mark.parametrize(
    ("column", "has"),
    [
        (pa.array([["a", None]], LISTS), True),
        (pa.array([["a"], None, []], LISTS), False),
        (pa.array([["a", None], ["b"]], LISTS).slice(1), False),
        (pa.array([[["a"], ["b", None]]], pa.list_(LISTS)), True),
        (pa.array([{"x": ["a", None]}], pa.struct([("x", LISTS)])), True),
        (pa.array([None, {"x": None}], pa.struct([("x", LISTS)])), False),
        (pa.array([[("k", ["a", None])]], MAPS), True),
        (pa.array([[("k", None)]], MAPS), False),
        (pa.array([[("k", ["a", None])], [("k", ["a"])]], MAPS).slice(1), False),
        (pa.array([], MAPS), False),
        (pa.array([None]), False),
    ],
)
def test_null_elements_of_lists_are_found_at_any_depth(column, has):
    assert has_null_elements(column) is has
