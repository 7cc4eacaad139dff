"""The metadata of a commit, made from what its tasks report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from timeline.metadata.instant_metadata import CommitMetadata, WriteStat


def commit_metadata(
    operation: str,
    stats: Iterable[WriteStat],
    avro_schema: str,
    extra_metadata: Mapping[str, str] | None = None,
    replaced: Mapping[str, tuple[str, ...]] | None = None,
) -> CommitMetadata:
    """Return the metadata of a commit.

    Args:
        operation: Hudi's ``WriteOperationType``.
        stats: Statistics of each file.
        avro_schema: The table's schema without the meta columns.
        extra_metadata: Text to store next to the schema.
        replaced: Partition path → ids of the file groups that the commit replaces.
    """
    by_partition: dict[str, list[WriteStat]] = {}
    for stat in stats:
        by_partition.setdefault(stat.partition_path or "", []).append(stat)
    return CommitMetadata(
        partition_to_write_stats={path: tuple(found) for path, found in by_partition.items()},
        # Hudi's readers take the table's schema from the newest commit that has one.
        extra_metadata={**(extra_metadata or {}), "schema": avro_schema},
        operation_type=operation,
        partition_to_replace_file_ids=replaced or {},
    )
