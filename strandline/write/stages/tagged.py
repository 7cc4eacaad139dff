"""``Tagged``: each row of a write has the stored file with its key, or none if none has it.

The driver looks up the newest base files that the index must know, at the write's timeline; tasks
search the keys in them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from executor_proxy.report import LookupReport
from fsview.files.partition import PartitionVersion
from fsview.model.file_group import CompactionOperation, FileSlice, LogFile
from fsview.model.file_system_view import FileSystemView, LookupQuery, partition_names
from fsview.snapshot.snapshot import GroupKey
from fsview.sync.metadata_reader import pending_operations
from strandline.commit.concurrent_operations import may_hide_logs
from strandline.commit.conflict import FIRST_LOGS_OF_WRITERS
from strandline.commit.slice_logs import is_emptied
from strandline.read.logs.log_blocks import needs_merge
from strandline.records.merge_rule import MergeProperties
from strandline.write.context import WriteRequest
from strandline.write.engine.base import EngineContext, Tally
from strandline.write.engine.driver import DriverEngine
from strandline.write.index.base import SearchScope, TaggedRows, Tagging
from strandline.write.index.bucket import BucketTagging
from strandline.write.index.merged_slices import LateLogs, MergedSlices
from strandline.write.index.search import SearchIndex
from strandline.write.index.search_tagging import SearchTagging
from strandline.write.operation import Operation
from strandline.write.options.index_settings import (
    BLOOM,
    BUCKET,
    GLOBAL_BLOOM,
    INDEX_TYPE,
    IndexOptions,
)
from strandline.write.options.settings import COMBINE_INSERT
from strandline.write.stages.begun import Begun
from strandline.write.stages.checked import ordering_fields
from strandline.write.tasks.placement import LogSlice, Sizing, StoredFile
from timeline.errors import UnsupportedTableError, ViewBehindError
from timeline.instant import COMMIT, COMPACTION
from timeline.storage.base import Storage
from timeline.table.partition_metadata import list_partition
from timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Tagged:
    """A write whose rows are tagged with their stored files.

    Attributes:
        begun: The write.
        rows: The tagged rows, kept while the stage lasts.
        sizing: Sizes of files and records.
        fills: Whether inserts go to small stored files.
    """

    begun: Begun
    rows: TaggedRows[Any]
    sizing: Sizing
    fills: bool


@contextmanager
def tagged(request: WriteRequest, begun: Begun) -> Iterator[Tagged]:
    """Tag the rows, and keep them while the block runs.

    Raises:
        RowsChangedError: The rows aren't those that were counted.
        UnsupportedTableError: The stored files belong to another kind of index.
        WriteConflictError: Another writer has changed the schema since the table was opened.
        ConcurrentWriteError: Another writer's pending instant allows no concurrent write.
    """
    context, operation, target = request.context, request.operation, begun.target
    transaction = begun.transaction
    context.rollbacks(target.meta).check_alone(transaction.instant, transaction.timeline)
    target.check_pinned(transaction.timeline, context.history)
    sizing = target.sizing(context.settings, context.history)
    fills = operation.fills_small_files and sizing.small_file_bytes > 0
    if request.partitions is not None:
        keyed = begun.rows
        yield Tagged(begun, TaggedRows(keyed.data, {}, {}, {}, keyed.columns, ()), sizing, fills)
        return
    tagging = tagging_by(
        target.index,
        engine=begun.rows.engine,
        operation=operation,
        storage=request.files,
        tally=begun.tally,
        combine_inserts=context.settings.get(COMBINE_INSERT),
        ordering_fields=ordering_fields(target, operation),
        properties=target.merge_properties,
    )
    with ExitStack() as held:
        with request.account.timed("tag"):
            scope = tagging.scope(fills=fills)
            slices = () if scope is SearchScope.NOTHING else _stored(request, begun, scope)
            looks = operation.needs_match and not target.index.is_bucket
            late = _late_logs(request, begun, slices) if looks else frozenset()
            compactions = _compactions(begun)
            files = tuple(_stored_file(each, late, compactions) for each in slices)
            if isinstance(tagging, SearchTagging) and operation.needs_match:
                tagging = replace(
                    tagging,
                    merged=_merged(request, begun, slices),
                    late=_reader_of_late(begun, slices, late),
                )
            if looks:
                _refuse_only_logs(files, context.storage.base_path)
            rows = held.enter_context(tagging.tagged(begun.rows, files))
        yield Tagged(begun, rows, sizing, fills)


def _stored(request: WriteRequest, begun: Begun, scope: SearchScope) -> tuple[FileSlice, ...]:
    """Return the newest slices of partitions, or of the table, at the write's timeline.

    In a copy-on-write table a slice is its base file; in a merge-on-read table slices are merged
    while a compaction pends on them, and have the logs that base files of unfinished writes hide.
    """
    report, partitions, context = LookupReport(), tuple(sorted(begun.rows.counts)), request.context
    location = context.embedded.lookup_location(
        begun.transaction.timeline,
        None if scope is SearchScope.TABLE else len(partitions),
        alone=isinstance(begun.rows.engine, DriverEngine),
    )
    try:
        # A view that lists storage reuses the timeline read when the instant was requested.
        with context.storage.reusing_listing(), closing(location.open(report)) as view:
            if begun.target.merges_on_read:
                if scope is SearchScope.TABLE:
                    partitions = tuple(partition_names(view))
                name = "latest_merged_file_slices_before_or_on"
                merged = looked_up(view, name, partitions, begun.transaction.time)
                merged = _with_hidden_logs(request, begun, view, merged)
                return tuple(each for each in merged if not is_emptied(each))
            if scope is SearchScope.TABLE:
                view.load_all_partitions()
                found = sorted(view.all_latest_base_files(), key=lambda file: file.path)
            else:
                found = looked_up(view, "latest_base_files", partitions)
    finally:
        request.account.add({}, report)
    return tuple(FileSlice(file.partition, file.file_id, file.instant, file) for file in found)


def _with_hidden_logs(
    request: WriteRequest, begun: Begun, view: FileSystemView, slices: Sequence[FileSlice]
) -> list[FileSlice]:
    """Return slices with all their logs that had completed in the write's timeline.

    From table version 8 on some are in no slice that a view shows: those that base files of
    unfinished writes hide (``may_hide_logs``). When such a write is rolled back, they belong to the
    slice before. A write that doesn't know them rewrites a file without their rows, or takes a key
    for one that was deleted, moved or never written.

    Args:
        request: The write.
        begun: Its instant and timeline.
        view: The view of the write's look-ups.
        slices: The newest slices of some partitions that it shows.

    Raises:
        StorageError: A partition can't be listed.

    Cost: none unless ``may_hide_logs``; else a question to the view for each partition with slices,
        and a list of one in which a clean or rollback under way has deleted files.
    """
    meta, transaction = begun.target.meta, begun.transaction
    timeline = transaction.timeline
    has_hidden = meta.config.version >= FIRST_LOGS_OF_WRITERS and may_hide_logs(
        timeline, transaction.time
    )
    if not has_hidden:
        return list(slices)
    known = {log.path for each in slices for log in each.log_files}
    completion = meta.completion_times(timeline)
    logs: dict[GroupKey, list[LogFile]] = {}
    for partition in dict.fromkeys(each.partition for each in slices):
        for log in _logs_in(view, request.context.storage, partition):
            if log.path not in known and completion.is_completed(log.instant):
                logs.setdefault((partition, log.file_id), []).append(log)
    times = {log.instant for found in logs.values() for log in found}
    ends = request.context.history.completion_times(meta, timeline, times) if times else {}
    return [_with_logs(each, logs.get((each.partition, each.file_id), ()), ends) for each in slices]


def _logs_in(view: FileSystemView, storage: Storage, partition: str) -> Iterator[LogFile]:
    """Yield the logs in a partition, of whichever slices."""
    try:
        groups = view.all_file_groups(partition)
    except ViewBehindError:
        # The view knows that there were files, but not of which sizes; logs of readable slices
        # aren't deleted.
        listing = list_partition(storage.for_cause("lookup"), partition)
        for _, files in PartitionVersion.of_listing(partition, listing, ()).groups():
            yield from (file for file in files if isinstance(file, LogFile))
        return
    for group in groups:
        for found in group.slices:
            yield from found.log_files


def _with_logs(found: FileSlice, logs: Iterable[LogFile], ends: Mapping[str, str]) -> FileSlice:
    """Return a slice with those of its group's other logs that no committed slice before it has.

    Args:
        found: The slice.
        logs: The other logs of completed writes.
        ends: Requested → completion time of these writes.
    """
    base = found.base_instant
    hidden = [log for log in logs if _end(log, base, ends) >= base]
    if not hidden:
        return found
    both = sorted((*found.log_files, *hidden), key=lambda log: log.order, reverse=True)
    return replace(found, log_files=tuple(both))


def _end(log: LogFile, base_instant: str, ends: Mapping[str, str]) -> str:
    """Return when the write of a log completed, as views compare it with a slice's instant."""
    end = ends.get(log.instant, log.instant)
    return end if len(end) == len(base_instant) else log.instant


