"""Converts a table's schema between Arrow and Avro.

Hudi stores a table's schema as Avro JSON: in each commit's ``extraMetadata.schema`` (without the
meta columns) and in each base file's footer (with them). The conversion follows Spark's rules, down
to the names of nested records and of a decimal's ``fixed``, so the text equals the one that Hudi
writes on Spark:

========================  =================================================================
Arrow                     Avro
========================  =================================================================
bool                      boolean
int8, int16, int32        int
int64                     long
float32, float64          float, double
string, large_string      string
binary, large_binary      bytes
date32                    int, ``date``
timestamp[us, any zone]   long, ``timestamp-micros``
timestamp[us]             long, ``local-timestamp-micros``
timestamp[ms, any zone]   long, ``timestamp-millis``
timestamp[ms]             long, ``local-timestamp-millis``
decimal128(p, s)          fixed of the fewest bytes that hold p digits, ``decimal``
list, large_list          array
map with string keys      map
struct                    record
========================  =================================================================

A nullable column is the union ``["null", T]`` with default null. Reading also accepts the union in
the other order, decimals on ``bytes``, and references to named types; and, where nothing is written
back (``readable_columns``), these:

=========================================  ==========================
Avro                                       Arrow
=========================================  ==========================
enum                                       string
fixed                                      fixed_size_binary
int, ``time-millis``                       time32[ms]
long, ``time-micros``                      time64[us]
long, ``timestamp-nanos``                  timestamp[ns, UTC]
long, ``local-timestamp-nanos``            timestamp[ns]
=========================================  ==========================

Source: Hudi 1.2.0 ``SchemaConverters.toAvroType``, ``AvroSchemaUtils.getAvroRecordQualifiedName``.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from strandline.records.meta_fields import META_FIELDS, RECORD_KEY, without_meta_fields
from timeline.errors import CorruptMetadataError, InputError, UnsupportedTableError

_LAST_CHAR: Final = "\uffff"
"""The last character that fits Java's ``char``; later ones need two."""
_UNITS: Final = {"us": "micros", "ms": "millis"}
_WITHOUT_VIEWS: Final = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
"""Arrow's views → the types that are stored, for hints."""
_META_AVRO: Final = [
    {"name": name, "type": ["null", "string"], "doc": "", "default": None} for name in META_FIELDS
]


@lru_cache(maxsize=8)
def avro_with_meta_fields(avro_schema: str) -> str:
    """Return a table's Avro schema with the meta columns prepended, unless it has them."""
    record = json.loads(avro_schema)
    if not any(field["name"] == RECORD_KEY for field in record["fields"]):
        record["fields"] = [*_META_AVRO, *record["fields"]]
    return _dump(record)


@lru_cache(maxsize=8)
def avro_without_meta_fields(avro_schema: str) -> str:
    """Return a table's Avro schema without meta columns; text that is no schema as it is."""
    if RECORD_KEY not in avro_schema:
        return avro_schema
    try:
        record = json.loads(avro_schema)
        own = [field for field in record["fields"] if field["name"] not in META_FIELDS]
        return _dump({**record, "fields": own})
    except (ValueError, KeyError, TypeError):
        return avro_schema


def arrow_to_avro(schema: pa.Schema, table_name: str, record_name: str = "") -> str:
    """Return the Avro schema of a table with these columns, as one line of JSON.

    Args:
        schema: The table's columns; meta columns are left out.
        table_name: Gives the record's name ``hoodie.<table>.<table>_record``, with ``__`` for each
            character that Avro doesn't allow.
        record_name: The record's full name, if it is another one.

    Raises:
        InputError: A column's type isn't in the module's table, or its name isn't valid in Avro.
    """
    safe = re.sub(r"[^A-Za-z0-9_]", "__", re.sub(r"^[^A-Za-z_]", "__", table_name))
    full = record_name or f"hoodie.{safe}.{safe}_record"
    namespace, _, name = full.rpartition(".")
    fields = [_avro_field(f, f.name, full) for f in without_meta_fields(schema)]
    named = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return _dump({"type": "record", **named, "fields": fields})


