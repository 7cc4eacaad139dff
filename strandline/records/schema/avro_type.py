"""A table's Avro schema as values, normalised as Hudi does before a write.

A nullable type is ``["null", T]`` with default null; unions in the other order and other defaults
are lost. The ``fixed`` of a decimal is named after its column. Records keep their names, enums
become strings, and attributes other than ``doc`` are dropped.

Source: Hudi 1.2.0 ``InternalSchemaConverter``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

_LOGICAL: Final = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp-millis",
    ("long", "timestamp-micros"): "timestamp-micros",
    ("long", "local-timestamp-millis"): "local-timestamp-millis",
    ("long", "local-timestamp-micros"): "local-timestamp-micros",
}
_STORED_AS: Final = {name: stored for (stored, _), name in _LOGICAL.items()}


@dataclass(frozen=True, slots=True)
class DecimalType:
    """A decimal; ``size`` is the number of bytes of its ``fixed``, ``None`` for ``bytes``."""

    precision: int
    scale: int
    size: int | None


@dataclass(frozen=True, slots=True)
class RecordType:
    """A record: a struct, or the whole table.

    Attributes:
        name: Its full name; empty for the path of its column below the table's record.
        columns: Its columns, in order; their names are distinct.
    """

    name: str
    columns: tuple[Column, ...]

    def column(self, name: str) -> Column | None:
        """Return a column by name."""
        return next((each for each in self.columns if each.name == name), None)


@dataclass(frozen=True, slots=True)
class ItemsType:
    """A list or a map with string keys.

    Attributes:
        item: Its elements or values, a column.
        is_map: Whether it is a map.
    """

    item: Column
    is_map: bool = False


AvroType: TypeAlias = str | DecimalType | RecordType | ItemsType
"""A type; text for a primitive or logical type without parameters."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column, a field of a struct, an element of a list or a value of a map.

    Attributes:
        name: Its name; ``element`` and ``value`` in lists and maps, as in Hudi's dotted names.
        type: Its type without the union with null.
        nullable: Whether its type is a union with null.
        doc: Its documentation, if any.
    """

    name: str
    type: AvroType
    nullable: bool
    doc: str | None = None


def parse_record(avro_schema: str) -> RecordType:
    """Return the record of a schema that ``avro_to_arrow`` has accepted."""
    record = _Parser().type_of(json.loads(avro_schema), "")
    assert isinstance(record, RecordType)
    return record


def dump_record(record: RecordType) -> str:
    """Return a record as Avro JSON in one line, as Java's Avro writes it."""
    avro = _Dumper().type_of(record, record.name, "")
    return json.dumps(avro, separators=(",", ":"), ensure_ascii=False)


class _Parser:
    """Reads one schema; holds the named types found so far."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}

    def type_of(self, avro: Any, namespace: str) -> AvroType:
        if isinstance(avro, str):
            named = self._named.get(avro if "." in avro else f"{namespace}.{avro}")
            return avro if named is None else named
        kind = avro["type"]
        if isinstance(kind, dict | list):
            return self._column("", kind, namespace).type
        if kind == "array":
            return ItemsType(self._column("element", avro["items"], namespace))
        if kind == "map":
            return ItemsType(self._column("value", avro["values"], namespace), is_map=True)
        if kind == "record":
            return self._record(avro, namespace)
        if avro.get("logicalType") == "decimal":
            size = avro["size"] if kind == "fixed" else None
            decimal = DecimalType(avro["precision"], avro.get("scale", 0), size)
            if kind == "fixed":
                self._named[_full_name(avro, namespace)] = decimal
            return decimal
        primitive: str = kind
        return _LOGICAL.get((primitive, avro.get("logicalType")), primitive)

    def _record(self, avro: dict[str, Any], enclosing: str) -> RecordType:
        name = _full_name(avro, enclosing)
        inside = name.rpartition(".")[0]
        columns = [
            self._column(field["name"], field["type"], inside, field.get("doc"))
            for field in avro["fields"]
        ]
        self._named[name] = record = RecordType(name, tuple(columns))
        return record

    def _column(self, name: str, avro: Any, namespace: str, doc: str | None = None) -> Column:
        if isinstance(avro, list):
            (inner,) = (branch for branch in avro if branch != "null")
            return Column(name, self.type_of(inner, namespace), "null" in avro, doc)
        return Column(name, self.type_of(avro, namespace), nullable=False, doc=doc)


class _Dumper:
    """Writes one schema; a named type is defined where it first occurs."""

    def __init__(self) -> None:
        self._defined: set[str] = set()

    def type_of(self, kind: AvroType, path: str, namespace: str) -> Any:
        """Return a type's JSON; ``path`` names it if it has no name."""
        match kind:
            case RecordType():
                return self._record(kind, path, namespace)
            case ItemsType(item, is_map):
                name, part = ("map", "values") if is_map else ("array", "items")
                return {"type": name, part: self._item(item, path, namespace)}
            case DecimalType():
                return self._decimal(kind, path, namespace)
        if stored := _STORED_AS.get(kind):
            return {"type": stored, "logicalType": kind}
        return kind

    def _item(self, item: Column, path: str, namespace: str) -> Any:
        inner = self.type_of(item.type, path, namespace)
        return ["null", inner] if item.nullable else inner

    def _record(self, record: RecordType, path: str, enclosing: str) -> Any:
        name = record.name or path
        if name in self._defined:
            return name
        self._defined.add(name)
        inside = name.rpartition(".")[0]
        fields = [dict(self._field(each, f"{path}.{each.name}", inside)) for each in record.columns]
        return {"type": "record", **_named(name, enclosing), "fields": fields}

    def _field(self, column: Column, path: str, namespace: str) -> Iterator[tuple[str, Any]]:
        yield "name", column.name
        yield "type", self._item(column, path, namespace)
        if column.doc is not None:
            yield "doc", column.doc
        if column.nullable:
            yield "default", None

    def _decimal(self, kind: DecimalType, path: str, namespace: str) -> Any:
        logical = {
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }
        if kind.size is None:
            return {"type": "bytes", **logical}
        name = f"{path}.fixed"
        if name in self._defined:
            return name
        self._defined.add(name)
        return {"type": "fixed", **_named(name, namespace), "size": kind.size, **logical}


def _full_name(avro: dict[str, Any], enclosing: str) -> str:
    name: str = avro["name"]
    if "." in name:
        return name
    namespace = avro.get("namespace", enclosing)
    return f"{namespace}.{name}" if namespace else name


def _named(full: str, enclosing: str) -> dict[str, str]:
    """Return the attributes of a name; a namespace is inherited from the enclosing record."""
    namespace, _, name = full.rpartition(".")
    return {"name": name, "namespace": namespace} if namespace != enclosing else {"name": name}
