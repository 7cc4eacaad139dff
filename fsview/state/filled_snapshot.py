"""Filling in what a load found, or what follows from a later snapshot; without a lock.

``TableState`` has the lock.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from fsview.files.partition import PartitionVersion
from fsview.snapshot.catch_up import Arrived, Found, arrived, with_unfinished
from fsview.snapshot.plans import base_extensions
from fsview.snapshot.retained_bytes import filled_bytes, known_bytes
from fsview.snapshot.snapshot import LoadedFiles, Snapshot
from fsview.state.held_table import HeldTable
from timeline.errors import StoreError


@dataclass(frozen=True, slots=True)
class FilledSnapshot:
    """What was filled in.

    Attributes:
        arrived: The result of the load.
        forgotten: The missing partitions that aren't remembered any more.
    """

    arrived: Arrived
    forgotten: Collection[str]


def fill(
    table: HeldTable, found: Found, absent: Collection[str], *, alone: bool = False
) -> FilledSnapshot | None:
    """Fill the newest snapshot with what a load found; see ``fsview.snapshot.catch_up``.

    ``None`` if that can't be brought forward to it.

    Args:
        table: Filled in at its newest snapshot.
        found: What was found.
        absent: The paths among it that are no partitions.
        alone: Whether to keep it in memory for now, if others share the store.

    Raises:
        StoreBehindError: Other servers have recorded something since; nothing has changed.
        StoreError: It can't be recorded or brought forward, and nothing has changed.
    """
    filling = arrived(table.history, found) if table.status.is_followed else None
    if filling is None:
        return None
    newest = table.history.newest
    # A copy: readers take no lock, and must not see what isn't recorded yet.
    files = newest.files.versions.fork()
    files.update({version.partition: version for version in filling.versions})
    missing, forgotten = table.missing.updated(filling.versions, absent, files)
    for partition in forgotten:
        del files[partition]
    known = newest.files.known if filling.known is None else filling.known
    # A restart gains nothing from remembering missing partitions.
    kept = (v for v in filling.versions if not (v.is_empty and v.partition in absent))
    touched = {*(v.partition for v in kept), *forgotten}
    unfinished = with_unfinished(table.record.unfinished, filling.versions, newest)
    filled = replace(newest, files=LoadedFiles(files, known))
    table.record.save(filled, touched, unfinished, also=filling.at_start, news=(), alone=alone)
    newest.files.versions, newest.files.known = files, known
    for version in filling.at_start:
        _fill_older(table, found.start, version)
    # Set only now, as the record could fail.
    table.missing = missing
    return FilledSnapshot(filling, forgotten)


def derive(table: HeldTable, snapshot: Snapshot, partition: str) -> PartitionVersion | None:
    """Fill in a partition from what a later snapshot has of it; ``None`` if none has.

    Raises:
        StoreError: That can't be read, and the table isn't to be trusted; or what is found
            can't be kept.
    """
    history = table.history
    try:
        found = history.derived(snapshot, partition, base_extensions(snapshot.config))
    except StoreError as exc:
        table.distrust_store(exc)
        raise
    # Only the newest snapshot has missing partitions, as they are forgotten there alone.
    if found is not None and not (found.is_empty and partition in table.missing):
        _fill_older(table, snapshot, found)
    return found


def _fill_older(table: HeldTable, snapshot: Snapshot, found: PartitionVersion) -> None:
    """Fill in a partition at a kept snapshot; under the lock.

    Raises:
        StoreError: It can't be kept, and nothing has changed.
    """
    table.record.keep(found)
    # Another thread may have filled it in since, and counted it.
    if found.partition not in snapshot.files.versions:
        newest = table.history.newest.files.versions.get(found.partition)
        table.current.count_filled(snapshot, filled_bytes(found, newest))
    snapshot.files.versions[found.partition] = found


def fill_known(table: HeldTable, snapshot: Snapshot, known: frozenset[str]) -> None:
    """Fill in which partitions the table has at a kept snapshot."""
    if snapshot.files.known is None:
        snapshot.files.known = known
        table.current.count_filled(snapshot, known_bytes(known, table.history.newest.files.known))
