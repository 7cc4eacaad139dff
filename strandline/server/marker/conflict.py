"""Early conflicts: two concurrent writes that announce files of the same file group.

Without this, concurrent writers find out only at the commit that they changed the same file group.
A write is in conflict when a file group of its markers

* is also among the markers of an older pending write: one with an earlier instant and a fresh
heartbeat that hadn't completed when the watch began and is no pending compaction or clustering
(these are compatible with writers, or checked at the commit);
* or, if commits are checked, was written or replaced by a commit that completed since the watch
  began. Compactions don't count: they change no row.

In doubt there is no conflict: the commit decides.

Source: Hudi 1.2.0 ``MarkerBasedEarlyConflictDetectionRunnable``,
``AsyncTimelineServerBasedDetectionStrategy``, ``MarkerUtils.getCandidateInstants``. Hudi compares
partition and file name cut at their first ``_``, keeps a log's dot, and compares commits by file id
alone, which never matches in a partitioned table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final

from strandline.server.marker.file import INSTANT, TEMP_FOLDER, announced
from strandline.server.marker.heartbeat import alive, has_ended
from strandline.server.marker.name import FileGroupId, file_group_of
from strandline.settings import service as config
from strandline.settings.setting import Settings, seconds
from timeline.clock import Clock
from timeline.instant import CLUSTERING, COMPACTION, LOG_COMPACTION, REPLACE_COMMIT, Instant
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CommitMetadata
from timeline.storage.base import Storage
from timeline.timeline import Timeline

_PLANNED: Final = frozenset({COMPACTION, LOG_COMPACTION, CLUSTERING, REPLACE_COMMIT})
_COMPACTIONS: Final = frozenset({"COMPACT", "LOG_COMPACT"})


@dataclass(frozen=True, slots=True)
class ConflictOptions:
    """How early conflicts are detected; plain values, sent to a child process as JSON.

    Attributes:
        enabled: Whether they are, for writers that ask for it.
        checks_commits: Whether commits that completed meanwhile count.
        initial_delay_s: From the first marker of a write to its first check.
        period_s: From one check to the next.
        max_heartbeat_age_s: Writers with older heartbeats count as dead.
    """

    enabled: bool = config.EARLY_CONFLICTS.field()
    checks_commits: bool = config.EARLY_COMMIT_CONFLICTS.field()
    initial_delay_s: float = config.EARLY_CONFLICTS_DELAY.field(seconds)
    period_s: float = config.EARLY_CONFLICTS_PERIOD.field(seconds)
    max_heartbeat_age_s: float = seconds(
        config.HEARTBEAT_INTERVAL.default * config.HEARTBEAT_MISSES.default
    )

    @classmethod
    def of(cls, settings: Settings) -> ConflictOptions:
        """Return the options from settings."""
        age = settings.get(config.HEARTBEAT_INTERVAL) * settings.get(config.HEARTBEAT_MISSES)
        return settings.read(cls, max_heartbeat_age_s=seconds(age))


class ConflictCheck:
    """Checks one instant's markers for conflicts; not thread-safe."""

    def __init__(
        self,
        storage: Storage,
        instant: str,
        own: Callable[[], Collection[str]],
        options: ConflictOptions,
        clock: Clock,
        *,
        before: frozenset[Instant] | None = None,
    ) -> None:
        """Make a check, which reads nothing yet.

        Args:
            storage: The table's storage.
            instant: Requested time of the write.
            own: Returns the write's markers so far.
            options: What counts as a conflict.
            clock: Measures the age of heartbeats.
            before: The instants that had completed when the write began; ``None``: see ``begin``.
        """
        self._storage = storage.for_cause("conflict")
        self._instant = instant
        self._own = own
        self._options = options
        self._clock = clock
        self._before = before

    def begin(self) -> None:
        """Record which instants have completed so far; no effect after the first call.

        Cost: one read and one list of the timeline, the first time.
        """
        # Once only: what completes between two checks must count as concurrent.
        if self._before is None:
            self._before = _completed(self._client().active_timeline())

    def run(self) -> str | None:
        """Return a description of the first conflict, or ``None``.

        Raises:
            StrandlineError: The table could not be read.

        Cost: one list if no older instant has markers; else also a read and a list of the timeline,
            a list of the heartbeats, and the markers of older writes under way. If commits are
            checked, the timeline and each new commit.
        """
        self.begin()
        own = {file_group_of(name) for name in self._own()}
        if not own:
            return None
        return self._with_writes(own) or self._with_commits(own)

    def _with_writes(self, own: set[FileGroupId]) -> str | None:
        # Of two writes only the later one yields, so that they don't refuse each other.
        older = [
            info.name
            for info in self._storage.list(TEMP_FOLDER)
            if info.is_dir and INSTANT.fullmatch(info.name) and info.name < self._instant
        ]
        if not older:
            return None
        timeline = self._client().active_timeline()
        writing = candidates(older, timeline, self._before or frozenset())
        age_ms = self._options.max_heartbeat_age_s * 1000
        # Markers of a failed write stay until it is rolled back; its heartbeat shows that it
        # failed.
        for instant in alive(self._storage, writing, self._clock.now_ms(), age_ms):
            # Of both forms: another writer may use no service.
            names = announced(self._storage, instant)
            found = _common(own, {file_group_of(name) for name in names})
            # A failed write's heartbeat is fresh for a while, and under LAZY it isn't rolled back
            # before the writer tries again.
            if found is not None and not has_ended(self._storage, instant):
                return f"{found} is also being written by {instant}"
        return None

    def _with_commits(self, own: set[FileGroupId]) -> str | None:
        if not self._options.checks_commits:
            return None
        client = self._client()
        completed = _completed(client.active_timeline().write_timeline())
        since = completed - (self._before or frozenset())
        for instant in sorted(since, key=lambda instant: instant.sort_key):
            # The write itself may complete between two checks.
            if instant.requested_time == self._instant:
                continue
            metadata = client.read(instant)
            found = isinstance(metadata, CommitMetadata) and _common(own, set(changed_by(metadata)))
            if found:
                return f"{found} was meanwhile written by {instant.requested_time}"
        return None

    def _client(self) -> TableMetaClient:
        return TableMetaClient.open(self._storage, cause="conflict")


def candidates(
    older: Collection[str], timeline: Timeline, before: Collection[Instant]
) -> tuple[str, ...]:
    """Return the instants that may be writes under way, heartbeats aside.

    Args:
        older: Earlier instants that have markers.
        timeline: The active timeline.
        before: The instants that had completed when the watch began.
    """
    # Before table version 8 a pending clustering is a replacecommit.
    planned = {i.requested_time for i in timeline.pending() if i.action in _PLANNED}
    done = {instant.requested_time for instant in before}
    return tuple(instant for instant in older if instant not in planned and instant not in done)


def changed_by(metadata: CommitMetadata) -> Iterator[FileGroupId]:
    """Yield the file groups that a commit wrote or replaced; none for a compaction."""
    if metadata.compacted or metadata.operation_type in _COMPACTIONS:
        return
    for partition, stats in metadata.partition_to_write_stats.items():
        yield from ((partition, stat.file_id) for stat in stats if stat.file_id is not None)
    yield from metadata.replaced_groups


def _completed(timeline: Timeline) -> frozenset[Instant]:
    return frozenset(timeline.completed())


def _common(own: set[FileGroupId], others: set[FileGroupId]) -> str | None:
    """Return a description of the first common group, or ``None``."""
    partition, file_id = min(own & others, default=("", ""))
    return f"file group {file_id} of partition {partition!r}" if file_id else None
