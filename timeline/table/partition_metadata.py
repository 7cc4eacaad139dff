"""``.hoodie_partition_metadata``: the file that makes a directory a partition.

Hudi's readers find partitions by it and silently ignore the rows in a directory without one. It is
written once, before the partition's first data file, and never changed.

Source: Hudi 1.2.0 ``HoodiePartitionMetadata``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from timeline.encoding.java_properties import format_properties, parse_properties
from timeline.errors import AlreadyExistsError, CorruptMetadataError, PathNotFoundError
from timeline.storage.base import FileKind, Storage

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
