"""A table's instants, active and archived, with their metadata.

``TableHistory`` reads them; ``CommitSummary`` is what a completed commit recorded about itself.
Other writers continue meanwhile: an instant may be archived or rolled back between the listing of
the timeline and the read of its file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from strandline.settings.setting import nearest
from timeline.archive.archived_timeline import ArchivedTimeline
from timeline.errors import CorruptMetadataError, InstantNotFoundError
from timeline.instant import WRITE_ACTIONS, Instant
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CommitMetadata, InstantMetadata, WriteStat
from timeline.timeline import Timeline

_SCHEMA = "schema"
"""The key of the extra metadata under which Hudi stores the table's Avro schema."""


@dataclass(frozen=True, slots=True)
class WrittenCounts:
    """Counts of a commit: files and bytes written, rows by outcome."""

    files_written: int = 0
    bytes_written: int = 0
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0

    @classmethod
    def of(cls, stats: Sequence[WriteStat]) -> WrittenCounts:
        """Return the sum over files."""
        return cls(
            files_written=len(stats),
            bytes_written=sum(stat.total_write_bytes for stat in stats),
            rows_inserted=sum(stat.num_inserts for stat in stats),
            rows_updated=sum(stat.num_update_writes for stat in stats),
            rows_deleted=sum(stat.num_deletes for stat in stats),
        )

    @classmethod
    def total(cls, counts: Iterable[WrittenCounts]) -> WrittenCounts:
        """Return the sum of counts."""
        each = list(counts)
        return cls(*(sum(getattr(one, field.name) for one in each) for field in fields(cls)))


@dataclass(frozen=True, slots=True)
class CommitSummary:
    """What a completed commit, delta commit, compaction or replacecommit recorded about itself.

    Attributes:
        requested_time: When it was requested; identifies the commit.
        completion_time: When it completed.
        action: ``commit``, ``deltacommit`` or ``replacecommit``.
        operation: Hudi's ``WriteOperationType``: ``UPSERT``, ``INSERT_OVERWRITE``, ``CLUSTER``, ...
        extra_metadata: Text that its writer stored, such as an offset in a feed.
        avro_schema: The table's schema; ``None`` if the commit doesn't have it.
        partitions: Partition path → counts of what was written there.
        replaced_file_ids: Partition path → ids of the file groups that the commit replaced.
        archived: Whether the commit has left the active timeline.
    """

    requested_time: str
    completion_time: str | None
    action: str
    operation: str
    extra_metadata: Mapping[str, str]
    avro_schema: str | None
    partitions: Mapping[str, WrittenCounts]
    replaced_file_ids: Mapping[str, tuple[str, ...]]
    archived: bool

    @classmethod
    def of(cls, instant: Instant, metadata: CommitMetadata, *, archived: bool) -> CommitSummary:
        """Return the summary of a completed instant."""
        extra = dict(metadata.extra_metadata)
        schema = extra.pop(_SCHEMA, None)
        written = metadata.partition_to_write_stats
        return cls(
            requested_time=instant.requested_time,
            completion_time=instant.completion_time,
            action=instant.action,
            operation=metadata.operation_type,
            extra_metadata=extra,
            avro_schema=schema or None,
            partitions={path: WrittenCounts.of(stats) for path, stats in written.items()},
            replaced_file_ids=dict(metadata.partition_to_replace_file_ids),
            archived=archived,
        )

    @property
    def total(self) -> WrittenCounts:
        """The counts of all partitions together."""
        return WrittenCounts.total(self.partitions.values())


@dataclass(frozen=True, slots=True)
class Entry:
    """An instant of a table's history.

    Attributes:
        instant: The instant.
        metadata: Its metadata; ``None`` while it is pending.
        archived: Whether it was read from the archive.
    """

    instant: Instant
    metadata: InstantMetadata | None
    archived: bool

    @property
    def commit(self) -> CommitSummary | None:
        """The summary of a completed commit; ``None`` for pending instants and other actions."""
        if not isinstance(self.metadata, CommitMetadata) or not _is_commit(self.instant):
            return None
        return CommitSummary.of(self.instant, self.metadata, archived=self.archived)


