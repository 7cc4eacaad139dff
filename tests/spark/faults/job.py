"""The write that faults are tried on, and what it leaves: rows and file groups."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from tests.kit.tables import reader

OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.clean.automatic": "false",
    # All tasks run on executors.
    "strandline.write.driver.max.rows": "0",
    # Inserts open new file groups, so that which rows share a group doesn't depend on random ids.
    "hoodie.parquet.small.file.limit": "0",
    # For a service that is started or replaced on a busy machine. Faults set what they are about.
    "strandline.remote.first.answer.secs": "120",
    "strandline.remote.read.timeout.secs": "120",
    "hoodie.filesystem.view.remote.timeout.secs": "120",
}
TABLE_TYPE = "hoodie.datasource.write.table.type"
COLUMNS = ("id", "part", "ts", "name")
DDL = "id string, part string, ts long, name string"
PARTITIONS = tuple(f"p{number}" for number in range(6))
TASKS = 5
"""Of a shuffle; by Spark's hash each has rows of these partitions."""


@dataclass(frozen=True)
class Left:
    """What a job leaves in storage.

    Attributes:
        rows: (record key, partition, ordering value, content), sorted.
        groups: (partition, number of base files, number of logs, the keys of the newest base
            file) of each file group, sorted. Ids of file groups are random.
        leftovers: Files of no commit, markers and pending instants.
    """

    rows: list[tuple]
    groups: list[tuple]
    leftovers: list[str]


def client(engine: object, base: Path, options: dict | None = None, **more) -> WriteClient:
    return WriteClient(engine, str(base), {**OPTIONS, **(options or {})}, **more)


def frame(spark, rows: list[tuple]):
    return spark.createDataFrame(rows, DDL)


def table(rows: list[tuple]) -> pa.Table:
    return pa.table(dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True)))


def prepare(
    base: Path, partitions: tuple[str, ...] = PARTITIONS, table_type: str = "COPY_ON_WRITE"
) -> None:
    """Write a table with two file groups of two rows in each partition, without a service."""
    options = {"hoodie.embed.timeline.server": "false", TABLE_TYPE: table_type}
    with client(LocalEngine(), base, options) as c:
        for group in "ab":
            c.bulk_insert(
                table([(f"{p}-{group}{n}", p, 1, "old") for p in partitions for n in range(2)])
            )


def changes(partitions: tuple[str, ...] = PARTITIONS) -> list[tuple]:
    """A batch with, for each partition, one update in each group, a late row and a new row; and a
    new partition."""
    rows = [("new-a0", "new", 2, "new")]
    for partition in partitions:
        rows += [
            (f"{partition}-a0", partition, 2, "updated"),
            (f"{partition}-b0", partition, 2, "updated"),
            (f"{partition}-b1", partition, 0, "late"),
            (f"{partition}-c0", partition, 2, "new"),
        ]
    return rows


def left_in(base: Path) -> Left:
    slices = Counter((partition, file_id) for partition, _, file_id, _ in reader.base_files(base))
    logs = Counter((partition, file_id) for partition, _, file_id, *_ in reader.logs(base))
    groups = []
    for (partition, file_id), name in reader.newest_files(base).items():
        keys = pq.read_table(base / partition / name, columns=["id"], partitioning=None)
        counts = slices[partition, file_id], logs[partition, file_id]
        groups.append((partition, *counts, tuple(sorted(keys["id"].to_pylist()))))
    rows = [tuple(row[name] for name in COLUMNS) for row in reader.rows(base)]
    return Left(rows, sorted(groups), reader.leftovers(base))


def sources(result) -> Counter:
    """Look-ups of a write's tasks by the source of their answers."""
    return Counter(each.source for each in result.lookups)


def causes(result) -> set[str]:
    return {each.cause for each in result.fallbacks}
