"""Rows and schema of tables after a write with other columns: the answers that real Hudi gave."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.records.meta_fields import without_meta_fields
from strandline.table_api.table import Table
from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from tests.kit.answers.schema_cases import (
    FAILS,
    options,
    recorded,
    row_cases,
    stored_rows,
    written_rows,
)
from tests.kit.short_runs import quick_runs
from tests.kit.tables.row_text import rows_as_text
from tests.strandline.write.refusals import files
from timeline.errors import InputError

ROW_CASES = {f"{case.name}|{combination}": (case, combination) for case, combination in row_cases()}
OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.embed.timeline.server": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.parquet.compression.codec": "uncompressed",
}


def read(base: Path) -> pa.Table:
    """Return the table's rows without meta columns."""
    rows = Table(base).to_arrow()
    return rows.select(without_meta_fields(rows.schema).names)


def schema_of(base: Path) -> str:
    commit = Table(base).commit_metadata()
    assert commit.avro_schema is not None
    return commit.avro_schema


@pytest.mark.property
@pytest.mark.parametrize("name", quick_runs([*ROW_CASES][::3], ROW_CASES))
def test_rows_and_schema_are_those_that_hudi_has(tmp_path, name):
    case, combination = ROW_CASES[name]
    expected = recorded()["rows"][name]
    with WriteClient(LocalEngine(tasks=1), tmp_path, OPTIONS) as c:
        c.insert(stored_rows(case))
    before = files(tmp_path)
    with WriteClient(LocalEngine(tasks=1), tmp_path, {**OPTIONS, **options(combination)}) as c:
        if expected == FAILS:
            with pytest.raises(InputError):
                c.upsert(written_rows(case))
            assert files(tmp_path) == before
            return
        c.upsert(written_rows(case))
    assert rows_as_text(read(tmp_path)) == expected["rows"]
    assert json.loads(schema_of(tmp_path))["fields"] == expected["schema"]
