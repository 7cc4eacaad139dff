"""What must hold after each step of a walk in turns: rows, view, and files."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from demo.prove import through_hudi_rs
from fsview.local_view import LocalView
from strandline import Table
from strandline.read.instants import rollbacks_in
from strandline.records.meta_fields import META_FIELDS
from tests.kit.tables import reader
from tests.kit.tables.rebuilt import differences_from_rebuilt
from tests.oracle.hudi import Hudi, rows_of
from tests.oracle.tables import view_of
from tests.oracle.turns.row_model import Row, comparable
from tests.oracle.turns.table_form import Walk
from tests.oracle.view.java_view import JavaView
from tests.oracle.view.watcher import Watcher
from timeline.encoding.log_block import INSTANT_TIME, LogBlock, scan_blocks
from timeline.instant import COMMIT, DELTA_COMMIT, REPLACE_COMMIT, RESTORE, ROLLBACK
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CommitMetadata
from timeline.storage.local import LocalStorage

WRITES: Final = (COMMIT, DELTA_COMMIT, REPLACE_COMMIT)
UNDOING: Final = (ROLLBACK, RESTORE)


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


class Readers:
    """All that read a table of a walk, and the views that follow it.

    Args:
        hudi: The session.
        path: The table's base path.
        walk: Its walk.
    """

    def __init__(self, hudi: Hudi, path: Path, walk: Walk) -> None:
        self._hudi, self._path, self._form = hudi, path, walk.form
        java, rng = JavaView(hudi, str(path)), random.Random(walk.seed)
        self._watcher = Watcher(java, path, rng, is_1=hudi.is_1, moves=False)

    def differing(self, step: int, expected: Sequence[Row]) -> Iterator[str]:
        """Yield what is unlike the model's rows, and how our view and Hudi's differ."""
        path = self._path
        yield from differing_rows("plain reader", expected, reader.rows(path, unique=False) or ())
        yield from differing_rows("Table", expected, rows_of(Table(path).to_arrow(), by="v"))
        yield from differing_rows("Hudi", expected, self._by_hudi("snapshot"))
        if not (self._form.version == 6 and _has_logs_of_plans(path)):
            yield from differing_rows("hudi-rs", expected, rows_of(through_hudi_rs(path), by="v"))
        if self._form.has_logs:
            expected = rows_of_base_files(path)
            own = Table(path).scan(read_optimized=True).to_arrow()
            yield from differing_rows("Table without logs", expected, rows_of(own, by="v"))
            found = self._by_hudi("read_optimized")
            yield from differing_rows("Hudi without logs", expected, found)
        yield from self._watcher.check(step)
        yield from (f"nobody names {file}" for file in sorted(unnamed_files(path)))

    def _by_hudi(self, query: str) -> list[Row]:
        """Return what Hudi's query gives, with its metadata table if the table may have one."""
        use = str(self._form.metadata).lower()
        named = {"hoodie_metadata_enable": use, "hoodie_datasource_query_type": query}
        return list(self._hudi.read(self._path, **named))


def rows_of_base_files(path: Path) -> list[Row]:
    """Return the rows of the newest base files, as they are without the logs."""
    files = (path / place / name for (place, _), name in reader.newest_files(path).items())
    rows = [row for file in files for row in reader.stored_rows(file)]
    return [{name: row[name] for name in row if name not in META_FIELDS} for row in rows]


def _has_logs_of_plans(path: Path) -> bool:
    """Whether logs are on top of a planned compaction.

    hudi-rs leaves these out on version 6, Hudi's own, too; they have the plan's instant there.
    """
    pending = reader.pending(path)
    plans = {name[:17] for name in pending if name.endswith(".compaction.requested")}
    return any(instant in plans for _, _, _, instant, _ in reader.logs(path))


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
    commits = [i for i in timeline.completed() if i.action in WRITES]
    named = set()
    for instant in commits:
        metadata = meta.read(instant)
        assert isinstance(metadata, CommitMetadata)
        stats = metadata.partition_to_write_stats.values()
        named |= {stat.path for each in stats for stat in each}
    # In version 6 a rollback, also one of a restore, leaves logs, and appends to them.
    for instant in timeline.completed():
        for undone in rollbacks_in(meta.read(instant)) if instant.action in UNDOING else ():
            for partition, done in undone.partition_metadata.items():
                logs = (*done.rollback_log_files, *done.log_files_from_failed_commit)
                names = (log.rpartition("/")[2] for log in logs)
                named |= {f"{partition}/{name}".lstrip("/") for name in names}
    pending = {i.requested_time for i in timeline.pending()}
    first = min((i.requested_time for i in commits), default="")
    files = chain(reader.base_files(path), (log[:4] for log in reader.logs(path)))
    left = {
        f"{partition}/{name}".lstrip("/")
        for partition, name, _, instant in files
        if instant not in pending and instant >= first
    } - named
    # In version 6 a log's name has the instant of its slice, and Hudi 0.15.0 makes no marker of it.
    return {file for file in left if pending.isdisjoint(_writers_of_blocks(path / file))}


def _writers_of_blocks(file: Path) -> set[str]:
    """Return the instants that wrote a log's whole blocks; of a base file none."""
    data = b"" if file.suffix == ".parquet" else file.read_bytes()
    blocks = (block for block in scan_blocks(data) if isinstance(block, LogBlock))
    return {block.header[INSTANT_TIME] for block in blocks}
