"""Reads a footer's Bloom filter as the format is described, key by key; for the tests."""

from __future__ import annotations

import base64
import struct


def murmur(key: bytes, seed: int) -> int:
    """Return Hadoop's 32-bit Murmur2, signed."""
    mixer, mask = 0x5BD1E995, 0xFFFFFFFF
    whole = len(key) // 4 * 4
    hashed = seed ^ len(key)
    for (block,) in struct.iter_unpack("<I", key[:whole]):
        block = block * mixer & mask
        hashed = (hashed * mixer & mask) ^ ((block ^ block >> 24) * mixer & mask)
    if whole < len(key):
        for back in range(1, len(key) - whole + 1):  # signed bytes, from the end
            (signed,) = struct.unpack("b", key[-back : len(key) - back + 1])
            hashed ^= signed << 8 * (back - 1) & mask
        hashed = hashed * mixer & mask
    hashed = (hashed ^ hashed >> 13) * mixer & mask
    hashed ^= hashed >> 15
    return hashed - (1 << 32) if hashed >> 31 else hashed


class BloomReader:
    """Tests whether a key may be in the filter of a footer's text."""

    def __init__(self, text: str, type_code: str) -> None:
        image = base64.b64decode(text, validate=True)
        version, self.hashes, kind, self.bits = struct.unpack_from(">iibi", image)
        assert (version, kind) == (-1, 1)
        rows, at = 1, 13
        if type_code == "DYNAMIC_V0":
            _, _, rows = struct.unpack_from(">iii", image, at)
            at += 12 + 13
        size = (self.bits + 7) // 8
        self.rows = [image[start : start + size] for start in range(at, len(image), size + 13)]
        assert len(self.rows) == rows
        assert all(len(row) == size for row in self.rows)

    def __contains__(self, key: str) -> bool:
        bits, seed = [], 0
        for _ in range(self.hashes):
            seed = murmur(key.encode(), seed & 0xFFFFFFFF)
            bits.append(abs(seed) % self.bits)
        return any(all(row[bit // 8] >> bit % 8 & 1 for bit in bits) for row in self.rows)
