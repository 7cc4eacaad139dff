"""``WriteResult``: the effect and cost of a write; ``WriteAccount`` collects them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from executor_proxy.report import Fallback, Lookup, LookupReport
from strandline.commit.conflict import Conflict
from strandline.commit.transaction import Transaction
from strandline.table_services.archive.run import ArchiveResult
from strandline.table_services.clean.execution import CleanResult
from strandline.table_services.compact.planner import CompactionResult
from strandline.write.async_cleaner import AsyncClean
from strandline.write.tasks.write_report import WriteReport
from timeline.clock import Clock
from timeline.storage.base import StorageCalls
from timeline.timeline import Timeline
from timeline.tracing import child

logger = logging.getLogger(__name__)

DRIVER: Final = "driver"
EXECUTORS: Final = "executors"
_STEPS: Final = ("tag", "write", "commit", "sync", "compact", "clean", "archive", "rollback")


@dataclass(frozen=True, slots=True)
class WriteResult:
    """Result of one write.

    Attributes:
        instant: Requested time of the commit.
        operation: Hudi's name of the operation, such as ``UPSERT`` or ``INSERT_OVERWRITE``.
        written_by: ``driver``, or ``executors`` if they wrote files.
        rows_inserted: Rows added.
        rows_updated: Stored rows replaced; in a merge-on-read table rows appended to logs, which
            may lose against stored ones.
        rows_deleted: Stored rows removed, or deletes appended to logs.
        files: Number of files written.
        bytes_written: Total size of those files.
        seconds: Time by step: ``tag`` (keys, look-ups), ``write``, ``commit``, ``sync``,
            ``compact``, ``clean``, ``archive``, ``rollback``.
        lookups: The write's look-ups, each with its duration and the source of its answer:
            ``local`` also while the service is still starting, which is no fallback.
        fallbacks: Views of tasks or the driver that fell back from the service to listing storage,
            each with its cause.
        marker_fallbacks: Tasks that wrote markers instead of the service, each with its cause; or
            one cause for the whole write.
        storage_calls: Calls by driver and executors, by (kind, cause); the service's own calls are
            in its status.
        clean: Result of the clean after the commit; if cleans are asynchronous, of the one that ran
            beside this write, after the client's previous one. ``None`` if nothing was cleaned.
        archive: Result of the archival after it; ``None`` if nothing was archived.
        compaction: Result of the compaction after the commit, before the clean; ``None`` if nothing
            was compacted.
        planned_compaction: Requested time of the compaction that was only planned, if any.
        rolled_back: Requested times of failed writes that were rolled back first.
        concurrent: Requested times of other writers' instants that completed, or were planned,
            while this write ran, and that it was compared with.
        conflicts: Those of them that changed the same file groups, but didn't invalidate this
            write.
        warnings: Failures after the commit, such as of the clean; the rows are committed. Columns
            that this write wrote first, if Hudi can't rewrite their values. The client's first
            result also names options that it ignored: unknown ones, and those without effect.
    """

    instant: str
    operation: str
    written_by: str = DRIVER
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    files: int = 0
    bytes_written: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    lookups: tuple[Lookup, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()
    marker_fallbacks: tuple[Fallback, ...] = ()
    storage_calls: Mapping[tuple[str, str], int] = field(default_factory=dict)
    clean: CleanResult | None = None
    archive: ArchiveResult | None = None
    compaction: CompactionResult | None = None
    planned_compaction: str | None = None
    rolled_back: tuple[str, ...] = ()
    concurrent: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        rows = f"{self.rows_inserted} inserted, {self.rows_updated} updated"
        wrote = f"{self.files} files of {self.bytes_written} bytes"
        counts = {
            "fallbacks": len(self.fallbacks) + len(self.marker_fallbacks),
            "rolled back": len(self.rolled_back),
            "conflicts": len(self.conflicts),
            "warnings": len(self.warnings),
        }
        notes = "".join(f", {name}: {count}" for name, count in counts.items() if count)
        took = f"{sum(self.seconds.values()):.1f} s by {self.written_by}"
        return (
            f"WriteResult({self.instant} {self.operation}: {rows}, {self.rows_deleted} deleted,"
            f" {wrote}, {took}{notes})"
        )


MANY_INSTANTS: Final = 1000
"""A longer active timeline causes a warning; Hudi's writers keep 20 to 30 commits by default."""


