"""Tables whose base files, read by column names, would show nulls that they don't have: refused."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from strandline import LocalEngine, Table
from strandline.records.schema.avro_schema import arrow_to_avro, avro_with_meta_fields
from strandline.records.schema.column_ids import column_ids
from tests.kit.formats.log_files import avro_block
from tests.strandline.read.logs.log_table import SCHEMA, LogTable
from tests.strandline.read.logs.log_table import row as log_row
from tests.strandline.write.tables import client, row, table
from timeline.errors import CorruptMetadataError, UnsupportedTableError
from timeline.instant import COMMIT
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CommitMetadata
from timeline.storage.local import LocalStorage
from timeline.table.property_name import BOOTSTRAPPED, DROPS_PARTITION_COLUMNS, TABLE_FORMAT


@pytest.fixture
def made(tmp_path):
    with client(tmp_path / "t", engine=LocalEngine()) as c:
        c.insert(table(row("a"), row("b")))
    return tmp_path / "t"


def set_property(base, name, value):
    properties = base / ".hoodie" / "hoodie.properties"
    properties.write_text(properties.read_text() + f"{name}={value}\n")


@pytest.mark.parametrize(
    ("name", "value"), [(BOOTSTRAPPED, "/elsewhere"), (TABLE_FORMAT, "iceberg")]
)
def test_files_that_this_release_cannot_take_for_the_whole_table(made, name, value):
    set_property(made, name, value)
    with pytest.raises(UnsupportedTableError, match=name):
        Table(made).to_arrow()
    with client(made) as c, pytest.raises(UnsupportedTableError, match=name):
        c.upsert(table(row("a", ts=2)))


def test_hudis_own_table_format_is_read_and_written(made):
    assert f"{TABLE_FORMAT}=native" in (made / ".hoodie" / "hoodie.properties").read_text()
    assert Table(made).to_arrow().num_rows == 2


DROPS = {DROPS_PARTITION_COLUMNS: "true"}
WITHOUT_P = SCHEMA.remove(SCHEMA.get_field_index("p"))


def without_p(key: str, ts: int) -> dict[str, object]:
    return {name: value for name, value in log_row(key, ts).items() if name != "p"}


@pytest.fixture
def dropped(tmp_path) -> Table:
    """A table in whose files, logs and commits the column ``p`` is missing."""
    made = LogTable(LocalStorage(str(tmp_path)), schema=WITHOUT_P, properties=DROPS)
    made.base([without_p("a", 1), without_p("b", 1)], WITHOUT_P)
    avro = avro_with_meta_fields(arrow_to_avro(WITHOUT_P, "t"))
    made.log(lambda time: avro_block(time, avro, [without_p("b", 2), without_p("c", 2)]))
    return Table(tmp_path)


def test_dropped_partition_columns_come_from_the_path(dropped):
    """They are texts, the last of the columns, as in Spark."""
    assert dropped.schema().field(-1) == pa.field("p", pa.string())
    expected = [{"id": "a", "p": "p"}, {"id": "b", "p": "p"}, {"id": "c", "p": "p"}]
    assert dropped.to_arrow(["id", "p"]).to_pylist() == expected
    assert dropped.scan(["id"], filter=pc.field("p") == "p").count() == 3
    assert dropped.scan(["id"], filter=pc.field("p") != "p").count() == 0
    assert dropped.incremental("earliest", columns=["p"]).count() == 3
    optimized = dropped.scan(["id", "p"], read_optimized=True)
    assert optimized.to_dataset().to_table().to_pylist() == expected[:2]
    assert optimized.to_arrow().to_pylist() == expected[:2]


def test_dropped_partition_columns_that_a_path_does_not_tell_are_refused(dropped, tmp_path):
    set_property(tmp_path, "hoodie.table.keygenerator.type", "TIMESTAMP")
    with pytest.raises(
        UnsupportedTableError, match=r"lack the columns \['p'\].*rewrite the table without"
    ):
        Table(tmp_path).scan()


def test_records_ordered_by_a_dropped_column_are_refused(tmp_path):
    LogTable(LocalStorage(str(tmp_path)), schema=WITHOUT_P, properties=DROPS, ordering=("p",))
    with pytest.raises(UnsupportedTableError, match=r"orders its records by .*\['p'\]"):
        Table(tmp_path).scan()


def test_a_table_with_dropped_partition_columns_is_not_written(made):
    set_property(made, DROPS_PARTITION_COLUMNS, "TRUE")
    with client(made) as c, pytest.raises(UnsupportedTableError, match="write it with Hudi, or"):
        c.upsert(table(row("a", ts=2)))


def alter(base, internal_schema):
    """Commit a schema as ALTER TABLE does: a commit of no files."""
    meta = TableMetaClient.open(LocalStorage(str(base)))
    last = meta.active_timeline().completed().instants[-1]
    written = meta.read(last)
    extra = {"schema": written.extra_metadata["schema"], "latest_schema": internal_schema}
    time = str(int(last.completion_time) + 1)
    instant = meta.transition_to_inflight(meta.create_requested(COMMIT, time))
    metadata = CommitMetadata({}, operation_type="ALTER_SCHEMA", extra_metadata=extra)
    meta.complete(instant, metadata, str(int(time) + 1))


def ids(version, **fields):
    """A version of the columns with their ids, as Hudi writes it."""
    nested = {"type": "record", "fields": [{"id": 9, "name": "x", "type": "int"}]}
    made = [
        {"id": number, "name": name, "optional": True, "type": nested if number == 8 else "string"}
        for name, number in fields.items()
    ]
    return {"max_column_id": 9, "version_id": version, "type": "record", "fields": made}


KEPT = {"id": 1, "region": 2, "ts": 3, "name": 4}


def keep_history(base, *versions, time=None):
    """Write the history as the newest commit does, or one that isn't on the timeline."""
    meta = TableMetaClient.open(LocalStorage(str(base)))
    last = meta.active_timeline().completed().instants[-1]
    folder = base / ".hoodie" / ".schema"
    folder.mkdir(exist_ok=True)
    name = f"{time or last.requested_time}_{last.completion_time}.schemacommit"
    (folder / name).write_text(json.dumps({"schemas": versions}))
    (folder / "99999999999999999.schemacommit.inflight").touch()


