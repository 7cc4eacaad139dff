"""What a table's merge properties say is obeyed by every kind of write, or refused by name."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from strandline.records.merge_rule import MergeProperties
from tests.kit.tables import reader
from tests.strandline.write.refusals import files
from tests.strandline.write.tables import change_properties, client, row, table
from timeline.errors import UnsupportedTableError
from timeline.table.config import TableConfig

MODE = "hoodie.table.partial.update.mode"
MERGE = "hoodie.record.merge.property.hoodie."
FIELD, MARKER = f"{MERGE}payload.delete.field", f"{MERGE}payload.delete.marker"
UNAVAILABLE = f"{MERGE}write.partial.update.unavailable.value"
MARKED = {FIELD: "name", MARKER: "D"}
INDEXES = ("SIMPLE", "BLOOM", "GLOBAL_SIMPLE", "GLOBAL_BLOOM", "BUCKET")


def prepared(base, properties, **options):
    """Return a client of a table with some rows and these properties, which it got after them."""
    with client(base, **options) as c:
        c.insert(table(row("a", ts=5), row("b", ts=5), row("c", "us", ts=5)))
    change_properties(base, **{name.removeprefix("hoodie."): v for name, v in properties.items()})
    return client(base, **options)


def buckets_of(index):
    return {"bucket__index__num__buckets": 2} if index == "BUCKET" else {}


def names(base):
    return {each["id"]: each["name"] for each in reader.rows(base)}


def without_name(*rows):
    return table(*({**each, "name": None} for each in rows))


@pytest.mark.parametrize("index", INDEXES)
def test_nulls_are_filled_from_stored_rows_and_rows_of_the_batch(tmp_path, index):
    options = {
        "index__type": index,
        "simple__index__update__partition__path": False,
        "bloom__index__update__partition__path": False,
        **buckets_of(index),
    }
    with prepared(tmp_path, {MODE: "IGNORE_DEFAULTS"}, **options) as c:
        batch = without_name(row("a", ts=6), row("b", ts=7), row("d", ts=2), row("e", ts=1))
        result = c.upsert(pa.concat_tables([batch, table(row("b", ts=6), row("d", ts=1))]))
    assert names(tmp_path) == {"a": "a@5", "b": "b@6", "c": "c@5", "d": "d@1", "e": None}
    assert {each["id"]: each["ts"] for each in reader.rows(tmp_path)}["b"] == 7
    assert (result.rows_inserted, result.rows_updated) == (2, 2)


def test_a_late_row_fills_a_stored_one_which_has_changed_then(tmp_path):
    with prepared(tmp_path, {MODE: "IGNORE_DEFAULTS"}) as c:
        c.insert(without_name(row("d", ts=9)))
        last = c.upsert(table(row("d", ts=1), row("a", ts=1)))
    assert names(tmp_path) == {"a": "a@5", "b": "b@5", "c": "c@5", "d": "d@1"}
    assert last.rows_updated == 1


def test_by_commit_time_the_newer_row_is_filled(tmp_path):
    with prepared(
        tmp_path, {MODE: "IGNORE_DEFAULTS"}, record__merge__mode="COMMIT_TIME_ORDERING"
    ) as c:
        c.upsert(without_name(row("a", ts=1)))
    assert [(r["ts"], r["name"]) for r in reader.rows(tmp_path) if r["id"] == "a"] == [(1, "a@5")]


def test_a_delete_is_not_filled_and_what_follows_it_takes_nothing_from_before(tmp_path):
    flagged = table(row("a", ts=6)).append_column("_hoodie_is_deleted", [[True]])
    with prepared(tmp_path, {MODE: "IGNORE_DEFAULTS"}) as c:
        c.upsert(flagged)
        c.upsert(without_name(row("a", ts=7)))
    assert names(tmp_path) == {"a": None, "b": "b@5", "c": "c@5"}


def test_text_that_stands_for_none_is_filled(tmp_path):
    properties = {MODE: "FILL_UNAVAILABLE", UNAVAILABLE: "__none__"}
    with prepared(tmp_path, properties) as c:
        c.upsert(table(row("a", ts=6, name="__none__"), row("d", ts=1, name="__none__")))
        c.upsert(without_name(row("b", ts=6)))
    assert names(tmp_path) == {"a": "a@5", "b": None, "c": "c@5", "d": "__none__"}


@pytest.mark.parametrize("index", INDEXES)
def test_marked_rows_are_deletes(tmp_path, index):
    with prepared(tmp_path, MARKED, index__type=index, **buckets_of(index)) as c:
        late, new = row("b", ts=4, name="D"), row("d", ts=1, name="D")
        result = c.upsert(table(row("a", ts=6, name="D"), late, new, row("e", ts=1, name="d")))
        c.insert(table(row("f", ts=1, name="D"), row("g", ts=1)))
    assert names(tmp_path) == {"b": "b@5", "c": "c@5", "e": "d", "g": "g@1"}
    assert (result.rows_inserted, result.rows_deleted) == (1, 1)


def test_a_marked_row_needs_no_ordering_value(tmp_path):
    with prepared(tmp_path, MARKED) as c:
        c.upsert(table(row("a", ts=None, name="D")))
    assert names(tmp_path) == {"b": "b@5", "c": "c@5"}


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.int32(), 1, "1"),
        (pa.int64(), -1, "-1"),
        (pa.bool_(), True, "true"),
        (pa.float64(), 1.0, "1.0"),
        (pa.date32(), 18262, "18262"),
        (pa.timestamp("us", tz="UTC"), 5, "5"),
        (pa.struct([("op", pa.string())]), {"op": "D"}, "D"),
    ],
)
def test_a_marker_is_the_text_that_java_gives_a_value(kind, value, text):
    field = "Op.op" if pa.types.is_struct(kind) else "Op"
    config = TableConfig({"hoodie.table.name": "t", FIELD: field, MARKER: f" {text} "})
    values = pa.array([value, None], kind)
    found = MergeProperties.of(config, None).deletes(pa.table({"Op": values}))
    assert found.tolist() == [True, False]


def test_defaults_are_compared_as_javas_objects():
    """Of booleans and of integers of a byte Java keeps one object each."""
    kinds = {"small": "int", "large": "long", "flag": "boolean", "text": "string", "real": "double"}
    defaults = {"small": 7, "large": 1000, "flag": False, "text": "x", "real": 1.5}
    fields = [{"name": n, "type": kinds[n], "default": defaults[n]} for n in kinds]
    fields.append({"name": "none", "type": ["null", "string"], "default": None})
    fields.append({"name": "first", "type": ["int", "null"], "default": -128})
    schema = json.dumps({"type": "record", "name": "r", "fields": fields})
    config = TableConfig(
        {"hoodie.table.name": "t", "hoodie.table.version": "9", MODE: "IGNORE_DEFAULTS"}
    )
    properties = MergeProperties.of(config, schema)
    rows = pa.Table.from_pylist([{**defaults, "none": None, "first": -128}, dict.fromkeys(kinds)])
    rows = rows.set_column(5, "none", pa.array([None, "x"]))
    lacking = {name: properties.lacking(name, rows[name]).tolist() for name in rows.column_names}
    assert lacking == {
        "small": [True, False],
        "large": [False, False],
        "flag": [True, False],
        "text": [False, False],
        "real": [False, False],
        "none": [True, False],
        "first": [True, False],
    }


BAD = {
    "mode": ({MODE: "KEEP_VALUES"}, f"{MODE}=KEEP_VALUES; allowed: IGNORE_DEFAULTS, FILL"),
    "case": ({MODE: "ignore_defaults"}, f"{MODE}=ignore_defaults; allowed: IGNORE_DEFAULTS"),
    "property": ({f"{MERGE}x": "1"}, rf"{MERGE}x=1; allowed: {FIELD}, "),
    "field alone": ({FIELD: "name"}, "hoodie.payload.delete.field=name alone; allowed: "),
    "marker alone": ({"hoodie.payload.delete.marker": "D"}, "delete.marker=D alone; allowed: "),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_not_known_is_refused_before_anything_is_written(tmp_path, case):
    properties, message = BAD[case]
    with prepared(tmp_path, properties) as c:
        before = files(tmp_path)
        with pytest.raises(UnsupportedTableError, match=message):
            c.upsert(table(row("a")))
    assert files(tmp_path) == before


@pytest.mark.parametrize("version", [6, 8])
def test_the_mode_is_refused_in_versions_in_which_hudi_ignores_it(tmp_path, version):
    writer = prepared(tmp_path, {MODE: "IGNORE_DEFAULTS"}, write__table__version=version)
    message = f"in version {version}; allowed: version 9"
    with writer as c, pytest.raises(UnsupportedTableError, match=message):
        c.upsert(table(row("a")))


@pytest.mark.parametrize("index", ["GLOBAL_SIMPLE", "GLOBAL_BLOOM"])
def test_rows_that_may_lack_values_are_not_moved(tmp_path, index):
    writer = prepared(tmp_path, {MODE: "IGNORE_DEFAULTS"}, index__type=index)
    message = r"update\.partition\.path=true moves rows without the stored values"
    with writer as c, pytest.raises(UnsupportedTableError, match=message):
        c.upsert(table(row("a", "us")))


def test_a_marker_of_a_type_without_one_text_is_refused(tmp_path):
    rows = table(row("a")).append_column("Op", [[b"D"]])
    with client(tmp_path) as c:
        c.insert(rows)
    changes = {**MARKED, FIELD: "Op"}
    change_properties(tmp_path, **{n.removeprefix("hoodie."): v for n, v in changes.items()})
    message = r"'Op'.*has the type binary; allowed: strings"
    with client(tmp_path) as c, pytest.raises(UnsupportedTableError, match=message):
        c.upsert(rows)
