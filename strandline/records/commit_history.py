"""What the newest commits say that a write goes by: the table's schema, the size of its records.

A commit's metadata never changes, so a client reads each at most once.

Source: Hudi 1.2.0 ``TableSchemaResolver``, ``AverageRecordSizeEstimator``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from timeline.errors import CorruptMetadataError
from timeline.instant import COMMIT, DELTA_COMMIT, REPLACE_COMMIT, Instant
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CommitMetadata
from timeline.timeline import Timeline

_COMMITS: Final = frozenset({COMMIT, DELTA_COMMIT, REPLACE_COMMIT})
_WITHOUT_SCHEMA: Final = frozenset({"CLUSTER", "COMPACT", "INDEX", "LOG_COMPACT"})
"""Operations whose metadata may hold another schema than the table's."""


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """What is remembered of one commit.

    Attributes:
        bytes_written: Over all its files.
        records_written: Likewise.
        avro_schema: The table's schema as it was; ``None`` when the commit doesn't tell.
        file: Path of one of its files; ``None`` when it wrote none.
    """

    bytes_written: int
    records_written: int
    avro_schema: str | None
    file: str | None

    @classmethod
    def of(cls, metadata: CommitMetadata) -> CommitFacts:
        """Take what matters from a commit's metadata."""
        stats = [stat for stats in metadata.partition_to_write_stats.values() for stat in stats]
        schema = metadata.extra_metadata.get("schema")
        tells = schema and metadata.operation_type not in _WITHOUT_SCHEMA
        return cls(
            sum(stat.total_write_bytes for stat in stats),
            sum(stat.num_writes for stat in stats),
            schema if tells else None,
            next((stat.path for stat in stats if stat.path), None),
        )


class CommitHistory:
    """Completed commits of one table, read when needed; used by one thread at a time."""

    def __init__(self) -> None:
        self._facts: dict[Instant, CommitFacts] = {}

    def remember(self, instant: Instant, metadata: CommitMetadata) -> None:
        """Take note of a commit that need not be read then."""
        self._facts[instant] = CommitFacts.of(metadata)

    def newest_first(self, meta: TableMetaClient, timeline: Timeline) -> Iterator[CommitFacts]:
        """Yield completed commits, newest first, reading those not known yet.

        Raises:
            CorruptMetadataError: A commit can't be read; the message names its file.
        """
        for instant in reversed(timeline.completed().instants):
            if instant.action in _COMMITS:
                if instant not in self._facts:
                    metadata = meta.read(instant)
                    assert isinstance(metadata, CommitMetadata)
                    if metadata == CommitMetadata():  # what an empty file reads as
                        path = f"{meta.storage.base_path}/{meta.path_of(instant)}"
                        raise CorruptMetadataError(f"{path} doesn't say what the commit wrote")
                    self._facts[instant] = CommitFacts.of(metadata)
                yield self._facts[instant]

    def avro_schema(self, meta: TableMetaClient, timeline: Timeline) -> str | None:
        """Return the table's schema, ``None`` when no commit tells."""
        facts = self.newest_first(meta, timeline)
        return next((found.avro_schema for found in facts if found.avro_schema), None)
