"""The example that queries a table in Polars and DuckDB, by its command."""

from __future__ import annotations

from pathlib import Path

from tests.kit.example_commands import run_example


def test_rows_in_polars_and_duckdb(tmp_path: Path) -> None:
    run_example("without_spark", tmp_path)
    printed = run_example("read_rows", tmp_path)
    newest, _, grouped = printed.partition("symbols")
    assert "UPSERT" in newest
    assert "xnas:AAPL" in newest
    assert "xetr" not in newest
    assert "xetr" in grouped
    assert printed.splitlines()[-1].endswith(": 3 rows, now 3")
