"""Facts that a write needs from the newest commits: the table's schema, the size of its records.

A commit's metadata never changes, so a client reads each commit at most once.

Source: Hudi 1.2.0 ``TableSchemaResolver``, ``AverageRecordSizeEstimator``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from fsview.model.file_name import is_log_name
from strandline.records.schema.avro_schema import avro_to_arrow, avro_without_meta_fields
from strandline.records.schema.column_ids import LATEST_SCHEMA
from timeline.errors import CorruptMetadataError, UnsupportedTableError
from timeline.instant import COMMIT, DELTA_COMMIT, REPLACE_COMMIT, Instant
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CommitMetadata
from timeline.timeline import Timeline

COMMIT_ACTIONS: Final = frozenset({COMMIT, DELTA_COMMIT, REPLACE_COMMIT})
STREAM_BATCH: Final = "_hudi_streaming_sink_checkpoint"
"""Key of the extra metadata with the micro-batch of a stream; Hudi's."""
STREAM_QUERY: Final = "_strandline_streaming_query"
"""Key of the extra metadata with the id of the stream's query."""
_MOST_ABSENT: Final = 100
"""Most commits that aren't on the active timeline whose facts are kept."""
_MOST_ENDS: Final = 20_000
"""Number of completion times after which those that aren't asked for are forgotten."""
_WITHOUT_SCHEMA: Final = frozenset({"CLUSTER", "COMPACT", "INDEX", "LOG_COMPACT"})
"""Operations whose metadata may hold a schema other than the table's."""


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """Facts kept of one commit.

    Attributes:
        bytes_written: Total over its base files; records in logs have another size.
        records_written: Total over its base files.
        avro_schema: The table's schema at the commit; ``None`` if the commit doesn't have it.
        file: Path of one of its base files; ``None`` if it wrote none.
        column_ids: JSON of that schema's columns with ids (schema on read), which allow a column to
            have another name in older files; empty if they have none.
        stream_batch: Text of the key ``STREAM_BATCH``; empty if the commit hasn't got it.
        stream_query: That of ``STREAM_QUERY``.
    """

    bytes_written: int
    records_written: int
    avro_schema: str | None
    file: str | None
    column_ids: str = ""
    stream_batch: str = ""
    stream_query: str = ""

    @classmethod
    def of(cls, metadata: CommitMetadata) -> CommitFacts:
        """Extract the facts from a commit's metadata."""
        stats = [
            stat for stat in metadata.stats if not is_log_name((stat.path or "").rpartition("/")[2])
        ]
        schema = metadata.extra_metadata.get("schema")
        is_of_table = metadata.operation_type not in _WITHOUT_SCHEMA
        return cls(
            sum(stat.total_write_bytes for stat in stats),
            sum(stat.num_writes for stat in stats),
            # Hudi 0.15.0 records meta columns, too, when it deletes partitions.
            avro_without_meta_fields(schema) if schema and is_of_table else None,
            next((stat.path for stat in stats if stat.path), None),
            metadata.extra_metadata.get(LATEST_SCHEMA, ""),
            metadata.extra_metadata.get(STREAM_BATCH, ""),
            metadata.extra_metadata.get(STREAM_QUERY, ""),
        )


@dataclass(frozen=True, slots=True)
class CommitSchema:
    """A table's schema, as a commit has it.

    Attributes:
        avro: The schema.
        column_ids: As in ``CommitFacts``.
        path: The commit's file, for messages.
    """

    avro: str
    column_ids: str
    path: str


