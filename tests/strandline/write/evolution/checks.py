"""How a table differs from what a walk says of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa

from strandline.records.meta_fields import META_FIELDS, PARTITION_PATH
from strandline.records.schema.avro_schema import avro_to_arrow
from strandline.table_api.table import Table
from tests.kit.tables.row_text import with_dicts
from tests.strandline.write.evolution.walk import Walk


def differences(walk: Walk, base: Path, *, ordered: bool = True) -> Iterator[str]:
    """Yield how a table's columns and rows differ from those of a walk, in words.

    Args:
        walk: The walk.
        base: The table's base path.
        ordered: Whether the order of columns and fields matters.
    """
    schema = Table(base).commit_metadata().avro_schema
    assert schema is not None
    columns, expected = (shapes(each, ordered) for each in (avro_to_arrow(schema), walk.columns))
    if columns != expected:
        yield f"columns of the newest commit: {columns}; expected: {expected}"
    found = Table(base).to_arrow()
    partitions = found[PARTITION_PATH].to_pylist()
    kept = [name for name in found.column_names if name not in META_FIELDS]
    rows = found.select(kept)
    kind = pa.struct(list(rows.schema))
    made = [(p, with_dicts(row, kind)) for p, row in zip(partitions, rows.to_pylist(), strict=True)]
    # A key that a global index kept in its partition shows that partition.
    shown = ((path, {**row, "region": path}) for path, row in walk.model.records.values())
    yield from differing_rows(made, shown)


def differing_rows(found: Any, expected: Any) -> Iterator[str]:
    """Yield the rows that are missing and those that are too many."""
    model, table = (sorted(map(_text, rows)) for rows in (expected, found))
    yield from (f"row is missing: {row}" for row in model if model.count(row) > table.count(row))
    yield from (f"row is too many: {row}" for row in table if table.count(row) > model.count(row))


def _text(row: Any) -> str:
    return repr(_ordered(row))


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _ordered(each) for name, each in sorted(value.items())}
    if isinstance(value, list | tuple):
        return [_ordered(each) for each in value]
    return value.astimezone(timezone.utc) if isinstance(value, datetime) else value


def shapes(columns: Iterable[pa.Field], ordered: bool) -> list[tuple[str, Any]]:
    """Return columns with their types, without the names of elements and values."""
    found = [(field.name, _shape(field.type, ordered)) for field in columns]
    return found if ordered else sorted(found)


def _shape(kind: pa.DataType, ordered: bool) -> Any:
    if pa.types.is_struct(kind):
        return shapes(kind, ordered)
    if pa.types.is_list(kind):
        return ["list", _shape(kind.value_type, ordered)]
    if pa.types.is_map(kind):
        return ["map", _shape(kind.item_type, ordered)]
    return str(kind)
