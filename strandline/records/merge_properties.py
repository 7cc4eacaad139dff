"""``MergeProperties``: table properties that give single values a meaning when rows are merged.

Hudi 1.2.0 stores these properties when a table of version 9 is created with a payload class of
partial updates or of change data, and obeys them from then on, whatever a writer's options are.

* ``hoodie.table.partial.update.mode``: the row that wins may *lack* values, which it takes from the
  row that loses; neither is a delete. With ``IGNORE_DEFAULTS`` it lacks the values that equal their
  column's default in the table's Avro schema; with ``FILL_UNAVAILABLE`` the text and bytes that
  equal ``hoodie.record.merge.property.hoodie.write.partial.update.unavailable.value``. Values
  nested in a column are ignored.
* ``hoodie.record.merge.property.hoodie.payload.delete.field`` and ``….marker``, also without the
  prefix: a row whose column has that text is a delete, like one flagged by ``_hoodie_is_deleted``.

Hudi compares a value with the default by ``==``, the identity of Java's objects. Equal are nulls
and the values of which Java caches one object: booleans, and integers that fit a byte. Every other
value differs from an equal default.

Source: Hudi 1.2.0 ``PartialUpdateHandler``, ``DeleteContext``,
``HoodieTableConfig.getTableMergeProperties``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.meta_fields import IS_DELETED, META_FIELDS
from strandline.records.ordering import Mask, as_mask, one_chunk
from strandline.records.schema.cast import float_text
from strandline.records.schema.columns import column_of
from timeline.errors import UnsupportedTableError
from timeline.table.config import TableConfig
from timeline.table.property_name import MERGE_PROPERTY, PARTIAL_UPDATE_MODE, SHOWN, listed

IGNORE_DEFAULTS: Final = "IGNORE_DEFAULTS"
FILL_UNAVAILABLE: Final = "FILL_UNAVAILABLE"
_MODES: Final = (IGNORE_DEFAULTS, FILL_UNAVAILABLE)
_FIRST_VERSION: Final = 9
"""Hudi ignores the mode in tables of earlier versions, and doesn't store it there."""
_DELETE_FIELD: Final = "hoodie.payload.delete.field"
_DELETE_MARKER: Final = "hoodie.payload.delete.marker"
_UNAVAILABLE: Final = "hoodie.write.partial.update.unavailable.value"
_KNOWN: Final = tuple(MERGE_PROPERTY + n for n in (_DELETE_FIELD, _DELETE_MARKER, _UNAVAILABLE))
_OURS: Final = "_strandline_"
"""Names of columns that the writer's tasks add begin with this."""
_INTEGERS: Final = ("int", "long")
_CACHED: Final = range(-128, 128)
"""Integers of which Java keeps one object each (``Integer.valueOf``, ``Long.valueOf``)."""
_NO_DEFAULT: Final = object()
"""A default that equals no value."""


def unknown_merge_properties(config: TableConfig) -> Iterator[str]:
    """Yield a reason, with name and value, for each merge property that isn't supported."""
    for name, value in config.properties.items():
        shown = f"{name}={value[:SHOWN]}"
        if name.startswith(MERGE_PROPERTY) and name not in _KNOWN:
            yield f"{shown}; allowed: {listed(_KNOWN)}"
    mode = config.properties.get(PARTIAL_UPDATE_MODE)
    if mode is not None and mode not in _MODES:
        yield f"{PARTIAL_UPDATE_MODE}={mode[:SHOWN]}; allowed: {listed(_MODES)}"
    elif mode is not None and config.version < _FIRST_VERSION:
        yield f"{PARTIAL_UPDATE_MODE}={mode} in version {config.version}; allowed: version 9"
    given = {name: _value(config, name) for name in (_DELETE_FIELD, _DELETE_MARKER)}
    if len(set(map(bool, given.values()))) > 1:
        alone = next(f"{name}={value[:SHOWN]}" for name, value in given.items() if value)
        yield f"{alone} alone; allowed: {' and '.join(given)} together"


