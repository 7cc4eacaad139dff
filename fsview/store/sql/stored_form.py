"""How handles, names of rows, blobs and tables are stored in an SQL database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Final
from zlib import crc32

from fsview.store.base import Handle, RecordRows
from timeline.storage.table_id import TableId

_HANDLE_BYTES: Final = 16
_NAME_END: Final = b"\xff"
_CRC_BYTES: Final = 4


def table_key(table_id: TableId) -> bytes:
    """Return the ``table_id`` of a table."""
    return sha256(name_bytes(str(table_id))).digest()[:_HANDLE_BYTES]


def tables_of(stored: Iterable[tuple[bytes, bytes]]) -> list[TableId]:
    """Return the tables of heads, in the order of their names.

    Args:
        stored: ``table_id`` and ``base_path`` of each. Where the one isn't that of the other, no
            server would find the table, which is left out.
    """
    found: list[TableId] = []
    for key, name in stored:
        with suppress(ValueError):  # it names no table
            table_id = TableId.of(name_of(name))
            if table_key(table_id) == key:
                found.append(table_id)
    return sorted(found, key=str)


def handle_bytes(handle: Handle) -> bytes:
    """Return a handle as stored."""
    return handle.to_bytes(_HANDLE_BYTES, "big")


def handle_of(stored: bytes) -> Handle:
    """Return the handle of ``handle_bytes``."""
    return Handle(int.from_bytes(stored, "big"))


def handles_of(stored: Iterable[tuple[object]]) -> list[Handle]:
    """Return the handles of a query's result, damaged ones left out: nothing names those."""
    return [handle_of(handle) for (handle,) in stored if isinstance(handle, bytes)]


def name_bytes(name: str) -> bytes:
    """Return a row's name as stored."""
    # Names may come from a file system whose names aren't all UTF-8.
    return name.encode("utf-8", "surrogatepass")


def name_of(stored: object) -> str:
    """Return the name of ``name_bytes``; of a damaged one, something that names no row.

    A record without the row isn't read (``fsview.record.rows``).
    """
    if isinstance(stored, bytes):
        with suppress(UnicodeDecodeError):
            return stored.decode("utf-8", "surrogatepass")
    return f"damaged {stored!r}"


def names_bytes(names: Iterable[str]) -> bytes:
    """Return names as stored in the journal."""
    return b"".join(name_bytes(name) + _NAME_END for name in names)  # UTF-8 doesn't have that byte


def names_of(stored: object) -> tuple[str, ...]:
    """Return the names of ``names_bytes``, each as ``name_of`` does."""
    parts = stored.split(_NAME_END)[:-1] if isinstance(stored, bytes) else [stored]
    return tuple(map(name_of, parts))


def blob_bytes(content: bytes) -> bytes:
    """Return a blob as stored: its checksum, then its content."""
    return crc32(content).to_bytes(_CRC_BYTES, "big") + content


def blob_of(stored: object) -> bytes | None:
    """Return the content of ``blob_bytes``; ``None`` if it is damaged."""
    if not isinstance(stored, bytes) or len(stored) < _CRC_BYTES:
        return None
    content = stored[_CRC_BYTES:]
    return content if crc32(content) == int.from_bytes(stored[:_CRC_BYTES], "big") else None


def in_order(rows: RecordRows) -> list[tuple[bytes, bytes | None]]:
    """Return rows as stored, by name: all servers lock them in one order."""
    named: Mapping[bytes, bytes | None] = {name_bytes(name): row for name, row in rows.items()}
    return sorted(named.items())
