"""Casts columns to other types as Hudi rewrites values when a schema has changed.

Structs are matched by the names of their fields, in any order: fields that the values lack become
null, others are dropped. Beyond Arrow's safe casts:

* Whole numbers become the nearest float, and a float the double with the same shortest text.
* Numbers, decimals, dates and UTF-8 bytes become their text.
* Text becomes a date or bytes; numbers and text become decimals, rounded half up.
* Microseconds become milliseconds, rounded down.

Floating-point numbers get the text of Java's ``Float.toString`` and ``Double.toString``: the fewest
digits that distinguish a number from its neighbours, as in Java 19 and later; older releases of
Java sometimes write one digit more.

``corrected`` gives timestamps the unit that they have: releases of Hudi before 1.1 stored a
writer's ``timestamp-millis`` with the label of microseconds, and local timestamps as plain numbers.
Since 1.1 the table's schema defines the unit: if it has milliseconds and a file microseconds, the
file's numbers are milliseconds, even inside structs, lists and maps.

But Hudi also changes a column of microseconds to milliseconds if a write has these; then earlier
files have true microseconds under the same label. So a column that an earlier commit's schema has
in microseconds is refused: nothing shows which unit a file has.

Source: Hudi 1.2.0 ``HoodieAvroUtils.rewriteRecordWithNewSchema``, ``rewritePrimaryType``,
``HoodieSchemaRepair``, ``SchemaRepair``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timeline.errors import UnsupportedTableError

_CONTEXT: Final = Context(prec=76)
_LAST_DAY_OF_9999: Final = 2_932_896
"""Days since the epoch; Java's text of later dates has a sign."""

_LEAST_PLAIN: Final = 1e-3
_LEAST_SCIENTIFIC: Final = 1e7


def cast_column(
    column: pa.ChunkedArray | pa.Array, kind: pa.DataType
) -> pa.ChunkedArray | pa.Array:
    """Return a column as another type, in the same order; doesn't check for forbidden nulls.

    Raises:
        pa.ArrowInvalid: A value doesn't fit.
        pa.ArrowNotImplementedError: There is no such cast.

    Cost: vectorised, but for a Python step for each distinct value that becomes a decimal or is a
        float that becomes text; nested columns are copied.
    """
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([cast_column(each, kind) for each in column.chunks], kind)
    if not is_nested(kind):
        return _cast_plain(column, kind)
    # Only the rows of this slice: the array may be a slice of a large one.
    return _cast_nested(column.take(pa.array(range(len(column)), pa.int64())), kind)


def is_nested(kind: pa.DataType) -> bool:
    """Whether a type is a struct, list or map."""
    return bool(pa.types.is_nested(kind))


def is_list(kind: pa.DataType) -> bool:
    """Whether a type is a list, of short or long offsets."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if values.type == kind:
        return values
    return _cast_nested(values, kind) if is_nested(kind) else _cast_plain(values, kind)


def _cast_nested(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast an array that has no offset; its children may have one."""
    if not any(
        check(kind) and check(values.type)
        for check in (is_list, pa.types.is_map, pa.types.is_struct)
    ):
        raise pa.ArrowNotImplementedError(f"no cast from {values.type} to {kind}")
    # Arrow's own casts also check for forbidden nulls below null structs.
    if pa.types.is_struct(kind):
        children = [
            _cast(_values_of(values, field.name), field.type)
            if values.type.get_field_index(field.name) >= 0
            else nulls(len(values), field.type)
            for field in kind
        ]
        return pa.StructArray.from_buffers(
            kind, len(values), values.buffers()[:1], values.null_count, children=children
        )
    wide = pa.types.is_large_list(kind)
    offsets = values.offsets.cast(pa.int64() if wide else pa.int32()).buffers()[1]
    if pa.types.is_map(kind):
        entries = _cast_nested(values.values, kind.field(0).type)
    else:
        entries = _cast(values.values, kind.value_type)
    return pa.Array.from_buffers(
        kind, len(values), [values.buffers()[0], offsets], values.null_count, children=[entries]
    )


def _values_of(values: pa.StructArray, name: str) -> pa.Array:
    """Return a field of structs, null where the structs are: any value may lie below a null."""
    field = values.field(name)
    if not values.null_count:
        return field
    places = pa.array(range(len(values)), pa.int64())
    return field.take(pc.if_else(values.is_valid(), places, None))


