"""``WriteResult``: what a write did, what it took, and whom it had to ask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from strandline.clean.run import CleanResult


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The account of one write.

    Attributes:
        instant: Requested time of the commit.
        operation: ``UPSERT``, ``INSERT``, ``BULK_INSERT`` or ``DELETE``.
        rows_inserted: Rows whose key the table didn't have.
        rows_updated: Stored rows replaced.
        rows_deleted: Stored rows removed.
        files: Base files written.
        bytes_written: Their size.
        seconds: Time by part: ``tag`` (keys, look-ups), ``write``, ``commit``, ``sync``, ``clean``,
            ``rollback``.
        lookup_seconds: Of each look-up that tasks made.
        fallbacks: Why tasks, or the driver, did without the service; empty when they didn't.
        storage_calls: Of driver and executors, by (kind, cause). The service's own are in its
            status.
        clean: What the clean after the commit did; ``None`` when there was nothing to clean.
        rolled_back: Failed writes that were undone before this one.
    """

    instant: str
    operation: str
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    files: int = 0
    bytes_written: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    lookup_seconds: tuple[float, ...] = ()
    fallbacks: tuple[str, ...] = ()
    storage_calls: Mapping[tuple[str, str], int] = field(default_factory=dict)
    clean: CleanResult | None = None
    rolled_back: tuple[str, ...] = ()
