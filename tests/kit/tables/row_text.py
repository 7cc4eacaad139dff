"""Rows of Arrow tables as text that JSON keeps, for comparison with recorded answers."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa


def text(value: Any) -> Any:
    """Return a value in a form that JSON keeps; maps are dicts."""
    if isinstance(value, dict):
        return {name: text(each) for name, each in sorted(value.items())}
    if isinstance(value, list):
        return [text(each) for each in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, datetime.datetime):
        value = value.replace(tzinfo=None)
    return f"{type(value).__name__} {value}"


def rows_as_text(rows: pa.Table) -> Any:
    """Return the rows of a table, by ``id``, as ``text``."""
    made = [
        {field.name: text(with_dicts(row[field.name], field.type)) for field in rows.schema}
        for row in rows.to_pylist()
    ]
    return sorted(({n: r[n] for n in sorted(r)} for r in made), key=lambda row: row["id"])


def with_dicts(value: Any, kind: pa.DataType) -> Any:
    """Return a value from ``to_pylist`` with its maps as dicts."""
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_struct(kind):
        return {field.name: with_dicts(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return {name: with_dicts(each, kind.item_type) for name, each in value}
    return [with_dicts(each, kind.value_type) for each in value]
