"""``Written``: the files of a write exist, each with its marker; readers don't see them yet.

The instant is inflight before the first marker. The service keeps markers if
``hoodie.write.markers.type`` says so, the service can access the table's storage, and it accepts
all their names; otherwise they are direct.

Source: Hudi 1.2.0 ``WriteMarkersFactory``, ``BaseSparkCommitActionExecutor``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

from executor_proxy.report import Fallback
from strandline.commit.markers import (
    DirectMarkers,
    EarlyConflicts,
    ServiceMarkers,
    WriteMarkers,
    marker_name,
)
from strandline.commit.settings import detects_early
from strandline.commit.transaction import Transaction
from strandline.records.merge import MergeRules
from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from strandline.server.marker.conflict import ConflictOptions
from strandline.server.marker.name import check_name
from strandline.write.context import WriteContext, WriteRequest
from strandline.write.engine.base import D, EngineContext, storage_calls
from strandline.write.index.base import TaggedRows
from strandline.write.options.client_options import base_file_settings, log_file_settings
from strandline.write.options.settings import MARKERS_TYPE, TIMELINE_SERVER_BASED, UNSORTED
from strandline.write.stages.begun import Begun
from strandline.write.stages.placed import Placed
from strandline.write.tasks.columns import BUCKET, TASK, assigned_schema, refuse_changed
from strandline.write.tasks.in_place import AssignInPartTask
from strandline.write.tasks.placement import AssignTask, Bucket, Placement, marked_file
from strandline.write.tasks.row_order import PartitionOrderTask
from strandline.write.tasks.write_report import STATUS_SCHEMA, WriteReport
from strandline.write.tasks.write_task import WriteTask
from timeline.errors import InputError
from timeline.instant import DELTA_COMMIT
from timeline.metadata.instant_metadata import WriteStat


@dataclass(frozen=True, slots=True)
class Written:
    """A write whose files exist.

    Attributes:
        begun: The write.
        report: The files that the tasks have written.
        markers: The write's markers.
        is_exact: Whether no files but the reported ones can exist.
        late: Whether the file of a repeated attempt may still appear, because storage didn't
            answer. It has the rows, file group and instant of the reported file.
    """

    begun: Begun
    report: WriteReport
    markers: WriteMarkers
    is_exact: bool
    late: bool


def written(request: WriteRequest, placed: Placed) -> Written:
    """Move the instant to inflight, and write the files.

    Raises:
        RowsChangedError: The rows aren't those that were counted.
        ConcurrentWriteError: The heartbeat has expired, another writer rolled this write back, or
            another one changes the same file groups (early conflict detection).
        StorageError: A file can't be written.
    """
    begun, rows = placed.tagged.begun, placed.tagged.rows
    with request.account.timed("commit"):
        planned = _planned_logs(begun, placed.placement.buckets)
        begun.transaction.start(request.operation.name, placed.replaced, planned)
    with request.account.timed("write"):
        marking = begin_markers(request.context, begun.transaction, placed.placement.buckets)
        report = _write_files(request, placed, marking.markers)
    # Add the files of executors, whose tasks only change a copy of the set.
    begun.files.created.update(report.paths)
    refuse_changed(rows.counts, report.given)
    # Only the driver's own tasks report every file that they have begun.
    is_exact = begun.rows.engine.in_process and begun.files.marked.keys() <= set(report.paths)
    request.account.add(
        storage_calls(begun.tally.total), marker_fallbacks=marking.fallbacks + report.fallbacks
    )
    late = bool(begun.files.unanswered)
    return Written(begun, report, marking.markers, is_exact, late)


def _planned_logs(begun: Begun, buckets: Sequence[Bucket]) -> list[WriteStat] | None:
    """Return the statistics of logs that will be named by their slices, as Hudi plans them.

    ``None`` from table version 8 on, and for an action without logs.
    """
    is_delta = begun.transaction.instant.action == DELTA_COMMIT
    if not is_delta or begun.target.config.layout_version > 1:
        return None
    return [
        WriteStat(
            file_id=bucket.file_id,
            prev_commit=bucket.slice.instant,
            partition_path=bucket.partition,
        )
        for bucket in buckets
        if bucket.slice is not None
    ]


def _write_files(request: WriteRequest, placed: Placed, markers: WriteMarkers) -> WriteReport:
    """Write the planned files, each in the task that has its rows."""
    begun, rows, buckets = placed.tagged.begun, placed.tagged.rows, placed.placement.buckets
    if not buckets:
        return WriteReport()
    engine, target, context = begun.rows.engine, begun.target, request.context
    order = (BUCKET,) if request.sort_mode == UNSORTED else (BUCKET, RECORD_KEY)
    assigned = assigned_rows(engine, rows, placed.placement, order)
    task = WriteTask(
        storage=request.files,
        config=target.config,
        buckets=buckets,
        tasks=assigned.tasks,
        rules=MergeRules(
            schema=target.schema,
            ordering_fields=target.config.ordering_fields,
            event_time=target.event_time,
            instant=begun.transaction.time,
            delete=request.operation.hard_delete,
            append=not request.operation.needs_match,
            properties=target.merge_properties,
            once_micros=target.once_in_micros(context.history),
        ),
        combine=rows.combine,
        avro_schema=target.avro_schema or "",
        settings=base_file_settings(context.settings),
        log_settings=log_file_settings(context.settings),
        markers=markers,
        first_written=target.first_written,
        tally=begun.tally,
        attempt=engine.attempt,
        begun=begun.files,
        looks_around=bool(begun.transaction.timeline.completed().instants)
        and not target.config.url_encode_partitioning,
    )
    statuses = engine.transform(assigned.data, task, STATUS_SCHEMA)
    return WriteReport.read(engine.collect(statuses))


@dataclass(frozen=True, slots=True)
class AssignedRows(Generic[D]):
    """Rows with their buckets.

    Attributes:
        data: The rows in the engine's form; those of each part are sorted by bucket.
        tasks: Number of the task that writes each bucket.
    """

    data: D
    tasks: tuple[int, ...]


def assigned_rows(
    engine: EngineContext[D], tagged: TaggedRows[D], placement: Placement, order: Sequence[str]
) -> AssignedRows[D]:
    """Assign rows to buckets, and move them to the buckets' write tasks if they aren't there.

    Args:
        engine: Runs the tasks.
        tagged: The rows.
        placement: The buckets; at least one.
        order: Columns by which a task's rows are sorted, the bucket first.
    """
    form = assigned_schema(tagged.columns)
    if placement.in_parts is not None:
        together = engine.together(tagged.data, PARTITION_PATH)
        in_part = AssignInPartTask(tagged.columns, placement.in_parts, engine.attempt)
        return AssignedRows(engine.transform(together, in_part, form), placement.parts)
    here = placement.tasks_in_place(tagged.parts, engine.cores)
    tasks = placement.tasks(engine.cores) if here is None else here
    assign = AssignTask(tagged.columns, placement.of_file, placement.inserts, tasks)
    assigned = engine.transform(tagged.data, assign, form)
    if here is None:
        return AssignedRows(engine.shuffle(assigned, TASK, max(tasks) + 1, order), tasks)
    return AssignedRows(engine.transform(assigned, PartitionOrderTask(tuple(order)), form), tasks)


@dataclass(frozen=True, slots=True)
class BegunMarkers:
    """The markers of a write.

    Attributes:
        markers: The markers.
        fallbacks: Why they are direct, if the service was meant to keep them.
    """

    markers: WriteMarkers
    fallbacks: tuple[Fallback, ...] = ()


def begin_markers(
    context: WriteContext, transaction: Transaction, buckets: Sequence[Bucket]
) -> BegunMarkers:
    """Choose a write's markers, and prepare them for its tasks.

    Args:
        context: The client's context.
        transaction: The write's transaction; its instant is inflight.
        buckets: The files that the write will create.

    Raises:
        StorageError: The choice couldn't be recorded on storage.

    Cost: none for direct markers; else a create, and a stat by the service.
    """
    instant, timeline = transaction.time, transaction.timeline
    detects = detects_early(context.settings)
    early = None
    if detects:
        options = ConflictOptions.of(context.settings)
        early = EarlyConflicts(options, frozenset(timeline.completed()), context.clock)
    direct = DirectMarkers(instant, early)
    if context.settings.get(MARKERS_TYPE) != TIMELINE_SERVER_BASED or not buckets:
        return BegunMarkers(direct)
    service = context.embedded.location(timeline)
    if not service.urls:
        return BegunMarkers(direct, (Fallback("unreachable", "there is no timeline service"),))
    try:
        for bucket in buckets:
            check_name(marker_name(*marked_file(bucket, "0-0-0", instant)), instant)
    except InputError as error:
        return BegunMarkers(direct, (Fallback("refused", str(error)),))
    served = ServiceMarkers(instant, service, detects=detects)
    fallback = served.begin(context.storage.for_cause("marker"))
    return BegunMarkers(served) if fallback is None else BegunMarkers(direct, (fallback,))
