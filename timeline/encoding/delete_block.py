"""Delete blocks of log files: keys of deleted records, with the ordering values of the deletes.

The content is the block's version and the length of the rest (4 bytes each), then an Avro record
``HoodieDeleteRecordList`` without its schema. Its ordering value is a union of wrappers, and the
branch is the value's type. A generic reader loses the branch, so the record is decoded here.
Executors, which have no fastavro, write delete blocks, so it is encoded here, too.
Versions 1 and 2 use Java serialisation.

Source: Hudi 1.2.0 ``HoodieDeleteBlock``, ``HoodieAvroWrapperUtils``, ``HoodieDelete.avsc``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from enum import Enum
from typing import Any, Final

from timeline.encoding.avro_binary import Cursor, put_long
from timeline.encoding.log_block import take_int

_SUPPORTED: Final = 3
DECIMAL_SCALE: Final = 15
"""The scale of all decimals in delete blocks."""
_EXACT: Final = Context(prec=400)
_MOST_DECIMAL_BYTES: Final = 160
_ARRAY: Final = 12
"""The branch of a list of values: one for each ordering column."""

Scalar = bool | int | float | bytes | str | Decimal


class ValueType(Enum):
    """The type of an ordering value; the numbers are those of the union's branches."""

    BOOLEAN = 1
    INT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    BYTES = 6
    STRING = 7
    DATE = 8
    DECIMAL = 9
    TIME_MICROS = 10
    TIMESTAMP_MICROS = 11
    LOCAL_DATE = 13
    """Branch 12 within a list, where there is no list."""


@dataclass(frozen=True, slots=True)
class OrderingValue:
    """A value of one ordering column; dates are days, times are microseconds."""

    type: ValueType
    value: Scalar


@dataclass(frozen=True, slots=True)
class DeletedRecord:
    """One deleted record.

    Attributes:
        key: Its record key.
        ordering: The values of the ordering columns, ``None`` for a null. It is empty if the delete
            has no ordering value; such a delete wins over all older records.
    """

    key: str
    ordering: tuple[OrderingValue | None, ...]


class DeleteVersionError(ValueError):
    """A delete block is of a version that isn't supported."""


def deleted_records(content: bytes) -> Iterator[DeletedRecord]:
    """Yield the records of a delete block.

    Args:
        content: The block's content.

    Raises:
        DeleteVersionError: It is of another version than 3.
        ValueError: It is damaged.
    """
    cursor = Cursor(content)
    version, size = take_int(cursor), take_int(cursor)
    if version != _SUPPORTED:
        raise DeleteVersionError(f"version {version}; supported: {_SUPPORTED}")
    records = Cursor(cursor.take(size))
    if cursor.pos < len(content):
        raise ValueError(f"{len(content) - cursor.pos} bytes after the {size} of the records")
    while count := records.take_block_count():
        for _ in range(count):
            yield _record(records)
    if records.pos < len(records.data):
        raise ValueError(f"{len(records.data) - records.pos} bytes after the last record")


def delete_content(records: Sequence[DeletedRecord], partition: str) -> bytes:
    """Return the content of a delete block.

    Args:
        records: The deleted records. One without ordering values gets Java's ``Integer`` 0, as
            Hudi's delete operation writes it; one with several gets a list of them.
        partition: Their partition path.

    Raises:
        ValueError: A record has no key, or an ordering value that its type can't hold.
    """
    out = bytearray()
    if records:
        put_long(out, len(records))
    for record in records:
        if not record.key:
            raise ValueError(f"a deleted record with the key {record.key!r}")
        for text in (record.key, partition):
            put_long(out, 1)
            _put_bytes(out, text.encode())
        _put_ordering(out, record.ordering)
    out.append(0)
    return struct.pack(">ii", _SUPPORTED, len(out)) + out


def _put_ordering(out: bytearray, ordering: Sequence[OrderingValue | None]) -> None:
    """Append the branch and value of a record's ordering values."""
    if not ordering:
        _put_value(out, _NO_ORDERING)
    elif len(ordering) == 1:
        _put_value(out, ordering[0])
    else:
        put_long(out, _ARRAY)
        put_long(out, 1)
        put_long(out, len(ordering))
        for value in ordering:
            _put_value(out, value, inside=True)
        out.append(0)


def _put_value(out: bytearray, value: OrderingValue | None, *, inside: bool = False) -> None:
    """Append the branch and the value of one ordering column; ``inside``: of a list."""
    if value is None:
        put_long(out, 0)
        return
    if value.type is ValueType.LOCAL_DATE and not inside:
        raise ValueError(f"{value} outside of a list")
    put_long(out, _ARRAY if value.type is ValueType.LOCAL_DATE else value.type.value)
    try:
        _WRITERS[value.type](out, value.value)
    except (struct.error, TypeError, AttributeError, ArithmeticError) as exc:
        raise ValueError(f"{value} can't be written: {exc}") from exc


