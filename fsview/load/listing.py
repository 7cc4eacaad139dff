"""Finding partitions and their files by listing.

Source: Hudi 1.2.0 ``FSUtils.getAllPartitionFoldersThreeLevelsDown`` (here to any depth).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from fsview.model.file_name import PARTITION_METADATA
from timeline.storage.base import FileInfo, Storage, checked_path
from timeline.table.config import META_FOLDER

PATH_CHARACTERS: Final = 4096
"""Longest path looked for; no file system has longer ones."""


def may_be_path(partition: str) -> bool:
    """Whether a storage can have something at this path; if not, it has no files."""
    try:
        checked_path(partition)
    except ValueError:
        return False
    return len(partition) <= PATH_CHARACTERS


def list_partition(storage: Storage, partition: str) -> tuple[FileInfo, ...]:
    """List one partition; one that doesn't or can't exist has no files."""
    return storage.list(partition) if may_be_path(partition) else ()


def discover_partitions(
    storage: Storage, top: str = ""
) -> Iterator[tuple[str, tuple[FileInfo, ...]]]:
    """Yield each partition at or below a path of a table with its listing, breadth first.

    A directory with a ``.hoodie_partition_metadata`` file is a partition; no directory below it is.

    Cost: one list call for each directory above and at the partitions.
    """
    level = [top]
    while level:
        below = []
        for path in level:
            listing = storage.list(path)
            if is_partition(listing):
                yield path, listing
            else:
                below += folders_below(path, listing)
        level = below


def is_partition(listing: Iterable[FileInfo]) -> bool:
    """Whether a directory with these entries is a partition."""
    return any(info.name.startswith(PARTITION_METADATA) for info in listing)


def folders_below(path: str, listing: Iterable[FileInfo]) -> list[str]:
    """Return the directories of a listing that may be partitions or lead to some."""
    return [
        f"{path}/{info.name}" if path else info.name
        for info in listing
        if info.is_dir and not (not path and info.name == META_FOLDER)
    ]
