"""Names of Hudi's meta columns, which precede a table's own, and of the delete flag."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

COMMIT_TIME: Final = "_hoodie_commit_time"
COMMIT_SEQNO: Final = "_hoodie_commit_seqno"
RECORD_KEY: Final = "_hoodie_record_key"
PARTITION_PATH: Final = "_hoodie_partition_path"
FILE_NAME: Final = "_hoodie_file_name"

META_FIELDS: Final = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)
"""The first columns of every base file, in order; all strings."""

IS_DELETED: Final = "_hoodie_is_deleted"
"""Boolean column of the caller's rows: a row in which it is true deletes its key."""


def with_meta_fields(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a base file: the five meta columns, then the table's."""
    meta = [pa.field(name, pa.string()) for name in META_FIELDS]
    return pa.schema([*meta, *without_meta_fields(schema)])


def without_meta_fields(schema: pa.Schema) -> pa.Schema:
    """Return the table's own columns, without the meta columns and without Arrow's metadata."""
    return pa.schema([field for field in schema if field.name not in META_FIELDS])
