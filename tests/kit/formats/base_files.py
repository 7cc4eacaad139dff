"""Helpers that write a base file, or merge rows into one, in a single call."""

from __future__ import annotations

import pyarrow as pa

from strandline.records.file.base_file_writer import BaseFileSettings, BaseFileWriter, FileWritten
from strandline.records.merge import MergeCounts, Merger, MergeRules
from strandline.records.meta_fields import RECORD_KEY
from timeline.storage.base import Storage


def merge(
    existing: pa.Table, incoming: pa.Table, rules: MergeRules
) -> tuple[pa.Table, MergeCounts]:
    """Merge rows into the rows of a base file; return those of new.parquet, and the counts."""
    merger = Merger(incoming, rules, "new.parquet", 3)
    if not rules.append:
        merger.match(existing.column(RECORD_KEY))
    return pa.concat_tables([merger.apply(existing), merger.finish()]), merger.counts


def write_base_file(
    storage: Storage,
    path: str,
    table: pa.Table,
    avro_schema: str,
    settings: BaseFileSettings | None = None,
) -> FileWritten:
    """Write rows with their meta columns to a new base file."""
    with storage.create_stream(path) as stream:
        writer = BaseFileWriter(stream, avro_schema, settings)
        writer.write(table)
        return writer.close()
