"""What is where in the database of a ``RocksStore``.

Keys; numbers are big-endian, 8 bytes::

    b <handle>    a blob
    h <handle>    nothing: names the blob, so that a sweep reads no blobs
    m             JSON: format, and the table's id
    r <name>      a row
    s <step>      the state after the last commit

Each commit puts the state of its own step and takes the one before away. So if a commit is lost
between others (a log was cut short, and its successor wasn't), two are left, and tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from fsview.store.base import Handle
from timeline.encoding.json_text import dumps
from timeline.storage.table_id import TableId

FORMAT: Final = 1
"""What another one wrote isn't read."""

MARKER: Final = b"m"
HANDLES: Final = b"h"
ROWS: Final = (b"r", b"s")
"""Their keys: the least, and the least behind them. So are the others."""
STATES: Final = (b"s", b"t")
ALL: Final = (b"", b"t")

_KEY: Final = Struct(">cQ")
_STATE: Final = Struct(">QQQ")


@dataclass(frozen=True, slots=True)
class State:
    """What a commit knows of those before.

    Attributes:
        step: How many there were.
        next_handle: The least that was never used.
        blobs: How many there are.
        compacted_bytes: Of the files after the last compaction.
    """

    step: int = 0
    next_handle: int = 1
    blobs: int = 0
    compacted_bytes: int = 0

    @property
    def key(self) -> bytes:
        """Where it is."""
        return _KEY.pack(b"s", self.step)

    def to_bytes(self) -> bytes:
        """Return what is there."""
        return _STATE.pack(self.next_handle, self.blobs, self.compacted_bytes)

    @classmethod
    def of(cls, key: bytes, content: bytes) -> State:
        """Read one back."""
        return cls(_KEY.unpack(key)[1], *_STATE.unpack(content))


def blob_key(handle: Handle) -> bytes:
    """Return where a blob is."""
    return _KEY.pack(b"b", handle)


def handle_key(handle: int) -> bytes:
    """Return where a blob is named."""
    return _KEY.pack(HANDLES, handle)


def handle_of(key: bytes) -> Handle:
    """Return the handle of a blob that is named there."""
    return Handle(_KEY.unpack(key)[1])


def row_key(name: str) -> bytes:
    """Return where a row is."""
    # Names may come from a file system that has others than UTF-8.
    return b"r" + name.encode("utf-8", "surrogatepass")


def row_name(key: bytes) -> str:
    """Return the name of the row that is there."""
    return key[1:].decode("utf-8", "surrogatepass")


def marker(table_id: TableId) -> bytes:
    """Return what a store of this table is marked with."""
    name = str(table_id).encode("utf-8", "backslashreplace").decode()
    return dumps({"format": FORMAT, "table": name})
