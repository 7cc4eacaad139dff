"""What a random walk is: a seed, a table, and the options under which Hudi writes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

COPY_ON_WRITE: Final = "COPY_ON_WRITE"
MERGE_ON_READ: Final = "MERGE_ON_READ"
PARTITIONS: Final = ("p0", "p1", "p2", "p3")
KEYS: Final = 12
NAME: Final = "walked"

SCHEMA: Final = pa.schema(
    [("id", pa.string()), ("p", pa.string()), ("ts", pa.int64()), ("v", pa.float64())]
)
AVRO: Final = (
    f'{{"type":"record","name":"{NAME}_record","namespace":"hoodie.{NAME}","fields":['
    '{"name":"id","type":["null","string"],"default":null},'
    '{"name":"p","type":["null","string"],"default":null},'
    '{"name":"ts","type":["null","long"],"default":null},'
    '{"name":"v","type":["null","double"],"default":null}]}'
)

REFUSE_COMMIT: Final = {
    "hoodie.precommit.validators": (
        "org.apache.hudi.client.validator.SqlQuerySingleResultPreCommitValidator"
    ),
    "hoodie.precommit.validators.single.value.sql.queries": "select count(*) from <TABLE_NAME>#-1",
}
"""Refuses every commit once its files are written."""

FOR_ALL: Final = {
    "hoodie.table.name": NAME,
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.partitionpath.field": "p",
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.SimpleKeyGenerator",
    "hoodie.datasource.write.row.writer.enable": "false",
    "hoodie.write.auto.upgrade": "false",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.embed.timeline.server": "false",
    "hoodie.metadata.enable": "false",
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.table.timeline.timezone": "UTC",
    # Inserts make groups of few rows instead of filling up what is there.
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.copyonwrite.insert.auto.split": "false",
    "hoodie.copyonwrite.insert.split.size": "6",
    "hoodie.index.bloom.num_entries": "50",
    # Services run when the walk says so.
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.compact.inline": "false",
    "hoodie.compact.inline.max.delta.commits": "1",
    "hoodie.clustering.inline.max.commits": "1",
    "hoodie.clustering.plan.strategy.small.file.limit": "100000000",
    "hoodie.log.compaction.enable": "true",
    "hoodie.log.compaction.blocks.threshold": "1",
    "hoodie.clean.commits.retained": "2",
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "5",
} | {
    f"hoodie.{what}.parallelism": "2"
    for what in (
        "insert.shuffle", "upsert.shuffle", "bulkinsert.shuffle", "delete.shuffle",
        "finalize.write", "rollback", "cleaner", "markers.delete", "simple.index", "file.listing",
    )
}  # fmt: skip

BUCKETS: Final = {
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "2",
    "hoodie.storage.layout.type": "BUCKET",
    "hoodie.storage.layout.partitioner.class": (
        "org.apache.hudi.table.action.commit.SparkBucketIndexPartitioner"
    ),
}
"""An index under which a group may begin with a log."""

CHANGE_DATA: Final = {
    "hoodie.table.cdc.enabled": "true",
    "hoodie.table.cdc.supplemental.logging.mode": "data_before_after",
}


@dataclass(frozen=True)
class Walk:
    """One walk.

    Attributes:
        name: What it is called.
        seed: Of what it does.
        steps: How many.
        version: The table's version.
        kind: ``COPY_ON_WRITE`` or ``MERGE_ON_READ``.
        options: Of the table's writers, on top of those for all.
        moves: Step → version that the table is moved to.
    """

    name: str
    seed: int
    steps: int
    version: int
    kind: str
    options: Mapping[str, str] = field(default_factory=dict)
    moves: Mapping[int, int] = field(default_factory=dict)
