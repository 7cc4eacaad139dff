"""A store whose blobs and rows outlive it in a dictionary, and that fails when a test wants."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fsview.store.base import Blob, Handle, RecordRows, Store, StoredChunk
from timeline.errors import StoreError


@dataclass
class Kept:
    """What outlives a store.

    Attributes:
        near: The row that each blob was committed near, those of former blobs included.
        fail: Called with a method's name before it does anything, and with ``after commit``; what
            it raises the store raises.
    """

    blobs: dict[Handle, bytes] = field(default_factory=dict)
    rows: dict[str, bytes] = field(default_factory=dict)
    near: dict[Handle, str] = field(default_factory=dict)
    next_handle: int = 1
    fail: Callable[[str], None] = lambda name: None


class LastingStore(Store):
    """See ``Store``; strict: what was given back can't be read."""

    kind: ClassVar[str] = "LASTING"
    lasts: ClassVar[bool] = True

    def __init__(self, kept: Kept) -> None:
        super().__init__()
        self.kept = kept

    def rows(self) -> Mapping[str, bytes]:
        self.kept.fail("rows")
        return dict(self.kept.rows)

    def get(self, handle: Handle) -> bytes:
        self.kept.fail("get")
        if handle not in self.kept.blobs:
            raise StoreError(f"no blob {handle}")
        return self.kept.blobs[handle]

    def commit(
        self,
        blobs: Sequence[Blob],
        rows: Callable[[Sequence[Handle]], RecordRows] = lambda handles: {},
    ) -> list[StoredChunk]:
        kept = self.kept
        kept.fail("commit")
        handles = [Handle(kept.next_handle + n) for n in range(len(blobs))]
        kept.next_handle += len(blobs)
        changed = rows(handles)
        contents = [blob.content for blob in blobs]
        kept.blobs.update(zip(handles, contents, strict=True))
        kept.near.update(zip(handles, (blob.near for blob in blobs), strict=True))
        for name, row in changed.items():
            if row is None:
                kept.rows.pop(name, None)
            else:
                kept.rows[name] = row
        if changed:
            self._drop_forgotten()
        kept.fail("after commit")
        return list(map(self.chunk, handles, map(len, contents)))

    def collect(self) -> None:
        if not self.is_ahead():
            self._drop_forgotten()

    def _drop_forgotten(self) -> None:
        while self.forgotten:
            self.kept.blobs.pop(self.forgotten.popleft(), None)

    def clear(self) -> None:
        self.kept.fail("clear")
        self.kept.rows.clear()
        self.collect()

    def sweep(self, live: Collection[Handle]) -> None:
        self.kept.fail("sweep")
        for handle in self.kept.blobs.keys() - set(live):
            del self.kept.blobs[handle]

    def close(self) -> None:
        """Nothing is open."""

    def status(self) -> dict[str, Any]:
        size = sum(map(len, self.kept.blobs.values()))
        return {"kind": self.kind, "blobs": len(self.kept.blobs), "bytes": size}
