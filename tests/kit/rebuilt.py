"""A view that was followed, compared with one that is built from what lies on storage now."""

from __future__ import annotations

from collections.abc import Iterable

from fsview.packed import PartitionVersion
from fsview.snapshot import Snapshot
from fsview.table_view import TableView
from timeline.storage.base import Storage


def sizes(version: PartitionVersion) -> dict[str, int]:
    """Return name → size of every file."""
    return {file.name: file.size for file in version.files()}


def missing_from_rebuilt(table: TableView, storage: Storage) -> tuple[list[str], set[str]]:
    """Compare a table's newest view with one rebuilt from ``storage``, partition by partition.

    Returns:
        What differs, in words; and the names of files that lie there but that nothing followed
        says, which is right for files of writes in flight only.
    """
    held = table.newest().snapshot
    fresh = TableView(storage).newest()
    fresh.load_all_partitions()
    rebuilt = fresh.snapshot
    found = list(_of_the_table(held, rebuilt))
    unnamed: set[str] = set()
    for partition, version in rebuilt.files.versions.items():
        now, then = sizes(version), sizes(table.version(held, partition))
        unnamed |= now.keys() - then.keys()
        wrong = {name: size for name, size in then.items() if now.get(name) != size}
        if wrong:
            found.append(f"{partition}: {wrong} is not as it lies there")
    return found, unnamed


def _of_the_table(held: Snapshot, rebuilt: Snapshot) -> Iterable[str]:
    if held.active != rebuilt.active:
        yield f"timeline: {held.active} is not {rebuilt.active}"
    for name in ("pending_compaction", "pending_log_compaction", "pending_clustering"):
        if getattr(held, name) != getattr(rebuilt, name):
            yield f"{name}: {getattr(held, name)} is not {getattr(rebuilt, name)}"
    if _filled(held) != _filled(rebuilt):
        yield f"replaced: {held.replaced} is not {rebuilt.replaced}"


def _filled(snapshot: Snapshot) -> dict[str, dict[str, str]]:
    return {partition: dict(ids) for partition, ids in snapshot.replaced.items() if ids}
