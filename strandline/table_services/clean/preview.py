"""Previews a clean, and explains why a file is still there, or gone; nothing is changed.

Both are computed from the timeline, the archive and the view, as a clean's plan is: no log is kept
for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import pyarrow as pa

from fsview.files.row import UNKNOWN_SIZE
from fsview.model.file_group import FileSlice
from fsview.model.file_name import is_data_file, parse_data_file
from strandline.records.schema.columns import COUNT, TEXT, schema_of
from strandline.table_services.clean.plan import Fate
from strandline.table_services.clean.planner import CleanPlanner
from timeline.errors import InputError
from timeline.instant import CLEAN, COMMIT, DELTA_COMMIT, Instant
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CleanMetadata, CommitMetadata
from timeline.storage.base import checked_path
from timeline.storage.table_id import TableId
from timeline.timeline import Timeline

CLEANABLE_SCHEMA: Final = schema_of(partition=TEXT, file=TEXT, bytes=COUNT, reason=TEXT)


_BATCH_ROWS: Final = 10_000
_GOES_BY: Final = "the pending clean {} will delete it"
_OF_PENDING_WRITE: Final = (
    "belongs to the pending write {}; the next write rolls it back, unless it still runs"
)
_ROLLED_BACK: Final = (COMMIT, DELTA_COMMIT)
"""Pending ones are writes; a pending replacecommit or compaction may be a plan, which waits."""


@dataclass(frozen=True, slots=True)
class CleanPreview:
    """What a clean would delete now.

    Attributes:
        policy: The retention policy.
        earliest: Requested time of the earliest instant to retain; empty if the policy has none, or
            nothing would be deleted.
        files: One row per file, by partition, with the columns of ``CLEANABLE_SCHEMA``:

            * ``partition``: string, under the base path; ``""`` for an unpartitioned table;
            * ``file``: string; the file's name;
            * ``bytes``: int64; its size; null if the view doesn't know it;
            * ``reason``: string; the rule by which it is deleted.
    """

    policy: str
    earliest: str
    files: pa.Table

    @property
    def bytes(self) -> int:
        """Total size of the files whose size is known."""
        return sum(each or 0 for each in self.files.column("bytes").to_pylist())


@dataclass(frozen=True, slots=True)
class FileFate:
    """Why a file is there, or gone.

    Attributes:
        partition: Partition path.
        file: The file's name.
        is_there: Whether the view has it, or its uncommitted instant may have written it.
        goes: Whether the next clean would delete it, or a clean has.
        reason: The reason as text; names the instant, savepoint, pending service or clean.
    """

    partition: str
    file: str
    is_there: bool
    goes: bool
    reason: str


def preview(planner: CleanPlanner, timeline: Timeline) -> CleanPreview:
    """Return what the next clean would delete.

    If cleans are pending, return only their files: a clean finishes them before it plans.

    Args:
        planner: Plans the cleans of the table.
        timeline: The active timeline.

    Raises:
        CorruptMetadataError: A plan, a savepoint or a commit can't be read.
        ViewBehindError: A rollback isn't finished in a partition to be cleaned.

    Cost: that of planning, and a read of each pending clean.
    """
    policy = planner.settings.policy
    rows = {
        (partition, name): (None, _GOES_BY.format(instant.requested_time))
        for instant, partition, name in planner.pending_files(timeline)
    }
    if rows:
        return CleanPreview(policy, "", pa.Table.from_batches([_batch(rows)], CLEANABLE_SCHEMA))
    earliest, deleted = planner.deleted(timeline)
    batches = [*_batches(deleted)]
    files = pa.Table.from_batches(batches, CLEANABLE_SCHEMA)
    return CleanPreview(policy, earliest if batches else "", files)


_Rows = Mapping[tuple[str, str], tuple[int | None, str]]
"""(partition, file name) → size, reason."""


def _batches(deleted: Iterator[Fate]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of slices that are deleted, some partitions at a time."""
    rows: dict[tuple[str, str], tuple[int | None, str]] = {}
    for _, slices in groupby(deleted, key=lambda fate: fate.found.partition):
        for fate in slices:
            for name, size in fate.found.sizes.items():
                known = None if size == UNKNOWN_SIZE else size
                rows[fate.found.partition, name] = known, fate.reason
        if len(rows) >= _BATCH_ROWS:
            yield _batch(rows)
            rows = {}
    if rows:
        yield _batch(rows)


def _batch(rows: _Rows) -> pa.RecordBatch:
    columns = zip(*((*at, *of) for at, of in sorted(rows.items())), strict=True)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, CLEANABLE_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=CLEANABLE_SCHEMA)