class TableHistory:
    """Reads the instants of one table; caches nothing."""

    def __init__(self, meta: TableMetaClient) -> None:
        self._meta = meta

    def entries(
        self, *, archived: bool, keep: Callable[[Instant], bool] = lambda _: True
    ) -> Iterator[Entry]:
        """Yield instants by requested time, those in the archive first.

        Instants that are rolled back meanwhile are left out.

        Args:
            archived: Whether to read the archive.
            keep: Which instants to read.

        Raises:
            CorruptMetadataError: A file can't be read; the message names it.

        Cost: a list, and a read for each completed instant; ``archived``: and the archive.
        """
        # Listed before the archive is read: an instant archived in between is then in both; in the
        # other order it would be in neither.
        active = self._meta.active_timeline()
        if archived:
            archive = self._meta.archived_timeline()
            for instant in archive.timeline:
                if keep(instant) and not active.contains(instant):
                    metadata = archive.read(instant) if instant.is_completed else None
                    yield Entry(instant, metadata, archived=True)
        for instant in filter(keep, active):
            entry = self._read(instant)
            if entry is not None:
                yield entry

    def entry(self, instant: Instant, archive: ArchivedTimeline | None = None) -> Entry | None:
        """Return an instant that was listed before; ``None`` if it was rolled back meanwhile.

        Args:
            instant: The instant.
            archive: The archive, if it was found there.

        Raises:
            CorruptMetadataError: Its file can't be read; the message names it.
        """
        if archive is None:
            return self._read(instant)
        metadata = archive.read(instant) if instant.is_completed else None
        return Entry(instant, metadata, archived=True)

    def commits(self, *, archived: bool) -> Iterator[CommitSummary]:
        """Yield the summaries of completed commits in the order of ``entries``.

        Raises:
            CorruptMetadataError: A file can't be read, or doesn't say what the commit wrote.
        """
        return map(self._summary, self.entries(archived=archived, keep=_is_commit))

    def commit(self, requested_time: str | None) -> CommitSummary:
        """Return a completed commit's summary.

        Args:
            requested_time: Its requested time; ``None`` for the newest commit.

        Raises:
            InstantNotFoundError: There is no such commit, it is pending, or another action has this
                time.
            CorruptMetadataError: It can't be read, or its file doesn't say what it wrote.

        Cost: a list and a read; the archive, if the commit isn't on the active timeline.
        """
        active = self._meta.active_timeline()
        instant = _newest_commit(active, requested_time)
        if instant is not None:
            entry = self._read(instant)
            others = [*active]
        else:
            archive = self._meta.archived_timeline()
            instant = _newest_commit(archive.timeline, requested_time)
            entry = None if instant is None else Entry(instant, archive.read(instant), True)
            others = [*active, *archive.timeline]
        if entry is None:
            raise self._not_found(requested_time, others)
        return self._summary(entry)

    @property
    def _base_path(self) -> str:
        return self._meta.storage.base_path

    def _read(self, instant: Instant) -> Entry | None:
        """Read an instant of the active timeline; ``None`` if it was rolled back meanwhile."""
        if not instant.is_completed:
            return Entry(instant, None, archived=False)
        try:
            return Entry(instant, self._meta.read(instant), archived=False)
        except InstantNotFoundError:
            # Archived or rolled back since the timeline was listed. Archiving copies an instant
            # before it deletes its files.
            try:
                metadata = self._meta.archived_timeline().read(instant)
            except InstantNotFoundError:
                return None
            return Entry(instant, metadata, archived=True)

    def _summary(self, entry: Entry) -> CommitSummary:
        """Return the summary of an entry that is a completed commit."""
        summary = entry.commit
        if summary is None or entry.metadata == CommitMetadata():  # decoded from an empty file
            raise CorruptMetadataError(
                f"{entry.instant} of {self._base_path} doesn't say what the commit wrote"
            )
        return summary

    def _not_found(self, time: str | None, instants: Iterable[Instant]) -> InstantNotFoundError:
        if time is None:
            return InstantNotFoundError(f"{self._base_path} has no completed commit")
        # Repeated without a commit that was rolled back since the timeline was listed.
        same = [i for i in instants if i.requested_time == time and not _is_commit(i)]
        pending = [i for i in same if not i.is_completed and i.action in WRITE_ACTIONS]
        if pending:
            return InstantNotFoundError(
                f"{pending[0]} of {self._base_path} is pending; its metadata is written when it"
                " completes"
            )
        if same:
            return InstantNotFoundError(
                f"{same[0]} of {self._base_path} is no commit; allowed: completed commits,"
                " delta commits and replacecommits"
            )
        commits = [i.requested_time for i in instants if _is_commit(i)]
        before = max((each for each in commits if each < time), default=None)
        near = nearest(time, commits) or before or min(commits, default=None)
        return InstantNotFoundError(
            f"{self._base_path} has no instant {time!r}, neither on the active timeline nor in the"
            " archive",
            hint=f"the nearest commit is {near}" if near else None,
        )


def _newest_commit(timeline: Timeline, requested_time: str | None) -> Instant | None:
    """Return the completed commit with a time, or the newest one."""
    wanted = (i for i in reversed(timeline.instants) if requested_time in (None, i.requested_time))
    return next(filter(_is_commit, wanted), None)


def _is_commit(instant: Instant) -> bool:
    return instant.is_completed and instant.action in WRITE_ACTIONS
