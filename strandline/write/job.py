"""``WriteJob``: the steps of one write, from the caller's rows to the synced service.

    check table and rows → create the table if new, drop its metadata table → roll back failed
    writes → request the instant, read the timeline → tag → assign buckets → inflight → write files
    → complete → delete markers → sync → clean

A failure before the instant completes leaves it pending, and the next write rolls it back. A commit
that conflicts with another writer's is rolled back at once.

Source: Hudi 1.2.0 ``SparkRDDWriteClient``, ``BaseCommitActionExecutor``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from executor_proxy.report import LookupReport
from fsview.sync.plan_reader import pending_clustering
from strandline.commit.conflict import NOWHERE, Partitions
from strandline.commit.markers import delete_unreported
from strandline.commit.own_heartbeat import Heartbeat
from strandline.commit.transaction import Transaction
from strandline.commit.write_markers import WriteMarkers
from strandline.records.merge import MergeRules
from strandline.records.meta_fields import RECORD_KEY
from strandline.write.after_commit import CreatedFiles, clean, finish_write, keep_timeline
from strandline.write.assigned_rows import assigned_rows
from strandline.write.checked_rows import checked_rows, ordering_fields
from strandline.write.context import WriteContext
from strandline.write.engine.base import Tally
from strandline.write.engine.driver import DriverEngine
from strandline.write.engine.storage_calls import storage_calls
from strandline.write.index.choice import tagging_by
from strandline.write.index.stored_files import all_stored_files, stored_files
from strandline.write.index.tagging import KeyedRows, SearchScope, TaggedRows
from strandline.write.last_timeline import TimelineOutdatedError
from strandline.write.operation import Operation, checked_metadata
from strandline.write.options.client_options import base_file_settings
from strandline.write.options.settings import (
    COMBINE_INSERT,
    GLOBAL_SORT,
    RECORD_SIZE,
    SORT_MODE,
    UNSORTED,
)
from strandline.write.replaced_groups import replaced_groups
from strandline.write.request import begin_markers, request_instant
from strandline.write.result import WriteAccount, WriteResult
from strandline.write.target import Target
from strandline.write.tasks.begun_files import BegunFiles
from strandline.write.tasks.columns import BUCKET
from strandline.write.tasks.in_place import placed_in_parts
from strandline.write.tasks.placement import Placement, Sizing, StoredFile, place, rewritten_bytes
from strandline.write.tasks.row_count import refuse_changed
from strandline.write.tasks.sort_mode import by_key_ranges
from strandline.write.tasks.write_report import STATUS_SCHEMA, WriteReport
from strandline.write.tasks.write_task import WriteTask
from timeline.errors import StorageUnavailableError, StrandlineError, WriteConflictError
from timeline.instant import Instant, State

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Write:
    """A write whose instant has been requested."""

    rows: KeyedRows[Any]
    target: Target
    transaction: Transaction
    tally: Tally
    begun: BegunFiles


class WriteJob:
    """One write; run once.

    Args:
        context: The client's context.
        operation: The kind of write.
        extra_metadata: Text to store in the commit next to the schema.

    Raises:
        ConfigError: ``extra_metadata`` has the key ``schema``, which is reserved.
        InputError: ``extra_metadata`` isn't a mapping of text to text.
    """

    def __init__(
        self,
        context: WriteContext,
        operation: Operation,
        extra_metadata: Mapping[str, str] | None = None,
    ) -> None:
        self._context = context
        self._operation = operation
        self._extra_metadata = checked_metadata(extra_metadata)
        self._account = WriteAccount(
            context.clock,
            context.storage.calls,
            context.embedded.report,
            in_process=context.engine.in_process,
        )
        self._has_requested = False
        # Base files are opened to find keys, and soon again to be merged.
        self._files = context.storage.keeping_tails()

    def run(self, data: object) -> WriteResult:
        """Run the steps of the module's docstring."""
        context = self._context
        given = context.engine.adopt(data)
        # Only between writes, because tasks know only the address that they were given.
        context.embedded.replace_ended()
        left = replace(context.last_timeline)
        try:
            return self._run(given)
        except TimelineOutdatedError:
            context.last_timeline.is_sole = False
        except Exception as error:
            # Another writer may have deleted files of the last timeline, or undone its schema.
            if self._has_requested or not left.is_outdated(context.storage):
                raise
            logger.info("write begins again, as the timeline has changed: %s", error)
        # Nothing was written, and the last timeline is forgotten, so this reads it.
        return self._run(given)

    def _run(self, given: Any) -> WriteResult:
        context = self._context
        begun = BegunFiles()
        with checked_rows(context, self._operation, self._account, given) as (rows, target):
            # Nothing is written before this line: all rows are checked by now.
            target = context.ready(target)
            # A client that knows what it has left knows that there is nothing to roll back.
            rolled_back = () if target.is_left else self._roll_back_failed(target)
            heartbeat = Heartbeat(context.storage, context.heartbeats, context.clock)
            self._has_requested = True
            try:
                transaction = self._requested(target, heartbeat)
                with self._ended(target, transaction, begun):
                    tally = rows.engine.tally()
                    written = self._write(_Write(rows, target, transaction, tally, begun))
                # The write has happened: from here on failures are reported, not raised.
                view = finish_write(context, self._account, transaction, written)
            finally:
                # An interrupt may have come between the steps that end it themselves.
                begun.is_left = True
                heartbeat.give_up()
        cleaned = clean(context, self._account, target.meta, transaction.after, view)
        in_driver = rows.engine.in_process
        # Tasks of executors may outlive their stage, and leave markers at any time.
        if in_driver:
            keep_timeline(context, self._account, target.config, transaction.after, cleaned)
        name = self._operation.name
        return self._account.result(
            transaction, name, written.report, cleaned, rolled_back, in_driver=in_driver
        )

    def _roll_back_failed(self, target: Target) -> tuple[str, ...]:
        """Roll back failed writes, before the timeline for this write's look-ups is read."""
        with self._account.timed("rollback"):
            return tuple(self._context.rollbacks(target.meta).repair(target.timeline))

    def _requested(self, target: Target, heartbeat: Heartbeat) -> Transaction:
        """Request the instant; roll it back if it was requested from an outdated timeline."""
        context, action = self._context, self._operation.action
        try:
            with self._account.timed("commit"):
                return request_instant(context, target, heartbeat, action)
        except TimelineOutdatedError:
            # At once: the write that begins again may be refused before it repairs the table.
            heartbeat.give_up()
            own = Instant(heartbeat.instant, action, State.REQUESTED)
            with self._account.timed("rollback"):
                context.rollbacks(target.meta).roll_back_dead(own)
            raise

    @contextmanager
    def _ended(self, target: Target, transaction: Transaction, begun: BegunFiles) -> Iterator[None]:
        """End the heartbeat if the block fails, and roll back a commit that conflicts."""
        try:
            yield
        # Also an interrupt: the heartbeat's thread would keep a dead write alive.
        except BaseException as failure:
            # Before the heartbeat ends: another writer may then roll the write back at once.
            begun.is_left = True
            is_undone = False
            try:
                is_conflict = isinstance(failure, WriteConflictError)
                is_undone = is_conflict and self._roll_back(target, transaction)
                if isinstance(failure, StorageUnavailableError):
                    transaction.make_room()
            finally:
                if is_undone:
                    transaction.end()
                else:
                    transaction.fail(sorted(begun.created))
            raise

    def _roll_back(self, target: Target, transaction: Transaction) -> bool:
        """Roll back a commit that conflicts; return whether this writer has done it."""
        try:
            return self._context.rollbacks(target.meta).roll_back_own(transaction.instant)
        except StrandlineError as error:
            logger.warning("commit %s can't be rolled back: %s", transaction.time, error)
            return False

    def _write(self, write: _Write) -> CreatedFiles:
        """Write the rows' files and complete the instant."""
        context, target, transaction = self._context, write.target, write.transaction
        context.rollbacks(target.meta).check_alone(transaction.instant, transaction.timeline)
        target.check_pinned(transaction.timeline, context.history)
        replaced = replaced_groups(context, target, transaction, self._operation, write.rows.counts)
        # Tagging precedes inflight: if it fails, there are no data files to delete.
        with self._tagged(write) as (tagged, placement):
            with self._account.timed("commit"):
                transaction.start(self._operation.name, replaced)
            with self._account.timed("write"):
                marking = begin_markers(context, transaction, placement.buckets)
                report = self._write_files(write, tagged, placement, marking.markers)
            # The files of executors, whose tasks add to a copy.
            write.begun.created.update(report.paths)
            refuse_changed(tagged.counts, report.given)
        # Only the driver's own tasks tell it of every file that they have begun.
        is_exact = write.rows.engine.in_process and write.begun.marked <= set(report.paths)
        written = CreatedFiles(report, marking.markers, is_exact=is_exact)
        self._account.add(
            storage_calls(write.tally.total), marker_fallbacks=marking.fallbacks + report.fallbacks
        )
        with self._account.timed("commit"):
            self._complete(write, written)
        return written

    @contextmanager
    def _tagged(self, write: _Write) -> Iterator[tuple[TaggedRows[Any], Placement]]:
        """Tag the rows and place them; persist the tagged rows while the block runs."""
        context, operation, target = self._context, self._operation, write.target
        sizing = target.sizing(context.settings, context.history)
        fills = operation.fills_small_files and sizing.small_file_bytes > 0
        tagging = tagging_by(
            target.index,
            engine=write.rows.engine,
            operation=operation,
            storage=self._files,
            tally=write.tally,
            combine_inserts=context.settings.get(COMBINE_INSERT),
            ordering_fields=ordering_fields(target, operation),
            properties=target.merge_properties,
        )
        with ExitStack() as stack:
            with self._account.timed("tag"):
                scope = tagging.scope(fills=fills)
                files = () if scope is SearchScope.NOTHING else self._stored_files(write, scope)
                tagged = stack.enter_context(tagging.tagged(write.rows, files))
                clustered = pending_clustering(target.meta, write.transaction.timeline)
                placement = place(
                    tagged.updates, tagged.inserts, tagged.files, clustered, sizing, fills=fills
                )
                engine = write.rows.engine
                if tagged.in_parts is not None:
                    staying = replace(sizing, record_bytes=self._record_bytes(write, sizing))
                    stay = placed_in_parts(tagged.in_parts, placement, staying, engine.cores)
                    placement = stay or placement
                if self._sort_mode == GLOBAL_SORT:
                    placement = by_key_ranges(engine, tagged.data, tagged.counts, placement)
                if isinstance(engine, DriverEngine):
                    engine.limit_rewrite(rewritten_bytes(placement.buckets, tagged.files))
            yield tagged, placement

    def _record_bytes(self, write: _Write, sizing: Sizing) -> int:
        """Return a record's size in a file, which is hardly larger than that of a row in memory."""
        if self._context.settings.is_set(RECORD_SIZE):
            return sizing.record_bytes
        return min(sizing.record_bytes, write.rows.row_bytes)

    @property
    def _sort_mode(self) -> str:
        return self._context.settings.get(SORT_MODE) if self._operation.sorts else UNSORTED

    def _stored_files(self, write: _Write, scope: SearchScope) -> tuple[StoredFile, ...]:
        """Return the newest base files of partitions at the write's timeline."""
        report, counts, context = LookupReport(), write.rows.counts, self._context
        asked = None if scope is SearchScope.TABLE else len(counts)
        location = context.embedded.lookup_location(
            write.transaction.timeline, asked, alone=isinstance(write.rows.engine, DriverEngine)
        )
        try:
            # A view that lists storage takes the timeline read when the instant was requested.
            with context.storage.reusing_listing(), closing(location.open(report)) as view:
                if scope is SearchScope.TABLE:
                    return all_stored_files(view)
                return stored_files(view, tuple(sorted(counts)))
        finally:
            self._account.add({}, report)

    def _write_files(
        self, write: _Write, tagged: TaggedRows[Any], placement: Placement, markers: WriteMarkers
    ) -> WriteReport:
        buckets = placement.buckets
        if not buckets:
            return WriteReport()
        engine, target = write.rows.engine, write.target
        order = (BUCKET,) if self._sort_mode == UNSORTED else (BUCKET, RECORD_KEY)
        assigned = assigned_rows(engine, tagged, placement, order)
        task = WriteTask(
            storage=self._files,
            config=target.config,
            buckets=buckets,
            tasks=assigned.tasks,
            rules=MergeRules(
                schema=target.schema,
                ordering_fields=target.config.ordering_fields,
                event_time=target.event_time,
                instant=write.transaction.time,
                delete=self._operation.hard_delete,
                append=not self._operation.needs_match,
                properties=target.merge_properties,
                once_micros=target.once_in_micros(self._context.history),
            ),
            combine=tagged.combine,
            avro_schema=target.avro_schema or "",
            settings=base_file_settings(self._context.settings),
            markers=markers,
            first_written=target.first_written,
            tally=write.tally,
            attempt=engine.attempt,
            begun=write.begun,
            looks_around=bool(write.transaction.timeline.completed().instants)
            and not target.config.url_encode_partitioning,
        )
        statuses = engine.transform(assigned.data, task, STATUS_SCHEMA)
        return WriteReport.read(engine.collect(statuses))

    def _complete(self, write: _Write, written: CreatedFiles) -> None:
        """Complete the instant, which makes the write visible to readers."""
        target, transaction, report = write.target, write.transaction, written.report
        if report.stats and not written.is_exact:
            storage = self._context.storage.for_cause("marker")
            # Before completion, which would make files of discarded attempts visible as well.
            deleted = delete_unreported(storage, transaction.time, report.paths)
            if deleted:
                logger.info("deleted %d files of repeated task attempts", len(deleted))
        metadata = transaction.complete(
            self._operation.name,
            report.stats,
            target.avro_schema or "",
            self._extra_metadata,
            target.check_unchanged,
            self._searched(write),
        )
        self._context.history.remember(transaction.instant, metadata)

    def _searched(self, write: _Write) -> Partitions:
        """Return the partitions in which keys were looked up."""
        if not self._operation.needs_match:
            return NOWHERE
        if write.target.index.is_global:
            return Partitions(is_table=True)
        return Partitions(frozenset(write.rows.counts))
