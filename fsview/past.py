"""Clients whose timeline was never held: which one it is, and the way from there.

A client says which timeline it knows by a hash. What may have been hashed is every prefix, in the
order of completion, of a timeline that is known, together with the compactions that hadn't
completed by then, each absent, requested or inflight (measured on real tables: this finds every
timeline that can be found at all, which prefixes in the order of requests do not).

The way from there to a kept snapshot is what a sync would have read: ``read_branch`` reads it, or
returns nothing where an answer might be wrong (pinned.md, rules 1, 4 and 7).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Final, TypeVar

from fsview.build import plan_operations, replaced_groups
from fsview.follow import Reload, read_news
from fsview.history import Branch, Link, walked
from fsview.model import CompactionOperation
from fsview.snapshot import GroupKey, Snapshot
from fsview.sync import Step, by_completion
from timeline.instant import (
    COMMIT,
    COMPACTION,
    LOG_COMPACTION,
    WRITE_ACTIONS,
    Instant,
    State,
)
from timeline.meta_client import TableMetaClient
from timeline.table_properties import MERGE_ON_READ
from timeline.timeline import Timeline

T = TypeVar("T")

UNCERTAIN: Final = 6
"""Of how many compactions, the last requested, every state is tried; 3 to the power of it hashes at
most for each prefix."""

SKEWED: Final = 32
"""How many more instants may not have been seen, should clocks disagree."""

_COMPACTIONS: Final = (COMPACTION, LOG_COMPACTION)
_STATES: Final = (State.INFLIGHT, State.REQUESTED, None)


def candidates(known: Snapshot, last_instant: str) -> Iterator[Timeline]:
    """Yield the timelines ending at an instant that a client may have hashed, newest first.

    Args:
        known: A snapshot that came after.
        last_instant: Requested time of the client's last instant.
    """
    if not known.active.contains_time(last_instant):
        return
    completed = sorted(known.active.completed(), key=by_completion)
    later = (n for n, i in enumerate(completed) if i.requested_time > last_instant)
    most = next(later, len(completed))
    # What had completed by the time that the last one was requested was seen by who saw that.
    sure = sum((i.completion_time or i.requested_time) < last_instant for i in completed[:most])
    for end in range(most, max(0, sure - SKEWED) - 1, -1):
        done = completed[:end]
        open_then = sorted(
            _open_before(known, completed[end:], last_instant), key=lambda i: i.requested_time
        )
        if last_instant in {i.requested_time for i in (*done, *open_then)}:
            for pending in _in_every_state(open_then):
                timeline = Timeline.of([*done, *pending])
                if timeline.last is not None and timeline.last.requested_time == last_instant:
                    yield timeline


def _open_before(
    known: Snapshot, completed_later: Iterable[Instant], last_instant: str
) -> Iterator[Instant]:
    """Yield the (log) compactions that a client at ``last_instant`` may have seen pending."""
    seen = (i for i in known.active if i.requested_time <= last_instant)
    yield from (i for i in seen if not i.is_completed and i.action in _COMPACTIONS)
    if known.config.table_type == MERGE_ON_READ:
        # There a commit is a compaction: what writers complete is a deltacommit.
        for instant in completed_later:
            if instant.action == COMMIT and instant.requested_time <= last_instant:
                yield Instant(instant.requested_time, COMPACTION, State.INFLIGHT)


def _in_every_state(compactions: list[Instant]) -> Iterator[list[Instant]]:
    settled, uncertain = compactions[:-UNCERTAIN], compactions[-UNCERTAIN:]
    for states in product(_STATES, repeat=len(uncertain)):
        yield settled + [
            Instant(i.requested_time, i.action, state)
            for i, state in zip(uncertain, states, strict=True)
            if state is not None
        ]


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
    first = timeline.write_timeline().first_non_savepoint_time
    timeline = Timeline(tuple(client.as_found(instant) for instant in timeline))
    start = Snapshot(onto.config, timeline, client.completion_times(timeline))
    news = read_news(client, start, onto.active, archived=True)
    if first is None or isinstance(news, Reload):
        return None
    if any(_is_write(step.instant) and step.instant.requested_time < first for step in news.steps):
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
    links = (Link(start), *walked(start, news.steps, client.completion_times))
    if len(links) == 1:
        return Branch(links, Link(onto))
    return Branch(links[:-1], Link(onto, links[-1].step))


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
    """Return what was replaced then: of two instants that replaced a group either may come back."""
    if not any(step.delta.replaced for step in since):
        return onto.replaced
    return replaced_groups(client, timeline)
