"""The Bloom filter of record keys in a base file's footer, byte for byte as Java makes it.

A filter for ``n`` keys at the error rate ``p`` has ``m = ceil(n * -ln p / ln² 2)`` bits and
``k = ceil(ln 2 * m / n)`` hashes. The hashes of a key are a chain: each is Murmur2 (32 bits,
Hadoop's variant) over the key's UTF-8 with the hash before as its seed, the first seed being 0; the
bit is ``|h % m|`` with Java's remainder.

* ``SIMPLE``: int -1, int k, byte 1, int m, then the bits, lowest first in each byte.
* ``DYNAMIC_V0``: the same header, then int n, int keys in the last row, int rows, and each row as a
  ``SIMPLE`` image. Keys go into the last row until it holds n; then a row is added while
  ``rows * n < max``; from there on keys are dealt to the rows in turn.

All ints are big endian; the footer has the image in base64.

A chained hash can't be split over keys of one file, but it can be run for many keys at once: keys
of one length are one matrix of 4-byte blocks, whose mixing doesn't depend on the seed and is done
once for the whole chain.

Source: Hudi 1.2.0 ``SimpleBloomFilter``, ``InternalDynamicBloomFilter``, ``MurmurHash``.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SIMPLE: Final = "SIMPLE"
DYNAMIC: Final = "DYNAMIC_V0"

U32 = npt.NDArray[np.uint32]
Bits = npt.NDArray[np.bool_]

_M: Final = np.uint32(0x5BD1E995)
_KEYS_AT_ONCE: Final = 16_384
"""Keys hashed together: their blocks and hashes stay in a core's second-level cache."""
_HEADER: Final = struct.Struct(">iibi")
_DYNAMIC_HEADER: Final = struct.Struct(">iii")
_MURMUR: Final = 1


@dataclass(frozen=True, slots=True)
class _Shape:
    """What all rows of a filter share: bits, hashes a key."""

    bits: int
    hashes: int

    @classmethod
    def of(cls, num_entries: int, error_rate: float) -> _Shape:
        log2 = math.log(2)
        bits = math.ceil(num_entries * (-math.log(error_rate) / (log2 * log2)))
        return cls(bits, math.ceil(log2 * bits / num_entries))

    def header(self) -> bytes:
        return _HEADER.pack(-1, self.hashes, _MURMUR, self.bits)


