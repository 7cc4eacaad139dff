"""Tables that both writers write in turns: forms, columns, and each writer's options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from strandline.records.meta_fields import IS_DELETED
from timeline.instant import COMMIT as COMMIT_ACTION
from timeline.instant import DELTA_COMMIT, REPLACE_COMMIT
from timeline.table.property_name import COPY_ON_WRITE, MERGE_ON_READ

OURS: Final = "ours"
THEIRS: Final = "hudi"

SIMPLE: Final = "Simple"
COMPLEX: Final = "Complex"
NON_PARTITIONED: Final = "Nonpartitioned"

EVENT: Final = "EVENT_TIME_ORDERING"
COMMIT: Final = "COMMIT_TIME_ORDERING"
DEFAULT: Final = "default"
"""The merge mode of a table that Hudi makes without being told one."""

NAME: Final = "turns"
SCHEMA: Final = pa.schema(
    [
        ("id", pa.string()),
        ("sub", pa.int32()),
        ("p", pa.string()),
        ("q", pa.string()),
        ("ts", pa.int64()),
        ("v", pa.string()),
        (IS_DELETED, pa.bool_()),
    ]
)
AVRO: Final = (
    f'{{"type":"record","name":"{NAME}_record","namespace":"hoodie.{NAME}","fields":['
    + ",".join(
        f'{{"name":"{name}","type":["null","{kind}"],"default":null}}'
        for name, kind in (
            *(("id", "string"), ("sub", "int"), ("p", "string"), ("q", "string")),
            *(("ts", "long"), ("v", "string"), (IS_DELETED, "boolean")),
        )
    )
    + "]}"
)
"""The schema of Hudi's write client."""

_LOCKS: Final = "org.apache.hudi.client.transaction.lock."
PAYLOADS: Final = {
    EVENT: "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
    COMMIT: "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload",
}
INDEXES: Final = ("SIMPLE", "BLOOM")
BUCKET: Final = "BUCKET"
GLOBAL: Final = ("GLOBAL_SIMPLE", "GLOBAL_BLOOM")
SMALL_FILES: Final = {False: "0", True: "30000"}
"""Whether inserts fill small files → ``hoodie.parquet.small.file.limit``."""
RETAINED: Final = 3
"""Number of commits that cleans keep readable."""
ARCHIVED_FROM: Final = RETAINED + 2
"""Number of commits above which an archival archives some, if a clean has come before."""