def avro_to_arrow(avro_schema: str) -> pa.Schema:
    """Return the Arrow schema of Avro JSON written here or by Hudi.

    Raises:
        CorruptMetadataError: The text isn't the Avro schema of a record.
        UnsupportedTableError: A column's type can't be written back unchanged: an enum, a plain
            fixed, a union of several types, a time of day, nanoseconds, a recursive record.
    """
    return _converted(avro_schema, _AvroReader())


def readable_columns(avro_schema: str) -> pa.Schema:
    """Return the Arrow schema in which records of Avro JSON are read, not written.

    A column whose type has no counterpart (a union of several types, a recursive record) has the
    type null; ``check_readable`` refuses it.

    Raises:
        CorruptMetadataError: The text isn't the Avro schema of a record.
    """
    return _converted(avro_schema, _AnyAvroReader())


def check_readable(columns: Iterable[pa.Field]) -> None:
    """Refuse columns of ``readable_columns`` whose types have no counterpart.

    Raises:
        UnsupportedTableError: The message names the column and its type.
    """
    for column in columns:
        reason = (column.metadata or {}).get(_UNREADABLE)
        if reason is not None:
            raise UnsupportedTableError(
                reason.decode(), hint=f"name the columns to read, without {column.name!r}"
            )


def _converted(avro_schema: str, reader: _AvroReader) -> pa.Schema:
    try:
        return pa.schema(_distinct(reader.columns(_parsed_record(avro_schema))))
    # The reader assumes a valid schema, so damage may surface as any of these.
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as exc:
        cause = f"{type(exc).__name__}: {exc}"
    except RecursionError:
        cause = "it is nested too deeply"
    raise CorruptMetadataError(f"the schema is not that of an Avro record: {cause[:200]}")


def _parsed_record(avro_schema: str) -> dict[str, Any]:
    record = json.loads(avro_schema)
    if not isinstance(record, dict) or record.get("type") != "record":
        raise ValueError("it is not a record")
    return record


def _distinct(fields: list[pa.Field]) -> list[pa.Field]:
    """Return the fields of a record; raise ``ValueError`` for duplicate names."""
    counts = Counter(field.name for field in fields)
    if len(counts) < len(fields):
        twice = sorted(name for name, count in counts.items() if count > 1)
        raise ValueError(f"a record has fields {twice} twice")
    return fields


