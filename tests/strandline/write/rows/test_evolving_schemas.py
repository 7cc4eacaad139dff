"""Writes that change the schema: stored rows, rows of the write, and the schema of the commit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.records.meta_fields import IS_DELETED, without_meta_fields
from strandline.table_api.table import Table
from tests.strandline.write.refusals import refused
from tests.strandline.write.tables import SCHEMA, client, row, table
from timeline.errors import InputError


def read(base: Path) -> pa.Table:
    """Return the table's rows without meta columns."""
    rows = Table(base).to_arrow()
    return rows.select(without_meta_fields(rows.schema).names)


def test_stored_rows_take_the_new_schema_where_they_are_merged_and_where_they_are_not(tmp_path):
    base = tmp_path / "t"
    with client(base) as c:
        c.insert(table(row("a"), row("b", region="us")))
    wide = pa.schema([*SCHEMA, ("s", pa.struct([("x", pa.int32())]))])
    with client(base) as c:
        c.upsert(table({**row("c"), "s": {"x": 1}}, schema=wide))
    wider = pa.schema([*SCHEMA, ("s", pa.struct([("y", pa.string()), ("x", pa.int64())]))])
    with client(base) as c:
        c.upsert(table({**row("d"), "s": {"y": "new", "x": 2**40}}, schema=wider))
    rows = {each["id"]: each["s"] for each in read(base).to_pylist()}
    assert rows == {
        "a": None,
        "b": None,
        "c": {"x": 1, "y": None},
        "d": {"x": 2**40, "y": "new"},
    }
    assert (
        Table(base).to_arrow(["s", "id"]).schema
        == read(base).schema.empty_table().select(["s", "id"]).schema
    )


def test_an_ordering_column_keeps_its_order(tmp_path):
    base = tmp_path / "t"
    with client(base) as c:
        c.insert(table(row("a")))
    texts = SCHEMA.set(2, pa.field("ts", pa.string()))
    message = "column 'ts' decides which row is newer, and would change from int64 to string"
    refused(base, InputError, message, rows=texts.empty_table())


def test_a_key_of_whole_numbers_may_become_text(tmp_path):
    base = tmp_path / "t"
    numbers = SCHEMA.set(0, pa.field("id", pa.int32()))
    with client(base) as c:
        c.insert(table({**row("a"), "id": 7}, schema=numbers))
    with client(base) as c:
        c.upsert(table(row("7", ts=2)))
    assert read(base).select(["id", "ts"]).to_pylist() == [{"id": "7", "ts": 2}]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"name": None}, r"columns \['name'\] of the table are missing"),
        ({"ts": pa.string(), "name": pa.int64(), "more": pa.int64()}, "ts"),
        ({"name": pa.bool_()}, "column 'name' is boolean; in the table it is string"),
        ({"name": pa.struct([("x", pa.int64())])}, "column 'name' is struct"),
        ({"more": pa.duration("us")}, "column 'more' has the type duration"),
    ],
)
def test_what_hudi_refuses_is_refused_before_anything_is_written(tmp_path, columns, message):
    base = tmp_path / "t"
    with client(base) as c:
        c.insert(table(row("a")))
    kinds = {field.name: field.type for field in SCHEMA} | columns
    schema = pa.schema([(name, kind) for name, kind in kinds.items() if kind is not None])
    if message == "ts":
        schema, message = schema.set(2, pa.field("ts", pa.bool_())), "column 'ts' is boolean"
    refused(base, InputError, message, rows=schema.empty_table())


def test_a_value_that_can_not_be_cast_is_refused_before_anything_is_written(tmp_path):
    base = tmp_path / "t"
    schema = pa.schema([*SCHEMA, ("day", pa.date32())])
    with client(base) as c:
        c.insert(table(row("a"), schema=schema))
    texts = pa.schema([*SCHEMA, ("day", pa.string())])
    rows = table({**row("a", ts=2), "day": "tomorrow"}, schema=texts)
    refused(base, InputError, "column 'day' is .* and doesn't fit date32", rows=rows)


RECONCILE = {"datasource__write__reconcile__schema": "true"}
DROP = {"datasource__write__schema__allow__auto__evolution__column__drop": "true"}


