"""``BranchFinder``: answers clients whose timeline was never held, from what happened since.

The timeline is searched for by its hash (``fsview.snapshot.hash_search``), the steps from there to
a snapshot that is kept are read, and both are kept as a branch. ``read_branch`` reads what a sync
would have read, or returns nothing if an answer might be wrong; if a branch that is kept passes the
timeline, ``shared_branch`` makes one of the steps left.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from fsview.single_flight import Shared
from fsview.snapshot.hash_search import HashSearch
from fsview.snapshot.history_link import Branch
from fsview.snapshot.next_snapshot import advanced
from fsview.snapshot.snapshot import GroupKey, LoadedFiles, Snapshot
from fsview.snapshot.timeline_change import Reload, Step, key_of
from fsview.state.current_history import Use
from fsview.sync.follower import TimelineFollower
from fsview.sync.metadata_reader import MetadataReader, pending_operations, replaced_groups
from fsview.sync.timeline_diff import read_change
from timeline.errors import InstantNotFoundError
from timeline.instant import COMPACTION, LOG_COMPACTION, WRITE_ACTIONS, Instant
from timeline.meta_client import TableMetaClient
from timeline.timeline import Timeline

MAX_SEARCHES: Final = 128
"""Most searches remembered that found nothing."""

T = TypeVar("T")


def read_branch(client: TableMetaClient, onto: Snapshot, timeline: Timeline) -> Branch | None:
    """Read the steps from a timeline to a later snapshot.

    Returns:
        The branch; ``None`` if not all steps can be known, or if a write since was requested before
        the timeline's first write, as it would count as committed there.

    Raises:
        InstantNotFoundError: An instant vanished since ``onto`` was the newest.
        CorruptMetadataError: An instant's file can't be understood.
        StorageError: Something can't be read.

    Cost: a read for each instant since, and for each plan; the archive.
    """
    timeline = Timeline(tuple(client.as_found(instant) for instant in timeline))
    start = Snapshot(onto.config, timeline, client.completion_times(timeline))
    # The archive in any case: what was never listed may have been archived unseen.
    change = read_change(client, start, onto.active, archived=True)
    if isinstance(change, Reload) or _counts_as_committed(timeline, change.steps):
        return None
    start = replace(
        start,
        pending_compaction=pending_operations(client, timeline, COMPACTION),
        pending_log_compaction=_merged(
            step.compactions for step in change.steps if step.instant.action == LOG_COMPACTION
        ),
        # What wasn't completed yet pends for this client, even if it was requested later: a writer
        # asks this before it updates a group.
        pending_clustering=_merged(step.clustering for step in change.steps),
        replaced=_replaced(client, onto, timeline, change.steps),
    )
    return Branch(start, change.steps, onto)


def shared_branch(
    client: TableMetaClient, branches: Iterable[Branch], timeline: Timeline
) -> Branch | None:
    """Return the rest of a branch that passes a timeline; ``None`` if none does.

    Cost: no I/O.
    """
    for branch in branches:
        at = _steps_done(branch, timeline)
        since = branch.steps[at:]
        active = _active_at(branch, at)
        passes = timeline in (active.server_timeline(), active.client_timeline())
        if passes and not _counts_as_committed(timeline, since):
            # A separate copy of the files: loaded ones belong to the other instant, whose readers
            # share them.
            start = replace(branch.start, files=LoadedFiles())
            for step in branch.steps[:at]:
                start = advanced(start, step, start.active, start.completion)
            start = replace(start, active=active, completion=client.completion_times(active))
            return Branch(start, since, branch.onto)
    return None


def _steps_done(branch: Branch, timeline: Timeline) -> int:
    """Return the number of a branch's steps up to the last one that a timeline contains."""
    ranks = {key_of(instant): instant.state.rank for instant in timeline}
    instants = [step.instant for step in branch.steps]
    seen = (at for at, i in enumerate(instants, 1) if ranks.get(key_of(i), -1) >= i.state.rank)
    return max(seen, default=0)


def _active_at(branch: Branch, at: int) -> Timeline:
    done = (step.instant for step in branch.steps[:at])
    return Timeline.of({key_of(i): i for i in (*branch.start.active, *done)}.values())


