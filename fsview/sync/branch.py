"""The way from a timeline that was never held to a snapshot that is kept.

``read_branch`` reads what a sync would have read, or returns nothing where an answer might be wrong
(pinned.md, rules 1, 4 and 7). Where a branch that is kept leads over the timeline already,
``shared_branch`` makes another of the rest of its steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from fsview.model.file_group import CompactionOperation
from fsview.snapshot.difference import key_of
from fsview.snapshot.link import Branch
from fsview.snapshot.news import Reload
from fsview.snapshot.next_snapshot import advanced
from fsview.snapshot.plans import plan_operations
from fsview.snapshot.snapshot import GroupKey, LoadedFiles, Snapshot
from fsview.snapshot.step import Step
from fsview.sync.metadata_reader import MetadataReader
from fsview.sync.plan_reader import replaced_groups
from fsview.sync.timeline_diff import read_news
from timeline.instant import COMPACTION, LOG_COMPACTION, WRITE_ACTIONS, Instant
from timeline.meta_client import TableMetaClient
from timeline.timeline import Timeline

T = TypeVar("T")


def read_branch(client: TableMetaClient, onto: Snapshot, timeline: Timeline) -> Branch | None:
    """Read the way from a timeline to a snapshot that came after it.

    Returns:
        The branch; ``None`` where not everything that happened since can be known, or where a write
        since was requested before the timeline's first, which would count as committed there.

    Raises:
        InstantNotFoundError: An instant vanished since ``onto`` was the newest.
        CorruptMetadataError: An instant's file can't be understood.
        StorageError: Something can't be read.

    Cost: a read for each instant since, and for each plan; the archive's instants.
    """
    timeline = Timeline(tuple(client.as_found(instant) for instant in timeline))
    start = Snapshot(onto.config, timeline, client.completion_times(timeline))
    news = read_news(client, start, onto.active, archived=True)
    if isinstance(news, Reload) or _counts_as_committed(timeline, news.steps):
        return None
    start = replace(
        start,
        pending_compaction=_operations(client, timeline, COMPACTION),
        pending_log_compaction=_merged(
            step.compactions for step in news.steps if step.instant.action == LOG_COMPACTION
        ),
        # What wasn't completed yet pends for this client, whether or not it was requested: a writer
        # asks this before it updates a group (pinned.md, rule 7).
        pending_clustering=_merged(step.clustering for step in news.steps),
        replaced=_replaced(client, onto, timeline, news.steps),
    )
    return Branch(start, news.steps, onto)


def shared_branch(
    client: TableMetaClient, branches: Iterable[Branch], timeline: Timeline
) -> Branch | None:
    """Return the rest of a branch that leads over a timeline; ``None`` if none does.

    Cost: none.
    """
    for branch in branches:
        at = _place_on(branch, timeline)
        since = branch.steps[at:]
        active = _active_at(branch, at)
        is_there = timeline in (active.server_timeline(), active.client_timeline())
        if is_there and not _counts_as_committed(timeline, since):
            start = replace(branch.start, files=LoadedFiles())
            for step in branch.steps[:at]:
                start = advanced(start, step, start.active, start.completion)
            start = replace(start, active=active, completion=client.completion_times(active))
            return Branch(start, since, branch.onto)
    return None


def _place_on(branch: Branch, timeline: Timeline) -> int:
    """Return how many steps of a branch are over where a timeline holds the last that it does."""
    ranks = {key_of(instant): instant.state.rank for instant in timeline}
    instants = [step.instant for step in branch.steps]
    seen = (at for at, i in enumerate(instants, 1) if ranks.get(key_of(i), -1) >= i.state.rank)
    return max(seen, default=0)


def _active_at(branch: Branch, at: int) -> Timeline:
    over = (step.instant for step in branch.steps[:at])
    return Timeline.of({key_of(i): i for i in (*branch.start.active, *over)}.values())


def _counts_as_committed(timeline: Timeline, since: Iterable[Step]) -> bool:
    """Whether a write since would count as committed for a client who doesn't know of it."""
    first = timeline.write_timeline().first_non_savepoint_time
    writes = (step.instant for step in since if _is_write(step.instant))
    return first is None or any(instant.requested_time < first for instant in writes)


def _is_write(instant: Instant) -> bool:
    return instant.is_completed and instant.action in WRITE_ACTIONS


def _operations(
    client: TableMetaClient, timeline: Timeline, action: str
) -> Mapping[GroupKey, CompactionOperation]:
    pending = (i for i in timeline if i.action == action and not i.is_completed)
    return _merged(plan_operations(i, client.read_plan(i)) for i in pending)


def _merged(parts: Iterator[Mapping[GroupKey, T]]) -> Mapping[GroupKey, T]:
    return {key: value for part in parts for key, value in part.items()}


def _replaced(
    client: TableMetaClient, onto: Snapshot, timeline: Timeline, since: tuple[Step, ...]
) -> Mapping[str, Mapping[str, str]]:
    """Return what was replaced then: of two instants that replaced a group either may come back.

    Raises:
        InstantNotFoundError: An instant that replaced groups is neither there nor in the archive.
    """
    if not any(step.delta.replaced for step in since):
        return onto.replaced
    reader = MetadataReader(client)
    return replaced_groups(client, timeline, lambda instant: reader.archive.read(instant))
