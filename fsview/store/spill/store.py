"""``SpillableStore``: chunks in memory as far as the budget allows, the others in a file.

``get`` and ``commit`` make the budget evict, so they must be called without any lock that an
account's ``evict`` takes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar

from fsview.store.base import Blob, Handle, MakeRows, Store, StoredChunk
from fsview.store.spill.area import SpillArea
from fsview.store.spill.residency import NUMBER_BITS


class SpillableStore(Store):
    """The blobs of one table in the area that all tables share, without rows."""

    kind: ClassVar[str] = "SPILLABLE_DISK"

    def __init__(self, area: SpillArea) -> None:
        super().__init__()
        self._area = area
        self._number = area.index.open()
        self.forgotten = area.forgotten

    def get(self, handle: Handle) -> bytes:
        """See ``Store``."""
        area = self._area
        resident = area.index.resident
        # No lock: the look-up and the move are atomic, and what happens between them shows below.
        blob = resident.get(handle)
        if blob is None or handle >> NUMBER_BITS != self._number or os.getpid() != area.pid:
            # Another store's handle, or a fork, gets its error there.
            return area.fetch(self._number, handle)
        try:
            resident.move_to_end(handle)
        except KeyError:  # evicted between the two calls
            return area.fetch(self._number, handle)
        return blob

    def commit(self, blobs: Sequence[Blob], rows: MakeRows | None = None) -> list[StoredChunk]:
        """See ``Store``; never calls ``rows``."""
        contents = [blob.content for blob in blobs]
        handles = self._area.add(self._number, contents)
        return list(map(self.chunk, handles, map(len, contents)))

    def collect(self) -> None:
        """See ``Store``."""
        self._area.collect()

    def close(self) -> None:
        """See ``Store``."""
        self._area.close_store(self._number)

    def status(self) -> dict[str, Any]:
        """See ``Store``."""
        self._area.check_process()
        return {"kind": self.kind, **self._area.index.tally(self._number)}