def looked_up(
    view: FileSystemView, query: str, partitions: Sequence[str], max_instant: str | None = None
) -> list[Any]:
    """Return what a query finds in partitions, in their order, by one look-up."""
    if not partitions:
        return []
    (answers,) = view.look_up([LookupQuery(query, tuple(partitions), max_instant=max_instant)])
    return [found for answer in answers for found in answer]


def _late_logs(request: WriteRequest, begun: Begun, slices: Sequence[FileSlice]) -> frozenset[str]:
    """Return the names of logs whose writers may not have seen the base file of their slice.

    Keys are looked up in base files: an insert is never in a log alone. There is one exception: a
    writer that found a key in the base file before a compaction, which logs had deleted, has
    written it to a log that lies on top of the compaction's base file, which lacks it. So the logs
    are searched, too, that were requested before the base file was visible. (Hudi doesn't, and
    inserts such a key a second time.)

    In table version 6 a log's name doesn't tell its writer, but the statistics of its delta commit
    name the base file that the writer saw.
    """
    history, timeline = request.context.history, begun.transaction.timeline
    meta = begun.target.meta
    found = [(each.base_file, each.log_files) for each in slices if each.base_file]
    if meta.config.layout_version > 1:
        times = {base.instant for base, logs in found if logs}
        ends = history.completion_times(meta, timeline, times) if times else {}
        return frozenset(
            log.name
            for base, logs in found
            for log in logs
            if log.instant < ends.get(base.instant, "")
        )
    # Only a compaction leaves logs on top of its file whose writers don't know it.
    compacted = [
        (base, logs) for base, logs in found if logs and _may_be_compaction(timeline, base.instant)
    ]
    if not compacted:
        return frozenset()
    seen = history.log_bases(meta, timeline, min(base.instant for base, _ in compacted))
    first = timeline.write_timeline().first
    archived = "" if first is None else first.requested_time
    return frozenset(
        log.name
        for base, logs in compacted
        for log in logs
        # One that no delta commit names was left by a dead writer, unless its commit is archived.
        if (seen[log.name] != base.name if log.name in seen else base.instant < archived)
    )


