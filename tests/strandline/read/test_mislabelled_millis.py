"""Milliseconds that old releases stored under a label of microseconds, as Hudi 1.2.0 reads them."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from strandline import LocalEngine, Table, WriteClient
from strandline.records.schema.avro_schema import arrow_to_avro, avro_with_meta_fields
from strandline.records.schema.cast import corrected, once_in_micros
from tests.kit.formats.log_files import avro_block
from tests.strandline.read.logs.log_table import SCHEMA, LogTable, row
from timeline.errors import UnsupportedTableError
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.property

MILLIS, MICROS = pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")
THEN = datetime(2024, 7, 10, 17, 7, 4, 939000, timezone.utc)
BEFORE = datetime(2024, 7, 9, tzinfo=timezone.utc)
NUMBER = 1_720_631_224_939


def nested(kind: pa.DataType) -> pa.DataType:
    return pa.struct([("at", kind), ("all", pa.list_(kind)), ("by", pa.map_(pa.string(), kind))])


def schema_of(kind: pa.DataType, local: pa.DataType) -> pa.Schema:
    added = (("t", kind), ("n", nested(kind)), ("l", local))
    return pa.schema([*SCHEMA, *(pa.field(*each) for each in added)])


NOW = schema_of(MILLIS, pa.timestamp("ms"))
OLD = schema_of(MICROS, pa.int64())


def old_row(key: str, number: int = NUMBER, **others: Any) -> dict[str, Any]:
    """Return a row whose numbers are milliseconds, whatever their types say."""
    at = number - NUMBER  # microseconds that are to be read as milliseconds
    value = datetime.fromtimestamp((NUMBER + at) // 1_000_000, timezone.utc).replace(
        microsecond=(NUMBER + at) % 1_000_000
    )
    inside = {"at": value, "all": [value, None], "by": [("k", value)]}
    return {**row(key, 1, "old"), "t": value, "n": inside, "l": number, **others}


INSIDE = {"at": THEN, "all": [THEN, None], "by": [("k", THEN)]}


@pytest.fixture
def table(tmp_path) -> LogTable:
    """A table in milliseconds with a base file of an old release."""
    made = LogTable(LocalStorage(str(tmp_path)), schema=NOW)
    made.base([old_row("a"), old_row("b", NUMBER - 100_000_000)], OLD)
    return made


def test_numbers_are_read_in_the_unit_of_the_table(table, tmp_path):
    rows = Table(tmp_path).to_arrow(["id", "t", "n", "l"])
    assert rows.schema.field("t").type == MILLIS
    assert rows["t"].to_pylist()[0] == THEN
    assert rows["n"].to_pylist()[0] == INSIDE
    assert rows["l"].to_pylist()[0] == THEN.replace(tzinfo=None)
    scan = Table(tmp_path).scan(["id", "t", "n", "l"])
    assert scan.to_dataset().to_table() == rows
    connection = duckdb.connect()
    found = scan.to_duckdb("t", connection).sql("select epoch_ms(t) from t where id = 'a'")
    assert found.fetchall() == [(NUMBER,)]


def test_filters_and_statistics_compare_what_is_read(table, tmp_path):
    rows = Table(tmp_path).to_arrow(["id", "t"])
    for condition in (
        *(pc.field("t") == THEN, pc.field("t") < THEN, pc.field("t") > BEFORE),
        pc.field("t") < datetime(1980, 1, 1, tzinfo=timezone.utc),
    ):
        found = Table(tmp_path).scan(["id", "t"], filter=condition)
        assert found.to_arrow() == rows.filter(condition)
        assert found.to_dataset().to_table() == rows.filter(condition)
        as_of = Table(tmp_path).scan(["id", "t"], filter=condition, as_of=found.instant)
        assert as_of.to_arrow() == rows.filter(condition)
    assert Table(tmp_path).scan(filter=pc.field("t") == THEN).count() == 1


def test_blocks_of_logs_are_read_alike(table, tmp_path):
    avro = avro_with_meta_fields(arrow_to_avro(OLD, "t"))
    inside = {"at": NUMBER, "all": [NUMBER, None], "by": {"k": NUMBER}}
    logged = {**row("c", 2), "t": NUMBER, "n": inside, "l": NUMBER}
    table.log(lambda time: avro_block(time, avro, [logged]))
    rows = Table(tmp_path).to_arrow(["id", "t", "n"]).sort_by("id").to_pylist()
    assert [each["id"] for each in rows] == ["a", "b", "c"]
    assert (rows[2]["t"], rows[2]["n"]) == (THEN, INSIDE)


def test_true_microseconds_under_milliseconds_are_refused(table, tmp_path):
    """Hudi turns a column into milliseconds and leaves files with microseconds."""
    table.schema = OLD
    table.base([old_row("a")], OLD)
    table.schema = NOW
    table.rows_log(row("c", 2))
    scan = Table(tmp_path).scan
    for columns in (["t"], ["n"]):
        with pytest.raises(
            UnsupportedTableError, match=r"has '(t|n.all.element)'.* in microseconds"
        ):
            scan(columns, read_optimized=True).to_arrow()
    assert scan(["id", "l"], read_optimized=True).to_arrow().num_rows == 1


def write(base: Any, operation: str, rows: pa.Table) -> None:
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.embed.timeline.server": "false",
    }
    with WriteClient(LocalEngine(), base, options) as client:
        getattr(client, operation)(rows)


def rows_of(key: str, when: datetime, kind: pa.DataType = MILLIS) -> pa.Table:
    return pa.table({"id": [key], "ts": pa.array([when], kind), "t": pa.array([when], kind)})


def mislabel(base: Any) -> None:
    """Store the one base file as an old release did."""
    (file,) = base.glob("*.parquet")
    old = pq.read_table(file)
    kept = {k: v for k, v in pq.read_metadata(file).metadata.items() if k != b"ARROW:schema"}
    for name in ("ts", "t"):
        at = old.schema.get_field_index(name)
        old = old.set_column(at, name, old[name].cast(pa.int64()).cast(MICROS))
    pq.write_table(old.replace_schema_metadata(kept), file, store_schema=False)


def test_a_rewrite_stores_what_is_read(tmp_path):
    """Ordering values, too: the older row loses."""
    write(tmp_path, "insert", rows_of("1", THEN))
    mislabel(tmp_path)
    write(tmp_path, "upsert", rows_of("2", THEN))
    write(tmp_path, "upsert", rows_of("1", BEFORE))
    newest = max(tmp_path.glob("*.parquet"), key=lambda path: path.name.rsplit("_", 1)[1])
    stored = pq.read_table(newest, columns=["id", "ts", "t"])
    assert stored.schema.field("t").type == MILLIS
    assert stored.to_pylist() == [{"id": key, "ts": THEN, "t": THEN} for key in ("1", "2")]


def test_96_bits_say_their_time_themselves():
    rows = pa.table({"t": pa.array([THEN], MICROS)})
    schema = pa.schema([("t", MILLIS)])
    assert corrected(rows, schema, frozenset, "a file", ["t"]) == rows
    assert corrected(rows, schema, frozenset, "a file")["t"].type == MILLIS


def test_names_of_what_was_in_microseconds():
    found = once_in_micros(NOW, [OLD, SCHEMA])
    assert found == {"t", "n.at", "n.all.element", "n.by.value"}
    assert once_in_micros(NOW, [NOW]) == frozenset()
