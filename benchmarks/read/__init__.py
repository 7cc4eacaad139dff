"""Reads of this package beside those of Hudi, hudi-rs, pyarrow and DuckDB."""
