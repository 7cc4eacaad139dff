"""What must hold after each step of a walk in turns: rows, view, and files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import pyarrow.parquet as pq

from fsview.local_view import LocalView
from tests.kit.tables import reader
from tests.kit.tables.rebuilt import differences_from_rebuilt
from tests.oracle.tables import view_of
from tests.oracle.turns.row_model import Row, comparable
from timeline.instant import COMMIT, DELTA_COMMIT, ROLLBACK
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CommitMetadata
from timeline.storage.local import LocalStorage


def differing_rows(name: str, expected: Iterable[Row], found: Iterable[Row]) -> Iterator[str]:
    """Yield how the rows that a reader finds differ from those of the model, in words."""
    model, table = comparable(expected), comparable(found)
    if model != table:
        missing = [dict(row) for row in model if model.count(row) > table.count(row)]
        surplus = [dict(row) for row in table if table.count(row) > model.count(row)]
        yield f"{name}: {len(missing)} rows are missing: {missing}"
        yield f"{name}: {len(surplus)} rows are too many: {surplus}"


def hidden_rows(path: Path) -> list[str]:
    """Return the values of the rows that follow another one of their key in their file."""
    found = []
    for (partition, _), name in reader.newest_files(path).items():
        rows = pq.read_table(path / partition / name, partitioning=None).to_pylist()
        met: set[str] = set()
        for row in rows:
            if row["_hoodie_record_key"] in met:
                found.append(row["v"])
            met.add(row["_hoodie_record_key"])
    return found


class Follower:
    """A view of ours that was opened early and follows the table."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._view = view_of(path)
        LocalView.newest(self._view).load_all_partitions()

    def differing(self) -> Iterator[str]:
        """Yield how the view differs from one built anew, and files that nobody names."""
        view = LocalView.synced(self._view)
        view.load_all_partitions()
        storage = LocalStorage(str(self._path))
        rebuilt = differences_from_rebuilt(view.snapshot, storage)
        yield from (f"followed view: {difference}" for difference in rebuilt.found)
        yield from (f"nobody names {path}" for path in sorted(unnamed_files(self._path)))


def unnamed_files(path: Path) -> set[str]:
    """Return the data files of no pending instant that the metadata of theirs doesn't name.

    A file of an archived commit counts as named.
    """
    meta = TableMetaClient.open(LocalStorage(str(path)))
    timeline = meta.active_timeline()
    commits = [i for i in timeline.completed() if i.action in (COMMIT, DELTA_COMMIT)]
    named = set()
    for instant in commits:
        metadata = meta.read(instant)
        assert isinstance(metadata, CommitMetadata)
        stats = metadata.partition_to_write_stats.values()
        named |= {stat.path for each in stats for stat in each}
    # In version 6 a rollback leaves logs, and appends to them.
    for instant in timeline.completed():
        if instant.action == ROLLBACK:
            for partition, done in meta.read(instant).partition_metadata.items():
                logs = (*done.rollback_log_files, *done.log_files_from_failed_commit)
                names = (log.rpartition("/")[2] for log in logs)
                named |= {f"{partition}/{name}".lstrip("/") for name in names}
    pending = {i.requested_time for i in timeline.pending()}
    first = min((i.requested_time for i in commits), default="")
    files = chain(reader.base_files(path), (log[:4] for log in reader.logs(path)))
    return {
        f"{partition}/{name}".lstrip("/")
        for partition, name, _, instant in files
        if instant not in pending and instant >= first
    } - named