def _dump(record: dict[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False)


def _avro_field(field: pa.Field, column: str, namespace: str) -> dict[str, Any]:
    """Return one field of a record; ``column`` is its full dotted name, for messages."""
    if not _is_avro_name(field.name):
        raise InputError(
            f"column {column!r} can't be written: its name isn't an Avro name",
            hint="letters and digits of any script, up to U+FFFF, and _ only, not beginning with a"
            " digit",
        )
    avro = _avro_type(field.type, column, field.name, namespace)
    if field.nullable:
        return {"name": field.name, "type": ["null", avro], "default": None}
    return {"name": field.name, "type": avro}


def _is_avro_name(name: str) -> bool:
    """Return whether Avro for Java accepts a name.

    The specification allows only ASCII letters and digits; the implementation uses Java's
    ``Character.isLetter`` and ``isLetterOrDigit``, which accept those of all scripts.

    Source: Avro 1.11 ``Schema.validateName``.
    """
    return bool(name) and all(
        character == "_"
        or (
            character <= _LAST_CHAR
            and (unicodedata.category(character)[0] == "L" or (at > 0 and _is_digit(character)))
        )
        for at, character in enumerate(name)
    )


def _is_digit(character: str) -> bool:
    return unicodedata.category(character) == "Nd"


def _avro_type(kind: pa.DataType, column: str, name: str, namespace: str) -> Any:
    """Return a type; a record or fixed in it gets ``name`` and ``namespace``."""
    plain = _plain_avro(kind)
    if plain is not None:
        return plain
    if pa.types.is_decimal128(kind) and 0 <= kind.scale <= kind.precision:
        return {
            "type": "fixed",
            "name": "fixed",
            "namespace": f"{namespace}.{name}",
            "size": _decimal_bytes(kind.precision),
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        items = _avro_item(kind.value_field, f"{column}.element", name, namespace)
        return {"type": "array", "items": items}
    if pa.types.is_map(kind) and _is_string(kind.key_type):
        values = _avro_item(kind.item_field, f"{column}.value", name, namespace)
        return {"type": "map", "values": values}
    if pa.types.is_struct(kind) and kind.num_fields:
        fields = [_avro_field(f, f"{column}.{f.name}", f"{namespace}.{name}") for f in kind]
        return {"type": "record", "name": name, "namespace": namespace, "fields": fields}
    raise InputError(
        f"column {column!r} has the type {kind}, which can't be stored",
        hint=_type_hint(kind),
    )


def _avro_item(field: pa.Field, column: str, name: str, namespace: str) -> Any:
    """Return the type of a list's element or a map's value."""
    avro = _avro_type(field.type, column, name, namespace)
    return ["null", avro] if field.nullable else avro


def _plain_avro(kind: pa.DataType) -> Any:
    """Return a type that has no parts and no name; ``None`` for other types."""
    if pa.types.is_timestamp(kind) and kind.unit in _UNITS:
        logical = f"timestamp-{_UNITS[kind.unit]}"
        return {"type": "long", "logicalType": logical if kind.tz else f"local-{logical}"}
    if _is_string(kind):
        return "string"
    return {
        pa.bool_(): "boolean",
        pa.int8(): "int",
        pa.int16(): "int",
        pa.int32(): "int",
        pa.int64(): "long",
        pa.float32(): "float",
        pa.float64(): "double",
        pa.binary(): "bytes",
        pa.large_binary(): "bytes",
        pa.date32(): {"type": "int", "logicalType": "date"},
    }.get(kind)


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _decimal_bytes(precision: int) -> int:
    """Return the fewest bytes whose signed range holds all numbers of ``precision`` digits."""
    largest: int = 10**precision - 1
    return (largest.bit_length() + 8) // 8


def _type_hint(kind: pa.DataType) -> str:
    """Return a hint for a column of a type that can't be stored."""
    if pa.types.is_timestamp(kind):
        return "cast it to microseconds or milliseconds"
    if pa.types.is_dictionary(kind):
        return f"cast it to {_WITHOUT_VIEWS.get(kind.value_type, kind.value_type)}"
    if pa.types.is_time(kind):
        return "cast it to a string, or to an integer"
    if pa.types.is_unsigned_integer(kind):
        return "cast it to a signed integer"
    if pa.types.is_null(kind):
        return "give the column a type"
    if pa.types.is_map(kind):
        return "the keys of maps must be strings"
    return (
        "allowed: booleans, signed integers, floats, strings, binary, dates, decimals, timestamps"
        " in us or ms, and lists, maps and structs of them"
    )


_ARROW_PLAIN: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_ARROW_LOGICAL: Final = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_ARROW_READ: Final = {
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", tz="UTC"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
"""Types that are read, but not written."""
_UNREADABLE: Final = b"strandline:unreadable"
"""Key of a field's metadata: why its column can't be read."""
_MAX_FIXED: Final = 2**31 - 1
"""Most bytes of a ``fixed`` in Java."""


class _AvroReader:
    """Converts one Avro schema to Arrow; holds the named types found so far."""

    def __init__(self) -> None:
        self._named: dict[str, pa.DataType | None] = {}

    def columns(self, record: dict[str, Any]) -> list[pa.Field]:
        """Return the fields of the whole table's record."""
        return list(self.type_of(record, record.get("name", ""), ""))

    def type_of(self, avro: Any, column: str, namespace: str) -> pa.DataType:
        """Return the Arrow type of a schema that isn't a union with null."""
        if isinstance(avro, str):
            return self._reference(avro, column, namespace)
        if isinstance(avro, list):
            raise self._unsupported(column, f"a union of {json.dumps(avro):.200}")
        kind = avro["type"]
        if isinstance(kind, dict | list):
            return self.type_of(kind, column, namespace)
        if kind in ("record", "fixed", "enum"):
            return self._named_type(avro, column, namespace)
        if kind == "array":
            return pa.list_(self._field("element", avro["items"], f"{column}.element", namespace))
        if kind == "map":
            value = self._field("value", avro["values"], f"{column}.value", namespace)
            return pa.map_(pa.string(), value)
        logical = avro.get("logicalType")
        if logical == "decimal":
            return self._decimal(avro, column)
        known = _ARROW_LOGICAL.get((kind, logical)) or self._only_read(kind, logical, column)
        return known or self._reference(kind, column, namespace)

    def _only_read(self, kind: str, logical: Any, column: str) -> pa.DataType | None:
        """Return a type that can't be written; ``None`` for one without a logical type."""
        if (kind, logical) in _ARROW_READ:
            raise self._unsupported(column, logical)
        return None

    def _other_named(self, avro: dict[str, Any], column: str, full: str) -> pa.DataType:
        """Return the type of an enum or a plain fixed."""
        raise self._unsupported(column, f"{avro['type']} {full}")

    def _field(self, name: str, avro: Any, column: str, namespace: str) -> pa.Field:
        """Return a field, nullable if its type is a union with null."""
        if isinstance(avro, list) and "null" in avro:
            rest = [branch for branch in avro if branch != "null"]
            inner = rest[0] if len(rest) == 1 else rest
            return pa.field(name, self.type_of(inner, column, namespace))
        return pa.field(name, self.type_of(avro, column, namespace), nullable=False)

    def _named_type(self, avro: dict[str, Any], column: str, enclosing: str) -> pa.DataType:
        namespace, full = _names(avro, enclosing)
        self._named[full] = None  # marks it as incomplete, so that a recursive use is refused
        if avro["type"] == "record":
            fields = [self._record_field(f, column, namespace) for f in avro["fields"]]
            kind = pa.struct(_distinct(fields))
        elif avro["type"] == "fixed" and avro.get("logicalType") == "decimal":
            kind = self._decimal(avro, column)
        else:
            kind = self._other_named(avro, column, full)
        self._named[full] = kind
        return kind

    def _record_field(self, avro: dict[str, Any], column: str, namespace: str) -> pa.Field:
        return self._field(avro["name"], avro["type"], f"{column}.{avro['name']}", namespace)

    def _reference(self, name: str, column: str, namespace: str) -> pa.DataType:
        if name in _ARROW_PLAIN:
            return _ARROW_PLAIN[name]
        kind = self._named.get(name if "." in name else f"{namespace}.{name}")
        if kind is None:
            raise self._unsupported(column, name)
        return kind

    def _decimal(self, avro: dict[str, Any], column: str) -> pa.DataType:
        precision, scale = avro["precision"], avro.get("scale", 0)
        # Arrow accepts other scales, and reads beyond its tables of powers when it casts them.
        if not 1 <= precision <= 38 or not 0 <= scale <= precision:
            raise self._unsupported(column, f"decimal({precision}, {scale})")
        return pa.decimal128(precision, scale)

    def _unsupported(self, column: str, what: str) -> UnsupportedTableError:
        return UnsupportedTableError(f"the table's schema has {what} at {column!r}: not supported")


def _names(avro: dict[str, Any], enclosing: str) -> tuple[str, str]:
    """Return the namespace and the full name of a named type."""
    name = avro["name"]
    namespace = name.rpartition(".")[0] or avro.get("namespace", enclosing)
    return namespace, f"{namespace}.{name.rpartition('.')[2]}"


class _AnyAvroReader(_AvroReader):
    """Converts as much as possible of the schema of records that are only read."""

    def columns(self, record: dict[str, Any]) -> list[pa.Field]:
        namespace, full = _names(record, "") if "name" in record else ("", "")
        self._named[full] = None
        fields, name = record["fields"], record.get("name", "")
        return [self._column(field, name, namespace) for field in fields]

    def _column(self, avro: dict[str, Any], table: str, namespace: str) -> pa.Field:
        try:
            return self._record_field(avro, table, namespace)
        except UnsupportedTableError as exc:
            why = {_UNREADABLE: exc.message.encode()}
            return pa.field(avro["name"], pa.null(), metadata=why)

    def _only_read(self, kind: str, logical: Any, column: str) -> pa.DataType | None:
        return _ARROW_READ.get((kind, logical))

    def _other_named(self, avro: dict[str, Any], column: str, full: str) -> pa.DataType:
        if avro["type"] == "enum":
            return pa.string()
        size = avro["size"]
        if not isinstance(size, int) or not 0 < size <= _MAX_FIXED:
            raise ValueError(f"a fixed of {size} bytes; allowed: 1 to {_MAX_FIXED}")
        return pa.binary(size)