class WriteAccount:
    """Adds up time, look-ups and storage calls of one write; used by one thread.

    Args:
        clock: Measures the steps.
        driver_calls: Counts the driver's storage calls; only calls from now on are reported.
        driver_report: The driver's own look-ups; only those from now on are reported.
        in_process: Whether tasks run in the driver's process, on its counted storage.
    """

    def __init__(
        self,
        clock: Clock,
        driver_calls: StorageCalls,
        driver_report: LookupReport,
        *,
        in_process: bool,
    ) -> None:
        self._clock = clock
        self._driver_calls = driver_calls
        self._driver_report = driver_report
        self._calls_before = driver_calls.snapshot()
        self._in_process = in_process
        self._fallbacks_before = len(driver_report.fallbacks)
        self._seconds = dict.fromkeys(_STEPS, 0.0)
        self._report = LookupReport()
        self._task_calls: Counter[tuple[str, str]] = Counter()
        self._marker_fallbacks: list[Fallback] = []
        self._warnings: list[str] = []

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Add the duration of the block to a step, and record it as a span."""
        started = self._clock.monotonic()
        try:
            with child(f"step {step}"):
                yield
        finally:
            self._seconds[step] += self._clock.monotonic() - started

    def warn(self, warning: str) -> None:
        """Add a warning to the result, once."""
        if warning not in self._warnings:
            logger.warning("%s", warning)
            self._warnings.append(warning)

    @property
    def has_warnings(self) -> bool:
        """Whether any step failed after the commit."""
        return bool(self._warnings)

    @contextmanager
    def survived(self, what: str) -> Iterator[None]:
        """Log and report an error of the block instead of raising it: the commit is complete."""
        try:
            yield
        # Catch every error: a caller that got it would repeat a write that has happened.
        except Exception as error:
            logger.warning("the commit completed, but %s failed", what, exc_info=True)
            self._warnings.append(f"{what} failed: {_described(error)}")

    def add(
        self,
        calls: Mapping[tuple[str, str], int],
        report: LookupReport | None = None,
        marker_fallbacks: Sequence[Fallback] = (),
    ) -> None:
        """Add tasks' storage calls and look-ups, and their reasons for writing markers."""
        if not self._in_process:  # else the driver's storage counted them
            self._task_calls.update(calls)
        if report is not None:
            self._report.merge(report)
        if marker_fallbacks:
            reason = marker_fallbacks[0].reason
            logger.warning("the timeline service didn't write all markers: %s", reason)
            self._marker_fallbacks += marker_fallbacks

    def add_clean(self, clean: AsyncClean) -> None:
        """Add the cost of an asynchronous clean, and its failure, if it failed."""
        self._task_calls.update(clean.calls)  # its storage counts them apart from the driver's
        self._report.fallbacks.extend(clean.fallbacks)
        if clean.error is not None:  # logged by its thread
            self._warnings.append(f"cleaning failed: {_described(clean.error)}")

    def result(
        self,
        transaction: Transaction,
        operation: str,
        report: WriteReport,
        clean: CleanResult | None,
        archive: ArchiveResult | None,
        rolled_back: tuple[str, ...],
        *,
        in_driver: bool,
    ) -> WriteResult:
        """Return the write's result; log a warning if views fell back to listing storage."""
        # The client's report outlives the write, and no result has the driver's own look-ups.
        self._driver_report.lookups.clear()
        fallbacks = (
            *self._report.fallbacks,
            *self._driver_report.fallbacks[self._fallbacks_before :],
        )
        if fallbacks:
            logger.warning(
                "%d views of this write listed storage instead of asking the timeline service: %s",
                len(fallbacks),
                fallbacks[0].reason,
            )
        return WriteResult(
            instant=transaction.time,
            operation=operation,
            written_by=DRIVER if in_driver else EXECUTORS,
            rows_inserted=report.counts.inserts,
            rows_updated=report.counts.updates,
            rows_deleted=report.counts.deletes,
            files=len(report.stats),
            bytes_written=sum(stat.file_size_in_bytes for stat in report.stats),
            seconds=dict(self._seconds),
            lookups=tuple(self._report.lookups),
            fallbacks=fallbacks,
            marker_fallbacks=tuple(self._marker_fallbacks),
            storage_calls=self._storage_calls(),
            clean=clean,
            archive=archive,
            rolled_back=rolled_back,
            concurrent=transaction.compared,
            conflicts=transaction.conflicts,
            warnings=(*_null_elements(report), *self._warnings, *_growth(transaction.after)),
        )

    def _storage_calls(self) -> dict[tuple[str, str], int]:
        """Return the calls of driver, views and tasks since the write began, by (kind, cause)."""
        calls = Counter(self._driver_calls.snapshot())
        calls.subtract(self._calls_before)
        calls.update(self._report.storage_calls())
        calls.update(self._task_calls)
        return {key: number for key, number in sorted(calls.items()) if number}


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _null_elements(report: WriteReport) -> tuple[str, ...]:
    """Return a warning if columns that this write wrote first have lists with null elements.

    Source: parquet-avro ``AvroWriteSupport``, whose old list structure has no null elements.
    """
    if not report.null_elements:
        return ()
    names = ", ".join(map(repr, report.null_elements))
    return (
        f"lists with null elements in {names}: Hudi's next upsert of their files fails, unless its"
        " Hadoop configuration has parquet.avro.write-old-list-structure=false",
    )


def _growth(timeline: Timeline) -> tuple[str, ...]:
    """Return a warning if the timeline grows although old instants are archived."""
    if len(timeline) <= MANY_INSTANTS:
        return ()
    return (
        f"the active timeline has {len(timeline)} instants, more than {MANY_INSTANTS}; each makes a"
        " commit more expensive: archive them, or end the savepoint or pending instant that keeps"
        " them",
    )
