"""The record of a table as a stream of bytes, by which another server continues from it.

Any server can send one, whatever its store keeps: rows are made of the newest snapshot in memory,
and name its blobs by their place in the stream, from 1 on. Layout, big-endian::

    strandline record 1, line feed
    frames                 kind u8, length of name u32, length of content u32, name, content
      1 blob               the name of the row that names it; its bytes
      2 row                name and content as in ``fsview.record.rows``, behind its blobs
      3 end                no name; SHA-256 of all before this frame

A reader takes no more memory than a frame: lengths are checked before their bytes are
waited for, and the whole has a limit, however short its frames or the pieces in which it comes.
A stream counts only once its end was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from struct import Struct
from typing import Final

from fsview.files.partition import Chunk
from fsview.record.base import Recorded
from fsview.record.rows import (
    PARTITION,
    SNAPSHOT,
    RecordSum,
    map_row,
    maps_of,
    partition_row,
    read_rows,
    snapshot_row,
)
from fsview.store.base import Blob, Handle, Store, StoredChunk
from timeline.encoding.json_text import check_values
from timeline.errors import BadAnswerError, ServiceError, StoreError, StrandlineError
from timeline.storage.base import checked_path
from timeline.storage.table_id import TableId

MAGIC: Final = b"strandline record 1\n"
MAX_NAME_BYTES: Final = 64 << 10
MAX_FRAME_BYTES: Final = 64 << 20
"""Longest content of a frame: a chunk has some 8 KB, a large table's longest row some MB."""
FRAME_BYTES: Final = 320
"""What a frame takes in memory beside its name and content; measured with empty blobs."""
PIECE_BYTES: Final = 256 << 10
"""Least size of the pieces in which a stream is made, except the last."""

_HEAD: Final = Struct(">BII")
_BLOB, _ROW, _END = 1, 2, 3

BATCH_BYTES: Final = 1 << 20
"""Bytes of blobs that are kept in one commit, what their frames take included."""


@dataclass(frozen=True, slots=True)
class StreamedRow:
    """A row of the record."""

    name: str
    content: bytes


def record_stream(table_id: TableId, recorded: Recorded) -> Iterator[bytes]:
    """Yield a record in pieces.

    Args:
        table_id: The table.
        recorded: What would be recorded now; blobs are read from its store as they are sent.

    Raises:
        StoreError: A blob can't be read back; what was yielded has no end.
    """
    return _in_pieces(stream_of(record_items(table_id, recorded)))


def record_items(table_id: TableId, recorded: Recorded) -> Iterator[Blob | StreamedRow]:
    """Yield the blobs and rows of a record, each blob before the row that names it.

    Raises:
        StoreError: A blob can't be read back.
    """
    snapshot = recorded.snapshot
    versions, known = snapshot.files.versions, snapshot.files.known or frozenset()
    count, rows = 0, RecordSum()

    def made(name: str, content: bytes) -> StreamedRow:
        rows.change({name: content})
        return StreamedRow(name, content)

    for partition, version in versions.items():
        name, handles = PARTITION + partition, dict[int, Handle]()
        for chunk in version.parts:
            count += 1
            handles[id(chunk)] = Handle(count)
            yield Blob(chunk.read(), name)

        def handle_of(chunk: Chunk, handles: dict[int, Handle] = handles) -> Handle:
            return handles[id(chunk)]

        row = partition_row(version, handle_of, is_known=partition in known)
        assert row is not None, "a partition with files has a row"
        yield made(name, row)
    for partition in sorted(known):
        if partition not in versions:
            yield made(PARTITION + partition, b"")
    for name, content in maps_of(snapshot, recorded.outdated).items():
        yield made(name, map_row(name, content))
    unfinished, must_list = recorded.unfinished, recorded.must_list
    row = snapshot_row(table_id, snapshot, unfinished, must_list=must_list, checksum=rows.value)
    yield StreamedRow(SNAPSHOT, row)


def stream_of(items: Iterable[Blob | StreamedRow]) -> Iterator[bytes]:
    """Yield the bytes of blobs and rows."""
    digest = sha256(MAGIC)
    yield MAGIC
    for item in items:
        kind, name = (_BLOB, item.near) if isinstance(item, Blob) else (_ROW, item.name)
        # Names of files may be no UTF-8; Python has such bytes as lone surrogates.
        spelled = name.encode("utf-8", "surrogatepass")
        head = _HEAD.pack(kind, len(spelled), len(item.content)) + spelled
        digest.update(head)
        digest.update(item.content)
        yield head
        yield item.content
    checksum = digest.digest()
    yield _HEAD.pack(_END, 0, len(checksum)) + checksum