class BloomFilter:
    """A growing set of record keys that may say yes too often, never no wrongly.

    Args:
        num_entries: Keys that one row is sized for.
        error_rate: Wanted share of wrong yes answers, between 0 and 1.
        max_entries: Keys after which a dynamic filter grows no more rows.
        dynamic: Whether the filter grows rows (``DYNAMIC_V0``) or is one row (``SIMPLE``).
    """

    def __init__(
        self,
        num_entries: int = 60_000,
        error_rate: float = 1e-9,
        max_entries: int = 100_000,
        *,
        dynamic: bool = True,
    ) -> None:
        self._num_entries = num_entries
        self._max_entries = max_entries
        self._dynamic = dynamic
        self._shape = _Shape.of(num_entries, error_rate)
        self._rows: list[Bits] = [self._new_row()]
        self._in_last_row = 0
        self._full = False
        self._next_row = 0

    @property
    def type_code(self) -> str:
        """``SIMPLE`` or ``DYNAMIC_V0``, as the footer names it."""
        return DYNAMIC if self._dynamic else SIMPLE

    def add_all(self, keys: pa.StringArray | pa.ChunkedArray) -> None:
        """Add keys in their order (it decides the rows of a dynamic filter).

        Raises:
            ValueError: A key is null or empty.

        Cost: about 0.4 µs a key of 20 bytes at 30 hashes.
        """
        for chunk in _chunks(keys):
            taken = 0
            while taken < len(chunk):
                taken += self._add_some(chunk.slice(taken))

    def might_contain(self, keys: pa.StringArray | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
        """Return for each key whether it may have been added; never ``False`` for one that was."""
        found = []
        for chunk in _chunks(keys):
            hits = np.zeros(len(chunk), np.bool_)
            for positions, hashes in _bits_of(chunk, self._shape):
                in_row = [np.ones(len(positions), np.bool_) for _ in self._rows]
                for bit in hashes:
                    for row, hit in zip(self._rows, in_row, strict=True):
                        hit &= row[bit]
                hits[positions] = np.logical_or.reduce(in_row)
            found.append(hits)
        return np.concatenate(found) if found else np.zeros(0, np.bool_)

    def to_base64(self) -> str:
        """Return the footer's text."""
        header = self._shape.header()
        rows = [np.packbits(row, bitorder="little").tobytes() for row in self._rows]
        if not self._dynamic:
            return base64.b64encode(header + rows[0]).decode("ascii")
        sizes = _DYNAMIC_HEADER.pack(self._num_entries, self._in_last_row, len(rows))
        image = header + sizes + b"".join(header + row for row in rows)
        return base64.b64encode(image).decode("ascii")

    @classmethod
    def parse(cls, text: str, type_code: str = SIMPLE) -> BloomFilter:
        """Read a footer's filter, for look-ups only.

        Raises:
            ValueError: The text is no filter of this type.
        """
        try:
            return cls._from_image(base64.b64decode(text, validate=True), type_code)
        except struct.error as exc:
            raise ValueError(f"a {type_code} Bloom filter is cut off") from exc

    @classmethod
    def _from_image(cls, image: bytes, type_code: str) -> BloomFilter:
        version, hashes, hash_type, bits = _HEADER.unpack_from(image)
        if version != -1 or hash_type != _MURMUR or type_code not in (SIMPLE, DYNAMIC):
            raise ValueError(f"unknown Bloom filter: {type_code} {version=} {hash_type=}")
        bloom = cls(1, dynamic=type_code == DYNAMIC)
        bloom._shape = _Shape(bits, hashes)
        at, rows = _HEADER.size, 1
        if type_code == DYNAMIC:
            bloom._num_entries, bloom._in_last_row, rows = _DYNAMIC_HEADER.unpack_from(image, at)
            bloom._max_entries = bloom._num_entries * rows
            at += _DYNAMIC_HEADER.size + _HEADER.size
        size = (bits + 7) // 8
        if len(image) < at + (rows - 1) * (size + _HEADER.size) + size:
            raise ValueError(f"a {type_code} Bloom filter is cut off: {len(image)} bytes")
        bloom._rows = []
        for start in range(at, at + rows * (size + _HEADER.size), size + _HEADER.size):
            packed = np.frombuffer(image, np.uint8, size, start)
            bloom._rows.append(np.unpackbits(packed, count=bits, bitorder="little").view(np.bool_))
        return bloom

    def _new_row(self) -> Bits:
        return np.zeros(self._shape.bits, np.bool_)

    def _add_some(self, keys: pa.StringArray) -> int:
        """Add as many leading keys as go by one rule into one row (or in turn); return how many."""
        if not self._dynamic:
            self._set(self._rows[0], keys)
            return len(keys)
        if self._full:
            self._deal(keys)
            return len(keys)
        if self._in_last_row >= self._num_entries:
            if len(self._rows) * self._num_entries >= self._max_entries:
                # Java gives the key that finds the filter full to the first row, then deals from it
                # on.
                self._full = True
                self._set(self._rows[0], keys.slice(0, 1))
                self._in_last_row += 1
                return 1
            self._rows.append(self._new_row())
            self._in_last_row = 0
        count = min(len(keys), self._num_entries - self._in_last_row)
        self._set(self._rows[-1], keys.slice(0, count))
        self._in_last_row += count
        return count

    def _deal(self, keys: pa.StringArray) -> None:
        rows = len(self._rows)
        turns = (np.arange(len(keys)) + self._next_row) % rows
        for number, row in enumerate(self._rows):
            self._set(row, keys.take(pa.array(np.flatnonzero(turns == number))))
        self._next_row = (self._next_row + len(keys)) % rows
        self._in_last_row += len(keys)

    def _set(self, row: Bits, keys: pa.StringArray) -> None:
        for _, hashes in _bits_of(keys, self._shape):
            for bit in hashes:
                row[bit] = True


def _chunks(keys: pa.StringArray | pa.ChunkedArray) -> list[pa.StringArray]:
    return keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]


