"""Conversion between the frozen values of ``instant_metadata`` and Hudi's records.

The conversion is derived from each class's type hints, evaluated once: a field ``num_writes: int``
is ``numWrites`` in the record, ``tuple`` is an array, ``Mapping`` a map, a class of that module a
record. A null becomes ``None`` where the field is optional; else, like a missing field, it becomes
the field's default or the empty value of its type. The few fields whose name or place differs are
listed in ``_NAMES`` and ``_NESTED``.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Callable, Hashable, Mapping
from functools import cache
from typing import Any, Final, TypeVar, cast

from timeline.metadata import instant_metadata as metadata

T = TypeVar("T")

_NAMES: Final[Mapping[tuple[type, str], str]] = {
    (metadata.RollbackPlan, "rollback_requests"): "RollbackRequests",
    (metadata.WriteStat, "total_log_files"): "totalLogFilesCompacted",
    (metadata.RestoreMetadata, "restore_metadata"): "hoodieRestoreMetadata",
}
_NESTED: Final[Mapping[tuple[type, str], str]] = {
    (metadata.WriteStat, "total_create_time"): "runtimeStats",
    (metadata.WriteStat, "total_upsert_time"): "runtimeStats",
    (metadata.WriteStat, "total_scan_time"): "runtimeStats",
    (metadata.ClusteringPlan, "strategy_class_name"): "strategy",
    (metadata.ClusteringPlan, "strategy_params"): "strategy",
}
"""Fields that the record keeps one level deeper → the name of that level."""

_Convert = Callable[[Any], Any]
_Make = Callable[[], Any]


_Field = tuple[str, str, "str | None", _Convert, _Convert, _Make, _Make]
"""A field of a class and of its record: attribute; name and nesting in the record; functions that
load and dump a value; makers of its value if null and if missing. Plain tuples unpack fastest."""


def load(kind: type[T], record: Any) -> T:
    """Return the value of a record.

    Raises:
        ValueError: A field has a value of another type.
    """
    check(record, dict)
    values: dict[str, Any] = {}
    name = ""
    try:
        for attribute, name, nested, loads, _, if_null, if_missing in _fields(cast(Hashable, kind)):
            source = record if nested is None else _nested(record, nested)
            found = source.get(name, dataclasses.MISSING)
            if found is dataclasses.MISSING:
                values[attribute] = if_missing()
            elif found is None:
                values[attribute] = if_null()
            else:
                values[attribute] = loads(found)
    except ValueError as exc:
        raise ValueError(f"{name}: {exc}") from exc
    return kind(**values)


def _nested(record: dict[str, Any], name: str) -> dict[str, Any]:
    found = record.get(name)
    if found is None:
        return {}
    check(found, dict)
    return cast("dict[str, Any]", found)


def dump(value: Any) -> dict[str, Any]:
    """Return the record of a value."""
    record: dict[str, Any] = {}
    for attribute, name, nested, _, dumps, _, _ in _fields(cast(Hashable, type(value))):
        target = record if nested is None else record.setdefault(nested, {})
        found = getattr(value, attribute)
        target[name] = None if found is None else dumps(found)
    return record


@cache
def _fields(kind: Any) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(kind)
    return tuple(_field_of(kind, field, hints[field.name]) for field in dataclasses.fields(kind))


def _field_of(kind: type, field: dataclasses.Field[Any], hint: Any) -> _Field:
    key = (kind, field.name)
    optional = type(None) in typing.get_args(hint)
    if optional:
        (hint,) = (arg for arg in typing.get_args(hint) if arg is not type(None))
    loads, dumps, empty = _converters(hint)
    if_missing: _Make = empty
    if field.default is not dataclasses.MISSING:
        default = field.default
        if_missing = lambda: default  # noqa: E731
    elif field.default_factory is not dataclasses.MISSING:
        if_missing = field.default_factory
    name = _NAMES.get(key, _camel(field.name))
    if_null = (lambda: None) if optional else if_missing
    return field.name, name, _NESTED.get(key), loads, dumps, if_null, if_missing


def _converters(hint: Any) -> tuple[_Convert, _Convert, _Make]:
    """Return the functions that load, dump and make an empty value of a type."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return _tuple_converters(args[0])
    if origin is not None and issubclass(origin, Mapping):
        return _mapping_converters(args[1])
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        kind = hint
        return (lambda record: load(kind, record)), dump, kind
    return _SCALARS[hint], _itself, hint


def _tuple_converters(item: Any) -> tuple[_Convert, _Convert, _Make]:
    load_item, dump_item, _ = _converters(item)

    def loads(found: Any) -> tuple[Any, ...]:
        check(found, list)
        return tuple(load_item(each) for each in found if each is not None)

    return loads, (lambda value: [dump_item(each) for each in value]), tuple


def _mapping_converters(item: Any) -> tuple[_Convert, _Convert, _Make]:
    load_item, dump_item, _ = _converters(item)

    def loads(found: Any) -> dict[str, Any]:
        check(found, dict)
        items = ((key, each) for key, each in found.items() if each is not None)
        return {checked_text(key): load_item(each) for key, each in items}

    return loads, (lambda value: {k: dump_item(each) for k, each in value.items()}), dict


def check(found: Any, kind: type) -> None:
    """Refuse a value whose type isn't ``kind`` itself: a boolean is no integer."""
    if type(found) is not kind:
        raise ValueError(f"{type(found).__name__} where {kind.__name__} belongs")


def checked_text(found: Any) -> Any:
    """Return a text; refuse other values and lone surrogates, which JSON can express."""
    check(found, str)
    if not found.isascii():
        found.encode()
    return found


def checked_integer(found: Any) -> Any:
    """Return a 64-bit integer; refuse other values, and larger numbers, which JSON allows."""
    check(found, int)
    if not -(1 << 63) <= found < 1 << 63:
        raise ValueError(f"a number of {found.bit_length()} bits where 64 are")
    return found


def _number(found: Any) -> Any:
    if type(found) is not int:
        check(found, float)
    return found


def _truth(found: Any) -> Any:
    check(found, bool)
    return found


_SCALARS: Final[Mapping[type, _Convert]] = {
    bool: _truth,
    float: _number,
    int: checked_integer,
    str: checked_text,
}


def _itself(value: Any) -> Any:
    return value


def _camel(name: str) -> str:
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)