def items_of(pieces: Iterable[bytes], most_bytes: int) -> Iterator[Blob | StreamedRow]:
    """Yield the blobs and rows of a stream; they count only once the iterator has ended.

    Args:
        pieces: The stream's bytes, cut anywhere.
        most_bytes: What all frames may take, each counted with ``FRAME_BYTES`` more.

    Raises:
        BadAnswerError: The stream is too long, torn or damaged, or has another form.
    """
    stream = _Stream(pieces, most_bytes)
    if stream.read(len(MAGIC)) != MAGIC:
        raise BadAnswerError("a table's record has another form; allowed: that of this release")
    digest = sha256(MAGIC)
    while True:
        head = stream.read(_HEAD.size)
        kind, name_bytes, content_bytes = _HEAD.unpack(head)
        if name_bytes > MAX_NAME_BYTES or content_bytes > MAX_FRAME_BYTES:
            raise BadAnswerError(
                f"a table's record has a frame of {name_bytes} + {content_bytes} bytes; allowed:"
                f" {MAX_NAME_BYTES} + {MAX_FRAME_BYTES}"
            )
        stream.count(FRAME_BYTES)
        spelled, content = stream.read(name_bytes), stream.read(content_bytes)
        if kind == _END:
            if spelled or content != digest.digest():
                raise BadAnswerError("a table's record is damaged: its checksum differs")
            stream.check_end()
            return
        for part in (head, spelled, content):
            digest.update(part)
        try:
            name = spelled.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise BadAnswerError(f"a table's record has a name that is no text: {error}") from error
        if kind == _BLOB:
            yield Blob(content, name)
        elif kind == _ROW:
            yield StreamedRow(name, content)
        else:
            raise BadAnswerError(f"a table's record has a frame of kind {kind}; allowed: 1 to 3")


class _Stream:
    """Reads a stream, of which it holds one piece."""

    def __init__(self, pieces: Iterable[bytes], most_bytes: int) -> None:
        self._pieces = iter(pieces)
        self._piece = memoryview(b"")
        self._left_bytes = self._most_bytes = most_bytes

    def count(self, size: int) -> None:
        """Count bytes that are read, or that what is read takes beside itself."""
        if size > self._left_bytes:
            raise BadAnswerError(
                f"a table's record takes more than {self._most_bytes} bytes, which is the limit"
                " here"
            )
        self._left_bytes -= size

    def read(self, size: int) -> bytes:
        """Return exactly the given number of next bytes."""
        self.count(size)
        if size <= len(self._piece):
            found, self._piece = bytes(self._piece[:size]), self._piece[size:]
            return found
        # Not a list of pieces: one of a byte takes two hundred.
        joined = bytearray(self._piece)
        while len(joined) < size:
            piece = next(self._pieces, None)
            if piece is None:
                raise BadAnswerError("a table's record ends before its end")
            missing = size - len(joined)
            joined += memoryview(piece)[:missing]
            self._piece = memoryview(piece)[missing:]
        return bytes(joined)

    def check_end(self) -> None:
        """Refuse bytes behind the end."""
        if self._piece or any(self._pieces):
            raise BadAnswerError("a table's record goes on behind its end")


def _in_pieces(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Join short parts."""
    held: list[bytes] = []
    size = 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size >= PIECE_BYTES:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join(held)


def received(items: Iterable[Blob | StreamedRow], table_id: TableId, store: Store) -> Recorded:
    """Return a record whose blobs are in a store; if that fails, the store forgets them.

    Args:
        items: The blobs and rows of a stream; blobs are kept as they come.
        table_id: The table that the record must be of.
        store: Keeps the blobs; no row is written.

    Raises:
        BadAnswerError: It isn't a record of the table in this release's format.
        StoreError: The store can't keep the blobs.
        ServiceError: As ``items``.
    """
    rows: dict[str, bytes] = {}
    chunks: list[StoredChunk] = []
    batch: list[Blob] = []
    size = 0
    for item in items:
        if isinstance(item, StreamedRow):
            rows[item.name] = item.content
            continue
        batch.append(item)
        size += len(item.content) + FRAME_BYTES
        if size >= BATCH_BYTES:
            chunks += store.commit(batch)
            batch, size = [], 0
    chunks += store.commit(batch)
    unused = dict(enumerate(chunks, 1))

    def chunk_at(handle: Handle, size: int) -> StoredChunk:
        chunk = unused.pop(handle)
        if chunk.size != size:
            raise ValueError(f"blob {handle} has {chunk.size} bytes, and {size} in its row")
        return chunk

    if SNAPSHOT not in rows:
        raise BadAnswerError(f"a record sent for {table_id} can't be read: it has no snapshot")
    try:
        for name, content in rows.items():
            _check_row(name, content)
        return read_rows(rows, table_id, chunk_at, RecordSum(rows).value)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as exc:
        raise BadAnswerError(f"a record sent for {table_id} can't be read: {exc!r}") from exc
    except (ServiceError, StoreError):
        raise
    except StrandlineError as exc:
        raise BadAnswerError(f"a record sent for {table_id} can't be read: {exc}") from exc


def _check_row(name: str, content: bytes) -> None:
    """Refuse what a store's own rows never are.

    Raises:
        ValueError: The row would take far more memory than it is long, or is of a partition that
            can't be below the table.
    """
    check_values(content)
    if name.startswith(PARTITION):
        checked_path(name.removeprefix(PARTITION))