@pytest.mark.parametrize(
    "older",
    [
        {"id": 1, "region": 2, "ts": 3},  # a column was added
        {"name": 4, "ts": 3, "region": 2, "id": 1},  # columns changed places
        {**KEPT, "gone": 5},  # one was dropped
    ],
)
def test_columns_with_ids_are_read_if_they_kept_their_names(made, older):
    """The oracle compares the rows (#32)."""
    newest = ids(2, _hoodie_commit_time=0, **KEPT)
    alter(made, json.dumps(newest))
    keep_history(made, newest, ids(1, **older), ids(7, other=1))  # as of an earlier instant
    assert sorted(Table(made).to_arrow()["id"].to_pylist()) == ["a", "b"]
    assert Table(made).schema().names[-4:] == ["id", "region", "ts", "name"]
    with client(made) as c, pytest.raises(UnsupportedTableError, match="latest_schema"):
        c.upsert(table(row("a", ts=2)))


@pytest.mark.parametrize(
    ("older", "found"),
    [
        ({**KEPT, "name": 5, "title": 4}, "'name' was 'title'"),
        ({**KEPT, "name": 5}, "'name' was dropped and added again"),
    ],
)
def test_columns_with_ids_that_had_other_names_are_refused(made, older, found):
    """Older files have their values under the old name, or other ones under this one (#32)."""
    newest = ids(2, **KEPT)
    alter(made, json.dumps(newest))
    keep_history(made, ids(1, **KEPT), time="20990101000000000")  # its commit was rolled back
    keep_history(made, newest, ids(1, **older))
    match = rf"latest_schema.*, and column {found}: older files .*schema\.on\.read"
    with pytest.raises(UnsupportedTableError, match=match):
        Table(made).to_arrow()


def test_nested_columns_have_ids_too(made):
    """A field that was renamed is refused by its whole name (#32)."""
    alter(made, json.dumps(ids(2, s=8)))
    keep_history(made, ids(1, t=8))
    with pytest.raises(UnsupportedTableError, match="'s' was 't'"):
        Table(made).to_arrow()
    assert column_ids(json.dumps(ids(2, s=8)), "").names == {8: "s", 9: "s.x"}
    many = {"type": "array", "element_id": 5, "element": ids(1, k=6)}
    pairs = {"type": "map", "key_id": 3, "key": "string", "value_id": 4, "value": many}
    version = {"version_id": 1, "fields": [{"id": 2, "name": "m", "type": pairs}]}
    assert column_ids(json.dumps(version), "").names == {
        2: "m",
        3: "m.key",
        4: "m.value",
        5: "m.value.element",
        6: "m.value.element.k",
    }


def test_columns_with_ids_without_a_history_are_refused(made):
    """Nothing says which names older files have (#32)."""
    alter(made, json.dumps(ids(2, **KEPT)))
    with pytest.raises(
        UnsupportedTableError, match=r"/\.hoodie/\.schema doesn't have their history"
    ):
        Table(made).to_arrow()


@pytest.mark.parametrize("text", ["{", "[]", '{"fields": [{"id": 1}]}', '{"version_id": "x"}'])
def test_damaged_columns_with_ids_name_the_commit(made, text):
    """As all damage (#32)."""
    alter(made, text)
    with pytest.raises(CorruptMetadataError, match=r"\.commit has no columns with ids"):
        Table(made).to_arrow()


def test_an_empty_schema_of_ids_says_nothing(made):
    alter(made, "")
    assert Table(made).to_arrow().num_rows == 2