def why(planner: CleanPlanner, timeline: Timeline, file: str) -> FileFate:
    """Return why a file is still there, or gone.

    Args:
        planner: Plans the cleans of the table.
        timeline: The active timeline.
        file: Path of a base or log file under the base path, or with it.

    Raises:
        InputError: It isn't the path of a data file of this table, or neither timeline nor archive
            shows that the table ever had the file.
        ViewBehindError: A clean is running in the file's partition, or a rollback isn't finished.
        CorruptMetadataError: An instant can't be read.

    Cost: that of planning for one partition; if the file is gone, a read of each clean, archived
        ones included, and of the write that has the time in its name.
    """
    meta = planner.meta
    partition, name = _split(meta, file)
    for instant, of, each in planner.pending_files(timeline):
        if (of, each) == (partition, name):
            return FileFate(partition, name, True, True, _GOES_BY.format(instant.requested_time))
    for fate in planner.fates(timeline, partition):
        if name in fate.found.sizes:
            reason = _of_pending_write(timeline, fate.found) or fate.reason
            return FileFate(partition, name, True, fate.rule.deletes, reason)
    for instant, metadata in _cleans_newest_first(meta, timeline):
        cleaned = metadata.partition_metadata.get(partition)
        names = () if cleaned is None else cleaned.success_delete_files
        if any(each.rpartition("/")[2] == name for each in names):
            return FileFate(partition, name, False, True, _deleted_by(instant, metadata))
    writer = _writer(meta, timeline, partition, name)
    if writer is not None:
        raise InputError(
            f"{meta.storage.base_path} has no file {name!r} in partition {partition!r}: the"
            f" {writer} wrote it, and no clean on the timeline or in the archive has deleted it",
            hint="restore the file, unless a rollback or restore, which Table.history shows, has"
            " undone its write",
        )
    raise InputError(
        f"{meta.storage.base_path} has no file {name!r} in partition {partition!r}, and no clean"
        " on the timeline or in the archive has deleted one",
        hint="files of failed writes are deleted by rollbacks, which Table.history shows",
    )


def _of_pending_write(timeline: Timeline, found: FileSlice) -> str:
    """Return the reason of a slice that a pending write began; empty if none did."""
    pending = timeline.pending().find(found.base_instant)
    if pending is None or pending.action not in _ROLLED_BACK:
        return ""
    return _OF_PENDING_WRITE.format(pending.requested_time)


def _writer(meta: TableMetaClient, timeline: Timeline, partition: str, name: str) -> str | None:
    """Return which completed write names a file, of that which has the time in the file's name."""
    file = parse_data_file(partition, name, 0, 0, meta.config.base_extensions)
    if file is None:
        return None
    archive = meta.archived_timeline()
    for where, instants, read in (
        ("", timeline.completed(), meta.read),
        ("archived ", archive.timeline.completed(), archive.read),
    ):
        instant = instants.find(file.instant)
        metadata = None if instant is None else read(instant)
        if instant is not None and isinstance(metadata, CommitMetadata):
            stats = metadata.by_folder().partition_to_write_stats.get(partition, ())
            if any((stat.path or "").rpartition("/")[2] == name for stat in stats):
                return f"{where}{instant.action} {instant.requested_time}"
    return None


def _deleted_by(instant: Instant, metadata: CleanMetadata) -> str:
    kept = metadata.earliest_commit_to_retain
    until = f", which retained the files that readers at {kept} or later need" if kept else ""
    return f"the clean {instant.requested_time} deleted it{until}"


def _split(meta: TableMetaClient, file: str) -> tuple[str, str]:
    """Return the partition path and the name of a data file."""
    below = str(TableId.of(meta.storage.base_path).normal()).rstrip("/") + "/"
    path = file
    if "://" in file or file.startswith("/"):
        path = str(TableId.of(file).normal())
        if not path.startswith(below):
            raise InputError(f"{file!r} isn't below {meta.storage.base_path}")
        path = path.removeprefix(below)
    try:
        partition, _, name = checked_path(path).rpartition("/")
    except ValueError:
        raise InputError(f"{file!r} is no path below {meta.storage.base_path}") from None
    if not is_data_file(name):
        raise InputError(
            f"{file!r} has no name of a data file; allowed: base and log files, such as"
            " day=1/<file id>_<write token>_<instant>.parquet"
        )
    return partition, name


def _cleans_newest_first(
    meta: TableMetaClient, timeline: Timeline
) -> Iterator[tuple[Instant, CleanMetadata]]:
    """Yield the completed cleans, active ones first, with their contents."""
    for instant in reversed(timeline.completed().instants):
        if instant.action == CLEAN:
            metadata = meta.read(instant)
            assert isinstance(metadata, CleanMetadata)
            yield instant, metadata
    archive = meta.archived_timeline()
    for instant in reversed(archive.timeline.instants):
        if instant.action == CLEAN and instant.is_completed:
            metadata = archive.read(instant)
            assert isinstance(metadata, CleanMetadata)
            yield instant, metadata
