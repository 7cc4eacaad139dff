"""Looks record keys up in the Bloom filters of base files' footers.

The hash chains of the keys don't depend on a filter's size, so ``KeyHashes`` computes them once for
all files, and only as far as a filter asks: half of the keys that aren't in a full filter are out
after each hash. ``strandline.records.file.bloom`` describes the format and writes it.

Source: Hudi 1.2.0 ``InternalBloomFilter.membershipTest``, ``ParquetUtils`` of the footer's keys.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.records.file.bloom import DYNAMIC, U32, bit_of, hash_chains
from strandline.records.ordering import Positions

BLOOM_KEY: Final = b"org.apache.hudi.bloomfilter"
BLOOM_TYPE_KEY: Final = b"hoodie_bloom_filter_type_code"

_HEADER: Final = struct.Struct(">iibi")
_DYNAMIC_HEADER: Final = struct.Struct(">iii")
_VERSION: Final = -1
_MURMUR: Final = 1


class KeyHashes:
    """The hash chains of record keys, extended when a filter asks for more; used by one thread.

    Args:
        keys: Record keys.

    Raises:
        ValueError: A key is null or empty.
    """

    def __init__(self, keys: pa.StringArray) -> None:
        self._count = len(keys)
        self._chains = list(hash_chains(keys))
        self._hashes: list[U32] = []

    def hashed(self, number: int) -> U32:
        """Return each key's hash ``number``, counted from 0.

        Cost: at first 15 ns a key and hash.
        """
        while len(self._hashes) <= number:
            row = np.empty(self._count, np.uint32)
            for positions, chain in self._chains:
                row[positions] = next(chain)
            self._hashes.append(row)
        return self._hashes[number]


@dataclass(frozen=True, slots=True)
class StoredBloom:
    """A filter read from a footer.

    Attributes:
        bits: Number of bits of a row.
        hashes: Number of hashes of a key.
        rows: The rows' bits, lowest first in each byte; a simple filter has one row.
    """

    bits: int
    hashes: int
    rows: tuple[npt.NDArray[np.uint8], ...]

    @classmethod
    def of_footer(cls, footer: Mapping[bytes, bytes]) -> StoredBloom | None:
        """Return the filter of a footer; ``None`` if it has none that can be right."""
        text = footer.get(BLOOM_KEY)
        if text is None:
            return None
        try:
            return cls.read(text, footer.get(BLOOM_TYPE_KEY, b"").decode())
        except ValueError:
            return None

    @classmethod
    def read(cls, text: bytes, type_code: str) -> StoredBloom:
        """Return the filter that a footer's text holds.

        Args:
            text: The image in base64.
            type_code: ``DYNAMIC_V0``; anything else is a simple filter, as in Hudi.

        Raises:
            ValueError: The image is damaged.
        """
        try:
            image = memoryview(base64.b64decode(text, validate=True))
            bits, hashes = _header(image)
            at, rows = 0, 1
            if type_code == DYNAMIC:
                at = _HEADER.size + _DYNAMIC_HEADER.size
                _, _, rows = _DYNAMIC_HEADER.unpack_from(image, _HEADER.size)
            size = (bits + 7) // 8
            step = _HEADER.size + size
            if rows < 1 or len(image) != at + rows * step:
                raise ValueError(f"{len(image)} bytes for {rows} rows of {bits} bits")
            starts = range(at, len(image), step)
            if any(_header(image[start:]) != (bits, hashes) for start in starts):
                raise ValueError("rows of different sizes")
        except (binascii.Error, struct.error) as exc:
            raise ValueError(str(exc)) from exc
        found = (np.frombuffer(image, np.uint8, size, start + _HEADER.size) for start in starts)
        return cls(bits, hashes, tuple(found))

    def possible(self, keys: KeyHashes, at: Positions) -> Positions:
        """Return those of the positions ``at`` whose key may be in the filter, ascending."""
        found = [self._in_row(row, keys, at) for row in self.rows]
        possible: Positions = found[0] if len(found) == 1 else np.unique(np.concatenate(found))
        return possible

    def _in_row(self, row: npt.NDArray[np.uint8], keys: KeyHashes, at: Positions) -> Positions:
        for number in range(self.hashes):
            if not len(at):
                break
            bit = bit_of(keys.hashed(number)[at], np.uint32(self.bits))
            at = at[(row[bit >> 3] >> (bit & 7).astype(np.uint8)) & 1 != 0]
        return at


def _header(image: memoryview) -> tuple[int, int]:
    """Return the numbers of bits and hashes at the begin of an image."""
    version, hashes, kind, bits = _HEADER.unpack_from(image)
    if version != _VERSION or kind != _MURMUR or hashes < 1 or bits < 1:
        raise ValueError(f"version {version}, hash {kind}, {hashes} hashes, {bits} bits")
    return bits, hashes
