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

A writer that dies may leave part of a block, and others append after it. ``read_blocks`` refuses
such a file; ``scan_blocks`` skips to the next block.

Source: Hudi 1.2.0 ``HoodieLogFormat``, ``HoodieLogFileReader``, ``HoodieLogBlock``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
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
MOST_ENTRIES: Final = 64
"""The most entries of a header or footer. Hudi 1.2.0 knows nine ordinals."""
_TRAILER: Final = 8
_LEAST: Final = 8 + _TRAILER
"""The least size of the rest of a block: version, type, trailer."""
_AVRO_VERSIONS: Final = (1, 2, 3)
_SEARCHED_BYTES: Final = 16 << 10
"""Bytes of a view that are copied to search them."""
_RECORD_SIZE: Final = struct.Struct(">i")
RECORD_GAP: Final = _RECORD_SIZE.size
"""Bytes between the records of an Avro block: the size of the next record."""
FIRST_RECORD: Final = 8 + RECORD_GAP
"""Offset of the first record in an Avro block, after version, count and the record's size."""


@dataclass(frozen=True, slots=True)
class LogBlock:
    """One block.

    Attributes:
        kind: Its type.
        header: Ordinal → value.
        content: Its bytes; ``scan_blocks`` yields a view of the file's bytes, not a copy.
        offset: Offset of the content in the file.
        begin: Offset of the block in the file.
        version: Its version; if it isn't ``VERSION``, header and content are empty.
    """

    kind: int
    header: Mapping[int, str]
    content: bytes | memoryview
    offset: int
    begin: int = 0
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class TornBlock:
    """Bytes of a log file that aren't a complete block.

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


def scan_blocks(
    data: bytes | memoryview, is_written: Callable[[int, int], bool] = lambda begin, end: True
) -> Iterator[LogBlock | TornBlock]:
    """Yield the blocks of a log file in order, and the torn bytes between them.

    After a torn block, the next block is found by its magic. Bytes with the form of a block may
    also be a value in the torn block's content, a copy of a block, so ``is_written`` decides.
    Hudi's reader accepts them as a block if another magic or the end of the file follows.

    Args:
        data: The whole file; a memory-mapped one must stay open while a block is in use.
        is_written: Returns whether a writer wrote [begin, end), which has the form of a block, as a
            block. It is called for each block that was found by its magic.

    Cost: reads the blocks' headers and the torn bytes; copies no content.
    """
    pos = 0
    while pos < len(data):
        try:
            form = _Form.at(data, pos)
            block = form.block()
        except ValueError as exc:
            end = _next_block(data, pos + 1, is_written)
            yield TornBlock(pos, end, str(exc))
            pos = end
        else:
            yield block
            pos = form.end


def block_bytes(kind: int, header: Mapping[int, str], content: bytes | memoryview = b"") -> bytes:
    """Return a block as a log file has it, with an empty footer.

    Args:
        kind: Its type.
        header: Ordinal → value; written in this order, as readers accept any.
        content: Its content.

    Raises:
        ValueError: The header has more entries than readers accept.
    """
    if len(header) > MOST_ENTRIES:
        raise ValueError(f"a header of {len(header)} entries; allowed: at most {MOST_ENTRIES}")
    head = [struct.pack(">iii", VERSION, kind, len(header))]
    for ordinal, value in header.items():
        text = value.encode()
        head += [struct.pack(">ii", ordinal, len(text)), text]
    head.append(struct.pack(">q", len(content)))
    footer = struct.pack(">i", 0)
    size = sum(map(len, head)) + len(content) + len(footer) + _TRAILER
    begin, end = struct.pack(">q", size), struct.pack(">q", size + len(MAGIC))
    return b"".join([MAGIC, begin, *head, content, footer, end])


def avro_content(count: int, records: bytes | memoryview) -> bytes:
    """Return the content of an Avro block.

    Args:
        count: Number of records.
        records: For each record its length (4 bytes, big-endian), then its bytes.

    Raises:
        ValueError: The number doesn't fit the block.
    """
    if not 0 <= count < 1 << 31:
        raise ValueError(f"{count} records; allowed: 0 to {(1 << 31) - 1}")
    return struct.pack(">ii", _AVRO_VERSIONS[-1], count) + records


def avro_values(block: LogBlock) -> Iterator[bytes]:
    """Yield the bytes of each record of an Avro block; errors as for ``avro_ends``."""
    begin = FIRST_RECORD
    for end in avro_ends(block):
        yield bytes(block.content[begin:end])
        begin = end + RECORD_GAP


def avro_count(block: LogBlock) -> int:
    """Return the record count in an Avro block.

    Raises:
        ValueError: Its version isn't 1, 2 or 3, which have the same layout, or it has no valid
            count.
    """
    content = Cursor(bytes(block.content[:FIRST_RECORD]))
    version, count = take_int(content), take_int(content)
    if version not in _AVRO_VERSIONS:
        raise ValueError(f"Avro block of version {version}; supported: 1 to 3")
    if count < 0:
        raise ValueError(f"{count} records")
    return count


def avro_ends(block: LogBlock) -> list[int]:
    """Return where the records of an Avro block end in its content.

    The first begins at ``FIRST_RECORD``, each other one ``RECORD_GAP`` after the end of the
    previous.

    Raises:
        ValueError: The number of records differs from the block's count; and as ``avro_count``.

    Cost: 0.1 us a record.
    """
    count = avro_count(block)
    data, end, unpack = block.content, FIRST_RECORD - RECORD_GAP, _RECORD_SIZE.unpack_from
    ends: list[int] = []
    add = ends.append
    try:
        for _ in range(count):
            (size,) = unpack(data, end)
            if size < 0:
                raise ValueError(f"{size} bytes wanted at offset {end + RECORD_GAP}")
            end += RECORD_GAP + size
            add(end)
    except struct.error as exc:
        raise ValueError(f"{len(ends)} of {count} records in {len(data)} bytes") from exc
    if end != len(data):
        raise ValueError(f"{count} records end at offset {end} of {len(data)}")
    return ends


def take_int(cursor: Cursor | _Position) -> int:
    """Return the next four bytes as a signed number."""
    return int.from_bytes(cursor.take(4), "big", signed=True)


def _next_block(
    data: bytes | memoryview, start: int, is_written: Callable[[int, int], bool]
) -> int:
    """Return where the next block after torn bytes begins; the file's size if there is none."""
    at = _magic(data, start)
    while at >= 0:
        try:
            end = _Form.at(data, at).end
        except ValueError:
            end = at
        if end > at and is_written(at, end):
            return at
        at = _magic(data, at + 1)
    return len(data)