@pytest.mark.parametrize("options", [RECONCILE, DROP], ids=["reconcile", "drop"])
@pytest.mark.parametrize(
    ("stored", "kind"),
    [
        (pa.array([70_000]), pa.decimal128(5, 2)),
        (pa.array([2**31 - 1], pa.int32()), pa.decimal128(11, 2)),
        (pa.array([1.25]), pa.decimal128(38, 10)),
        (pa.array([2**55], pa.timestamp("ms")), pa.timestamp("us")),
        (pa.array([{"x": 70_000}]), pa.struct([("x", pa.decimal128(5, 2))])),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else None,
)
def test_a_type_that_stored_values_may_not_fit_is_refused(tmp_path, options, stored, kind):
    base = tmp_path / "t"
    with client(base) as c:
        c.insert(table(row("a")).append_column("v", stored))
    # Reconciled rows change the table only if they have a column that it lacks.
    rows = table(row("b", region="us")).append_column("v", pa.nulls(1, kind))
    rows = rows.append_column("more", pa.array([1]))
    refused(base, InputError, "column 'v' would change for stored values", rows=rows, **options)
    assert read(base)["v"].combine_chunks() == stored


@pytest.mark.parametrize(
    ("stored", "kind"),
    [(pa.array([-(2**31)], pa.int32()), (12, 2)), (pa.array([-(2**63)]), (20, 1))],
    ids=["int", "long"],
)
def test_whole_numbers_become_decimals_that_hold_all_of_them(tmp_path, stored, kind):
    base = tmp_path / "t"
    with client(base) as c:
        c.insert(table(row("a")).append_column("v", stored))
    with client(base, **DROP) as c:
        c.insert(table(row("b")).append_column("v", pa.nulls(1, pa.decimal128(*kind))))
    assert read(base).sort_by("id")["v"].to_pylist() == [stored[0].as_py(), None]


def test_a_dropped_column_comes_back_with_its_values_or_not_at_all(tmp_path):
    base = tmp_path / "t"
    with client(base) as c:
        c.insert(table(row("a")).append_column("v", pa.array([5], pa.int32())))
    with client(base, **DROP) as c:
        c.insert(table(row("b", region="us")))
    text = table(row("c", region="us")).append_column("v", pa.array([True]))
    message = "column 'v' is new as boolean, but the table once had it as int"
    refused(base, InputError, message, rows=text)
    with client(base) as c:
        c.insert(table(row("c", region="us")).append_column("v", pa.array([2**40])))
    assert read(base).sort_by("id")["v"].to_pylist() == [5, None, 2**40]


def test_the_delete_flag_takes_the_place_that_reconciled_rows_give_it(tmp_path):
    base = tmp_path / "t"
    flag = pa.field(IS_DELETED, pa.bool_())
    with client(base) as c:
        c.insert(table(row("a"), schema=pa.schema([*SCHEMA, flag])))
    wider = pa.schema([flag, *SCHEMA, ("more", pa.int64())])
    with client(base, **RECONCILE) as c:
        c.upsert(table(row("b"), schema=wider))
    assert read(base).schema.names == wider.names


def test_an_int_column_widens_in_two_steps_to_a_timestamp(tmp_path):
    base, moment = tmp_path / "t", pa.timestamp("us")
    for key, kind in (("a", pa.int32()), ("b", pa.int64()), ("c", moment)):
        with client(base) as c:
            rows = table(row(key, region=key))
            c.insert(rows.append_column("v", pa.array([5], pa.int32()).cast(pa.int64()).cast(kind)))
    assert read(base)["v"].combine_chunks() == pa.array([5] * 3, pa.int64()).cast(moment)


def test_missing_columns_are_null_if_asked_for(tmp_path):
    base = tmp_path / "t"
    with client(base) as c:
        c.insert(table(row("a"), row("b")))
    short = SCHEMA.remove(3)
    with client(base, write__set__null__for__missing__columns="true") as c:
        c.upsert(pa.Table.from_pylist([{**row("a", ts=2)}], schema=short))
    assert {each["id"]: each["name"] for each in read(base).to_pylist()} == {"a": None, "b": "b@1"}


KINDS = [pa.int32(), pa.int64(), pa.float64()]
NAMES = ["n0", "n1", "n2"]


@st.composite
def writes(draw):
    """Some writes: keys, and for columns and fields of a struct the types, in some order."""
    made = []
    for _ in range(draw(st.integers(2, 4))):
        keys = draw(st.lists(st.integers(0, 5), unique=True, min_size=1, max_size=4))
        kinds = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(KINDS), min_size=1)
        made.append((keys, draw(kinds), draw(kinds)))
    return made


@pytest.mark.property
@settings(deadline=None, max_examples=15)
@given(writes=writes())
def test_rows_equal_a_plain_model_after_any_changes(tmp_path_factory, writes):
    base = tmp_path_factory.mktemp("walk") / "t"
    model: dict[str, dict] = {}
    for number, (keys, columns, fields) in enumerate(writes):
        struct = pa.struct(list(fields.items()))
        schema = pa.schema([*SCHEMA, *columns.items(), ("s", struct)])
        rows = [
            {
                **row(str(key), region=f"r{key % 2}", ts=number),
                **dict.fromkeys(columns, key * 10 + number),
                "s": dict.fromkeys(fields, key * 100 + number),
            }
            for key in keys
        ]
        with client(base, write__set__null__for__missing__columns="true") as c:
            c.upsert(table(*rows, schema=schema))
        model |= {each["id"]: each for each in rows}
    seen = {name for _, columns, _ in writes for name in columns}
    inside = {name for _, _, fields in writes for name in fields}
    found = {each["id"]: each for each in read(base).to_pylist()}
    for held in model.values():
        held |= {name: held.get(name) for name in seen}
        held["s"] = {name: held["s"].get(name) for name in inside}
    assert found == model
