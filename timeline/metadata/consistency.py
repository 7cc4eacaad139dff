"""Checks that the metadata in a file fits the instant in the file's name.

A decoded file may still be wrong: empty, copied from another instant, or with impossible sizes.
Following it would corrupt a view silently, so it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from timeline.errors import CorruptMetadataError
from timeline.instant import (
    CLUSTERING,
    COMPACTION,
    LOG_COMPACTION,
    REPLACE_COMMIT,
    RESTORE,
    ROLLBACK,
    Instant,
    State,
)
from timeline.metadata.instant_metadata import (
    CleanMetadata,
    CommitMetadata,
    InstantMetadata,
    RestoreMetadata,
    RollbackMetadata,
)
from timeline.metadata.written_files import CommitFiles

_BASE_FILE: Final = re.compile(r"(?:.*/)?[^._/][^_/]*_[^_/]+_(\d{14,17})\.\w+", re.ASCII)
"""``<file id>_<write token>_<instant>.<extension>``."""


def needs_content(instant: Instant) -> bool:
    """Return whether the file of an instant in its state can't be empty.

    What any other completed action did shows in a listing; what was replaced doesn't.
    """
    return instant.action == REPLACE_COMMIT and instant.is_completed


def needs_plan(instant: Instant) -> bool:
    """Return whether the requested file of an instant can't be empty.

    A replacecommit that doesn't cluster may have no plan. A clean or a rollback that died before
    its plan was written has deleted nothing; the next cleaner or writer removes it.
    """
    if instant.action in (COMPACTION, LOG_COMPACTION, CLUSTERING):
        return True
    return instant.action in (ROLLBACK, RESTORE) and instant.state is State.INFLIGHT


def check_metadata(metadata: InstantMetadata, instant: Instant, source: str) -> None:
    """Refuse metadata that doesn't fit its instant.

    Args:
        metadata: The content of the instant's file.
        instant: The instant in its state.
        source: The file's path, for the error.

    Raises:
        CorruptMetadataError: It describes another instant, or has a file of negative size.
    """
    if instant.is_completed:
        _check_time(_time_of(metadata), instant, source)
    if isinstance(metadata, CommitMetadata) and _has_negative_size(metadata):
        raise CorruptMetadataError(f"{source} has a file of negative size")


def check_files(commit: CommitFiles, instant: Instant, source: str) -> None:
    """Refuse the files of a completed commit that were written by another instant.

    Raises:
        CorruptMetadataError: They were.
    """
    first_names = (files[0][0] for files in commit.files.values() if files)
    _check_time(_time_in_names(first_names), instant, source)


def _check_time(time: str | None, instant: Instant, source: str) -> None:
    if time not in (None, instant.requested_time):
        raise CorruptMetadataError(f"{source} tells of an instant {time!r}")


def _time_of(metadata: InstantMetadata) -> str | None:
    """Return the requested time of the instant described, ``None`` if it isn't recorded."""
    if isinstance(metadata, CleanMetadata):
        return metadata.start_clean_time or None
    if isinstance(metadata, RollbackMetadata):
        return metadata.start_rollback_time or None
    if isinstance(metadata, RestoreMetadata):
        return metadata.start_restore_time or None
    if isinstance(metadata, CommitMetadata):
        stats = metadata.partition_to_write_stats.values()
        return _time_in_names(each[0].path or "" for each in stats if each)
    return None


def _time_in_names(firsts: Iterable[str]) -> str | None:
    """Return the time in the name of a base file that a commit wrote.

    Logs don't count: in table version 6 their names have the time of their slice.

    Args:
        firsts: Path or name of the first file of each partition.
    """
    matches = map(_BASE_FILE.fullmatch, firsts)
    return next((match[1] for match in matches if match is not None), None)


def _has_negative_size(commit: CommitMetadata) -> bool:
    return any(
        stat.file_size_in_bytes < 0
        or (stat.log_offset or 0) < 0
        or (stat.cdc_stats and min(stat.cdc_stats.values()) < 0)
        for stats in commit.partition_to_write_stats.values()
        for stat in stats
    )
