"""Log files: sequences of blocks, used by merge-on-read tables and by version 6's archive.

All integers are big-endian; the header's keys are ordinals, its values UTF-8::

    6  "#HUDI#"        8  size of the rest of the block
    4  version 1       4  type
    header: count, then (ordinal, length, bytes) each
    8  length of the content, then the content
    footer as the header
    8  size of the block without these last eight bytes

The content of an Avro block is its version and the number of records (4 bytes each), then for each
record its length (4) and bytes.

Source: Hudi 1.2.0 ``HoodieLogFormat``, ``HoodieLogFileReader``, ``HoodieLogBlock``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from timeline.encoding.avro_binary import Cursor
from timeline.errors import CorruptMetadataError

COMMAND: Final = 0
DELETE: Final = 1
AVRO_DATA: Final = 3
HFILE_DATA: Final = 4
"""Types of blocks."""

INSTANT_TIME: Final = 0
TARGET_INSTANT_TIME: Final = 1
SCHEMA: Final = 2
COMMAND_TYPE: Final = 3
COMPACTED_TIMES: Final = 4
"""Ordinals of a header: the instant that wrote the block; the target of a command; the records'
Avro schema; the command (``0``: roll back); the instants that a log compaction merged into the
block."""

MAGIC: Final = b"#HUDI#"
_VERSION: Final = 1
_TRAILER: Final = 8


@dataclass(frozen=True, slots=True)
class LogBlock:
    """One block.

    Attributes:
        kind: Its type.
        header: Ordinal → value.
        content: Its bytes.
        offset: Offset of the content in the file.
    """

    kind: int
    header: Mapping[int, str]
    content: bytes
    offset: int


def read_blocks(data: bytes, source: str) -> Iterator[LogBlock]:
    """Yield the blocks of a log file in order.

    Args:
        data: The whole file.
        source: Its path, for errors.

    Raises:
        CorruptMetadataError: It is damaged, no log file, or ends within a block.
    """
    cursor = Cursor(data)
    while cursor.pos < len(data):
        begin = cursor.pos
        try:
            block = _block(cursor)
        except ValueError as exc:
            # A writer that died leaves half a block. Java's reader goes on at the next magic; here
            # the file is damaged, and callers do without it.
            raise CorruptMetadataError(
                f"{source} ({len(data)} bytes) has no whole log block at offset {begin}: {exc}"
            ) from exc
        yield block


def avro_values(block: LogBlock) -> Iterator[bytes]:
    """Yield the bytes of each record of an Avro block.

    Raises:
        ValueError: The block ends too early.
    """
    content = Cursor(block.content)
    take_int(content)  # versions 1 to 3 have the same layout
    for _ in range(take_int(content)):
        yield content.take(take_int(content))


def take_int(cursor: Cursor) -> int:
    """Return the next four bytes as a signed number."""
    return int.from_bytes(cursor.take(4), "big", signed=True)


def _block(cursor: Cursor) -> LogBlock:
    magic = cursor.take(len(MAGIC))
    if magic != MAGIC:
        raise ValueError(f"it begins with {magic!r}")
    size = _long(cursor)
    end = cursor.pos + size
    if not 0 <= size <= len(cursor.data) - cursor.pos:
        raise ValueError(f"{size} bytes wanted at offset {cursor.pos}")
    version, kind = take_int(cursor), take_int(cursor)
    if version != _VERSION:
        raise ValueError(f"version {version}; supported: {_VERSION}")
    header = _map(cursor)
    length = _long(cursor)
    offset = cursor.pos
    content = cursor.take(length)
    _map(cursor)
    if cursor.pos + _TRAILER != end:
        raise ValueError(f"its parts end at {cursor.pos + _TRAILER}, the block at {end}")
    trailer = _long(cursor)
    if trailer != size + len(MAGIC):
        raise ValueError(f"its size is {size + len(MAGIC)}, and at its end {trailer}")
    return LogBlock(kind, header, content, offset)


def _map(cursor: Cursor) -> dict[int, str]:
    count = take_int(cursor)
    if count < 0:
        raise ValueError(f"a map of {count} entries at offset {cursor.pos}")
    return {take_int(cursor): cursor.take(take_int(cursor)).decode() for _ in range(count)}


def _long(cursor: Cursor) -> int:
    return int.from_bytes(cursor.take(8), "big", signed=True)
