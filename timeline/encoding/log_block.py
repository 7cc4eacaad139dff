"""Log files: sequences of blocks, used by merge-on-read tables and by version 6's archive.

All integers are big-endian; the header's keys are ordinals, its values UTF-8::

    6  "#HUDI#"        8  size of the rest of the block
    4  version 1       4  type
    header: count, then (ordinal, length, bytes) each
    8  length of the content, then the content
    footer as the header
    8  size of the block without these last eight bytes

The content of an Avro block is its version and the number of records (4 bytes each), then for each
record its length (4) and bytes. That of a Parquet block is a Parquet file.

A writer that dies may leave part of a block, and others append behind it. ``read_blocks`` refuses
such a file; ``scan_blocks`` goes on at the next magic, as Hudi's reader does.

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
PARQUET_DATA: Final = 5
CHANGE_DATA: Final = 6
"""Types of blocks."""

VERSION: Final = 1
"""The one version of blocks."""

INSTANT_TIME: Final = 0
TARGET_INSTANT_TIME: Final = 1
SCHEMA: Final = 2
COMMAND_TYPE: Final = 3
COMPACTED_TIMES: Final = 4
IS_PARTIAL: Final = 7
"""Ordinals of a header: the instant that wrote the block; the target of a command; the records'
Avro schema; the command (``0``: roll back); the instants that a log compaction merged into the
block; whether the records have only the columns that they update."""

ROLL_BACK: Final = "0"
"""The one command."""

MAGIC: Final = b"#HUDI#"
_TRAILER: Final = 8
_AVRO_VERSIONS: Final = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class LogBlock:
    """One block.

    Attributes:
        kind: Its type.
        header: Ordinal → value.
        content: Its bytes.
        offset: Offset of the content in the file.
        begin: Offset of the block in the file.
        version: Its version; if it isn't ``VERSION``, header and content are empty.
    """

    kind: int
    header: Mapping[int, str]
    content: bytes
    offset: int
    begin: int = 0
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class TornBlock:
    """Bytes of a log file that are no whole block.

    Attributes:
        begin: Offset of the first byte.
        end: Offset of the next block, or the size of the file.
        reason: What is wrong with them.
    """

    begin: int
    end: int
    reason: str


def read_blocks(data: bytes, source: str) -> Iterator[LogBlock]:
    """Yield the blocks of a log file in order.

    Args:
        data: The whole file.
        source: Its path, for errors.

    Raises:
        CorruptMetadataError: It is damaged, no log file, or ends within a block.
    """
    for block in scan_blocks(data):
        if isinstance(block, TornBlock):
            raise CorruptMetadataError(
                f"{source} ({len(data)} bytes) has no whole log block at offset {block.begin}:"
                f" {block.reason}"
            )
        if block.version != VERSION:
            raise CorruptMetadataError(
                f"{source} ({len(data)} bytes) has a log block of version {block.version};"
                f" supported: {VERSION}"
            )
        yield block


def scan_blocks(data: bytes) -> Iterator[LogBlock | TornBlock]:
    """Yield the blocks of a log file in order, and the bytes between them that are none.

    Args:
        data: The whole file.
    """
    cursor = Cursor(data)
    while cursor.pos < len(data):
        begin = cursor.pos
        try:
            yield _block(cursor)
        except ValueError as exc:
            end = data.find(MAGIC, begin + 1)
            cursor.pos = len(data) if end < 0 else end
            yield TornBlock(begin, cursor.pos, str(exc))


def avro_values(block: LogBlock) -> Iterator[bytes]:
    """Yield the bytes of each record of an Avro block.

    Raises:
        ValueError: The block doesn't have as many records as it says, or is of a version other
            than 1 to 3, which have the same layout.
    """
    content = Cursor(block.content)
    version, count = take_int(content), take_int(content)
    if version not in _AVRO_VERSIONS:
        raise ValueError(f"Avro block of version {version}; supported: 1 to 3")
    if count < 0:
        raise ValueError(f"{count} records")
    for _ in range(count):
        yield content.take(take_int(content))
    if content.pos < len(content.data):
        raise ValueError(
            f"{len(content.data) - content.pos} bytes after the last of {count} records"
        )


def take_int(cursor: Cursor) -> int:
    """Return the next four bytes as a signed number."""
    return int.from_bytes(cursor.take(4), "big", signed=True)


def _block(cursor: Cursor) -> LogBlock:
    begin = cursor.pos
    magic = cursor.take(len(MAGIC))
    if magic != MAGIC:
        raise ValueError(f"it begins with {magic!r}")
    size = _long(cursor)
    end = cursor.pos + size
    if not 0 <= size <= len(cursor.data) - cursor.pos:
        raise ValueError(f"{size} bytes wanted at offset {cursor.pos}")
    version, kind = take_int(cursor), take_int(cursor)
    if version == VERSION:
        header = _map(cursor)
        length = _long(cursor)
        offset = cursor.pos
        content = cursor.take(length)
        _map(cursor)
        block = LogBlock(kind, header, content, offset, begin)
    else:
        cursor.take(max(0, end - _TRAILER - cursor.pos))
        block = LogBlock(kind, {}, b"", cursor.pos, begin, version)
    if cursor.pos + _TRAILER != end:
        raise ValueError(f"its parts end at {cursor.pos + _TRAILER}, the block at {end}")
    trailer = _long(cursor)
    if trailer != size + len(MAGIC):
        raise ValueError(f"its size is {size + len(MAGIC)}, and at its end {trailer}")
    return block


def _map(cursor: Cursor) -> dict[int, str]:
    count = take_int(cursor)
    if count < 0:
        raise ValueError(f"a map of {count} entries at offset {cursor.pos}")
    return {take_int(cursor): cursor.take(take_int(cursor)).decode() for _ in range(count)}


def _long(cursor: Cursor) -> int:
    return int.from_bytes(cursor.take(8), "big", signed=True)