@dataclass(frozen=True, slots=True)
class MergeProperties:
    """The meaning of single values of a table's rows when rows are merged.

    Attributes:
        delete_field: Column that marks deletes, a dotted name addresses a field of a struct; empty:
            only ``_hoodie_is_deleted`` does.
        delete_marker: Its text in deletes.
        mode: ``IGNORE_DEFAULTS`` or ``FILL_UNAVAILABLE``; empty: the row that wins lacks nothing.
        unavailable: Text that a row lacks; empty: there is none.
        defaults: Columns whose default isn't null → the default, or a value that equals none.
    """

    delete_field: str = ""
    delete_marker: str = ""
    mode: str = ""
    unavailable: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, config: TableConfig, avro_schema: str | None) -> MergeProperties:
        """Return the merge properties of a table.

        Args:
            config: The properties.
            avro_schema: The table's schema, for its columns' defaults; ``None``: all are null.

        Raises:
            UnsupportedTableError: A property isn't supported.
        """
        for reason in unknown_merge_properties(config):
            raise UnsupportedTableError(f"table {config.name} has {reason}")
        mode = config.properties.get(PARTIAL_UPDATE_MODE, "")
        return cls(
            delete_field=_value(config, _DELETE_FIELD),
            delete_marker=_value(config, _DELETE_MARKER),
            mode=mode,
            unavailable=_value(config, _UNAVAILABLE),
            defaults=_defaults(avro_schema) if avro_schema and mode == IGNORE_DEFAULTS else {},
        )

    @property
    def fills(self) -> bool:
        """Whether a row that wins may lack values."""
        return bool(self.mode)

    @property
    def delete_column(self) -> str:
        """The top-level column that contains the delete field; empty without one."""
        return self.delete_field.split(".")[0]

    def deletes(self, rows: pa.Table | pa.RecordBatch) -> Mask:
        """Return a mask of the deletes, by ``_hoodie_is_deleted`` or by the table's marker.

        Args:
            rows: Rows, with or without ``_hoodie_is_deleted`` (bool) and the delete field.

        Raises:
            UnsupportedTableError: The delete field has a type whose values have no unique text.
        """
        found = delete_flags(rows)
        names = rows.schema.names
        if not self.delete_field or not {self.delete_field, self.delete_column} & {*names}:
            return found
        text = _java_text(one_chunk(column_of(rows, self.delete_field)), self.delete_field)
        return found | as_mask(pc.fill_null(pc.equal(text, self.delete_marker), False))

    def fillable(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return the columns whose value a row may lack."""
        if not self.mode:
            return ()
        own = [each for each in schema if each.name not in META_FIELDS]
        return tuple(
            column.name
            for column in own
            if not column.name.startswith(_OURS)
            and (self.mode == IGNORE_DEFAULTS or (self.unavailable and _is_text(column.type)))
        )

    def lacking(self, name: str, column: pa.Array | pa.ChunkedArray) -> Mask:
        """Return a mask of the rows that lack their value in ``column``, one of ``fillable``."""
        if self.mode == FILL_UNAVAILABLE:
            marker = pa.scalar(self.unavailable.encode(), pa.binary()).cast(column.type)
            return as_mask(one_chunk(pc.fill_null(pc.equal(column, marker), False)))
        default = self.defaults.get(name)
        if default is None:
            return as_mask(one_chunk(pc.is_null(column)))
        if default is _NO_DEFAULT:
            return np.zeros(len(column), np.bool_)
        values = one_chunk(column)
        stored = values if pa.types.is_boolean(values.type) else _as_number(values)
        return as_mask(pc.fill_null(pc.equal(stored, default), False))


def delete_flags(rows: pa.Table | pa.RecordBatch, name: str = IS_DELETED) -> Mask:
    """Return a mask of the rows in which the bool column ``name`` is true; all false without it."""
    if name not in rows.schema.names:
        return np.zeros(rows.num_rows, np.bool_)
    return as_mask(pc.fill_null(one_chunk(rows.column(name)), False))


def _value(config: TableConfig, name: str) -> str:
    """Return the value of a merge property, trimmed as by Hudi; empty if it isn't set."""
    prefixed = config.properties.get(MERGE_PROPERTY + name)
    return config.properties.get(name, "") if prefixed is None else prefixed.strip()


def _defaults(avro_schema: str) -> dict[str, Any]:
    """Return columns whose default isn't null → the default, as Hudi compares it."""
    found = {}
    for column in json.loads(avro_schema)["fields"]:
        default = column.get("default")
        if default is None:
            continue
        # The default of a union is of its first type.
        kind = column["type"][0] if isinstance(column["type"], list) else column["type"]
        kind = kind["type"] if isinstance(kind, dict) else kind
        is_one = kind == "boolean" or (kind in _INTEGERS and default in _CACHED)
        found[column["name"]] = default if is_one else _NO_DEFAULT
    return found


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    is_bytes = types.is_binary(kind) or types.is_large_binary(kind)
    return bool(types.is_string(kind) or types.is_large_string(kind) or is_bytes)


def _java_text(values: pa.Array, name: str) -> pa.Array:
    """Return the text that Java gives values, as they are stored; nulls stay null."""
    kind, types = values.type, pa.types
    if types.is_dictionary(kind):
        return _java_text(values.cast(kind.value_type), name)
    if types.is_string(kind) or types.is_large_string(kind):
        return values.cast(pa.string())
    if types.is_float32(kind) or types.is_float64(kind):
        return float_text(values)
    if types.is_boolean(kind) or types.is_signed_integer(kind):
        return values.cast(pa.string())
    if types.is_date32(kind) or types.is_timestamp(kind):
        return _as_number(values).cast(pa.string())
    raise UnsupportedTableError(
        f"column {name!r}, which marks deletes ({MERGE_PROPERTY}{_DELETE_FIELD}), has the type"
        f" {kind}; allowed: strings, booleans, signed integers, floats, dates, timestamps"
    )


def _as_number(values: pa.Array) -> pa.Array:
    """Return whole numbers; for dates and timestamps the stored numbers."""
    small = pa.types.is_date32(values.type)
    return values.cast(pa.int32()).cast(pa.int64()) if small else values.cast(pa.int64())
