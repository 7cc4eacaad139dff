"""Estimates of the memory of snapshots that are kept for clients that are behind.

Snapshots share what doesn't differ. So the bytes of one are those that the next one doesn't share:
its timeline (a pointer for each instant, as listings share the instants), the mappings that differ,
the versions of partitions that the step between the two touched, the parts of the mapping that hold
them, and the step's names of files. Versions that are filled in later, when a client that is behind
asks for them, are added. Packed files aren't counted here, but by the stores.

The constants are CPython's sizes of such objects, checked against ``tracemalloc`` by
``tests/fsview/snapshot/test_retained_bytes.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sized
from typing import Final

from fsview.files.partition import PartitionVersion
from fsview.snapshot.snapshot import PARTS, Snapshot
from fsview.snapshot.timeline_change import Step

_SNAPSHOT: Final = 5_000
"""A snapshot with what it never shares: timelines, mapping of files, hashes."""
_POINTER: Final = 8
_ENTRY: Final = 60
"""An item of a mapping whose key and value are shared."""
_INSTANT: Final = 250
_MEMO: Final = 180
"""A remembered instant with its visibility or completion time."""
_STEP: Final = 700
_CHANGE: Final = 350
"""The change of one partition, without its files."""
_NAME: Final = 130
"""A name in a set, beside its characters."""
_GROUP: Final = 200
"""A packed group with its file id, beside its rows."""
_OPERATION: Final = 600
"""A planned operation with its key."""
_VERSION: Final = 350
_FIRST_ID: Final = 110


def bytes_beyond(
    before: Snapshot, after: Snapshot, step: Step | None, recalled: frozenset[str] = frozenset()
) -> int:
    """Return the bytes of a snapshot that the next one doesn't share, and of the step between.

    Args:
        before: The snapshot.
        after: The next one.
        step: The step.
        recalled: Partitions that differ without a step.
    """
    timelines = {id(timeline): len(timeline) for timeline in before.timelines}
    shared = set(map(id, after.timelines))
    size = _SNAPSHOT + _POINTER * sum(n for key, n in timelines.items() if key not in shared)
    maps: tuple[tuple[Sized, Sized], ...] = (
        (before.pending_compaction, after.pending_compaction),
        (before.pending_log_compaction, after.pending_log_compaction),
        (before.pending_clustering, after.pending_clustering),
        (before.replaced, after.replaced),
        (before.files.known or (), after.files.known or ()),
    )
    size += _ENTRY * sum(len(own) for own, other in maps if own is not other)
    touched = recalled if step is None else recalled | step.touched
    size += _bytes_of_versions(before, after, touched)
    if step is not None:
        size += _ENTRY * sum(len(before.replaced.get(p, ())) for p in step.delta.replaced)
        size += step_bytes(step)
    return size


def step_bytes(step: Step) -> int:
    """Return the bytes of a step."""
    size = _STEP + _OPERATION * (len(step.compactions) + len(step.clustering))
    for change in step.delta.partitions.values():
        size += _CHANGE + sum(_GROUP + len(group) for _, group in change.added.groups)
        size += _bytes_of_names(change.removed) + _bytes_of_names(change.extended)
    for file_ids in step.delta.replaced.values():
        size += _bytes_of_names(file_ids)
    return size + _bytes_of_names(step.delta.deleted_partitions)


def filled_bytes(version: PartitionVersion, newest: PartitionVersion | None) -> int:
    """Return the bytes of a version filled in at an older snapshot, beside the newest version."""
    return _ENTRY + (0 if version is newest else _bytes_of_version(version, newest))


def known_bytes(known: frozenset[str], newest: frozenset[str] | None) -> int:
    """Return the bytes of an older snapshot's known partitions, 0 if shared with the newest."""
    return 0 if known is newest else _ENTRY * len(known)


def memo_bytes(snapshot: Snapshot) -> int:
    """Return the bytes of what a snapshot remembers about instants."""
    return _MEMO * snapshot.remembered


def start_bytes(start: Snapshot) -> int:
    """Return the bytes of the snapshot with which a branch begins."""
    maps = (start.pending_compaction, start.pending_log_compaction, start.pending_clustering)
    return _SNAPSHOT + (_POINTER + _INSTANT) * len(start.active) + _OPERATION * sum(map(len, maps))


def _bytes_of_versions(before: Snapshot, after: Snapshot, touched: Collection[str]) -> int:
    held, kept = before.files.versions, after.files.versions
    size, changed = 0, False
    for partition in touched:
        version, following = held.get(partition), kept.get(partition)
        if version is not None and version is not following:
            size += _bytes_of_version(version, following)
            changed = True
    if not changed:
        return 0
    # Each touched partition may be in a different part of the mapping.
    return size + _ENTRY * (len(held) // PARTS + 1) * len(touched)


def _bytes_of_version(version: PartitionVersion, after: PartitionVersion | None) -> int:
    size = _VERSION + _POINTER * len(version.runs)
    if after is None or after.chunks is not version.chunks:
        size += (2 * _POINTER + _FIRST_ID) * len(version.chunks)
    return size


def _bytes_of_names(names: Iterable[str]) -> int:
    return sum(_NAME + len(name) for name in names)