def nulls(count: int, kind: pa.DataType) -> pa.Array:
    """Return nulls; inside a null struct, fields that must not be null get an arbitrary value."""
    if not is_nested(kind):
        return pa.nulls(count, kind)
    return pa.array([None], kind).take(pa.array(np.zeros(count, np.int64)))


def _cast_plain(values: pa.Array, kind: pa.DataType) -> pa.Array:
    types, old = pa.types, values.type
    if types.is_floating(kind):
        if types.is_floating(old) and old.bit_width < kind.bit_width:
            return values.cast(pa.string()).cast(kind)
        return values.cast(kind, safe=not types.is_integer(old))
    if types.is_string(kind) and types.is_floating(old):
        return float_text(values)
    if types.is_string(kind) and types.is_date32(old):
        return date_text(values)
    if types.is_string(kind) and types.is_decimal(old):
        return decimal_text(values)
    if types.is_decimal(kind) and not types.is_decimal(old):
        return _decimals(values, kind)
    if types.is_timestamp(kind) and types.is_timestamp(old) and kind.unit == "ms" != old.unit:
        return pc.floor_temporal(values, unit="millisecond").cast(kind)
    if types.is_timestamp(kind) and types.is_int32(old):  # a long column before it widened
        return values.cast(pa.int64()).cast(kind)
    return values.cast(kind)


def decimal_text(values: pa.Array) -> pa.Array:
    """Return the text of decimals as ``BigDecimal.toString`` gives it."""
    # Older pyarrow writes "1.E-10" where Java writes "1E-10".
    return pc.replace_substring(values.cast(pa.string()), ".E", "E")


def date_text(values: pa.Array) -> pa.Array:
    """Return the text of dates as ``LocalDate.toString`` gives it."""
    texts, days = values.cast(pa.string()), values.cast(pa.int32())
    after = pc.greater(days, _LAST_DAY_OF_9999)
    if not pc.any(after).as_py():
        return texts
    return pc.if_else(after, pc.binary_join_element_wise("+", texts, ""), texts)


