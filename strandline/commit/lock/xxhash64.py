"""XXH64, the hash that Hudi derives ZooKeeper's node of a base path with.

Source: the XXH64 specification (xxHash, "XXH64 algorithm description").
"""

from __future__ import annotations

import struct
from typing import Final

_MASK: Final = (1 << 64) - 1
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5


def xxhash64(data: bytes, seed: int = 0) -> int:
    """Return the XXH64 hash, an unsigned number of 64 bits."""
    rest = len(data) % 32
    if len(data) >= 32:
        lanes = [(seed + start) & _MASK for start in (_P1 + _P2, _P2, 0, -_P1)]
        for words in struct.iter_unpack("<4Q", data[: len(data) - rest]):
            lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
        value = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            value = ((value & _MASK) ^ _round(0, lane)) * _P1 + _P4
    else:
        value = seed + _P5
    value = (value + len(data)) & _MASK
    return _avalanche(_with_tail(value, data[len(data) - rest :]))


def _with_tail(value: int, tail: bytes) -> int:
    """Return the value with the last bytes, fewer than 32, mixed in."""
    while len(tail) >= 8:
        value ^= _round(0, int.from_bytes(tail[:8], "little"))
        value = (_rotated(value, 27) * _P1 + _P4) & _MASK
        tail = tail[8:]
    if len(tail) >= 4:
        value ^= (int.from_bytes(tail[:4], "little") * _P1) & _MASK
        value = (_rotated(value, 23) * _P2 + _P3) & _MASK
        tail = tail[4:]
    for byte in tail:
        value ^= (byte * _P5) & _MASK
        value = (_rotated(value, 11) * _P1) & _MASK
    return value


def _avalanche(value: int) -> int:
    value = ((value ^ (value >> 33)) * _P2) & _MASK
    value = ((value ^ (value >> 29)) * _P3) & _MASK
    return value ^ (value >> 32)


def _round(lane: int, word: int) -> int:
    return (_rotated((lane + word * _P2) & _MASK, 31) * _P1) & _MASK


def _rotated(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) & _MASK