def _reader_of_late(
    begun: Begun, slices: Sequence[FileSlice], late: Collection[str]
) -> LateLogs | None:
    """Return what reads the slices with late logs, if there are any."""
    found = {
        number: each
        for number, each in enumerate(slices)
        if any(log.name in late for log in each.log_files)
    }
    return LateLogs(found, begun.target.meta, begun.transaction.timeline) if found else None


def _may_be_compaction(timeline: Timeline, time: str) -> bool:
    """Return whether a write is a compaction; if it is archived, it may be one."""
    found = timeline.find(time)
    return found is None or found.action == COMMIT


def _compactions(begun: Begun) -> Mapping[GroupKey, CompactionOperation] | None:
    """Return the pending compactions of groups, in whose slices their next logs are.

    ``None`` from version 8 on, where a log's name doesn't tell its slice.

    Cost: a read for each pending compaction.
    """
    target = begun.target
    if not target.merges_on_read or target.config.layout_version > 1:
        return None
    return pending_operations(target.meta, begun.transaction.timeline, COMPACTION)


def _stored_file(
    found: FileSlice,
    late: Collection[str],
    compactions: Mapping[GroupKey, CompactionOperation] | None,
) -> StoredFile:
    """Return the base file of a slice, with what a write needs to know of its logs.

    Args:
        found: The slice.
        late: Names of logs whose keys are looked up, too.
        compactions: The pending compactions of groups; ``None`` from version 8 on.
    """
    base, logs, group = found.base_file, found.log_files, (found.partition, found.file_id)
    of_log = None
    if compactions is not None:
        pending = compactions.get(group)
        of_log = LogSlice.of(found, None if pending is None else pending.compaction_instant)
    if base is None:
        return StoredFile(*group, "", 0, bool(logs), slice=of_log)
    searched = tuple(log.name for log in logs if log.name in late)
    return StoredFile(*group, base.name, base.size, bool(logs), searched, of_log)


