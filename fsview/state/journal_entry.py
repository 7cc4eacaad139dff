"""``JournalEntry``: what a sync records for the servers that share its store, as plain JSON values.

It holds what was read of the new instants, so that no other server reads them: each computes the
same history from it (``fsview.state.adoption``), and finds the touched partitions in their rows.
A timeline is stored as a diff against the previous one.

The journal has for each step a list of such values: empty if a load only filled partitions in,
several if the server could not commit for a time; no list if only all rows tell what there is.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Collection, Mapping
from typing import Any

from fsview.files.change import NO_FILES, PackedFiles
from fsview.files.packed_id import unpack_id
from fsview.snapshot.delta import Delta, PartitionChange
from fsview.snapshot.step import Step
from fsview.snapshot.timeline_change import TimelineChange
from fsview.state.plain_values import (
    clustering_of_json,
    clustering_to_json,
    instant_of_json,
    instant_to_json,
    operations_of_json,
    operations_to_json,
)
from timeline.timeline import Timeline

JournalEntry = Mapping[str, Any]
"""One change of a timeline, and the partitions that must be listed again."""


def journal_entry_of(
    change: TimelineChange, unclear: Collection[str], before: Timeline
) -> JournalEntry:
    """Return the news of a change; ``read_journal_entry`` reads it.

    Args:
        change: The change.
        unclear: Partitions that must be listed again.
        before: The active timeline before.
    """
    # Sets are told in order, so that equal changes are told alike.
    # Instants with other completion times are equal, but aren't told alike.
    earlier, later = (dict.fromkeys(map(instant_to_json, t)) for t in (before, change.active))
    return {
        "gone": [instant for instant in earlier if instant not in later],
        "new": [instant for instant in later if instant not in earlier],
        "steps": [_step_to_json(step) for step in change.steps],
        "completed": change.completed,
        "replaced": change.replaced,
        "undone": sorted(map(instant_to_json, change.undone)),
        "lost": sorted(change.lost),
        "unexplained": sorted(map(instant_to_json, change.unexplained)),
        "given_up": sorted(map(instant_to_json, change.given_up)),
        "unclear": sorted(unclear),
    }


def read_journal_entry(
    news: JournalEntry, before: Timeline
) -> tuple[TimelineChange, frozenset[str]]:
    """Return the change that is told, and the partitions that must be listed again.

    Args:
        news: What ``journal_entry_of`` returned.
        before: The active timeline before.

    Raises:
        ValueError: It is damaged; or ``AttributeError``, ``IndexError``, ``KeyError``,
            ``TypeError``.
    """
    gone = set(map(tuple, news["gone"]))
    left = (instant for instant in before if instant_to_json(instant) not in gone)
    active = Timeline.of([*left, *map(instant_of_json, news["new"])])
    change = TimelineChange(
        active,
        tuple(map(_step_of_json, news["steps"])),
        news["completed"],
        news["replaced"],
        frozenset(map(instant_of_json, news["undone"])),
        frozenset(news["lost"]),
        frozenset(map(instant_of_json, news["unexplained"])),
        frozenset(map(instant_of_json, news["given_up"])),
    )
    return change, frozenset(news["unclear"])


def _step_to_json(step: Step) -> tuple[Any, ...]:
    return (
        step.at,
        instant_to_json(step.instant),
        _delta_to_json(step.delta),
        operations_to_json(step.compactions),
        clustering_to_json(step.clustering),
    )


def _step_of_json(stored: list[Any]) -> Step:
    at, instant, delta, compactions, clustering = stored
    return Step(
        at,
        instant_of_json(instant),
        _delta_of_json(delta),
        operations_of_json(compactions),
        clustering_of_json(clustering),
    )


def _delta_to_json(delta: Delta) -> dict[str, Any]:
    return {
        "partitions": {p: _change_to_json(change) for p, change in delta.partitions.items()},
        "replaced": dict(delta.replaced),
        "deleted": sorted(delta.deleted_partitions),
        "undone": sorted(delta.undone),
        "writes": delta.writes,
        "planned_as": delta.planned_as,
        "incomplete": sorted(delta.incomplete),
    }


def _delta_of_json(stored: Mapping[str, Any]) -> Delta:
    return Delta(
        {p: _change_of_json(p, change) for p, change in stored["partitions"].items()},
        {p: tuple(file_ids) for p, file_ids in stored["replaced"].items()},
        frozenset(stored["deleted"]),
        frozenset(stored["undone"]),
        stored["writes"],
        stored["planned_as"],
        frozenset(stored["incomplete"]),
    )


def _change_to_json(change: PartitionChange) -> tuple[Any, ...]:
    added = change.added
    groups = [b64encode(group).decode() for _, group in added.groups]
    return groups, added.count, added.has_ghosts, sorted(change.extended), sorted(change.removed)


def _change_of_json(partition: str, stored: list[Any]) -> PartitionChange:
    encoded, count, has_ghosts, extended, removed = stored
    packed = (b64decode(group) for group in encoded)
    groups = tuple((unpack_id(group, 0)[0], group) for group in packed)
    added = PackedFiles(partition, groups, count, has_ghosts) if groups else NO_FILES
    return PartitionChange(added, frozenset(extended), frozenset(removed))
