"""What a write refuses: by name, and before anything is written."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.settings.setting import REFUSAL_CHARACTERS
from strandline.write.client import WriteClient
from strandline.write.engine import LocalEngine
from tests.kit import reader
from tests.strandline.write.tables import OPTIONS, SCHEMA, client, row, table
from timeline.errors import (
    ConfigError,
    CorruptMetadataError,
    InputError,
    UnsupportedTableError,
)


@pytest.fixture
def base(tmp_path):
    with client(tmp_path / "t") as c:
        c.upsert(table(row("a"), row("b", "us")))
    return tmp_path / "t"


def files(base) -> dict[str, bytes]:
    base = Path(base)
    return {str(p.relative_to(base)): p.read_bytes() for p in base.rglob("*") if p.is_file()}


def refused(base, error, match, rows=None, operation="upsert", **options):
    """Assert that a write raises and leaves every byte of the table as it was."""
    before = files(base)
    rows = table(row("a", ts=2)) if rows is None else rows
    with client(base, **options) as c, pytest.raises(error, match=match):
        getattr(c, operation)(rows)
    assert files(base) == before


# Rows.

BAD_ROWS = {
    "null key": (table(row("a"), row(None)), "'id' is null or empty in 1 of 2 rows"),
    "empty key": (table(row(""), row(""), row("a")), "'id' is null or empty in 2 of 3 rows"),
    "null ordering": (table(row("a", ts=None)), "ordering column 'ts' is null in 1 of 1 rows"),
    "both": (
        table(row(None), row("a", ts=None), row("ok")),
        "'id' is null or empty in 1; ordering column 'ts' is null in 1 of 3 rows",
    ),
    "partition that leaves the table": (table(row("a", "../x")), "'region' has the value '../x'"),
    "missing key column": (table(row("a")).drop_columns(["id"]), "'id'"),
    "missing ordering column": (table(row("a")).drop_columns(["ts"]), "'ts'"),
    "missing partition column": (table(row("a")).drop_columns(["region"]), "'region'"),
    "key column that comes twice": (
        table(row("a")).append_column("id", pa.array(["b"])),
        "duplicate columns.*'id'",
    ),
    "ordering column of another type": (
        table(row("a")).set_column(2, "ts", pa.array(["late"])),
        "'ts' is string",
    ),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_rows(base, case):
    rows, match = BAD_ROWS[case]
    refused(base, InputError, match, rows)


@pytest.mark.parametrize("operation", ["insert", "bulk_insert", "delete"])
def test_bad_keys_of_other_operations(base, operation):
    for case in ("null key", "partition that leaves the table"):
        rows, match = BAD_ROWS[case]
        refused(base, InputError, match, rows, operation)


def test_deletes_name_the_partition(base):
    refused(base, InputError, "'region'", table(row("a")).drop_columns(["region"]), "delete")


@pytest.mark.parametrize(
    "case", [case for case in BAD_ROWS if case != "ordering column of another type"]
)
def test_bad_rows_make_no_table(tmp_path, case):
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


def test_a_column_that_the_table_lacks(base):
    rows = table(row("a")).append_column("extra", pa.array([1]))
    refused(base, InputError, r"no columns \['extra'\]", rows)


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


# Tables.


def change_properties(base, **changes):
    """Set properties (``__`` for a dot) from outside."""
    path = base / ".hoodie" / "hoodie.properties"
    text = path.read_text()
    for name, value in changes.items():
        key = f"hoodie.{name.replace('__', '.')}"
        text = "\n".join(line for line in text.splitlines() if not line.startswith(key + "="))
        text += f"\n{key}={value}\n"
    path.write_text(text)


UNSUPPORTED = {
    "merge-on-read": ({"table__type": "MERGE_ON_READ"}, "MERGE_ON_READ"),
    "newer version": ({"table__version": "10"}, "10"),
    "metadata table": ({"table__metadata__partitions": "files"}, "metadata table"),
    "keys from timestamps": ({"table__keygenerator__type": "TIMESTAMP"}, "TIMESTAMP"),
    "no meta columns": ({"populate__meta__fields": "false"}, "meta columns"),
    "custom merging": ({"record__merge__mode": "CUSTOM"}, "custom class"),
    "orc": ({"table__base__file__format": "ORC"}, "orc"),
    "change data capture": ({"table__cdc__enabled": "true"}, "cdc"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_tables_that_can_not_be_written(base, case):
    changes, match = UNSUPPORTED[case]
    change_properties(base, **changes)
    refused(base, UnsupportedTableError, match)


def test_a_table_whose_keys_are_generated(base):
    path = base / ".hoodie" / "hoodie.properties"
    text = path.read_text()
    path.write_text(
        "".join(line for line in text.splitlines(True) if "recordkey.fields" not in line)
    )
    options = {"datasource__write__recordkey__field": None}
    refused(base, UnsupportedTableError, "no record key columns", **options)


def test_corrupt_properties(base):
    path = base / ".hoodie" / "hoodie.properties"
    path.write_text("hoodie.table.name=\n")
    refused(base, CorruptMetadataError, r"hoodie\.properties")
    path.write_bytes(b"")
    refused(base, CorruptMetadataError, r"hoodie\.properties")


@pytest.mark.parametrize("version", [6, 9])
def test_a_timeline_without_properties(tmp_path, version):
    """A table that lost its properties is no new table."""
    base, options = tmp_path / "t", {"hoodie.write.table.version": version}
    with client(base, **options) as c:
        c.upsert(table(row("a")))
    (base / ".hoodie" / "hoodie.properties").unlink()
    refused(base, CorruptMetadataError, "hoodie.properties is missing")
    refused(base, CorruptMetadataError, "hoodie.properties is missing", **options)


def test_a_wrong_checksum(base):
    change_properties(base, table__checksum="1")
    refused(base, CorruptMetadataError, "checksum")


@pytest.mark.parametrize("version", [6, 9])
def test_a_truncated_commit(tmp_path, version):
    base = tmp_path / "t"
    with client(base, write__table__version=version) as c:
        c.upsert(table(row("a")))
    (instant,) = base.rglob("*.commit")
    instant.write_bytes(instant.read_bytes()[:-40])
    refused(base, CorruptMetadataError, instant.name)


@pytest.mark.parametrize("version", [6, 9])
def test_a_commit_cut_down_to_nothing(tmp_path, version):
    with client(tmp_path / "t", **{"hoodie.write.table.version": version}) as c:
        c.upsert(table(row("a")))
    (commit,) = (tmp_path / "t" / ".hoodie").rglob("*.commit")
    commit.write_bytes(b"")
    refused(tmp_path / "t", CorruptMetadataError, f"{commit} doesn't say")


def test_a_truncated_plan_of_a_rollback(base):
    with client(base) as c:
        last = c.upsert(table(row("a", ts=2)))
        c.rollback(last.instant)
    (completed,) = base.rglob("*.rollback")
    completed.unlink()
    (plan,) = base.rglob("*.rollback.requested")
    plan.write_bytes(plan.read_bytes()[:-40])
    refused(base, CorruptMetadataError, plan.name)


def test_an_unfinished_restore(base):
    (base / ".hoodie" / "timeline" / "20990101000000000.restore.requested").touch()
    refused(base, UnsupportedTableError, "unfinished restore, 20990101000000000")


# Options.

DISAGREEING = {
    "table__name": "other",
    "database__name": "other",
    "datasource__write__recordkey__field": "name",
    "datasource__write__partitionpath__field": "name",
    "table__ordering__fields": "name",
    "write__table__version": 8,
    "datasource__write__hive_style_partitioning": True,
    "datasource__write__partitionpath__urlencode": True,
    "record__merge__mode": "COMMIT_TIME_ORDERING",
    "datasource__write__keygenerator__type": "COMPLEX",
    "table__timeline__timezone": "LOCAL",
}


@pytest.mark.parametrize("name", DISAGREEING)
def test_options_that_contradict_the_table(base, name):
    match = f"{name.replace('__', '.')} is .*, but the table has"
    refused(base, ConfigError, match, **{name: DISAGREEING[name]})


REFUSED = {
    "metadata__enable": "true",
    "datasource__write__table__type": "MERGE_ON_READ",
    "clean__failed__writes__policy": "NEVER",
    "cleaner__policy__failed__writes": "NEVER",
    "write__concurrency__mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
    "write__lock__provider": "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider",
    "index__type": "BLOOM",
    "write__markers__type": "TIMELINE_SERVER_BASED",
    "cleaner__policy": "KEEP_LATEST_FILE_VERSIONS",
    "write__table__version": "7",
    "parquet__max__file__size": "many",
    "parquet__compression__codec": "rar",
    "combine__before__upsert": "false",
    "populate__meta__fields": "false",
    "datasource__write__keygenerator__class": "org.apache.hudi.keygen.CustomKeyGenerator",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_asked_for_and_not_there_is_refused_by_name(tmp_path, name):
    value = REFUSED[name]
    with pytest.raises(ConfigError) as caught:
        client(tmp_path, **{name: value})
    known_as = {"cleaner__policy__failed__writes": "clean__failed__writes__policy"}
    assert f"hoodie.{known_as.get(name, name).replace('__', '.')}" in str(caught.value)
    assert value in str(caught.value)
    assert "allowed" in str(caught.value)


@pytest.mark.parametrize(
    "missing", ["hoodie.table.name", "hoodie.datasource.write.recordkey.field"]
)
def test_what_a_new_table_needs(tmp_path, missing):
    options = {name: value for name, value in OPTIONS.items() if name != missing}
    c = WriteClient(LocalEngine(), str(tmp_path / "t"), options)
    with c, pytest.raises(ConfigError, match=missing):
        c.upsert(table(row("a")))
    assert not (tmp_path / "t").exists()


def test_two_names_of_one_setting_that_disagree(tmp_path):
    with pytest.raises(ConfigError, match=r"precombine\.field is 'name'; both set hoodie"):
        client(tmp_path, datasource__write__precombine__field="name")
    client(tmp_path, datasource__write__precombine__field="ts").close()


def test_two_names_of_one_setting_are_refused_in_a_line_whatever_they_say(tmp_path):
    with pytest.raises(ConfigError) as caught:
        client(tmp_path, datasource__write__precombine__field="n" * 5_000)
    assert len(str(caught.value)) <= REFUSAL_CHARACTERS


def test_merge_modes_that_disagree(tmp_path):
    options = {
        "record__merge__mode": "EVENT_TIME_ORDERING",
        "datasource__write__payload__class": (
            "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"
        ),
    }
    with client(tmp_path, **options) as c, pytest.raises(ConfigError, match="COMMIT_TIME_ORDERING"):
        c.upsert(table(row("a")))


def test_unknown_options_are_named_in_one_warning(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        client(tmp_path, no__such="1", nor__this="2").close()
    (record,) = caplog.records
    assert "hoodie.no.such, hoodie.nor.this" in record.getMessage()


def test_the_next_good_write_goes_on(base):
    refused(base, InputError, "null", table(row(None)))
    with client(base) as c:
        c.upsert(table(row("a", ts=5)))
    assert [each["name"] for each in reader.rows(base)] == ["a@5", "b@1"]
