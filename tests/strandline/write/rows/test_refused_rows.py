"""Rows that a write refuses: by name, and before anything is written."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.kit.tables import reader
from tests.strandline.write.refusals import files, refused
from tests.strandline.write.tables import SCHEMA, client, row, table
from timeline.errors import InputError

NO_UTF8 = pa.StringArray.from_buffers(
    3, pa.array([0, 1, 3, 4], pa.int32()).buffers()[1], pa.py_buffer(b"a\xff\xfeb")
)
BAD_ROWS = {
    "null key": (table(row("a"), row(None)), "'id' is null or empty in 1 of 2 rows"),
    "empty key": (table(row(""), row(""), row("a")), "'id' is null or empty in 2 of 3 rows"),
    "null ordering": (table(row("a", ts=None)), "ordering column 'ts' is null in 1 of 1 rows"),
    "both": (
        table(row(None), row("a", ts=None), row("ok")),
        "'id' is null or empty in 1; ordering column 'ts' is null in 1 of 3 rows",
    ),
    "partition that leaves the table": (table(row("a", "../x")), "'region' has the value '../x'"),
    "long partition": (
        table(row("a"), row("b", "é" * 128)),
        "ééé.* is too long for .*: a name of 256 bytes; allowed: 255",
    ),
    "long partition path": (
        table(row("a", "/".join(["x" * 200] * 20))),
        r"xxx.* is too long for .*: 4\d{3} bytes in all; allowed: 4095",
    ),
    "text that isn't UTF-8": (
        table(row("a"), row("b"), row("c")).set_column(3, "name", NO_UTF8),
        "column 'name' has text that isn't UTF-8 in 1 of 3 rows",
    ),
    "empty key of wide bytes": (
        table(row("a"), row("b")).set_column(0, "id", pa.array([b"", b"b"], pa.large_binary())),
        "'id' is null or empty in 1 of 2 rows",
    ),
    "meta column in another case": (
        table(row("a")).append_column("_HOODIE_Record_Key", pa.array(["b"])),
        "column '_HOODIE_Record_Key' can't be written: Spark.*'_hoodie_record_key'",
    ),
    "missing key column": (table(row("a")).drop_columns(["id"]), "'id'"),
    "missing ordering column": (table(row("a")).drop_columns(["ts"]), "'ts'"),
    "missing partition column": (table(row("a")).drop_columns(["region"]), "'region'"),
    "key column that comes twice": (
        table(row("a")).append_column("id", pa.array(["b"])),
        "duplicate columns.*'id'",
    ),
    "ordering column of another type": (
        table(row("a")).set_column(2, "ts", pa.array(["late"])),
        "column 'ts' decides which row is newer",
    ),
}


def test_bad_rows_are_refused_with_the_reason(subtests, base):
    for case in BAD_ROWS:
        with subtests.test(case=case):
            rows, match = BAD_ROWS[case]
            refused(base, InputError, match, rows)


def test_a_table_without_partitions_has_no_long_one(tmp_path):
    with client(tmp_path / "t", datasource__write__partitionpath__field=None) as c:
        assert c.insert(table(row("a"))).rows_inserted == 1


@pytest.mark.parametrize("operation", ["insert", "bulk_insert", "delete"])
def test_bad_keys_of_other_operations(base, operation):
    for case in ("null key", "partition that leaves the table"):
        rows, match = BAD_ROWS[case]
        refused(base, InputError, match, rows, operation)


def test_deletes_name_the_partition(base):
    refused(base, InputError, "'region'", table(row("a")).drop_columns(["region"]), "delete")


@pytest.mark.parametrize("operation", ["upsert", "delete"])
@pytest.mark.parametrize("name", ["id", "region"])
def test_keys_and_partitions_that_are_no_text(base, name, operation):
    rows = table(row("a"), row("b"), row("c"))
    rows = rows.set_column(rows.schema.names.index(name), name, NO_UTF8)
    match = f"column '{name}' has text that isn't UTF-8 in 1 of 3 rows"
    refused(base, InputError, match, rows, operation)


def test_a_delete_ignores_other_columns(base):
    rows = table(row("a"), row("b"), row("c")).set_column(3, "name", NO_UTF8)
    with client(base) as c:
        assert c.delete(rows).instant


def test_bad_rows_make_no_table(subtests, tmp_path):
    for case in [case for case in BAD_ROWS if case != "ordering column of another type"]:
        with subtests.test(case=case):
            rows, match = BAD_ROWS[case]
            with client(tmp_path / "new") as c, pytest.raises(InputError, match=match):
                c.upsert(rows)
            assert not (tmp_path / "new").exists()


def test_rows_of_several_key_columns_that_are_all_null(tmp_path):
    options = {"datasource__write__recordkey__field": "id,name"}
    rows = table({**row("x"), "id": None, "name": None}, row("ok"))
    match = "all null or empty in 1"
    with client(tmp_path, **options) as c, pytest.raises(InputError, match=match):
        c.upsert(rows)


@pytest.mark.parametrize("extra", [{"feed": 5}, {"feed": None}, {5: "feed"}])
def test_extra_metadata_that_is_no_text(base, extra):
    before = files(base)
    with client(base) as c, pytest.raises(InputError, match=r"extra_metadata holds .*(5|None)"):
        c.upsert(table(row("a", ts=2)), extra_metadata=extra)
    assert files(base) == before


def test_rows_of_a_kind_that_the_engine_does_not_know(base):
    refused(base, InputError, "builtins.list", [row("a")])


def test_a_row_flagged_as_deleted_needs_no_ordering_value(base):
    schema = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    gone = {**row("a", ts=None), "_hoodie_is_deleted": True}
    with client(base) as c:
        assert c.upsert(table(gone, schema=schema)).rows_deleted == 1


TAGS = SCHEMA.append(pa.field("tags", pa.list_(pa.field("element", pa.string(), nullable=False))))


def test_a_first_frame_without_nulls_in_an_array_forbids_none(tmp_path):
    """Spark infers array<string not null> from such a frame."""
    nullable = TAGS.set(4, pa.field("tags", pa.list_(pa.field("element", pa.string()))))
    with client(tmp_path) as c:
        c.upsert(table({**row("a"), "tags": ["x"]}, schema=TAGS))
        c.upsert(table({**row("b"), "tags": ["x", None]}, schema=nullable))
        c.upsert(table({**row("c"), "tags": ["y"]}, schema=TAGS))
    assert [each["tags"] for each in reader.rows(tmp_path)] == [["x"], ["x", None], ["y"]]


def test_a_null_in_an_array_of_a_table_that_allows_none(tmp_path):
    base = tmp_path / "t"
    with client(base, write__table__version=6) as c:
        c.upsert(table({**row("a"), "tags": ["x"]}, schema=TAGS))
    (commit,) = base.rglob("*.commit")
    text = commit.read_text()
    # As Hudi writes the schema of such a frame.
    changed = text.replace(r"\"items\":[\"null\",\"string\"]", r"\"items\":\"string\"")
    assert changed != text
    commit.write_text(changed)
    rows = table({**row("a", ts=2), "tags": ["x", None]}, schema=TAGS)
    refused(base, InputError, r"'tags\.element' has 1 nulls", rows)


def test_the_next_good_write_goes_on(base):
    refused(base, InputError, "null", table(row(None)))
    with client(base) as c:
        c.upsert(table(row("a", ts=5)))
    assert [each["name"] for each in reader.rows(base)] == ["a@5", "b@1"]
