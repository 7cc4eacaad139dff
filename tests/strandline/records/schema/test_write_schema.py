"""The columns of a write, before anything is written."""

from __future__ import annotations

import json
import re
from itertools import product

import pyarrow as pa
import pytest

from strandline.records.schema.avro_schema import arrow_to_avro, avro_to_arrow
from strandline.records.schema.schema_evolution import EvolutionRules, columns_after
from timeline.errors import InputError

TABLE = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("n", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
AVRO = arrow_to_avro(TABLE, "t")
DEFAULTS = EvolutionRules()


def after(incoming: pa.Schema, rules: EvolutionRules = DEFAULTS) -> pa.Schema:
    return columns_after(incoming, AVRO, "t", rules)[1]


def test_columns_come_in_any_order_and_narrower():
    incoming = pa.schema(
        [
            ("_hoodie_commit_time", pa.string()),
            ("at", pa.timestamp("us", tz="Asia/Tokyo")),
            ("n", pa.int16()),
            pa.field("id", pa.large_string(), nullable=False),
        ]
    )
    assert columns_after(incoming, AVRO, "t", DEFAULTS) == (AVRO, TABLE)


def test_what_does_not_fit_is_refused_by_name(subtests):
    for changes, message in [
        ({"n": None}, "columns ['n'] of the table are missing"),
        ({"n": None, "N": pa.int64()}, "column 'N' differs from 'n' in case only"),
        ({"N": pa.int64()}, "column 'N' differs from 'n' in case only"),
        ({"x": pa.int64(), "X": pa.int64()}, "column 'x' differs from 'X' in case only"),
        ({"_Hoodie_Record_Key": pa.string()}, "differs from '_hoodie_record_key' in case only"),
        ({"s": pa.struct([("x", pa.int8()), ("X", pa.int8())])}, "'s.x' differs from 's.X'"),
        (
            {"s": pa.list_(pa.map_(pa.string(), pa.struct([("x", pa.int8()), ("X", pa.int8())])))},
            "'s.element.value.x' differs from 's.element.value.X'",
        ),
        ({"n": pa.bool_()}, "column 'n' is boolean; in the table it is long"),
        ({"at": pa.timestamp("us")}, "column 'at' is local-timestamp-micros"),
        ({"_hoodie_is_deleted": pa.int8()}, "is int8; allowed: bool"),
        ({"dep delay": pa.int8()}, "its name isn't an Avro name"),
        ({"größe-x": pa.int8()}, "column 'größe-x' can't be written"),
        ({"1größe": pa.int8()}, "column '1größe' can't be written"),
        ({"x²": pa.int8()}, "column 'x²' can't be written"),
        ({"𠮷": pa.int8()}, "column '𠮷' can't be written"),
        ({"s": pa.struct([("a b", pa.int8())])}, "column 's.a b' can't be written"),
    ]:
        with subtests.test(changes=changes):
            columns = {field.name: field.type for field in TABLE} | changes
            incoming = pa.schema(
                [(name, kind) for name, kind in columns.items() if kind is not None]
            )
            with pytest.raises(InputError, match=re.escape(message)):
                after(incoming)


def test_a_column_that_comes_twice_is_refused():
    with pytest.raises(InputError, match=r"duplicate columns \['n'\]"):
        after(pa.schema([*TABLE, TABLE.field("n")]))


def test_the_delete_flag_is_optional_on_both_sides():
    flag = pa.field("_hoodie_is_deleted", pa.bool_())
    with_flag = pa.schema([*TABLE, flag])
    assert columns_after(with_flag, AVRO, "t", DEFAULTS) == (AVRO, with_flag)
    held = arrow_to_avro(with_flag, "t")
    assert columns_after(TABLE, held, "t", DEFAULTS) == (held, with_flag)
    assert columns_after(with_flag, held, "t", DEFAULTS) == (held, with_flag)


def test_the_first_write_gives_the_schema():
    first, columns = columns_after(TABLE, None, "t", DEFAULTS)
    assert (first, columns) == (AVRO, TABLE)


def test_the_record_keeps_the_name_that_another_writer_gave_it():
    record = {**json.loads(AVRO), "name": "Row", "namespace": "com.example"}
    wide = pa.schema([*TABLE, ("s", pa.struct([("x", pa.decimal128(9, 2))]))])
    evolved, columns = columns_after(wide, json.dumps(record), "t", DEFAULTS)
    assert '"name":"Row","namespace":"com.example"' in evolved
    assert '"namespace":"com.example.Row.s.x"' in evolved
    assert columns == avro_to_arrow(evolved) == wide


def test_a_schema_that_stays_as_it_is_keeps_its_text():
    record = json.loads(AVRO)
    record["fields"][1] = {"type": ["long", "null"], "name": "n", "doc": "number"}
    text = json.dumps(record, indent=1)
    assert columns_after(TABLE, text, "t", DEFAULTS) == (text, TABLE)


def test_hudi_refuses_a_required_column_that_becomes_nullable_only_where_values_are_null():
    nullable = pa.schema([(field.name, field.type) for field in TABLE])
    assert after(nullable) == nullable


def test_rows_without_a_required_column_or_with_nulls_in_it_are_refused_by_name(subtests):
    rules = EvolutionRules(reconcile=True, validate=True)
    nullable = pa.schema([(field.name, field.type) for field in TABLE])
    for incoming, message in [
        (pa.schema([*TABLE][1:]), "column 'id' is required, but missing from the rows"),
        (nullable, "column 'id' is required, but nullable in the rows"),
    ]:
        with subtests.test(message), pytest.raises(InputError, match=re.escape(message)):
            after(incoming, rules)


def test_a_wider_type_of_the_rows_is_named_as_theirs_if_the_table_keeps_its_schema():
    narrow = arrow_to_avro(pa.schema([("id", pa.string()), ("n", pa.int32())]), "t")
    wide = pa.schema([("id", pa.string()), ("n", pa.int64())])
    rules = EvolutionRules(reconcile=True, validate=True)
    with pytest.raises(InputError, match="'n' is long; in the table it is int"):
        columns_after(wide, narrow, "t", rules)


def test_a_new_table_has_no_columns_that_differ_in_case_only():
    twins = pa.schema([*TABLE, ("N", pa.int64())])
    with pytest.raises(InputError, match="column 'n' differs from 'N' in case only"):
        columns_after(twins, None, "t", DEFAULTS)


def test_columns_that_a_table_has_already_may_differ_in_case_only():
    twins = pa.schema([*TABLE, ("N", pa.int64()), ("s", pa.struct([("x", WHOLE), ("X", WHOLE)]))])
    held = arrow_to_avro(twins, "t")
    assert columns_after(twins, held, "t", DEFAULTS) == (held, twins)


WHOLE = pa.int64()
TEXT = pa.string()


DROPPED_AND_ADDED = [
    (TEXT, WHOLE, True),
    (WHOLE, TEXT, False),
    (WHOLE, pa.int32(), True),
    (pa.int32(), WHOLE, False),
    (TEXT, pa.date32(), True),
    (pa.binary(), TEXT, True),
    (TEXT, pa.decimal128(9, 2), True),
    (pa.timestamp("us"), TEXT, True),
    (pa.timestamp("us"), pa.timestamp("ms"), True),
    (pa.struct([("x", WHOLE)]), WHOLE, True),
    (pa.struct([("x", WHOLE)]), pa.struct([("y", WHOLE)]), False),
    (pa.struct([("x", TEXT)]), pa.struct([("x", WHOLE), ("y", WHOLE)]), True),
    (pa.list_(WHOLE), pa.list_(TEXT), False),
    (pa.list_(TEXT), pa.list_(WHOLE), True),
]


PLACES = {
    "top": lambda *fields: list(fields),
    "struct": lambda *fields: [("s", pa.struct([("other", WHOLE), *fields]))],
    "map": lambda *fields: [("s", pa.map_(TEXT, pa.struct([("other", WHOLE), *fields])))],
}


def test_a_column_that_comes_back_holds_the_values_it_had(subtests):
    for (dropped, added, is_refused), (where, place) in product(DROPPED_AND_ADDED, PLACES.items()):
        with subtests.test(dropped=dropped, added=added, where=where):
            earlier = arrow_to_avro(pa.schema([*TABLE, *place(("v", dropped))]), "t")
            table = arrow_to_avro(pa.schema([*TABLE, *place()]), "t")
            incoming = pa.schema([*TABLE, *place(("v", added))])
            schemas = [table, earlier, table]
            if is_refused:
                with pytest.raises(
                    InputError, match=r"v' is new as .*, but the table once had it as"
                ):
                    columns_after(incoming, table, "t", DEFAULTS, schemas)
            else:
                assert columns_after(incoming, table, "t", DEFAULTS, schemas)[1] == incoming


def test_earlier_schemas_are_not_read_unless_a_column_is_new():
    def unread():
        raise AssertionError
        yield ""

    wider = pa.schema([TABLE.field("id"), ("n", pa.float64()), TABLE.field("at")])
    assert columns_after(wider, AVRO, "t", DEFAULTS, unread())[1] == wider


def test_an_earlier_schema_with_a_column_that_can_not_be_read_is_left_out():
    record = json.loads(AVRO)
    record["fields"][1]["type"] = ["int", "string"]
    incoming = pa.schema([*TABLE, ("v", WHOLE)])
    assert columns_after(incoming, AVRO, "t", DEFAULTS, [json.dumps(record)])[1] == incoming
