"""The headers of a log file's blocks, read without their content.

See ``timeline.encoding.log_block`` for the format. A block is passed over by its size, so garbage
in its content isn't noticed. Behind bytes that are no block nothing is read.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from timeline.encoding.log_block import (
    AVRO_DATA,
    CHANGE_DATA,
    COMMAND,
    DELETE,
    HFILE_DATA,
    INSTANT_TIME,
    MAGIC,
    MOST_ENTRIES,
    PARQUET_DATA,
    VERSION,
)
from timeline.storage.base import Storage, mapped_client_errors

TORN: Final = "torn"
NAMES: Final = {
    COMMAND: "command",
    DELETE: "delete",
    AVRO_DATA: "avro",
    HFILE_DATA: "hfile",
    PARQUET_DATA: "parquet",
    CHANGE_DATA: "change_data",
}
"""Type of a block → its name; of another type the name is its number."""

_BUFFER: Final = 1 << 16
_LEAST_BLOCK: Final = 16
_TRAILER: Final = 8


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """What the beginning of a block says.

    Attributes:
        offset: Offset of the block in its file.
        size: Bytes of the block; of a torn one those up to the end of the file.
        type: A value of ``NAMES``, another type's number, or ``TORN``.
        instant: Requested time of the instant that wrote it; ``None`` if it names none.
        records: The number of records of an Avro block, which is at the beginning of its content.
    """

    offset: int
    size: int
    type: str
    instant: str | None = None
    records: int | None = None


def block_headers(storage: Storage, path: str) -> list[BlockHeader]:
    """Return the headers of a log's blocks in order; torn bytes are last.

    Raises:
        PathNotFoundError: There is no such file.
        StorageError: It can't be read.

    Cost: a read of at least 64 KiB for each block.
    """
    with (
        storage.open_input(path) as source,
        mapped_client_errors(f"{storage.base_path}/{path}"),
        io.BufferedReader(source, _BUFFER) as file,
    ):
        size = source.size()
        return list(_headers(file, size))


def _headers(file: io.BufferedReader, size: int) -> Iterator[BlockHeader]:
    begin = 0
    while begin < size:
        file.seek(begin)
        try:
            found = _header(file, begin, size)
        except ValueError:
            yield BlockHeader(begin, size - begin, TORN)
            return
        yield found
        begin += found.size


def _header(file: io.BufferedReader, begin: int, size: int) -> BlockHeader:
    """Return the header of the block at a position.

    Raises:
        ValueError: There is no whole block.
    """
    if _take(file, len(MAGIC)) != MAGIC:
        raise ValueError("no magic")
    rest = _int(file, 8)
    whole = len(MAGIC) + 8 + rest
    if rest < _LEAST_BLOCK or begin + whole > size:
        raise ValueError("it ends behind the file")
    version, kind = _int(file, 4), _int(file, 4)
    name = NAMES.get(kind, str(kind))
    if version != VERSION:
        return BlockHeader(begin, whole, name)
    count = _int(file, 4)
    if not 0 <= count <= MOST_ENTRIES:
        raise ValueError(f"{count} entries")
    instant = None
    for _ in range(count):
        ordinal, length = _int(file, 4), _int(file, 4)
        if not 0 <= length <= begin + whole - file.tell():
            raise ValueError(f"an entry of {length} bytes")
        if ordinal == INSTANT_TIME:
            instant = _take(file, length).decode()
        else:
            file.seek(length, io.SEEK_CUR)
    content = _int(file, 8)
    records = None
    if kind == AVRO_DATA and content >= _TRAILER:
        _int(file, 4)  # the content's version
        records = _int(file, 4)
    return BlockHeader(begin, whole, name, instant, records)


def _take(file: io.BufferedReader, length: int) -> bytes:
    data = file.read(length)
    if len(data) != length:
        raise ValueError(f"{length} bytes wanted, {len(data)} left")
    return data


def _int(file: io.BufferedReader, length: int) -> int:
    return int.from_bytes(_take(file, length), "big", signed=True)
