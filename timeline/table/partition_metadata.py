"""``.hoodie_partition_metadata``: the file that makes a directory a partition.

Hudi's readers find partitions by it and silently ignore the rows in a directory without one. It is
written once, before the partition's first data file, and never changed. ``discover_partitions``
lists a table by it.

Source: Hudi 1.2.0 ``HoodiePartitionMetadata``, ``FSUtils.getAllPartitionFoldersThreeLevelsDown``
(here to any depth).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from timeline.encoding.java_properties import format_properties, parse_properties
from timeline.errors import AlreadyExistsError, CorruptMetadataError, PathNotFoundError
from timeline.storage.base import FileInfo, FileKind, Storage, checked_path
from timeline.table.config import META_FOLDER

FILE_NAME: Final = ".hoodie_partition_metadata"
_TIME: Final = "commitTime"
_DEPTH: Final = "partitionDepth"


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """The content of the file.

    Attributes:
        commit_time: Requested time of the instant that created the partition.
        depth: Number of segments of the partition's path; 0 in a table without partitions.
    """

    commit_time: str
    depth: int


def depth_of(partition: str) -> int:
    """Return the number of segments of a partition path."""
    return len(partition.split("/")) if partition else 0


def path_in(partition: str, name: str) -> str:
    """Return the path of a partition's file under the base path."""
    return f"{partition}/{name}" if partition else name


def write_partition_metadata(storage: Storage, partition: str, commit_time: str) -> bool:
    """Write the metadata file of a partition; return whether there was none.

    Args:
        storage: The table's storage.
        partition: Path under the base path, ``""`` for a table without partitions.
        commit_time: Requested time of the instant that writes there.

    Cost: one create, which fails if the file exists.
    """
    properties = {_TIME: commit_time, _DEPTH: str(depth_of(partition))}
    try:
        storage.create(
            path_in(partition, FILE_NAME), format_properties(properties, "partition metadata")
        )
    except AlreadyExistsError:
        # Another task was first; its file is kept, because it never changes.
        return False
    return True


def read_partition_metadata(storage: Storage, partition: str) -> PartitionMetadata | None:
    """Return the content of a partition's file, ``None`` if there is none.

    Raises:
        CorruptMetadataError: The file is damaged.
    """
    path = path_in(partition, FILE_NAME)
    try:
        data = storage.read(path, FileKind.PROPERTIES)
    except PathNotFoundError:
        return None
    try:
        properties = parse_properties(data)
        return PartitionMetadata(properties[_TIME], int(properties[_DEPTH]))
    except (ValueError, KeyError) as exc:
        raise CorruptMetadataError(
            f"{storage.base_path}/{path} ({len(data)} bytes) is no partition metadata: {exc!r}"
        ) from exc


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
    return any(info.name.startswith(FILE_NAME) for info in listing)


def folders_below(path: str, listing: Iterable[FileInfo]) -> list[str]:
    """Return the directories of a listing that may be partitions or lead to some."""
    return [
        f"{path}/{info.name}" if path else info.name
        for info in listing
        if info.is_dir and not (not path and info.name == META_FOLDER)
    ]