def _merged(
    request: WriteRequest, begun: Begun, slices: Sequence[FileSlice]
) -> MergedSlices | None:
    """Return what reads the slices with logs, if the index is global."""
    target = begun.target
    with_logs = {number: each for number, each in enumerate(slices) if needs_merge(each)}
    if not (with_logs and target.index.is_global):
        return None
    return MergedSlices(
        with_logs,
        target.meta,
        begun.transaction.timeline,
        target.schema,
        target.avro_schema,
        target.once_in_micros(request.context.history),
    )


def _refuse_only_logs(files: Iterable[StoredFile], base_path: str) -> None:
    """Refuse look-ups in base files if a group has only logs, as Flink's writers make them.

    Raises:
        UnsupportedTableError: There is such a group; the message names it.
    """
    for file in files:
        if not file.name:
            raise UnsupportedTableError(
                f"file group {file.file_id} in partition {file.partition!r} of {base_path} has only"
                f" logs, in which keys aren't looked up; allowed: {INDEX_TYPE.name}={BUCKET}",
                hint="compact the table",
            )


def tagging_by(
    options: IndexOptions,
    *,
    engine: EngineContext[Any],
    operation: Operation,
    storage: Storage,
    tally: Tally,
    combine_inserts: bool,
    ordering_fields: tuple[str, ...],
    properties: MergeProperties,
) -> Tagging[Any]:
    """Return the tagging of one write; arguments as for ``SearchTagging``."""
    if options.is_bucket:
        buckets, fields = options.buckets, options.hash_fields
        return BucketTagging(engine, buckets, fields, operation, tally, combine_inserts, properties)
    return SearchTagging(
        engine,
        search_index(options),
        operation,
        storage,
        tally,
        combine_inserts,
        ordering_fields,
        properties,
    )


def search_index(options: IndexOptions) -> SearchIndex:
    """Return the index that searches base files as the options say."""
    by_filter = options.type in (BLOOM, GLOBAL_BLOOM)
    return SearchIndex(
        by_range=options.prunes_by_ranges or not by_filter,
        by_filter=by_filter,
        is_global=options.is_global,
        moves_rows=options.is_global and options.moves_rows,
    )
