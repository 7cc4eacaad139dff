"""The text of values in record keys and partition paths, as Hudi's key generators make it.

Booleans, numbers and decimals have the text of Java's ``toString``, dates are ``yyyy-mm-dd``, bytes
are hexadecimal. A timestamp is the number of microseconds or milliseconds since the epoch, as it
is stored.

Source: Hudi 1.2.0 ``HoodieAvroUtils.getNestedFieldValAsString``, ``StringUtils.objToString``.

``key_hashes`` gives the hashes of record keys, computed for a whole batch at once.

Hashes show whether a write's passes see the same keys, spread new rows evenly among files, and find
keys in ``strandline.records.key_match``. No file stores them, so they may change between releases.

A key's bytes are read as little-endian words of 64 bits, the last one padded with zeros. Each word
is mixed into the state by exclusive or, a multiplication and a shift; the state begins with the
key's length, which distinguishes padding from zeros in the key.

Keys are hashed in blocks whose numbers fit into a processor's cache. Most keys have one length;
then the words of a block are equally far apart, and needn't be gathered.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.row_selection import one_chunk
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


Hashes: TypeAlias = npt.NDArray[np.uint32]

BLOCK: Final = 16_384
"""Number of keys hashed together."""
_WORD: Final = 8
"""Bytes of a word."""
_HALF: Final = np.uint64(32)
_START: Final = np.uint64(0xD6E8_FEB8_6659_FD93)
_FACTOR: Final = np.uint64(0x9E37_79B9_7F4A_7C15)
_FIRST_BYTES: Final = np.array([(1 << 8 * count) - 1 for count in range(_WORD + 1)], np.uint64)
"""Mask of the first bytes of a word, by their number."""


def key_hashes(keys: pa.StringArray) -> pa.Int64Array:
    """Return a number of 32 bits for each key, the same in every process.

    Args:
        keys: Record keys without nulls; text of either width of offsets.

    Cost: some 5 ns a key of 16 bytes, 10 ns of 36 bytes, and twice that if lengths differ.
    """
    return pa.array(hashes_of(keys), pa.int64())


def hashes_of(keys: pa.StringArray | pa.LargeStringArray) -> Hashes:
    """Return ``key_hashes`` as a numpy array."""
    hashes: Hashes = np.empty(len(keys), np.uint32)
    if not len(keys):
        return hashes
    _, offsets_buffer, data = keys.buffers()
    width: Any = np.int64 if pa.types.is_large_string(keys.type) else np.int32
    start = keys.offset * np.dtype(width).itemsize
    offsets = np.frombuffer(offsets_buffer, width, len(keys) + 1, start)
    text = np.frombuffer(data or b"", np.uint8)
    for begin in range(0, len(keys), BLOCK):
        ends = offsets[begin : begin + BLOCK + 1]
        padded = np.zeros(int(ends[-1] - ends[0]) + _WORD, np.uint8)
        padded[:-_WORD] = text[ends[0] : ends[-1]]
        hashes[begin : begin + BLOCK] = _hashed(padded, (ends - ends[0]).astype(np.int64))
    return hashes


def _hashed(text: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Return the hashes of keys, given their offsets in a text with a word of padding behind it."""
    starts, lengths = offsets[:-1], np.diff(offsets)
    shortest, longest = int(lengths.min()), int(lengths.max())
    # A word begins at each byte.
    words: npt.NDArray[Any] = np.ndarray((len(text) - _WORD + 1,), "<u8", text, strides=(1,))
    hashes = lengths.astype(np.uint64) * _START
    for at in range(0, longest, _WORD):
        left = shortest - at
        if shortest == longest:
            read = words[at::longest][: len(hashes)]
            _mix(hashes, read if left >= _WORD else read & _FIRST_BYTES[left])
        elif left >= _WORD:
            _mix(hashes, words[starts + at])
        else:
            rows = slice(None) if left > 0 else np.flatnonzero(lengths > at)
            read = words[starts[rows] + at] & _FIRST_BYTES[np.minimum(lengths[rows] - at, _WORD)]
            some = hashes[rows]
            _mix(some, read)
            hashes[rows] = some
    # Otherwise the last word's high bytes would only be added, and different sets of keys could
    # have equal sums of hashes.
    hashes = hashes * _START
    hashes = (hashes ^ (hashes >> _HALF)) * _FACTOR
    hashes ^= hashes >> _HALF
    return hashes * _START >> _HALF


def _mix(hashes: npt.NDArray[np.uint64], words: npt.NDArray[Any]) -> None:
    """Mix a word of each key into the states, in place."""
    hashes ^= words
    hashes *= _FACTOR
    hashes ^= hashes >> _HALF
