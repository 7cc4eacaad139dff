"""The text of values in record keys and partition paths, as Hudi's key generators make it.

Booleans, numbers and decimals have the text of Java's ``toString``, dates are ``yyyy-mm-dd``, bytes
are hexadecimal. A timestamp is the number of microseconds or milliseconds since the epoch, as it
is stored.

Source: Hudi 1.2.0 ``HoodieAvroUtils.getNestedFieldValAsString``, ``StringUtils.objToString``.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.ordering import one_chunk
from strandline.records.schema.cast import date_text, decimal_text, float_text
from timeline.errors import InputError


def key_text(column: pa.Array | pa.ChunkedArray, name: str, role: str) -> pa.StringArray:
    """Return a column's values as strings, in the same order; nulls stay null.

    Args:
        column: The column.
        name: Its name, for messages.
        role: Its role, for messages: a key column or a partition column.

    Raises:
        InputError: The type can't be part of a key, text isn't UTF-8, or versions of Java write a
            float differently.

    Cost: vectorised, but for a Python step for each distinct float or binary value.
    """
    column = one_chunk(column)
    kind, types = column.type, pa.types
    if types.is_dictionary(kind):
        return key_text(column.cast(kind.value_type), name, role)
    if types.is_string(kind) or types.is_large_string(kind):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as exc:
            raise InputError(f"{role} {name!r} has text that isn't UTF-8: {exc}") from exc
        return column.cast(pa.string())
    if types.is_timestamp(kind) and kind.unit in ("us", "ms"):
        return column.cast(pa.int64()).cast(pa.string())
    if types.is_decimal128(kind):
        return decimal_text(column)
    if kind in (pa.float32(), pa.float64()):
        return _float_text(column, name, role)
    if types.is_binary(kind) or types.is_large_binary(kind):
        encoded = column.dictionary_encode()
        texts = [value.hex() for value in encoded.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(encoded.indices)
    if types.is_date32(kind):
        return date_text(column)
    if types.is_boolean(kind) or types.is_signed_integer(kind):
        return column.cast(pa.string())
    raise InputError(
        f"{role} {name!r} has the type {kind}",
        hint="allowed: strings, binary, booleans, signed integers, floats, dates, decimals,"
        " timestamps in us or ms",
    )


def _float_text(column: pa.Array, name: str, role: str) -> pa.StringArray:
    """Return the text of floats; refuse values whose text differs between versions of Java."""
    # Java below 19 gives some larger whole numbers a digit more than Java 19 and later.
    largest = 2.0**24 if column.type == pa.float32() else 2.0**53
    large = pc.and_(pc.is_finite(column), pc.greater(pc.abs(column), largest))
    if pc.any(large).as_py():
        found = column.filter(large)[0].as_py()
        raise InputError(
            f"{role} {name!r} has the value {found!r}, whose text differs between versions of Java",
            hint=f"allowed: up to {largest:.0f}",
        )
    return float_text(column)
