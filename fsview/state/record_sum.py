"""``RecordSum``: the checksum of a record's rows, by which one that was lost or damaged is noticed.

The row of the snapshot has that of all others. It is kept up to date from the rows that change, so
a commit costs as much as it changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

from fsview.state.record_rows import SNAPSHOT
from fsview.store.base import RecordRows

_BYTES: Final = 8


class RecordSum:
    """The checksum of the rows of one record; not thread-safe."""

    def __init__(self, rows: RecordRows | None = None) -> None:
        """Begin with some rows, that of the snapshot left out; as do the other methods."""
        self._digests: dict[str, int] = {}
        self._sum = 0
        self.change(rows or {})

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the rows, in no order."""
        return iter(self._digests)

    @property
    def value(self) -> str:
        """The checksum, in hexadecimal digits."""
        return _text(self._sum)

    def after(self, changed: RecordRows) -> str:
        """Return the checksum once some rows change; ``None`` deletes one."""
        changes = 0
        for name, row in changed.items():
            changes ^= self._digests.get(name, 0) ^ _digest(name, row)
        return _text(self._sum ^ changes)

    def change(self, changed: RecordRows) -> None:
        """Change some rows."""
        for name, row in changed.items():
            digest = _digest(name, row)
            self._sum ^= self._digests.pop(name, 0) ^ digest
            if digest:
                self._digests[name] = digest


def _digest(name: str, row: bytes | None) -> int:
    """Return the digest of a row; 0 if it isn't there, or has none."""
    if row is None or name == SNAPSHOT:
        return 0
    spelled = name.encode("utf-8", "surrogatepass")
    content = b"%d %b%b" % (len(spelled), spelled, row)
    return int.from_bytes(blake2b(content, digest_size=_BYTES).digest(), "big")


def _text(checksum: int) -> str:
    return f"{checksum:0{2 * _BYTES}x}"
