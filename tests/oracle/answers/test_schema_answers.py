"""Real Hudi still answers as the kit's recorded answers say, and reads our tables so."""

from __future__ import annotations

from pathlib import Path

import pytest

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
from tests.kit.tables.row_text import text
from tests.oracle.answers.schema_answers import WRITE, rows_after, schemas
from tests.oracle.hudi import Hudi

SOME = ("types 30|", "types 90|", "added between|r", "missing required|n", "map added last|")
"""Cases of which Hudi is asked again; it takes seconds for each."""
VECTORS = "spark.sql.parquet.enableVectorizedReader"


@pytest.mark.oracle
def test_hudi_deduces_the_recorded_schemas(hudi: Hudi) -> None:
    assert schemas(hudi) == recorded()["schemas"]


@pytest.mark.oracle
@pytest.mark.parametrize("name", SOME)
def test_hudi_has_the_recorded_rows_and_reads_them_in_our_tables(
    hudi: Hudi, tmp_path: Path, name: str
) -> None:
    case, combination = next(c for c in row_cases() if f"{c[0].name}|{c[1]}" == name)
    expected = recorded()["rows"][name]
    assert expected != FAILS
    hudi.spark.conf.set(VECTORS, "false")
    try:
        assert rows_after(hudi, tmp_path / "hudi", case, combination) == expected
        how = {**WRITE, **options(combination)}
        with WriteClient(LocalEngine(tasks=1), tmp_path / "ours", how) as client:
            client.insert(stored_rows(case))
            client.upsert(written_rows(case))
        assert text(hudi.read(tmp_path / "ours")) == expected["rows"]
    finally:
        hudi.spark.conf.unset(VECTORS)
