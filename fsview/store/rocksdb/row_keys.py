"""Keys and values in the database of a ``RocksStore``.

Keys; numbers are big-endian, 8 bytes::

    b <handle>    a blob
    h <handle>    empty; lists the blob, so that a sweep reads no blobs
    m             JSON: format and the table's id
    r <name>      a row
    s <step>      the state after the last commit

Each commit writes the state of its own step and deletes the state before.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from fsview.store.base import Handle
from timeline.encoding.json_text import dumps
from timeline.storage.table_id import TableId

FORMAT: Final = 1
"""Version of this layout; a store of another version isn't read."""

MARKER: Final = b"m"
HANDLES: Final = b"h"
ROWS: Final = (b"r", b"s")
"""Half-open key range [first, end) of the rows; likewise ``STATES`` and ``ALL``."""
STATES: Final = (b"s", b"t")
ALL: Final = (b"", b"t")

_KEY: Final = Struct(">cQ")
_STATE: Final = Struct(">QQQ")


@dataclass(frozen=True, slots=True)
class CommitState:
    """The state of a store after a commit.

    Attributes:
        step: Number of commits so far.
        next_handle: The least handle never used.
        blobs: Number of blobs.
        compacted_bytes: Size of the files after the last compaction.
    """

    step: int = 0
    next_handle: int = 1
    blobs: int = 0
    compacted_bytes: int = 0

    @property
    def key(self) -> bytes:
        """The key of the state."""
        return _KEY.pack(b"s", self.step)

    def to_bytes(self) -> bytes:
        """Return the value stored at ``key``."""
        return _STATE.pack(self.next_handle, self.blobs, self.compacted_bytes)

    @classmethod
    def of(cls, key: bytes, content: bytes) -> CommitState:
        """Read a state back from its key and value."""
        return cls(_KEY.unpack(key)[1], *_STATE.unpack(content))


def blob_key(handle: Handle) -> bytes:
    """Return the key of a blob."""
    return _KEY.pack(b"b", handle)


def handle_key(handle: int) -> bytes:
    """Return the key that lists a blob."""
    return _KEY.pack(HANDLES, handle)


def handle_of(key: bytes) -> Handle:
    """Return the handle in a key of ``handle_key``."""
    return Handle(_KEY.unpack(key)[1])


def row_key(name: str) -> bytes:
    """Return the key of a row."""
    # Names may come from a file system whose names aren't all UTF-8.
    return b"r" + name.encode("utf-8", "surrogatepass")


def row_name(key: bytes) -> str:
    """Return the name in a key of ``row_key``."""
    return key[1:].decode("utf-8", "surrogatepass")


def marker(table_id: TableId) -> bytes:
    """Return the value that marks a store of this table."""
    name = str(table_id).encode("utf-8", "backslashreplace").decode()
    return dumps({"format": FORMAT, "table": name})
