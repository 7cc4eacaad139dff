"""Hand-made HFiles and log blocks in every form that Hudi writes."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Mapping, Sequence

Entries = Sequence[tuple[bytes, bytes]]


def hfile(
    entries: Entries,
    info: Mapping[bytes, bytes],
    *,
    compressed: bool = True,
    checksum: int = 0,
    per_block: int = 1000,
    versions: bool = True,
    between: bytes = b"",
) -> bytes:
    """Return an HFile of version 3.

    Args:
        entries: Keys and values in the order of the keys.
        info: The file's info map.
        compressed: Whether blocks are compressed by gzip.
        checksum: Type of the checksums; 1: CRC-32.
        per_block: How many entries a block has.
        versions: Whether a version number of one byte follows each entry.
        between: Magic of blocks between the data blocks; empty for none.
    """
    out, starts, index = bytearray(), [], bytearray()
    for part in range(0, len(entries), per_block):
        if between and starts:
            out += block(between, b"an index", compressed, checksum)
        starts.append(len(out))
        data = b"".join(
            entry(key, value, b"\0" if versions else b"")
            for key, value in entries[part : part + per_block]
        )
        packed = block(b"DATABLK*", data, compressed, checksum)
        first = struct.pack(">H", len(entries[part][0])) + entries[part][0]
        index += struct.pack(">qi", len(out), len(packed)) + _varint(len(first)) + first
        out += packed
    said = {**info, b"KEY_VALUE_VERSION": struct.pack(">i", 1)} if versions else info
    pairs = b"".join(_bytes(1, _bytes(1, key) + _bytes(2, value)) for key, value in said.items())
    loaded_at = len(out)
    out += block(b"IDXROOT2", bytes(index), compressed, checksum)
    out += block(b"IDXROOT2", b"", compressed, checksum)  # of what else a file may hold
    info_at = len(out)
    out += block(b"FILEINF2", b"PBUF" + _varint(len(pairs)) + pairs, compressed, checksum)
    numbers = {1: info_at, 2: loaded_at, 3: len(index), 5: len(starts), 7: len(entries), 8: 1}
    numbers |= {9: 0, 10: starts[-1] if starts else 0, 12: 1 if compressed else 2}
    return bytes(out) + trailer(numbers)


def entry(key: bytes, value: bytes, after: bytes = b"\0") -> bytes:
    """Return an entry with the full HBase key."""
    whole = struct.pack(">H", len(key)) + key + b"\0" + b"\x7f" + b"\xff" * 7 + b"\4"
    return struct.pack(">ii", len(whole), len(value)) + whole + value + after


def block(magic: bytes, data: bytes, compressed: bool = True, checksum: int = 0) -> bytes:
    """Return a block with its header and checksums."""
    packed = gzip.compress(data, mtime=0) if compressed else data
    each, size = 16384, 33 + len(packed)
    sums = 4 * -(-size // each)
    numbers = (len(packed) + sums, len(data), -1, checksum, each, size)
    found = magic + struct.pack(">iiqbii", *numbers) + packed
    pieces = (found[at : at + each] for at in range(0, size, each))
    return found + b"".join(struct.pack(">I", zlib.crc32(piece)) for piece in pieces)


def trailer(numbers: Mapping[int, int], version: int = 3) -> bytes:
    """Return a trailer with these numbers."""
    said = b"".join(_varint(field << 3) + _varint(number) for field, number in numbers.items())
    said += _bytes(11, b"org.apache.hudi.io.storage.HoodieHBaseKVComparator")
    front = b'TRABLK"$' + _varint(len(said)) + said
    return front.ljust(4092, b"\0") + struct.pack(">i", version)


def log_block(kind: int, header: Mapping[int, str], content: bytes = b"") -> bytes:
    """Return a block of a log file."""
    said = b"".join(
        struct.pack(">ii", key, len(value.encode())) + value.encode()
        for key, value in header.items()
    )
    body = struct.pack(">iii", 1, kind, len(header)) + said
    body += struct.pack(">q", len(content)) + content + struct.pack(">i", 0)
    size = len(body) + 8
    return b"#HUDI#" + struct.pack(">q", size) + body + struct.pack(">q", size + 6)


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])
