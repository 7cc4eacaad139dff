"""The Bloom filter of record keys in a base file's footer, byte for byte as in Java.

A filter for ``n`` keys at the false-positive rate ``p`` has ``m = ceil(n * -ln p / ln² 2)`` bits
and ``k = ceil(ln 2 * m / n)`` hashes. A key's hashes form a chain: each is Murmur2 (32 bits,
Hadoop's variant) of the key's UTF-8, seeded with the previous hash, the first with 0; the bit is
``|h % m|`` with Java's remainder.

* ``SIMPLE``: int -1, int k, byte 1, int m, then the bits, lowest first in each byte.
* ``DYNAMIC_V0``: the same header, then int n, int keys in the last row, int rows, and each row as a
  ``SIMPLE`` image. Keys go into the last row until it holds n; then a row is added while
  ``rows * n < max``; after that keys are distributed over the rows round-robin.

All ints are big-endian; the footer holds the image in base64.

The chain of one key is sequential, so it is vectorised over keys: keys of equal length form a
matrix of 4-byte blocks, and the mixing of a block, which doesn't depend on the seed, is done once
for the whole chain.

Source: Hudi 1.2.0 ``SimpleBloomFilter``, ``InternalDynamicBloomFilter``, ``MurmurHash``.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

SIMPLE: Final = "SIMPLE"
DYNAMIC: Final = "DYNAMIC_V0"

U32 = npt.NDArray[np.uint32]
BitArray = npt.NDArray[np.bool_]

_M_INT: Final = 0x5BD1E995
_M: Final = np.uint32(_M_INT)
_ALL: Final = 0xFFFF_FFFF
_SIGN: Final = 0x8000_0000
_KEYS_AT_ONCE: Final = 16_384
"""Number of keys hashed together, so that their blocks and hashes fit into the L2 cache."""
_FEW_KEYS: Final = 12
"""Number of keys up to which a chain is faster in Python than by numpy's calls: 60 us a key of 20
bytes at 30 hashes, against 700 us for any number of keys."""
_HEADER: Final = struct.Struct(">iibi")
_DYNAMIC_HEADER: Final = struct.Struct(">iii")
_MURMUR: Final = 1


@dataclass(frozen=True, slots=True)
class _Shape:
    """Bits of a row, and hashes of a key."""

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
    """A Bloom filter that is built by adding record keys.

    Args:
        num_entries: Number of keys that one row is sized for.
        error_rate: False-positive rate of a row, between 0 and 1.
        max_entries: Number of keys after which a dynamic filter adds no more rows.
        dynamic: Whether the filter adds rows (``DYNAMIC_V0``) or has one (``SIMPLE``).
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
        self._rows: list[BitArray] = [self._new_row()]
        self._in_last_row = 0
        self._full = False
        self._next_row = 0

    @property
    def type_code(self) -> str:
        """The footer's name of the type: ``SIMPLE`` or ``DYNAMIC_V0``."""
        return DYNAMIC if self._dynamic else SIMPLE

    def add_all(self, keys: pa.StringArray | pa.ChunkedArray) -> None:
        """Add keys (strings); their order decides which row of a dynamic filter each goes to.

        Raises:
            ValueError: A key is null or empty.

        Cost: about 0.4 µs a key of 20 bytes at 30 hashes; 60 µs of a few keys.
        """
        for chunk in keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]:
            taken = 0
            while taken < len(chunk):
                taken += self._add_some(chunk.slice(taken))

    def restore(self, text: bytes, keys: int) -> bool:
        """Load a stored filter into this empty one instead of adding its keys.

        Args:
            text: The filter as stored in the footer.
            keys: Number of its keys.

        Returns:
            Whether the stored filter has the size and number of keys that this one would get;
            otherwise this one remains empty. A simple filter doesn't record its number of keys.
        """
        most = max(1, -(-self._max_entries // self._num_entries))
        rows = min(most, max(1, -(-keys // self._num_entries)))
        in_last_row = keys - (rows - 1) * self._num_entries
        header = self._shape.header()
        begin = header + _DYNAMIC_HEADER.pack(self._num_entries, in_last_row, rows)
        try:
            image = base64.b64decode(text, validate=True)
        except binascii.Error:
            return False
        step = len(header) + (self._shape.bits + 7) // 8
        parts = [image[at : at + step] for at in range(len(begin), len(image), step)]
        if not (
            self._dynamic
            and image.startswith(begin)
            and [len(part) for part in parts] == [step] * rows
            and all(part.startswith(header) for part in parts)
        ):
            return False
        self._rows = [self._unpacked(part[len(header) :]) for part in parts]
        self._in_last_row = in_last_row
        self._full = in_last_row > self._num_entries
        if self._full:
            self._next_row = (in_last_row - self._num_entries - 1) % rows
        return True

    def to_base64(self) -> str:
        """Return the filter as stored in the footer."""
        header = self._shape.header()
        rows = [np.packbits(row, bitorder="little").tobytes() for row in self._rows]
        if not self._dynamic:
            return base64.b64encode(header + rows[0]).decode("ascii")
        sizes = _DYNAMIC_HEADER.pack(self._num_entries, self._in_last_row, len(rows))
        image = header + sizes + b"".join(header + row for row in rows)
        return base64.b64encode(image).decode("ascii")

    def _unpacked(self, row: bytes) -> BitArray:
        packed = np.frombuffer(row, np.uint8)
        return np.unpackbits(packed, count=self._shape.bits, bitorder="little").view(np.bool_)

    def _new_row(self) -> BitArray:
        return np.zeros(self._shape.bits, np.bool_)

    def _add_some(self, keys: pa.StringArray) -> int:
        """Add the leading keys that go to one row, or all if round-robin; return their number."""
        if not self._dynamic:
            self._set(self._rows[0], keys)
            return len(keys)
        if self._full:
            self._deal(keys)
            return len(keys)
        if self._in_last_row >= self._num_entries:
            if len(self._rows) * self._num_entries >= self._max_entries:
                # Java puts the first key of a full filter into row 0, then starts at row 0 again.
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

    def _set(self, row: BitArray, keys: pa.StringArray) -> None:
        if len(keys) <= _FEW_KEYS:
            row[[at for key in keys.to_pylist() for at in self._bits_of(key)]] = True
            return
        bits = np.uint32(self._shape.bits)
        for _, chain in hash_chains(keys):
            for hashed in islice(chain, self._shape.hashes):
                row[bit_of(hashed, bits)] = True

    def _bits_of(self, key: str | None) -> Iterator[int]:
        """Yield the bits of one key, as ``hash_chains`` and ``bit_of`` give them for many."""
        if not key:
            raise ValueError("a record key is empty" if key == "" else "1 record keys are null")
        bits, data = self._shape.bits, key.encode()
        whole = len(data) // 4 * 4
        blocks = []
        for (block,) in struct.iter_unpack("<I", data[:whole]):
            mixed = block * _M_INT & _ALL
            mixed ^= mixed >> 24
            blocks.append(mixed * _M_INT & _ALL)
        tail = None
        if whole < len(data):
            tail = 0
            for back in range(1, len(data) - whole + 1):
                byte = data[-back]
                tail ^= (byte - 256 if byte > 127 else byte) << 8 * (back - 1) & _ALL
        hashed = 0
        for _ in range(self._shape.hashes):
            hashed ^= len(data)
            for block in blocks:
                hashed = hashed * _M_INT & _ALL ^ block
            if tail is not None:
                hashed = (hashed ^ tail) * _M_INT & _ALL
            hashed = (hashed ^ hashed >> 13) * _M_INT & _ALL
            hashed ^= hashed >> 15
            yield (hashed if hashed < _SIGN else (1 << 32) - hashed) % bits


def hash_chains(
    keys: pa.StringArray,
) -> Iterator[tuple[npt.NDArray[np.int64], Iterator[U32]]]:
    """Yield groups of keys of equal length: their positions, and the endless chain of hashes.

    The chain yields one array, overwritten by each step, with a hash of each key.
    """
    if not len(keys):
        return
    if keys.null_count:
        raise ValueError(f"{keys.null_count} record keys are null")
    keys = keys.cast(pa.string())
    lengths = pc.binary_length(keys).to_numpy()
    if not lengths.all():
        raise ValueError("a record key is empty")
    order = np.argsort(lengths, kind="stable")
    lengths = lengths[order]
    if lengths[0] < lengths[-1]:
        keys = keys.take(pa.array(order))
    # Keys of equal length that are one after the other in memory are a matrix without a copy.
    _, offsets_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32, len(keys) + 1, keys.offset * 4)
    data = np.frombuffer(data_buffer, np.uint8)
    edges = np.flatnonzero(np.diff(lengths)) + 1
    for first, end in pairwise([0, *edges.tolist(), len(keys)]):
        for at in range(first, end, _KEYS_AT_ONCE):
            until = min(at + _KEYS_AT_ONCE, end)
            matrix = data[offsets[at] : offsets[until]].reshape(until - at, -1)
            yield order[at:until], _chain(matrix)


def _chain(matrix: npt.NDArray[np.uint8]) -> Iterator[U32]:
    """Yield the chain's hashes, one step at a time, for each row; a row has a key's bytes."""
    count, length = matrix.shape
    blocks, tail = _mixed(matrix)
    hashed = np.zeros(count, np.uint32)
    shifted = np.empty_like(hashed)
    while True:
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
        yield hashed


def bit_of(hashed: U32, bits: np.uint32) -> U32:
    """Return ``|h % bits|`` of the signed hash; numpy vectorises division, but not remainder."""
    positive = np.abs(hashed.view(np.int32)).view(np.uint32)  # |-2³¹| wraps to itself, 2³¹ unsigned
    return positive - positive // bits * bits


def _mixed(matrix: npt.NDArray[np.uint8]) -> tuple[list[U32], U32 | None]:
    """Return the parts that don't depend on the seed: the mixed 4-byte blocks, and any tail."""
    length = matrix.shape[1]
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
    tail = np.zeros(len(matrix), np.uint32)
    # Java treats the tail's bytes as signed and takes them from the key's end.
    for back in range(1, length - whole + 1):
        signed = matrix[:, length - back].view(np.int8).astype(np.int32).view(np.uint32)
        tail ^= signed << np.uint32(8 * (back - 1))
    return blocks, tail
