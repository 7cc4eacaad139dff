"""``Snapshot``: a table's files at one instant, as a value.

Every query is a pure function of a snapshot and a partition (``fsview.query.queries``). A snapshot
never changes, except that partitions are added to its ``files`` when they are first asked for, each
once, with the content that it has at the snapshot's instant. Snapshots share what doesn't differ
between them: the mapping of partitions to their files is a ``ForkingMap``.

Source: Hudi 1.2.0 ``AbstractTableFileSystemView``, ``IncrementalTimelineSyncFileSystemView``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from typing import Final, TypeVar

from fsview.files.partition import PartitionVersion
from fsview.model.file_group import CompactionOperation
from timeline.completion import CompletionTimes
from timeline.instant import CLUSTERING, Instant
from timeline.table.config import TableConfig
from timeline.table.property_name import MERGE_ON_READ
from timeline.timeline import Timeline

V = TypeVar("V")

PARTS: Final = 256
"""Number of parts of a mapping."""


class ForkingMap(MutableMapping[str, V]):
    """An unordered mapping from text, with cheap forks.

    Changing, forking and iterating need the lock of its owner. Looking up one item needs none.
    """

    __slots__ = ("_own", "_parts")

    def __init__(self) -> None:
        nothing: dict[str, V] = {}
        self._parts = [nothing] * PARTS
        self._own: set[int] = set()

    def fork(self) -> ForkingMap[V]:
        """Return a copy that shares all parts until either map changes them."""
        fork: ForkingMap[V] = ForkingMap()
        fork._parts = self._parts.copy()
        # Both maps share all parts from now on, so this one must copy, too.
        self._own = set()
        return fork

    def __getitem__(self, key: str) -> V:
        return self._parts[hash(key) % PARTS][key]

    def __contains__(self, key: object) -> bool:
        return key in self._parts[hash(key) % PARTS]

    def __setitem__(self, key: str, value: V) -> None:
        self._owned(key)[key] = value

    def __delitem__(self, key: str) -> None:
        del self._owned(key)[key]

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._parts)

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def _owned(self, key: str) -> dict[str, V]:
        """Return the part of a key, copied if another map may share it."""
        at = hash(key) % PARTS
        if at not in self._own:
            # Replaced, not changed: another map's readers look it up without a lock.
            self._parts[at] = self._parts[at].copy()
            self._own.add(at)
        return self._parts[at]


GroupKey = tuple[str, str]
"""(partition, file id)."""

LOGS_BY_COMPLETION_VERSION: Final = 8
"""From this table version on, a log's name has its delta commit's time, and completion decides to
which slice it belongs."""


@dataclass(slots=True)
class LoadedFiles:
    """A snapshot's files read so far; filled in under the lock of the table's state.

    Attributes:
        versions: Loaded partitions; an entry never changes.
        known: All partitions of the table, or ``None`` if they haven't been listed.
        filled_bytes: Approximate bytes filled in after the snapshot was no longer the newest.
    """

    versions: ForkingMap[PartitionVersion] = field(default_factory=ForkingMap)
    known: frozenset[str] | None = None
    filled_bytes: int = 0

    def without(self, partitions: Collection[str]) -> LoadedFiles:
        """Return these files without some loaded partitions."""
        # A fork, as readers look partitions up in the other mapping without a lock.
        versions = self.versions.fork()
        for partition in partitions:
            versions.pop(partition, None)
        return LoadedFiles(versions, self.known)


@dataclass(frozen=True)
class Snapshot:
    """The table at one instant of its timeline.

    Attributes:
        config: The table's properties.
        active: The active timeline, with instants of any state.
        completion: Completion times seen from ``active``.
        pending_compaction: Group → the compaction operation that pends on it.
        pending_log_compaction: Group → the log compaction operation that pends on it.
        pending_clustering: Group → the instant of the clustering that pends on it.
        replaced: Partition → file id → requested time of the (last) instant that replaced the
            group.
        taken_away: Requested times of the writes that had completed and haven't any more, and that
            no rollback or restore has undone yet: their files are still there.
        epoch: Grows when answers may change in partitions that no instant names: when the
            timeline's start moves or an instant vanishes. Part of the key of encoded answers.
        files: The partitions loaded so far; shared by snapshots with the same files.
    """

    config: TableConfig
    active: Timeline
    completion: CompletionTimes
    pending_compaction: Mapping[GroupKey, CompactionOperation] = field(default_factory=dict)
    pending_log_compaction: Mapping[GroupKey, CompactionOperation] = field(default_factory=dict)
    pending_clustering: Mapping[GroupKey, Instant] = field(default_factory=dict)
    replaced: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    taken_away: frozenset[str] = frozenset()
    epoch: int = 0
    files: LoadedFiles = field(default_factory=LoadedFiles, compare=False, repr=False)

    @cached_property
    def timeline(self) -> Timeline:
        """The view's timeline: completed instants, pending compactions and log compactions."""
        return self.active.server_timeline()

    @cached_property
    def client_timeline(self) -> Timeline:
        """The timeline that Hudi's clients hash: without pending log compactions."""
        return self.timeline.client_timeline()

    @cached_property
    def write_timeline(self) -> Timeline:
        """The instants of ``timeline`` that write data files, which make slices visible."""
        return self.timeline.write_timeline()

    @property
    def hashes(self) -> tuple[str, str]:
        """The server's and the client's timeline hash; a client may send either."""
        return self.timeline.hash, self.client_timeline.hash

    @cached_property
    def mark(self) -> str:
        """Text that differs whenever the active timeline does: hash, dot, digits of what pends."""
        pending = "".join(map(str, self.active.pending())).encode()
        return f"{self.timeline.hash}.{blake2b(pending, digest_size=4).hexdigest()}"

    def hash_like(self, before: Snapshot) -> None:
        """Compute the hashes, reusing those of ``before`` up to where the timelines differ."""
        self.timeline.hash_like(before.timeline)
        self.client_timeline.hash_like(before.client_timeline)

    @property
    def logs_by_completion(self) -> bool:
        """Whether completion decides a log's slice; else its name does."""
        return self.config.version >= LOGS_BY_COMPLETION_VERSION

    @property
    def has_unnamed_logs(self) -> bool:
        """Whether logs may exist that no instant names, and whose names don't have their writer."""
        return not self.logs_by_completion and self.config.table_type == MERGE_ON_READ

    def is_visible(self, base_instant: str) -> bool:
        """Whether readers see a slice that begins at ``base_instant``.

        They see one that begins at a pending compaction, as its logs are committed; whether they
        see its base file, ``is_base_visible`` and ``are_files_visible`` say.
        """
        # No lock: two threads may compute it, with the same result.
        known = self._visible.get(base_instant)
        if known is None:
            last = self.write_timeline.last
            known = (
                last is not None
                and base_instant <= last.requested_time
                and self.write_timeline.contains_or_before_start(base_instant)
            )
            self._visible[base_instant] = known
        return known

    @cached_property
    def _visible(self) -> dict[str, bool]:
        # Few instants write many files, and the answer never changes for a snapshot.
        return {}

    def is_base_visible(self, instant: str) -> bool:
        """Whether queries of base files show one of ``instant``, if it isn't of a compaction."""
        return self.is_visible(instant) and instant not in self.pending_clustering_times

    def are_files_visible(self, instant: str) -> bool:
        """Whether queries of slices show the files, base or log, that ``instant`` wrote.

        Raises:
            UnreadArchiveError: Only the archive shows it.
        """
        # In version 6 Hudi shows all logs of a committed slice; its readers skip blocks by instant.
        return not self.logs_by_completion or self.completion.is_completed(instant)

    @property
    def timelines(self) -> tuple[Timeline, ...]:
        """The timelines computed so far; some may be the same object."""
        made = vars(self).get("write_timeline")
        writes = () if made is None else (made,)
        return (self.active, self.timeline, self.client_timeline, *writes)

    @property
    def remembered(self) -> int:
        """Number of instants whose visibility or completion is remembered."""
        return len(self._visible) + self.completion.remembered

    @cached_property
    def pending_clustering_times(self) -> frozenset[str]:
        """Requested times of the pending clusterings."""
        return frozenset(i.requested_time for i in self.pending_clustering.values()) | frozenset(
            i.requested_time for i in self.active if i.action == CLUSTERING and not i.is_completed
        )

    @property
    def is_empty(self) -> bool:
        """Whether the timeline has no instants."""
        return not self.timeline


def with_replaced(
    replaced: Mapping[str, Mapping[str, str]],
    by_instant: Iterable[tuple[Instant, Mapping[str, Iterable[str]]]],
) -> dict[str, Mapping[str, str]]:
    """Return the replaced groups with those of more instants, copying only partitions that change.

    Args:
        replaced: Partition → file id → requested time of the instant that replaced the group.
        by_instant: Instants, each with partition → file ids that it replaced. If several replaced
            a group, the one that was requested last counts.
    """
    changed: dict[str, dict[str, str]] = {}
    for instant, file_ids_of in by_instant:
        for partition, file_ids in file_ids_of.items():
            if partition not in changed:
                changed[partition] = dict(replaced.get(partition, {}))
            groups = changed[partition]
            for file_id in file_ids:
                groups[file_id] = max(groups.get(file_id, ""), instant.requested_time)
    return {**replaced, **changed}
