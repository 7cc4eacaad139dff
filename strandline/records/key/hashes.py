"""``key_hashes``: hashes of record keys, computed for a whole batch at once.

A hash says whether a write's passes see the same keys, and spreads new rows evenly among files. It
is in no file, so it may change between releases.

A key's bytes are read as little-endian words of 64 bits, the last one padded with zeros. Each word
is mixed into the state by exclusive or, a multiplication and a shift; the state begins with the
key's length, which tells padding from zeros in the key.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_WORD: Final = 8
"""Bytes of a word."""
_PIECE_ROWS: Final = 8_192
"""Keys that are hashed at once: arrays of megabytes would be new pages of memory at each step."""
_HALF: Final = np.uint64(32)
_START: Final = np.uint64(0xD6E8_FEB8_6659_FD93)
_FACTOR: Final = np.uint64(0x9E37_79B9_7F4A_7C15)
_FIRST_BYTES: Final = np.array([(1 << 8 * count) - 1 for count in range(_WORD + 1)], np.uint64)
"""Mask of the first bytes of a word, by their number."""


def key_hashes(keys: pa.StringArray) -> pa.Int64Array:
    """Return a number of 32 bits for each key, the same in every process.

    Args:
        keys: Record keys without nulls.

    Cost: some 10 ns a key of 20 bytes; twice that if keys have several lengths.
    """
    hashes = np.empty(len(keys), np.int64)
    for begin in range(0, len(keys), _PIECE_ROWS):
        piece = slice(begin, begin + _PIECE_ROWS)
        hashes[piece] = _hashes(keys[piece])
    return pa.array(hashes)


def _hashes(keys: pa.StringArray) -> npt.NDArray[np.uint64]:
    """Return the hashes of at least one key."""
    _, offsets_buffer, data = keys.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32, len(keys) + 1, keys.offset * 4)
    offsets = offsets.astype(np.int64)
    text = np.zeros(offsets[-1] - offsets[0] + _WORD, np.uint8)
    text[:-_WORD] = np.frombuffer(data or b"", np.uint8)[offsets[0] : offsets[-1]]
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    shortest, longest = int(lengths.min()), int(lengths.max())
    # A word begins at each byte; if all keys have one length, at equal distances.
    words = np.ndarray(len(text) - _WORD + 1, "<u8", text, strides=(1,))
    hashes = lengths.astype(np.uint64) * _START
    for at in range(0, longest, _WORD):
        if shortest == longest:
            mixed = words[at:-1:longest] & _FIRST_BYTES[min(longest - at, _WORD)]
            mixed ^= hashes
            mixed *= _FACTOR
            hashes = mixed ^ (mixed >> _HALF)
            continue
        rows = slice(None) if at < shortest else np.flatnonzero(lengths > at)
        read = words[starts[rows] + at] & _FIRST_BYTES[np.minimum(lengths[rows] - at, _WORD)]
        mixed = (hashes[rows] ^ read) * _FACTOR
        hashes[rows] = mixed ^ (mixed >> _HALF)
    # Else the last word's high bytes would only be added, and sums of hashes wouldn't tell which
    # keys they came from.
    hashes = hashes * _START
    hashes = (hashes ^ (hashes >> _HALF)) * _FACTOR
    hashes ^= hashes >> _HALF
    return hashes * _START >> _HALF