def _put_bytes(out: bytearray, data: bytes) -> None:
    put_long(out, len(data))
    out += data


def _put_decimal(out: bytearray, value: Decimal) -> None:
    scaled = value.scaleb(DECIMAL_SCALE, _EXACT)
    number = int(scaled)
    if number != scaled:
        raise ValueError(f"{value} has more than {DECIMAL_SCALE} decimals")
    # The shortest two's complement, as in Java's ``BigInteger.toByteArray``.
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    _put_bytes(out, number.to_bytes(size, "big", signed=True))


def _record(cursor: Cursor) -> DeletedRecord:
    key = _optional_text(cursor)
    if not key:
        raise ValueError(f"a deleted record with the key {key!r}")
    _optional_text(cursor)  # the partition path
    return DeletedRecord(key, _ordering(cursor))


def _ordering(cursor: Cursor) -> tuple[OrderingValue | None, ...]:
    branch = cursor.take_long()
    if branch > _ARRAY:
        raise ValueError(f"union branch {branch} of {_ARRAY + 1}")
    if branch != _ARRAY:
        value = _value(cursor, branch)
        # Java compares with the Integer 0, whatever the type of the ordering column.
        is_default = value is None or (value.type is ValueType.INT and not value.value)
        return () if is_default else (value,)
    if _is_null(cursor):
        return ()
    values: list[OrderingValue | None] = []
    while count := cursor.take_block_count():
        for _ in range(count):
            inner = cursor.take_long()
            values.append(_value(cursor, _LOCAL_DATE if inner == _ARRAY else inner))
    return tuple(values)


def _value(cursor: Cursor, branch: int) -> OrderingValue | None:
    if branch == 0:
        return None
    kind = _TYPES.get(branch)
    if kind is None:
        raise ValueError(f"an ordering value of type {branch}")
    return OrderingValue(kind, _READERS[kind](cursor))


def _is_null(cursor: Cursor) -> bool:
    branch = cursor.take_long()
    if branch not in (0, 1):
        raise ValueError(f"union branch {branch} of 2")
    return branch == 0


def _optional_text(cursor: Cursor) -> str | None:
    return None if _is_null(cursor) else _text(cursor)


def _bytes(cursor: Cursor) -> bytes:
    return cursor.take(cursor.take_long())


def _text(cursor: Cursor) -> str:
    return _bytes(cursor).decode()


def _float(cursor: Cursor) -> float:
    value: float = struct.unpack("<f", cursor.take(4))[0]
    return value


def _double(cursor: Cursor) -> float:
    value: float = struct.unpack("<d", cursor.take(8))[0]
    return value


def _decimal(cursor: Cursor) -> Decimal:
    digits = _bytes(cursor)
    if len(digits) > _MOST_DECIMAL_BYTES:
        raise ValueError(f"a decimal of {len(digits)} bytes")
    number = int.from_bytes(digits, "big", signed=True)
    return Decimal(number).scaleb(-DECIMAL_SCALE, _EXACT)


_LOCAL_DATE: Final = ValueType.LOCAL_DATE.value
_TYPES: Final[Mapping[int, ValueType]] = {kind.value: kind for kind in ValueType}
_READERS: Final[Mapping[ValueType, Callable[[Cursor], Scalar]]] = {
    ValueType.BOOLEAN: lambda cursor: cursor.take(1) != b"\0",
    ValueType.INT: Cursor.take_long,
    ValueType.LONG: Cursor.take_long,
    ValueType.FLOAT: _float,
    ValueType.DOUBLE: _double,
    ValueType.BYTES: _bytes,
    ValueType.STRING: _text,
    ValueType.DATE: Cursor.take_long,
    ValueType.DECIMAL: _decimal,
    ValueType.TIME_MICROS: Cursor.take_long,
    ValueType.TIMESTAMP_MICROS: Cursor.take_long,
    ValueType.LOCAL_DATE: Cursor.take_long,
}
_NO_ORDERING: Final = OrderingValue(ValueType.INT, 0)
_WRITERS: Final[Mapping[ValueType, Callable[[bytearray, Any], None]]] = {
    ValueType.BOOLEAN: lambda out, value: out.append(1 if value else 0),
    ValueType.INT: put_long,
    ValueType.LONG: put_long,
    ValueType.FLOAT: lambda out, value: out.extend(struct.pack("<f", value)),
    ValueType.DOUBLE: lambda out, value: out.extend(struct.pack("<d", value)),
    ValueType.BYTES: _put_bytes,
    ValueType.STRING: lambda out, value: _put_bytes(out, value.encode()),
    ValueType.DATE: put_long,
    ValueType.DECIMAL: _put_decimal,
    ValueType.TIME_MICROS: put_long,
    ValueType.TIMESTAMP_MICROS: put_long,
    ValueType.LOCAL_DATE: put_long,
}
