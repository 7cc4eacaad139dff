"""The life of one data file: the commit that wrote it, the one that superseded it, its clean.

The file is the first one that a clean deleted; without a clean, the first one of the table. All is
read from the timeline and its archive, after the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from demo.progress import NOTHING, Step, step_of
from demo.record import FileLife, LogRecord
from strandline import Table
from strandline.read.instants import Archive
from timeline.instant import CLEAN, WRITE_ACTIONS, Instant
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CleanMetadata, CommitMetadata, InstantMetadata
from timeline.storage.local import LocalStorage
from timeline.table.property_name import MERGE_ON_READ


def file_life(base_path: Path) -> FileLife | None:
    """Return the life of a file of a table; ``None`` if no file was ever committed.

    Args:
        base_path: The table's folder.

    Cost: reads all commits and cleans of timeline and archive.
    """
    contents = [*_contents(TableMetaClient.open(LocalStorage(str(base_path))))]
    path = next(chain(_deleted(contents), _written(contents)), None)
    if path is None:
        return None
    steps = _steps(contents)
    events: list[tuple[int, str]] = []
    for instant, metadata in contents:
        if not isinstance(metadata, CommitMetadata):
            continue
        number, step = steps[instant.requested_time]
        for written, name in _stats(metadata):
            if written == path:
                events.append((number, f"{_commit(instant, step)} wrote it"))
            elif name is not None and name == path.rpartition("/")[2]:
                text = f"{_commit(instant, step)} wrote the next slice of its file group"
                events.append((number, text))
    fate = Table(base_path.as_uri()).why(path)
    events.append((_batch_of(contents, path, steps), fate.reason))
    return FileLife(path, tuple(events), fate.is_there)


def log_record(base_path: Path) -> LogRecord | None:
    """Return what was written to a table's logs and merged; ``None`` if it has no logs.

    Cost: as ``file_life``.
    """
    meta = TableMetaClient.open(LocalStorage(str(base_path)))
    if meta.config.table_type != MERGE_ON_READ:
        return None
    commits = [commit for _, commit in _contents(meta) if isinstance(commit, CommitMetadata)]
    stats = [
        stat for commit in commits for of in commit.partition_to_write_stats.values() for stat in of
    ]
    names = [(stat.path or "").rpartition("/")[2] for stat in stats]
    return LogRecord(
        written=sum(name.startswith(".") for name in names),
        compactions=sum(commit.operation_type == "COMPACT" for commit in commits),
        merged=sum(stat.total_log_files for stat in stats),
    )


def _steps(contents: list[tuple[Instant, InstantMetadata]]) -> dict[str, Step]:
    """Return requested time → step of each commit."""
    steps: dict[str, Step] = {}
    step = NOTHING
    for instant, metadata in contents:
        if isinstance(metadata, CommitMetadata):
            step = step_of(metadata.operation_type, metadata.extra_metadata, step)
            steps[instant.requested_time] = step
    return steps


def _contents(meta: TableMetaClient) -> Iterator[tuple[Instant, InstantMetadata]]:
    """Yield completed writes and cleans with their content, by requested time."""
    archive, active = Archive(meta), meta.active_timeline().completed()
    kept = {instant.requested_time for instant in active}
    archived = [i for i in archive.timeline.completed() if i.requested_time not in kept]
    for instant in sorted((*archived, *active), key=lambda each: each.requested_time):
        if instant.action in WRITE_ACTIONS or instant.action == CLEAN:
            from_archive = instant.requested_time not in kept
            yield instant, archive.read(instant) if from_archive else meta.read(instant)


def _deleted(contents: list[tuple[Instant, InstantMetadata]]) -> Iterator[str]:
    for _, metadata in contents:
        if isinstance(metadata, CleanMetadata):
            for partition, cleaned in sorted(metadata.partition_metadata.items()):
                for name in sorted(cleaned.success_delete_files):
                    file = name.rpartition("/")[2]
                    yield f"{partition}/{file}" if partition else file


def _written(contents: list[tuple[Instant, InstantMetadata]]) -> Iterator[str]:
    for _, metadata in contents:
        if isinstance(metadata, CommitMetadata):
            yield from sorted(path for path, _ in _stats(metadata))


def _stats(metadata: CommitMetadata) -> Iterator[tuple[str, str | None]]:
    """Yield (path, name of the file that it supersedes) of a commit's files."""
    for stats in metadata.partition_to_write_stats.values():
        for stat in stats:
            if stat.path:
                yield stat.path, stat.prev_base_file


def _commit(instant: Instant, step: str) -> str:
    return f"the {step}'s commit {instant.requested_time}"


def _batch_of(
    contents: list[tuple[Instant, InstantMetadata]], path: str, steps: dict[str, Step]
) -> int:
    """Return the batch after whose commits a file was deleted, or the last batch."""
    batch = 0
    for instant, metadata in contents:
        batch = steps.get(instant.requested_time, (batch, ""))[0]
        if isinstance(metadata, CleanMetadata) and path in _deleted([(instant, metadata)]):
            return batch
    return batch
