"""``PinnedTable``: a table at one instant, whose files a reader's lease holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from strandline.read.scan import Scan
from strandline.read.state.held_lease import HeldLease
from timeline.meta_client import TableMetaClient


class PinnedTable:
    """A table at one instant, whose files this package's cleaner keeps; ``Table.pin`` makes it."""

    def __init__(self, meta: TableMetaClient, held: HeldLease) -> None:
        """Make it.

        Args:
            meta: The table.
            held: The lease, which the caller ends.
        """
        self._meta = meta
        self._held = held

    def __repr__(self) -> str:
        lease = self._held.lease
        return f"PinnedTable({self._meta.storage.base_path!r}, {lease.instant!r}, {lease.id!r})"

    @property
    def id(self) -> str:
        """The id of the lease, by which it can be revoked."""
        return self._held.lease.id

    @property
    def instant(self) -> str | None:
        """Requested time of the newest write that is read; ``None`` if there is none."""
        return self._held.lease.instant or None

    @property
    def is_held(self) -> bool:
        """Whether the lease still holds the files; no storage call."""
        return self._held.is_held

    def check(self) -> None:
        """Check that the lease still holds the files; no storage call.

        Raises:
            LeaseError: It has expired, was revoked, or the block has ended.
        """
        self._held.check()

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: Any = None,
        limit: int | None = None,
        *,
        read_optimized: bool = False,
        threads: int | None = None,
    ) -> Scan:
        """Return a scan of the rows at ``instant``; arguments and errors as in ``Table.scan``.

        A write that was pending when the table was pinned is read by scans that are made after it
        has completed, if it was requested before ``instant``.

        Raises:
            LeaseError: The lease was lost; or a clean of Hudi's, which doesn't know leases, may
                have deleted files.
        """
        self.check()
        return Scan.of(
            self._meta,
            columns=columns,
            filter=filter,
            as_of=self.instant,
            limit=limit,
            read_optimized=read_optimized,
            threads=threads,
            refuse=self._held.refuse_cleaned,
        )

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Read the rows at ``instant``: ``scan(columns).to_arrow()``."""
        return self.scan(columns).to_arrow()