def _decimals(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return numbers or their texts as decimals."""
    texts = values.cast(pa.string()).dictionary_encode()
    step = Decimal(1).scaleb(-kind.scale)
    made = [_decimal(text, step, kind) for text in texts.dictionary.to_pylist()]
    return pa.array(made, kind).take(texts.indices)


def _decimal(text: str, step: Decimal, kind: pa.DataType) -> Decimal:
    try:
        made = Decimal(text).quantize(step, ROUND_HALF_UP, _CONTEXT)
    except DecimalException as exc:
        raise pa.ArrowInvalid(f"{text!r} is no decimal") from exc
    if not made.is_finite():
        raise pa.ArrowInvalid(f"{text!r} is no decimal")
    if made and made.adjusted() >= kind.precision - kind.scale:
        raise pa.ArrowInvalid(f"{text!r} has too many digits")
    return made


def float_text(values: pa.Array) -> pa.Array:
    """Return the text of floats or doubles; nulls stay null.

    Cost: a Python step for each distinct value.
    """
    encoded = values.dictionary_encode()
    numbers = encoded.dictionary.to_numpy(zero_copy_only=False)
    return pa.array(map(_text, numbers), pa.string()).take(encoded.indices)


def _text(number: np.floating[Any]) -> str:
    if np.isnan(number):
        return "NaN"
    if np.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0 or _LEAST_PLAIN <= abs(number) < _LEAST_SCIENTIFIC:
        return np.format_float_positional(number, unique=True, trim="0")
    text = np.format_float_scientific(number, unique=True, trim="0", exp_digits=1)
    mantissa, _, exponent = text.partition("e")
    if mantissa.endswith(".0"):
        # Java always writes two digits, so it prefers 4.9E-324 to the less exact 5.0E-324.
        closest = f"{float(number):.1e}"
        if type(number)(closest) == number:
            mantissa, _, exponent = closest.partition("e")
    return f"{mantissa}E{int(exponent)}"


OnceMicros = Callable[[], Collection[str]]
"""Returns the dotted names of columns that an earlier commit's schema has in microseconds."""


def corrected(
    rows: pa.Table,
    schema: pa.Schema,
    once_micros: OnceMicros,
    place: str,
    exempt: Collection[str] = (),
) -> pa.Table:
    """Return stored rows, same columns, with timestamps in the units of the table's schema.

    Args:
        rows: Rows with the types of a file or log block.
        schema: The table's columns.
        once_micros: Called only if a column in microseconds must become milliseconds.
        place: File or block of the rows, for errors.
        exempt: Columns whose stored unit is certain.

    Raises:
        UnsupportedTableError: A column may have either unit; the message names it.

    Cost: none for columns with the table's type; others aren't copied.
    """
    found = rows.schema
    if found.equals(schema):
        return rows
    for field in schema:
        at = found.get_field_index(field.name)
        if at < 0 or field.name in exempt:
            continue
        stored = found.field(at)
        if stored.type == field.type:
            continue
        kind = _labelled(stored.type, field.type)
        if kind == stored.type:
            continue
        _refuse(set(_mislabelled(stored.type, field.type, field.name)), once_micros, place)
        chunks = [chunk.view(kind) for chunk in rows.column(at).chunks]
        rows = rows.set_column(at, stored.with_type(kind), pa.chunked_array(chunks, kind))
    return rows


def has_millis(schema: pa.Schema) -> bool:
    """Return whether a column, or a part of one, is in milliseconds."""
    return any(_has_millis(field.type) for field in schema)


def once_in_micros(schema: pa.Schema, earlier: Iterable[pa.Schema]) -> frozenset[str]:
    """Return the dotted names of columns now in milliseconds that once were in microseconds.

    Args:
        schema: The table's columns.
        earlier: Its columns at earlier commits.
    """
    return frozenset(
        name
        for each in earlier
        for field in schema
        if field.name in each.names
        for name in _mislabelled(each.field(field.name).type, field.type, field.name)
    )


def _refuse(names: Collection[str], once_micros: OnceMicros, place: str) -> None:
    both = sorted(set(names).intersection(once_micros())) if names else []
    if both:
        raise UnsupportedTableError(
            f"{place} has {', '.join(map(repr, both))} in microseconds, which the table has in"
            " milliseconds, and had in microseconds before: the numbers may be either",
            hint="read other columns, or rewrite the file's rows with the writer that changed them",
        )


def _labelled(stored: pa.DataType, kind: pa.DataType) -> pa.DataType:
    """Return a stored type with the table's units where these are authoritative."""
    if pa.types.is_timestamp(kind):
        is_plain = pa.types.is_int64(stored) and kind.tz is None
        return kind if is_plain or _is_micros_for_millis(stored, kind) else stored
    if pa.types.is_struct(stored) and pa.types.is_struct(kind):
        return pa.struct(
            field.with_type(_labelled(field.type, kind.field(at).type))
            if (at := kind.get_field_index(field.name)) >= 0
            else field
            for field in stored
        )
    if is_list(stored) and is_list(kind):
        item = stored.value_field.with_type(_labelled(stored.value_type, kind.value_type))
        return pa.large_list(item) if pa.types.is_large_list(stored) else pa.list_(item)
    if pa.types.is_map(stored) and pa.types.is_map(kind):
        item = stored.item_field.with_type(_labelled(stored.item_type, kind.item_type))
        return pa.map_(stored.key_field, item)
    return stored


def _mislabelled(stored: pa.DataType, kind: pa.DataType, name: str) -> Iterator[str]:
    """Yield the dotted names that are microseconds in ``stored`` and milliseconds in ``kind``."""
    if _is_micros_for_millis(stored, kind):
        yield name
    elif pa.types.is_struct(stored) and pa.types.is_struct(kind):
        for field in stored:
            at = kind.get_field_index(field.name)
            if at >= 0:
                yield from _mislabelled(field.type, kind.field(at).type, f"{name}.{field.name}")
    elif is_list(stored) and is_list(kind):
        yield from _mislabelled(stored.value_type, kind.value_type, f"{name}.element")
    elif pa.types.is_map(stored) and pa.types.is_map(kind):
        yield from _mislabelled(stored.item_type, kind.item_type, f"{name}.value")


def _is_micros_for_millis(stored: pa.DataType, kind: pa.DataType) -> bool:
    if not (pa.types.is_timestamp(stored) and pa.types.is_timestamp(kind)):
        return False
    return (stored.unit, kind.unit) == ("us", "ms")


def _has_millis(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return bool(kind.unit == "ms")
    return any(_has_millis(kind.field(at).type) for at in range(kind.num_fields))