def _counts_as_committed(timeline: Timeline, since: Iterable[Step]) -> bool:
    """Whether a later write would count as committed for a client that doesn't know of it."""
    # Hudi takes what is older than the first write without a savepoint for archived.
    first = timeline.write_timeline().first_non_savepoint_time
    writes = (step.instant for step in since if _is_write(step.instant))
    return first is None or any(instant.requested_time < first for instant in writes)


def _is_write(instant: Instant) -> bool:
    return instant.is_completed and instant.action in WRITE_ACTIONS


def _merged(parts: Iterator[Mapping[GroupKey, T]]) -> Mapping[GroupKey, T]:
    return {key: value for part in parts for key, value in part.items()}


def _replaced(
    client: TableMetaClient, onto: Snapshot, timeline: Timeline, since: tuple[Step, ...]
) -> Mapping[str, Mapping[str, str]]:
    """Return the groups replaced at the timeline, which is read if a step has replaced any.

    ``onto`` doesn't have them then: of two instants that replaced a group it has the last.

    Raises:
        InstantNotFoundError: An instant that replaced groups is neither on the timeline nor in the
            archive.
    """
    if not any(step.delta.replaced for step in since):
        return onto.replaced
    reader = MetadataReader(client)
    return replaced_groups(client, timeline, lambda instant: reader.archive.read(instant))


class HashSearches:
    """The last searches that found nothing, least recently asked dropped first; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: OrderedDict[tuple[str, str], HashSearch] = OrderedDict()

    def __len__(self) -> int:
        return len(self._asked)

    def of(self, last_instant: str, timeline_hash: str) -> HashSearch:
        """Return the remembered search, or a new one."""
        key = last_instant, timeline_hash
        with self._lock:
            search = self._asked.setdefault(key, HashSearch(last_instant, timeline_hash))
            self._asked.move_to_end(key)
            if len(self._asked) > MAX_SEARCHES:
                self._asked.popitem(last=False)
        return search


class BranchFinder:
    """Finds branches of one table; callers that ask the same share one run, and the use."""

    def __init__(self, follower: TimelineFollower) -> None:
        self._follower = follower
        self._state = follower.state
        self._runs: Shared[Use | None] = Shared()
        self._searches = HashSearches()

    def find(self, last_instant: str, timeline_hash: str) -> Use | None:
        """Return a use of the snapshot of a timeline; ``None`` where it can't be known.

        Args:
            last_instant: Requested time of the timeline's last instant.
            timeline_hash: Its hash.
        """
        key = last_instant, timeline_hash
        return self._runs.run(key, lambda: self._find(last_instant, timeline_hash))

    def _find(self, last_instant: str, timeline_hash: str) -> Use | None:
        known = self._state.use(lambda history: history.snapshot_for(last_instant, timeline_hash))
        if known is not None:
            return known  # since this caller looked, another has found it
        history = self._state.history
        search = self._searches.of(last_instant, timeline_hash)
        if search.is_refused(history.newest):
            return None
        before = search.hashes
        found = search.find(history.open_snapshots)
        self._follower.count("timelines_tried", search.hashes - before)
        if found is not None and self._is_of_this_version(found[1]):
            # In use while the steps are read, as a sync may drop the snapshot that they lead to.
            with self._state.current.using(found[0]):
                branch = self._branch(*found)
                if branch is not None:
                    return self._state.branch_off(branch)
        # For the history that was searched: one that came meanwhile may have the answer.
        search.refuse(history.newest)
        return None

    def _is_of_this_version(self, timeline: Timeline) -> bool:
        """Whether a timeline has an instant from after the last upgrade that was seen.

        An upgrade may change the meaning of instants before it, so they are not searched.
        """
        outdated = self._state.record.outdated
        return any(key_of(instant) not in outdated for instant in timeline.completed())

    def _branch(self, onto: Snapshot, timeline: Timeline) -> Branch | None:
        """Return the way from a timeline to a snapshot; ``None`` where it can't be known."""
        client = self._follower.client_for("past")
        shared = shared_branch(client, self._state.history.branches, timeline)
        try:
            branch = shared or read_branch(client, onto, timeline)
        except InstantNotFoundError:  # archived or undone since: nothing says any more what it did
            branch = None
        read = "refused" if branch is None else "read"
        self._follower.count("branches", outcome=read if shared is None else "shared")
        return branch
