"""The files that a pending write may have created: by its markers, or else by a listing.

From table version 8 on the name of a data file has the instant that wrote it. In version 6 that of
a log has the base instant of its slice: markers name such logs, or the inflight file names the
file groups, in whose logs the blocks of the write are found.

Source: Hudi 0.15.0 and 1.2.0 ``MarkerBasedRollbackStrategy``, ``ListingBasedRollbackStrategy``.
"""

from __future__ import annotations

from dataclasses import replace

from fsview.model.file_group import BaseFile, LogFile
from fsview.model.file_name import data_files
from strandline.commit.conflict import FIRST_LOGS_OF_WRITERS
from strandline.commit.markers import marked_files
from strandline.commit.slice_logs import instants_in
from strandline.server.marker.name import is_slice_log
from strandline.table_services.rollback.log_command import logs_by_slice
from timeline.errors import InstantNotFoundError, PathNotFoundError
from timeline.instant import DELTA_COMMIT, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CommitMetadata
from timeline.storage.base import FileInfo
from timeline.table.config import META_FOLDER


def files_of_pending(meta: TableMetaClient, instant: Instant) -> dict[str, int]:
    """Return path → size of the files that a pending write may have created.

    Sizes are known only of logs that are named by their slice, as in table version 6; only those
    are among them that exist.

    Cost: a tree list of its marker folder, and a list for each partition with such a log; one of
    the table if there is no such folder, and reads of logs.
    """
    # A requested instant has no data files yet.
    if instant.state is not State.INFLIGHT:
        return {}
    time = instant.requested_time
    marked = marked_files(meta.storage, time)
    if marked is None:
        # The instant comes from an older writer, or its temporary folder was wiped; then only a
        # listing finds its files.
        return _listed_files(meta, instant)
    logs = {path for path in marked if is_slice_log(path, time)}
    if meta.config.version >= FIRST_LOGS_OF_WRITERS:
        return dict.fromkeys((path for path in marked if path not in logs), 1)
    files = dict.fromkeys((path for path in marked if path not in logs), 1)
    for partition in sorted({path.rpartition("/")[0] for path in logs}):
        for slice_ in logs_by_slice(meta.storage, partition, meta.config.base_extensions).values():
            files.update({log.path: log.size for log in slice_ if log.path in logs})
    return files


def _listed_files(meta: TableMetaClient, instant: Instant) -> dict[str, int]:
    """Return path → size of an instant's files, found by listing the table.

    From version 8 on the name of a log has the instant that wrote it; before, that of its slice,
    which may have logs of other instants. Then the inflight file names the file groups with such
    logs; if it is empty, as Hudi's bulk inserts leave it, the logs of all groups are read.
    """
    time, is_delta = instant.requested_time, instant.action == DELTA_COMMIT
    by_name = meta.config.version >= FIRST_LOGS_OF_WRITERS
    of_slices = is_delta and not by_name
    groups = _planned_groups(meta, instant) if of_slices else None
    folders: dict[str, list[FileInfo]] = {}
    for info in meta.storage.list_tree(""):
        folder, _, name = info.name.rpartition("/")
        folders.setdefault(folder, []).append(replace(info, name=name))
    extensions = meta.config.base_extensions
    return {
        file.path: file.size
        for folder, listing in folders.items()
        if folder.partition("/")[0] != META_FOLDER
        for file in data_files(folder, listing, extensions)
        if ((by_name or isinstance(file, BaseFile)) and file.instant == time)
        or (
            of_slices
            and isinstance(file, LogFile)
            and (groups is None or (folder, file.file_id) in groups)
            and _has_blocks(meta, file.path, time)
        )
    }


def _has_blocks(meta: TableMetaClient, path: str, time: str) -> bool:
    """Return whether a log has blocks of an instant; one that a clean has deleted has none."""
    try:
        return time in instants_in(meta.storage, path)
    except PathNotFoundError:
        return False


def _planned_groups(meta: TableMetaClient, instant: Instant) -> set[tuple[str, str]] | None:
    """Return (partition, file id) of the groups to whose logs an inflight delta commit writes.

    ``None`` if its inflight file is empty.
    """
    try:
        profile = meta.read(instant)
    except InstantNotFoundError:
        # Without a lock another writer has rolled it back meanwhile, so this rollback finds its
        # target gone.
        return set()
    assert isinstance(profile, CommitMetadata)
    if profile == CommitMetadata():
        return None
    return {
        (partition, stat.file_id)
        for partition, stats in profile.partition_to_write_stats.items()
        for stat in stats
        if stat.file_id
    }