def _bits_of(
    keys: pa.StringArray, shape: _Shape
) -> Iterator[tuple[npt.NDArray[np.int64], Iterator[U32]]]:
    """Yield groups of keys: their positions, and one array of bit numbers for each hash."""
    if not len(keys):
        return
    data, starts, lengths = _key_bytes(keys)
    order = np.argsort(lengths, kind="stable")
    edges = np.flatnonzero(np.diff(lengths[order])) + 1
    for group in np.split(order, edges):
        length = int(lengths[group[0]])
        for at in range(0, len(group), _KEYS_AT_ONCE):
            part = group[at : at + _KEYS_AT_ONCE]
            yield part, _chain(data, starts[part], length, shape)


def _key_bytes(
    keys: pa.StringArray,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the buffer of all keys, and where each begins and how long it is."""
    if keys.null_count:
        raise ValueError(f"{keys.null_count} record keys are null")
    keys = keys.cast(pa.string())
    _, offsets_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32, len(keys) + 1, keys.offset * 4)
    starts = offsets[:-1].astype(np.int64)
    lengths = np.diff(offsets).astype(np.int64)
    if not lengths.all():
        raise ValueError("a record key is empty")
    return np.frombuffer(data_buffer, np.uint8), starts, lengths


def _chain(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], length: int, shape: _Shape
) -> Iterator[U32]:
    """Yield the bit number of each key for one hash after the other; keys are of one length."""
    blocks, tail = _mixed(data, starts, length)
    bits = np.uint32(shape.bits)
    hashed = np.zeros(len(starts), np.uint32)
    shifted = np.empty_like(hashed)
    for _ in range(shape.hashes):
        hashed ^= np.uint32(length)
        for block in blocks:
            hashed *= _M
            hashed ^= block
        if tail is not None:
            hashed ^= tail
            hashed *= _M
        np.right_shift(hashed, 13, out=shifted)
        hashed ^= shifted
        hashed *= _M
        np.right_shift(hashed, 15, out=shifted)
        hashed ^= shifted
        yield _bit(hashed, bits)


def _bit(hashed: U32, bits: np.uint32) -> U32:
    """Return ``|h % bits|`` of the signed hash, by a division that numpy does in vectors."""
    positive = np.abs(hashed.view(np.int32)).view(np.uint32)  # |-2³¹| wraps to itself, 2³¹ unsigned
    return positive - positive // bits * bits


def _mixed(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], length: int
) -> tuple[list[U32], U32 | None]:
    """Return what does not depend on the seed: the mixed 4-byte blocks, and any tail.

    The tail's bytes are signed in Java, and counted from the key's end.
    """
    matrix = data[starts[:, None] + np.arange(length)]
    whole = length // 4 * 4
    words = np.ascontiguousarray(matrix[:, :whole]).view("<u4").astype(np.uint32, copy=False)
    blocks = []
    for column in words.T:
        mixed = column * _M
        mixed ^= mixed >> np.uint32(24)
        mixed *= _M
        blocks.append(mixed)
    if length == whole:
        return blocks, None
    tail = np.zeros(len(starts), np.uint32)
    for back in range(1, length - whole + 1):
        signed = matrix[:, length - back].view(np.int8).astype(np.int32).view(np.uint32)
        tail ^= signed << np.uint32(8 * (back - 1))
    return blocks, tail
