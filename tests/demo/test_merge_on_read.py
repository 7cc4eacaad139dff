"""Rows of merge-on-read tables, as the demo's reader in Rust and ``Table`` read them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hudi import HudiReadConfig, HudiReadOptions, HudiTableBuilder

from demo.prove import through_hudi_rs
from strandline.records.meta_fields import with_meta_fields
from strandline.table_api.table import Table
from tests.kit.formats.log_files import delete_block, parquet_block
from tests.kit.tables import golden
from tests.strandline.read.logs.log_table import SCHEMA, VERSIONS, LogTable, row
from timeline.storage.local import LocalStorage

SCENARIOS = [
    name
    for name in golden.scenarios()
    if golden.has_final_table(name) and golden.info(name)["table_type"] == "mor"
]


def texts(rows):
    shown = [{n: None if v is None else str(v) for n, v in each.items()} for each in rows]
    return sorted(shown, key=lambda each: each["_hoodie_record_key"])


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_recorded_tables_are_read_as_by_hudi_rs(scenario, tmp_path):
    base = golden.build_final(scenario, tmp_path)
    found = Table(base).to_arrow()
    rust = through_hudi_rs(base).select(found.schema.names)
    assert texts(found.to_pylist()) == texts(rust.to_pylist())


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_recorded_tables_without_their_logs(scenario, tmp_path):
    base = golden.build_final(scenario, tmp_path)
    found = Table(base).scan(read_optimized=True).to_arrow()
    optimized = HudiReadOptions().with_hudi_option(HudiReadConfig.USE_READ_OPTIMIZED_MODE, "true")
    assert texts(found.to_pylist()) == texts(by_rust(base, optimized, found.schema.names))


@pytest.mark.parametrize("scenario", golden.scenarios())
def test_recorded_tables_at_earlier_instants(scenario, tmp_path):
    """Also where Hudi 0.15.0 stops at a rollback: ``test_earlier_instants.STOPPED``."""
    base = golden.build_final(scenario, tmp_path)
    for instant, rows in golden.truth(scenario)["as_of"].items():
        if isinstance(rows, list):
            found = Table(base).scan(as_of=instant).to_arrow()
            then = HudiReadOptions().with_as_of_timestamp(instant)
            assert texts(found.to_pylist()) == texts(by_rust(base, then, found.schema.names))


def by_rust(base, options, columns):
    """Return the rows that hudi-rs reads with some options."""
    table = HudiTableBuilder.from_base_uri(base.as_uri()).build()
    return pa.Table.from_batches(table.read(options)).select(columns).to_pylist()


@VERSIONS
@pytest.mark.parametrize("ordering", [("ts",), ()])
def test_every_kind_of_block(version, ordering, tmp_path):
    table = LogTable(LocalStorage(str(tmp_path)), version=version, ordering=ordering)
    table.base([row(key, 5, "base") for key in "abcdefghij"])
    table.rows_log(row("a", 6, "new"), row("b", 4, "late"), row("k", 1, "new"))
    table.log(
        lambda time: (
            delete_block(time, [("c", ("Long", 6)), ("d", ("Long", 4)), ("k", ("Long", 0))])
            + delete_block(time, [("e", ("Int", 0)), ("f", ("Int", 0))])
        )
    )
    more = pa.Table.from_pylist([row("g", 7, "new"), row("l", 2, "new")], with_meta_fields(SCHEMA))
    table.log(
        lambda time: (
            parquet_block(time, more) + delete_block(time, [("h", ("Long", 5)), ("a", ("Long", 5))])
        )
    )
    table.rows_log(row("i", 9, "pending"), complete=False)
    table.rows_log(row("e", 1, "again"), row("f", 6, "again"))
    found = Table(tmp_path).to_arrow(["_hoodie_record_key", "v"])
    rust = through_hudi_rs(tmp_path).select(found.schema.names)
    assert texts(found.to_pylist()) == texts(rust.to_pylist())
    expected = {"f": "again", "g": "new", "i": "base", "j": "base", "l": "new"}
    # As in Hudi, "e" comes back: its delete is forgotten for a row that is older than the base's.
    by_time = {"a": "new", "b": "base", "d": "base", "e": "base", "k": "new"}
    expected |= by_time if ordering else {"b": "late", "e": "again"}
    assert dict(zip(*(found[name].to_pylist() for name in found.schema.names), strict=True)) == (
        expected
    )