def _magic(data: bytes | memoryview, start: int) -> int:
    """Return where the next magic begins; -1 if there is none."""
    if isinstance(data, bytes):
        return data.find(MAGIC, start)
    # Views have no ``find``. A copy costs little more than looking for a block at a magic.
    for begin in range(start, len(data), _SEARCHED_BYTES):
        at = bytes(data[begin : begin + _SEARCHED_BYTES + len(MAGIC) - 1]).find(MAGIC)
        if at >= 0:
            return begin + at
    return -1


@dataclass(slots=True)
class _Position:
    """A position in a file's bytes, which may be a view.

    Attributes:
        data: The file.
        pos: The offset of the next byte.
    """

    data: bytes | memoryview
    pos: int

    def take(self, n: int) -> bytes:
        """Return the next ``n`` bytes; refuse to return fewer."""
        end = self.pos + n
        if n < 0 or end > len(self.data):
            raise ValueError(f"{n} bytes wanted at offset {self.pos} of {len(self.data)}")
        taken = self.data[self.pos : end]
        self.pos = end
        return bytes(taken)


@dataclass(frozen=True, slots=True)
class _Form:
    """Where the parts of a block are, found without copying them.

    Attributes:
        data: The file.
        begin: Offset of the block.
        end: The offset after it.
        version: Its version; header and content are empty if it isn't ``VERSION``.
        kind: Its type.
        header: Ordinal, offset and length of each of the header's values.
        content: Offset and length of the content.
    """

    data: bytes | memoryview
    begin: int
    end: int
    version: int
    kind: int
    header: Sequence[tuple[int, int, int]]
    content: tuple[int, int]

    @classmethod
    def at(cls, data: bytes | memoryview, begin: int) -> _Form:
        """Find the parts of the block at an offset, where there must be one."""
        cursor = _Position(data, begin)
        magic = cursor.take(len(MAGIC))
        if magic != MAGIC:
            raise ValueError(f"it begins with {magic!r}")
        size = _long(cursor)
        start, end = cursor.pos, cursor.pos + size
        if not _LEAST <= size <= len(data) - start:
            raise ValueError(f"{size} bytes wanted at offset {start}")
        cursor.pos = end - _TRAILER
        trailer = _long(cursor)
        if trailer != size + len(MAGIC):
            raise ValueError(f"its size is {size + len(MAGIC)}, and at its end {trailer}")
        cursor.pos = start
        version, kind = take_int(cursor), take_int(cursor)
        if version != VERSION:
            return cls(data, begin, end, version, kind, (), (end - _TRAILER, 0))
        header = _map(cursor)
        length = _long(cursor)
        content = _skip(cursor, length)
        _map(cursor)
        if cursor.pos + _TRAILER != end:
            raise ValueError(f"its parts end at {cursor.pos + _TRAILER}, the block at {end}")
        return cls(data, begin, end, version, kind, header, content)

    def block(self) -> LogBlock:
        """Return the block.

        Raises:
            ValueError: A value in its header isn't text, or a key occurs twice.
        """
        header = {
            ordinal: str(self.data[at : at + length], "utf-8")
            for ordinal, at, length in self.header
        }
        if len(header) < len(self.header):
            raise ValueError(f"its header has keys {[key for key, *_ in self.header]}, some twice")
        offset, length = self.content
        content = memoryview(self.data)[offset : offset + length]
        return LogBlock(self.kind, header, content, offset, self.begin, self.version)


def _map(cursor: _Position) -> list[tuple[int, int, int]]:
    """Return the ordinal of each entry, with the offset and length of its value."""
    count = take_int(cursor)
    if not 0 <= count <= MOST_ENTRIES:
        raise ValueError(
            f"a map of {count} entries at offset {cursor.pos}; allowed: 0 to {MOST_ENTRIES}"
        )
    return [(take_int(cursor), *_skip(cursor, take_int(cursor))) for _ in range(count)]


def _skip(cursor: _Position, length: int) -> tuple[int, int]:
    """Skip bytes; return their offset and number."""
    at = cursor.pos
    if not 0 <= length <= len(cursor.data) - at:
        raise ValueError(f"{length} bytes wanted at offset {at} of {len(cursor.data)}")
    cursor.pos += length
    return at, length


def _long(cursor: _Position) -> int:
    return int.from_bytes(cursor.take(8), "big", signed=True)
