"""``Committed``: the instant of a write has completed, so that readers see its files."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from strandline.commit.conflict import NOWHERE, Partitions
from strandline.commit.markers import delete_unreported
from strandline.write.context import WriteRequest
from strandline.write.stages.begun import Begun
from strandline.write.stages.written import Written
from timeline.timeline import Timeline

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Committed:
    """A write that has happened: from here on failures are reported, not raised.

    Attributes:
        written: The write.
        timeline: The active timeline, read after the instant completed.
    """

    written: Written
    timeline: Timeline


def committed(request: WriteRequest, written: Written) -> Committed:
    """Complete the instant.

    Raises:
        WriteConflictError: Another writer changed the same file groups or the schema, or undid what
            this write read.
        ConcurrentWriteError: The heartbeat has expired, or another writer rolled this back.
        TableError: The table can't be written any more.
        LockError: The lock can't be acquired, or was lost; nothing was completed.
        CommitOutcomeUnknownError: It is unknown whether the instant has completed.
    """
    with request.account.timed("commit"):
        _complete(request, written)
    return Committed(written, written.begun.transaction.after)


def _complete(request: WriteRequest, written: Written) -> None:
    target, transaction, report = written.begun.target, written.begun.transaction, written.report
    if report.stats and not written.is_exact:
        storage = request.context.storage.for_cause("marker")
        # Delete before completion, which would make files of discarded attempts visible, too.
        deleted = delete_unreported(storage, transaction.time, report.paths)
        if deleted:
            logger.info("deleted %d files of repeated task attempts", len(deleted))
    metadata = transaction.complete(
        request.operation.name,
        report.stats,
        target.avro_schema or "",
        request.extra_metadata,
        target.check_unchanged,
        _searched(request, written.begun),
    )
    request.context.history.remember(transaction.instant, metadata)


def _searched(request: WriteRequest, begun: Begun) -> Partitions:
    """Return the partitions in which keys were looked up."""
    if not request.operation.needs_match:
        return NOWHERE
    if begun.target.index.is_global:
        return Partitions(is_table=True)
    return Partitions(frozenset(begun.rows.counts))
