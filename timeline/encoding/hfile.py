"""HFile, version 3: key-value pairs in key order, in compressed blocks.

Supports what metadata tables use. The file is a sequence of blocks, then a trailer of 4,096 bytes:
magic, a protobuf message, zeros, and at the very end the version. A block, integers big-endian::

    8  magic, the kind of the block
    4  size on disk without this header         4  size of the data uncompressed
    8  offset of the previous block of its kind 1  type of the checksums
    4  bytes per checksum                       4  size on disk of header and data
    the data, then a checksum of 4 bytes for each chunk of header and data

A data block is a sequence of entries: length of the key, length of the value, key, value, and a
version number in files whose info has ``KEY_VALUE_VERSION``. The key is HBase's: 2 bytes length of
the row, the row, and a rest that metadata tables don't use. All entries are read in order, so the
index isn't needed, and the trailer's count of entries shows whether any is missing.

A compressed block contains gzip's own checksum. Otherwise CRC-32 is checked; CRC-32C (HBase's)
isn't.

Source: Hudi 1.2.0 ``org.apache.hudi.io.hfile``; HBase 2.4 ``HFileBlock``, ``FixedFileTrailer``.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from struct import Struct, error
from typing import Final, NamedTuple

from timeline.encoding.avro_binary import Cursor
from timeline.errors import CorruptMetadataError

TRAILER_BYTES: Final = 4096
_VERSION: Final = 3
_HEADER: Final = Struct(">8siiqbii")
_LENGTHS: Final = Struct(">ii")
_ROW: Final = Struct(">H")

_DATA: Final = b"DATABLK*"
_INFO: Final = b"FILEINF2"
_TRAILER: Final = b'TRABLK"$'
_BETWEEN: Final = frozenset({b"IDXLEAF2", b"IDXINTE2", b"BLMFBLK2"})
"""Kinds of blocks that may lie between data blocks: indexes and Bloom filters."""

_GZIP: Final = 1
_NONE: Final = 2
"""HBase's numbers of the compressions that Hudi uses."""

INFLATION: Final = 100
"""Uncompressed, the blocks of a file may total at most this many times its size. Names and sizes of
files compress to about a fifth, zeros to a thousandth. Small files aren't exempt, as a log may
contain any number of them."""

_CRC32: Final = 1
_CHECKSUM_BYTES: Final = 4

# Fields of the trailer's message.
_INFO_OFFSET: Final = 1
_ENTRIES: Final = 7
_FIRST_DATA: Final = 9
_LAST_DATA: Final = 10
_COMPRESSION: Final = 12

_KEY_VALUE_VERSION: Final = b"KEY_VALUE_VERSION"
_TAGS: Final = b"MAX_TAGS_LEN"

_Fields = list[tuple[int, int | bytes]]


class _Block(NamedTuple):
    """One block, its data decompressed; ``end`` is where the next begins."""

    magic: bytes
    data: bytes
    end: int