@dataclass(frozen=True, slots=True)
class TableForm:
    """What is fixed for a table.

    Attributes:
        version: The table's version.
        generator: ``SIMPLE``: id in partition p; ``COMPLEX``: id and sub in p/q;
            ``NON_PARTITIONED``: id.
        mode: ``EVENT``, ``COMMIT`` or ``DEFAULT``.
        maker: Whose first write makes it.
        hive_style: Whether paths are ``p=value``, with values percent-encoded.
        lazy: Whether the clean rolls failed writes back, not the next write.
        locked: Whether both take the lock file of ``FileSystemBasedLockProvider``.
        metadata: Whether Hudi's writes build its metadata table at times.
        index: The index of all writes; empty: each write has one of ``INDEXES``.
        has_logs: Whether it is merge-on-read; some of Hudi's writes compact it then.
    """

    version: int
    generator: str
    mode: str
    maker: str = THEIRS
    hive_style: bool = False
    lazy: bool = False
    locked: bool = False
    metadata: bool = False
    index: str = ""
    has_logs: bool = False

    @property
    def actions(self) -> tuple[str, str]:
        """Actions of the instants of writes, overwrites among them."""
        return (DELTA_COMMIT if self.has_logs else COMMIT_ACTION), REPLACE_COMMIT

    @property
    def identity(self) -> tuple[str, ...]:
        """Columns that identify a row: a global index finds a key in all partitions."""
        return self.key_fields + (() if self.is_global else self.partition_fields)

    def partition_of(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the values of a row's partition."""
        return tuple(row[name] for name in self.partition_fields)

    def path_of(self, row: Mapping[str, Any]) -> str:
        """Return the path of a row's partition."""
        if not self.hive_style:
            return "/".join(self.partition_of(row))
        values = [_encoded(value) for value in self.partition_of(row)]
        return "/".join(map("{}={}".format, self.partition_fields, values))

    @property
    def is_global(self) -> bool:
        """Whether a key is stored in one partition only."""
        return self.index in GLOBAL

    @property
    def key_fields(self) -> tuple[str, ...]:
        """Columns of the record key."""
        return ("id", "sub") if self.generator == COMPLEX else ("id",)

    @property
    def partition_fields(self) -> tuple[str, ...]:
        """Columns of the partition path."""
        return {SIMPLE: ("p",), COMPLEX: ("p", "q"), NON_PARTITIONED: ()}[self.generator]

    def rows_merge_by(self, release: str) -> str:
        """Return the table's merge mode.

        Hudi 0.15.0 writes with ``OverwriteWithLatestAvroPayload`` by default, which doesn't compare
        a row with the stored one; 1.2.0 orders by event time if there is an ordering column.
        """
        if self.mode == DEFAULT:
            return COMMIT if release.startswith("0.") else EVENT
        return self.mode

    def our_options(self, release: str, *, small: bool, index: str) -> dict[str, str]:
        """Return the options of our writer beside a release of Hudi.

        ``small``: whether inserts fill small files; ``index``: one of ``INDEXES``. A copy-on-write
        table of Hudi 0.15.0 names no merge mode, so the mode must be set; 1.2.0's does, and any
        mode set must be the same.
        """
        mode = {"hoodie.write.record.merge.mode": self.rows_merge_by(release)}
        common = self._common(small=small, index=index)
        return common | mode | {"hoodie.table.ordering.fields": "ts"}

    def hudi_options(self, *, small: bool, index: str, release: str) -> dict[str, str]:
        """Return the options of Hudi's writer; arguments as of ``our_options``."""
        mode = {}
        if self.mode != DEFAULT:
            mode["hoodie.write.record.merge.mode"] = self.mode
            if release.startswith("0."):
                mode = {"hoodie.datasource.write.payload.class": PAYLOADS[self.mode]}
        return {
            **self._common(small=small, index=index),
            **mode,
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.write.auto.upgrade": "false",
            "hoodie.datasource.write.row.writer.enable": "false",
            "hoodie.metadata.index.column.stats.enable": "false",
        } | {f"hoodie.{what}.parallelism": "1" for what in _SERIAL}

    def _common(self, *, small: bool, index: str) -> dict[str, str]:
        options = {
            "hoodie.table.name": NAME,
            "hoodie.datasource.write.table.type": MERGE_ON_READ if self.has_logs else COPY_ON_WRITE,
            "hoodie.write.table.version": str(self.version),
            "hoodie.datasource.write.recordkey.field": ",".join(self.key_fields),
            "hoodie.datasource.write.partitionpath.field": ",".join(self.partition_fields),
            "hoodie.datasource.write.keygenerator.class": (
                f"org.apache.hudi.keygen.{self.generator}KeyGenerator"
            ),
            "hoodie.datasource.write.hive_style_partitioning": str(self.hive_style).lower(),
            "hoodie.datasource.write.partitionpath.urlencode": str(self.hive_style).lower(),
            "hoodie.table.timeline.timezone": "UTC",
            "hoodie.metadata.enable": "false",
            "hoodie.embed.timeline.server": "false",
            "hoodie.write.markers.type": "DIRECT",
            "hoodie.clean.automatic": "false",
            "hoodie.clean.commits.retained": str(RETAINED),
            "hoodie.cleaner.commits.retained": str(RETAINED),
            "hoodie.cleaner.policy.failed.writes": "LAZY" if self.lazy else "EAGER",
            # Several small file groups in each partition.
            "hoodie.parquet.small.file.limit": SMALL_FILES[small],
            "hoodie.parquet.max.file.size": "30000" if small else "12000",
            "hoodie.copyonwrite.record.size.estimate": "1000",
            "hoodie.index.bloom.num_entries": "50",
            "hoodie.index.type": self.index or index,
            "hoodie.compact.inline": "false",
            "hoodie.archive.automatic": "false",
            "hoodie.keep.min.commits": str(RETAINED + 1),
            "hoodie.keep.max.commits": str(ARCHIVED_FROM),
        }
        if options["hoodie.index.type"] == BUCKET:
            options["hoodie.bucket.index.num.buckets"] = "3"
        if self.locked:
            options |= {
                "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
                "hoodie.write.lock.provider": _LOCKS + "FileSystemBasedLockProvider",
                "hoodie.time.generator.max_expected_clock_skew_ms": "2",
            }
        return options


def _encoded(value: str) -> str:
    """Return a partition's value as it is in a path, of the characters that these walks have."""
    return value.replace("%", "%25").replace("/", "%2F").replace("=", "%3D")


_SERIAL: Final = (
    *("insert.shuffle", "upsert.shuffle", "bulkinsert.shuffle", "delete.shuffle"),
    *("finalize.write", "rollback", "cleaner", "markers.delete", "simple.index", "bloom.index"),
    "file.listing",
)
"""What Hudi does in one task, so that it sees the rows of a write in their order."""


@dataclass(frozen=True, slots=True)
class Walk:
    """One walk: its name, the seed of all that is drawn, its number of steps, and its table."""

    name: str
    seed: int
    steps: int
    form: TableForm