class CommitHistory:
    """Facts of one table's completed commits, read on demand; used by one thread at a time.

    Memory: some 0.7 KB for each commit on the active timeline, and for ``_MOST_ABSENT`` others; 0.2
    KB for each of at most ``_MOST_ENDS`` completion times, and those asked for at a time.
    """

    def __init__(self) -> None:
        self._facts: dict[Instant, CommitFacts] = {}
        self._ends: dict[str, str] = {}
        self._log_bases: dict[str, Mapping[str, str]] = {}
        self._checked_schema = ""

    def remember(self, instant: Instant, metadata: CommitMetadata) -> None:
        """Keep the facts of a commit just written, so that it needn't be read."""
        self._facts[instant] = CommitFacts.of(metadata)
        if bases := _log_bases(metadata, instant):
            self._log_bases[instant.requested_time] = bases

    def newest_first(self, meta: TableMetaClient, timeline: Timeline) -> Iterator[CommitFacts]:
        """Yield the facts of completed commits, newest first, reading those not kept yet.

        Raises:
            CorruptMetadataError: A commit can't be read; the message names its file.
        """
        return (facts for _, facts in self.newest_commits(meta, timeline))

    def newest_commits(
        self, meta: TableMetaClient, timeline: Timeline
    ) -> Iterator[tuple[Instant, CommitFacts]]:
        """Yield completed commits and their facts, as ``newest_first``."""
        return ((instant, self._facts_of(instant, meta)) for instant in _newest_commits(timeline))

    def avro_schema(self, meta: TableMetaClient, timeline: Timeline) -> str | None:
        """Return the newest schema of a table to be written; ``None`` if no commit has one.

        Raises:
            CorruptMetadataError: As in ``newest_schema``.
            UnsupportedTableError: Its columns are identified by ids.
        """
        newest = self.newest_schema(meta, timeline)
        if newest is None:
            return None
        if newest.column_ids:
            raise UnsupportedTableError(
                f"{newest.path} gives columns ids ({LATEST_SCHEMA}), as ALTER TABLE with"
                " hoodie.schema.on.read.enable does: the ids would be lost"
            )
        return newest.avro

    def newest_schema(self, meta: TableMetaClient, timeline: Timeline) -> CommitSchema | None:
        """Return the table's newest schema; ``None`` if no commit has one.

        Raises:
            CorruptMetadataError: A commit can't be read, or its schema isn't that of a record; the
                message names its file.
        """
        self._forget(timeline)
        for instant in _newest_commits(timeline):
            facts = self._facts_of(instant, meta)
            schema = facts.avro_schema
            if schema:
                path = f"{meta.storage.base_path}/{meta.path_of(instant)}"
                if schema != self._checked_schema:
                    _check_schema(schema, path)
                    self._checked_schema = schema
                return CommitSchema(schema, facts.column_ids, path)
        return None

    def newest_file(self, meta: TableMetaClient, timeline: Timeline) -> str | None:
        """Return the path of a base file of the newest commit that wrote one, if any did.

        Raises:
            CorruptMetadataError: A commit can't be read; the message names its file.
        """
        files = (facts.file for facts in self.newest_first(meta, timeline))
        return next((file for file in files if file is not None), None)

    def avro_schemas(self, meta: TableMetaClient, timeline: Timeline) -> Iterator[str]:
        """Yield the table's schema at each commit of a timeline that has one, newest first.

        Raises:
            CorruptMetadataError: A commit can't be read; the message names its file.
        """
        schemas = (facts.avro_schema for facts in self.newest_first(meta, timeline))
        return (schema for schema in schemas if schema)

    def completion_times(
        self, meta: TableMetaClient, timeline: Timeline, times: Iterable[str]
    ) -> Mapping[str, str]:
        """Return requested → completion time of completed writes, from table version 8 on.

        Args:
            meta: The table.
            timeline: The active timeline; those that aren't on it are archived.
            times: Their requested times.

        Raises:
            CorruptMetadataError: The archive can't be read.

        Cost: none for those that were active when they were first asked for; else the parts of the
            archive with these instants, once.
        """
        asked, archived = set(times), []
        if len(self._ends) > _MOST_ENDS:
            self._ends = {time: self._ends[time] for time in asked & self._ends.keys()}
        for time in asked - self._ends.keys():
            found = timeline.find(time)
            if found is not None and found.completion_time is not None:
                self._ends[time] = found.completion_time
            elif found is None:
                archived.append(time)
        if archived:
            known = meta.archived_timeline().completion_times(min(archived), max(archived) + "0")
            # One that isn't there either is older than the archive.
            self._ends.update({time: known.get(time, time) for time in archived})
        return self._ends

    def log_bases(self, meta: TableMetaClient, timeline: Timeline, after: str) -> Mapping[str, str]:
        """Return name of a log → name of the base file on which its first writer put it.

        In table version 6 the statistics of a log have it: ``""`` if a compaction of the group was
        pending.

        Args:
            meta: The table.
            timeline: The active timeline.
            after: Only delta commits requested after this time count.

        Raises:
            CorruptMetadataError: A commit can't be read; the message names its file.

        Cost: a read for each of these delta commits that wasn't read before.
        """
        deltas = [
            i for i in timeline.completed() if i.action == DELTA_COMMIT and i.requested_time > after
        ]
        known, found = self._log_bases, dict[str, str]()
        self._log_bases = {}
        for instant in deltas:
            time = instant.requested_time
            if time not in known:
                metadata = meta.read(instant)
                assert isinstance(metadata, CommitMetadata)
                known[time] = _log_bases(metadata, instant)
            self._log_bases[time] = known[time]
            for name, base in known[time].items():
                found.setdefault(name, base)
        return found

    def _forget(self, timeline: Timeline) -> None:
        """Forget the facts of commits that aren't on a timeline, once they are many."""
        if len(self._facts) <= len(timeline) + _MOST_ABSENT:
            return
        kept = frozenset(timeline)
        self._facts = {each: facts for each, facts in self._facts.items() if each in kept}
        times = {each.requested_time for each in kept}
        self._log_bases = {time: each for time, each in self._log_bases.items() if time in times}

    def _facts_of(self, instant: Instant, meta: TableMetaClient) -> CommitFacts:
        if instant not in self._facts:
            metadata = meta.read(instant)
            assert isinstance(metadata, CommitMetadata)
            if metadata == CommitMetadata():  # what an empty file parses as
                path = f"{meta.storage.base_path}/{meta.path_of(instant)}"
                raise CorruptMetadataError(f"{path} doesn't say what the commit wrote")
            self._facts[instant] = CommitFacts.of(metadata)
        return self._facts[instant]


def _log_bases(metadata: CommitMetadata, instant: Instant) -> Mapping[str, str]:
    """Return name of a log → that of its base file; only logs that are named by their slice."""
    return {
        name: stat.base_file or ""
        for stat in metadata.stats
        # A log that is named by its writer follows that, too.
        if stat.log_files is not None and stat.path and stat.prev_commit != instant.requested_time
        for name in [stat.path.rpartition("/")[2]]
    }


def _newest_commits(timeline: Timeline) -> Iterator[Instant]:
    completed = reversed(timeline.completed().instants)
    return (instant for instant in completed if instant.action in COMMIT_ACTIONS)


def _check_schema(schema: str, path: str) -> None:
    try:
        avro_to_arrow(schema)
    except CorruptMetadataError as exc:
        raise CorruptMetadataError(f"{path}: {exc.message}") from exc
    except UnsupportedTableError:
        return  # for callers that convert it; the text is a schema
