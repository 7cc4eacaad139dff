"""``received``: puts another server's record into a store, and reads it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fsview.state.record_rows import PARTITION, SNAPSHOT, Recorded, read_rows
from fsview.state.record_stream import FRAME_BYTES, StreamedRow
from fsview.state.record_sum import RecordSum
from fsview.store.base import Blob, Handle, Store, StoredChunk
from timeline.encoding.json_text import check_values
from timeline.errors import BadAnswerError, ServiceError, StoreError, StrandlineError
from timeline.storage.base import checked_path
from timeline.storage.table_id import TableId

BATCH_BYTES: Final = 1 << 20
"""Bytes of blobs that are kept in one commit, what their frames take included."""


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
