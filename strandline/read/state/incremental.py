"""The rows that the commits of a range wrote, in their state at the end of the range.

A row belongs to the commit in its ``_hoodie_commit_time``. Compaction and clustering keep that
time, so they own no rows, but the file groups that they wrote may have rows of the range. A log
compaction of Hudi sets its own time. Rows that were overwritten or deleted within the range are
absent.

Source: Hudi 1.2.0 ``IncrementalQueryAnalyzer``, ``IncrementalRelationV2``,
``MergeOnReadIncrementalRelationV2``, and their ``V1`` for version 6. Unlike there, a row's state at
the end of the range is that of a scan at this time: a log record that loses against an older row by
event time isn't read, and later commits don't matter, whatever they replaced.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fsview.local_view import LocalView, open_view
from fsview.model.file_name import parse_data_file
from fsview.sync.metadata_reader import snapshot_of
from strandline.read.filter.row_filter import RowFilter
from strandline.read.instants import MissedWrites
from strandline.read.state.changed_table import refuse_undone
from strandline.read.state.instant_range import InstantRange, refuse_archived
from strandline.read.state.pin import Pin, earliest_time
from strandline.read.state.slice_source import NEWEST
from strandline.records.meta_fields import COMMIT_TIME
from timeline.errors import InputError, UnsupportedTableError
from timeline.instant import (
    CLUSTERING,
    COMMIT,
    COMPACTION,
    LOG_COMPACTION,
    Instant,
)
from timeline.meta_client import TableMetaClient
from timeline.metadata.written_files import CommitFiles
from timeline.table.property_name import MERGE_ON_READ, POPULATE_META_FIELDS

Group = tuple[str, str]
"""(partition, file id)."""


def pin_range(
    meta: TableMetaClient, span: InstantRange, filter: Any = None
) -> tuple[Pin, RowFilter | None]:
    """Return the state with the rows of a range of commits, and the condition that selects them.

    Args:
        meta: The table.
        span: The range.
        filter: The condition on rows, as in ``Pin.at``.

    Returns:
        The table's state at the end of the range, with the slices of file groups that its commits
        wrote, and the condition; all slices, and ``None``, for a range that begins with the table.

    Raises:
        InputError: Files of that state may have been cleaned, or commits of the range were
            archived; the message names the earliest time that can be read.
        UnsupportedTableError: Rows don't have the times of commits, base files lack columns, or
            columns were renamed.
        CorruptMetadataError: No commit or property records the schema, or an instant can't be read.

    Cost: a list of each partition; a read of each commit of the range, and of each clean if the
        range has an end. From version 8 on also two reads of the archive and reads of its newest
        instants; below, a list of the archive and a read of each of its files that was written
        after the last commit by ``since`` had completed.
    """
    if not meta.config.populate_meta_fields:
        raise UnsupportedTableError(
            f"{meta.storage.base_path} has {POPULATE_META_FIELDS}=false, so its rows don't say"
            " which commit wrote them, which incremental reads need"
        )
    if span.until is None or not span.by_completion:
        pin = Pin.at(meta, span.until, filter, name="until")
    else:
        pin = _pin_completed_by(meta, span.until)
    if not span.since:
        return pin, None
    refuse_archived(meta, pin.timeline, span)
    commits = span.commits_of(pin.timeline)
    groups = _written(meta, commits)
    slices = tuple(s for s in pin.slices if (s.partition, s.file_id) in groups)
    return replace(pin, slices=slices), _of_commits([i.requested_time for i in commits])


def next_since(pin: Pin) -> str | None:
    """Return the ``since`` of the range that continues after a state; ``None`` without commits.

    In version 6 a write that was requested earlier may complete later, so this time precedes the
    first pending write; commits after that time are read again.
    """
    writes = pin.timeline.write_timeline()
    span = InstantRange("", None, pin.meta.config.layout_version > 1)
    done = writes.completed()
    if not span.by_completion:
        pending = min((i.requested_time for i in writes if _may_add_rows(i)), default=NEWEST)
        done = done.filter(lambda i: i.requested_time < pending)
    return max(map(span.place, done), default=None)


def _may_add_rows(instant: Instant) -> bool:
    rewrites = (COMPACTION, LOG_COMPACTION, CLUSTERING)
    return not instant.is_completed and instant.action not in rewrites


def _written(meta: TableMetaClient, commits: Sequence[Instant]) -> Collection[Group]:
    """Return the file groups that some completed writes wrote."""
    groups: set[Group] = set()
    extensions = meta.config.base_extensions
    for instant in commits:
        written = meta.read_files(instant)
        assert isinstance(written, CommitFiles)  # as of all completed writes
        for partition, files in written.files.items():
            parsed = (parse_data_file(partition, name, 0, 0, extensions) for name, _, _ in files)
            groups.update((partition, file.file_id) for file in parsed if file is not None)
    return groups


def _of_commits(times: Collection[str]) -> RowFilter:
    """Return the condition that selects the rows of some commits."""
    found, values = pc.field(COMMIT_TIME), pa.array(sorted(times), pa.string())
    condition = found.isin(values)
    if times:
        # Bounds allow row groups to be skipped; pyarrow can't use a set for that.
        condition = (found >= min(times)) & (found <= max(times)) & condition
    return RowFilter(condition, (COMMIT_TIME,))


def _is_compaction(instant: Instant, meta: TableMetaClient) -> bool:
    return instant.action == COMMIT and meta.config.table_type == MERGE_ON_READ


def _pin_completed_by(meta: TableMetaClient, until: str) -> Pin:
    """Return a table's state at ``until``: without instants that completed later.

    Compactions planned by then count nevertheless: they change no row, but the files that they
    replaced may have been cleaned.
    """
    meta.config.refuse_incomplete_files(meta.storage.base_path)

    def counts(i: Instant) -> bool:
        if i.requested_time > until:
            return False
        return not i.is_completed or (i.completion_time or "") <= until or _is_compaction(i, meta)

    # Read the timeline before files are listed, so that the files of all its commits are found.
    timeline = meta.timeline_of(counts)
    _refuse_cleaned(meta, until)
    with closing(open_view(meta.storage)) as now:
        paths = now.partitions()
        then = LocalView(now.table, replace(snapshot_of(meta, timeline), files=now.snapshot.files))
        then = MissedWrites.of(meta, now.snapshot, paths).added_to(then, counts)
        slices = tuple(
            found
            for path in paths
            for found in then.latest_merged_file_slices_before_or_on(path, NEWEST)
            if not found.is_empty
        )
        refuse_undone(timeline, now.table.newest().active)
    # A clean that began meanwhile may have deleted files before they were listed.
    _refuse_cleaned(meta, until)
    return Pin.of_slices(meta, timeline, slices)


def _refuse_cleaned(meta: TableMetaClient, until: str) -> None:
    """Refuse an end of a range, by completion time, whose files may have been deleted."""
    timeline = meta.active_timeline()
    retained = earliest_time(meta, timeline)
    # Writes requested before and completed after it replaced files that a clean has deleted.
    kept = (
        i
        for i in timeline.write_timeline().completed()
        if i.requested_time <= retained and not _is_compaction(i, meta)
    )
    earliest = max((i.completion_time or i.requested_time for i in kept), default=retained)
    if until < earliest:
        raise InputError(
            f"until {until} is before {earliest}, the earliest completion as of which"
            f" {meta.storage.base_path} can be read",
            hint="files of earlier ones may have been deleted; writers keep more with a greater"
            " hoodie.clean.commits.retained",
        )