class HFile:
    """The entries of one file, decompressed block by block as they are read.

    Attributes:
        info: The file's info block: its metadata, such as the schema.
    """

    def __init__(self, data: bytes, *, source: str, offset: int = 0) -> None:
        """Read a file's trailer and info.

        Args:
            data: The whole file.
            source: Path of the file that contains it, for errors.
            offset: Where it begins in that file.

        Raises:
            CorruptMetadataError: It is damaged, no HFile of version 3, or uses features that
                metadata tables don't.
        """
        self._data = memoryview(data)
        self._source = source
        self._offset = offset
        self._trailer = self._read_trailer()
        self._gzip = self._is_compressed()
        self.info = self._read_info()
        self._has_versions = int.from_bytes(self.info.get(_KEY_VALUE_VERSION, b""), "big") == 1

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and value of all entries, in key order.

        Raises:
            CorruptMetadataError: The file is damaged.
        """
        wanted, count = self._number(_ENTRIES, 0), 0
        position = self._number(_FIRST_DATA, 0)
        last = self._number(_LAST_DATA, 0) if wanted else -1
        left = self._plain_allowed
        while position <= last:
            block = self._block(position, _BETWEEN | {_DATA}, left)
            left -= len(block.data)
            if block.magic == _DATA:
                for entry in self._entries_of(block.data, position):
                    count += 1
                    yield entry
            position = block.end
        if count != wanted:
            raise self._damaged(position, f"{count} entries; its trailer says {wanted}")

    # Trailer and info.

    def _read_trailer(self) -> dict[int, int | bytes]:
        start = len(self._data) - TRAILER_BYTES
        if start < 0:
            raise self._damaged(0, f"{len(self._data)} bytes; a trailer alone has {TRAILER_BYTES}")
        trailer = bytes(self._data[start:])
        if not trailer.startswith(_TRAILER):
            raise self._damaged(start, f"no trailer: it begins with {trailer[:8]!r}")
        version = int.from_bytes(trailer[-3:], "big")  # the byte before is the minor one
        if version != _VERSION:
            raise self._damaged(start, f"version {version}; supported: {_VERSION}")
        try:
            return dict(_fields(_sized(trailer[len(_TRAILER) : -4])))
        except ValueError as exc:
            raise self._damaged(start, f"a damaged trailer: {exc}") from exc

    def _is_compressed(self) -> bool:
        compression = self._number(_COMPRESSION, _NONE)
        if compression not in (_GZIP, _NONE):
            raise self._damaged(
                self._trailer_at, f"compression {compression}; supported: {_GZIP}, {_NONE}"
            )
        return compression == _GZIP

    def _read_info(self) -> Mapping[bytes, bytes]:
        position = self._number(_INFO_OFFSET, self._trailer_at)
        data = self._block(position, {_INFO}, self._plain_allowed).data
        if not data.startswith(b"PBUF"):
            raise self._damaged(position, f"no protobuf info: it begins with {data[:4]!r}")
        try:
            info = dict(_pair(*field) for field in _fields(_sized(data[4:])))
        except ValueError as exc:
            raise self._damaged(position, f"damaged info: {exc}") from exc
        if _TAGS in info:
            raise self._damaged(position, "entries with tags, which aren't supported")
        return info

    @property
    def _trailer_at(self) -> int:
        return len(self._data) - TRAILER_BYTES

    def _number(self, field: int, default: int) -> int:
        found = self._trailer.get(field, default)
        if not isinstance(found, int):
            raise self._damaged(self._trailer_at, f"a trailer whose field {field} is no number")
        return found

    @property
    def _plain_allowed(self) -> int:
        """The most bytes that all blocks may total uncompressed."""
        return INFLATION * len(self._data)

    # Blocks.

    def _block(self, position: int, allowed: set[bytes] | frozenset[bytes], left: int) -> _Block:
        """Return the block at a position, decompressed to at most ``left`` bytes."""
        end = self._trailer_at
        if not 0 <= position <= end - _HEADER.size:
            raise self._damaged(position, f"a block where none can be; its trailer is at {end}")
        found = _HEADER.unpack_from(self._data, position)
        magic, on_disk, plain, _, checksum_type, per_checksum, with_header = found
        if magic not in allowed:
            raise self._damaged(position, f"a block {magic!r} where {sorted(allowed)} may be")
        data_end, block_end = position + with_header, position + _HEADER.size + on_disk
        if not position + _HEADER.size <= data_end <= block_end <= end or plain < 0:
            raise self._damaged(position, f"a block of {on_disk} bytes, {with_header} with header")
        if checksum_type == _CRC32 and not self._is_sound(
            position, data_end, block_end, per_checksum
        ):
            raise self._damaged(position, "a block whose checksum is wrong")
        data = self._plain(position, data_end, plain, left)
        return _Block(magic, data, block_end)

    def _plain(self, position: int, end: int, size: int, left: int) -> bytes:
        data = self._data[position + _HEADER.size : end]
        if not self._gzip:
            if len(data) != size:
                raise self._damaged(position, f"a block of {len(data)} bytes; {size} in its header")
            return bytes(data)
        if size > left:
            raise self._damaged(
                position,
                f"blocks of {self._plain_allowed - left + size} bytes so far, in a file compressed"
                f" to {len(self._data)}; allowed: at most {INFLATION} times as many",
            )
        unzip = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        try:
            found = unzip.decompress(data, size + 1)
        except zlib.error as exc:
            raise self._damaged(position, f"a block that isn't compressed by gzip: {exc}") from exc
        if len(found) != size or not unzip.eof:
            raise self._damaged(position, f"a block that isn't of {size} bytes when decompressed")
        return found

    def _is_sound(self, start: int, middle: int, end: int, size: int) -> bool:
        """Return whether the CRC-32 of each chunk of ``size`` bytes is the stored one."""
        sums = self._data[middle:end]
        if size <= 0 or len(sums) != _CHECKSUM_BYTES * -(-(middle - start) // size):
            return False
        return all(
            zlib.crc32(self._data[at : min(at + size, middle)])
            == int.from_bytes(sums[4 * number : 4 * number + 4], "big")
            for number, at in enumerate(range(start, middle, size))
        )

    def _entries_of(self, data: bytes, position: int) -> Iterator[tuple[bytes, bytes]]:
        at, end = 0, len(data)
        try:
            while at < end:
                key_size, value_size = _LENGTHS.unpack_from(data, at)
                key_at = at + _LENGTHS.size
                (row_size,) = _ROW.unpack_from(data, key_at)
                row_at, value_at = key_at + _ROW.size, key_at + key_size
                at = value_at + value_size
                if not row_at + row_size <= value_at <= at <= end:
                    break
                yield data[row_at : row_at + row_size], data[value_at:at]
                if self._has_versions:
                    at += _long_size(data[at])
        except (IndexError, error) as exc:
            raise self._damaged(position, f"a block with a damaged entry: {exc}") from exc
        if at != end:
            raise self._damaged(position, f"a block of {end} bytes whose entries end at {at}")

    def _damaged(self, position: int, what: str) -> CorruptMetadataError:
        return CorruptMetadataError(
            f"{self._source} at offset {self._offset + position} has no readable HFile: {what}"
        )


def _long_size(first: int) -> int:
    """Return the length of a Hadoop variable-length number, by its first byte."""
    if first < 0x80 or first >= 0x90:  # as a signed byte at least -112: the number itself
        return 1
    return 0x89 - first if first < 0x88 else 0x91 - first


def _pair(number: int, pair: int | bytes) -> tuple[bytes, bytes]:
    """Return key and value of a field of an info block."""
    fields = dict(_fields(pair)) if number == 1 and isinstance(pair, bytes) else {1: 0}
    key, value = fields.get(1, b""), fields.get(2, b"")
    if isinstance(key, bytes) and isinstance(value, bytes):
        return key, value
    raise ValueError(f"a field {number} that is no pair")


def _sized(data: bytes) -> bytes:
    """Return a message that is preceded by its size."""
    cursor = Cursor(data)
    return cursor.take(_take_varint(cursor))


def _fields(message: bytes) -> _Fields:
    """Return number and value of each field of a protobuf message.

    Raises:
        ValueError: It ends too early, or has a field that is neither a number nor bytes.
    """
    cursor = Cursor(message)
    found: _Fields = []
    while cursor.pos < len(message):
        tag, value = _take_varint(cursor), _take_varint(cursor)
        if tag & 7 not in (0, 2):
            raise ValueError(f"a field of type {tag & 7}")
        found.append((tag >> 3, value if tag & 7 == 0 else cursor.take(value)))
    return found


def _take_varint(cursor: Cursor) -> int:
    """Return the next base-128 number, which has its least significant digit first."""
    value = 0
    for shift in range(0, 70, 7):
        byte = cursor.take(1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
    raise ValueError(f"no number of 64 bits before offset {cursor.pos}")
