"""Ordinary Spark jobs of Hudi's that are pointed at our service, and what their tables must hold.

python -m tests.oracle.drop_in RELEASE FOLDER PORT      runs what its stdin says, see ``main``
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

from tests.kit.driver_log import driver_log
from tests.kit.hudi import HUDI, HUDI_0, Hudi, Rows, hudi_session
from tests.kit.walk import AVRO, COPY_ON_WRITE, MERGE_ON_READ, NAME, REFUSE_COMMIT, SCHEMA
from timeline.instant import WRITE_ACTIONS
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage
from timeline.timeline import Timeline

CITIES: Final = ("bern", "köln", "são paulo")


@dataclass(frozen=True, slots=True)
class Kind:
    """What kind of table a job writes, and how.

    Attributes:
        release: Of Hudi.
        table_type: ``COPY_ON_WRITE`` or ``MERGE_ON_READ``.
        version: The table's.
        metadata: Whether Hudi keeps a metadata table.
    """

    release: str
    table_type: str
    version: int
    metadata: bool

    def __str__(self) -> str:
        short = "cow" if self.table_type == COPY_ON_WRITE else "mor"
        return f"{short}{self.version}-{self.release}"


KINDS: Final = (
    Kind(HUDI, COPY_ON_WRITE, 6, metadata=False),
    Kind(HUDI, COPY_ON_WRITE, 9, metadata=True),
    Kind(HUDI, MERGE_ON_READ, 6, metadata=False),
    Kind(HUDI, MERGE_ON_READ, 9, metadata=True),
    Kind(HUDI_0, COPY_ON_WRITE, 6, metadata=False),
    Kind(HUDI_0, MERGE_ON_READ, 6, metadata=True),
)


def pointed_at(port: int, view: str = "REMOTE_ONLY") -> dict[str, str]:
    """Return all that a job is told of the service; the rest is as it was."""
    return {
        "hoodie.embed.timeline.server": "false",
        "hoodie.filesystem.view.type": view,
        "hoodie.filesystem.view.remote.host": "127.0.0.1",
        "hoodie.filesystem.view.remote.port": str(port),
        # Hudi's default, but of releases before 1 that can't have them without their own server.
        "hoodie.write.markers.type": "TIMELINE_SERVER_BASED",
    }


class Job:
    """Writes one table with Hudi's own writer.

    Attributes:
        rows: What the table must hold, by city and id.
    """

    def __init__(self, hudi: Hudi, path: Path, kind: Kind, pointed: dict[str, str]) -> None:
        self.hudi, self.path, self.kind = hudi, path, kind
        self.rows: dict[tuple[str, str], dict[str, Any]] = {}
        self._ts = 0
        self.options = {
            "hoodie.table.name": NAME,
            "hoodie.datasource.write.table.type": kind.table_type,
            "hoodie.write.table.version": str(kind.version),
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.datasource.write.partitionpath.field": "p",
            "hoodie.datasource.write.hive_style_partitioning": "true",
            "hoodie.metadata.enable": str(kind.metadata).lower(),
            "hoodie.write.auto.upgrade": "false",
            "hoodie.clean.commits.retained": "1",
            "hoodie.compact.inline.max.delta.commits": "1",
            "hoodie.clustering.inline.max.commits": "1",
            "hoodie.clustering.plan.strategy.small.file.limit": "100000000",
            **pointed,
        }

    def changed(self, cities: Iterable[str], numbers: Iterable[int]) -> Rows:
        """Return new or changed rows: these numbers in each of the cities."""
        self._ts += 1
        return [
            {"id": f"{city[0]}{number:03}", "p": city, "ts": self._ts, "v": number + self._ts / 8}
            for city in cities
            for number in numbers
        ]

    def write(self, operation: str, rows: Rows, **more: str) -> None:
        """Write rows; ``hoodie_x_y`` is the option ``hoodie.x.y``."""
        options = self.options | {"hoodie.datasource.write.operation": operation}
        options |= {name.replace("_", "."): value for name, value in more.items()}
        self.hudi.write(pa.Table.from_pylist(rows, SCHEMA), self.path, options)
        keyed = {(row["p"], row["id"]): row for row in rows}
        if operation == "insert_overwrite":
            gone = {city for city, _ in keyed}
            self.rows = {key: row for key, row in self.rows.items() if key[0] not in gone}
        if operation == "delete":
            self.rows = {key: row for key, row in self.rows.items() if key not in keyed}
        else:
            self.rows |= keyed

    def fail(self, rows: Rows) -> None:
        """Upsert, and be refused once all files are written: the instant stays pending."""
        refused = {name.replace(".", "_"): value for name, value in REFUSE_COMMIT.items()}
        held = dict(self.rows)
        try:
            self.write("upsert", rows, **refused)
        except (Py4JJavaError, CapturedException):
            self.rows = held
            return
        raise AssertionError("the commit was to be refused")

    def undo(self, rows: Rows) -> None:
        """Upsert, and roll that back."""
        held = dict(self.rows)
        self.write("upsert", rows, hoodie_clean_automatic="false")
        last = [i for i in self.timeline() if i.is_completed and i.action in WRITE_ACTIONS][-1]
        spark: Any = self.hudi.spark
        client = self.hudi.jvm.org.apache.hudi.DataSourceUtils.createHoodieClient(
            spark._jsc, AVRO, str(self.path), NAME, self.options
        )
        try:
            assert client.rollback(last.requested_time)
        finally:
            client.close()
        self.rows = held

    def timeline(self) -> Timeline:
        """Return the active timeline."""
        return TableMetaClient.open(LocalStorage(str(self.path))).active_timeline()

    def check(self) -> None:
        """Read the table with Hudi; it must hold what it must."""
        expected = sorted(self.rows.values(), key=lambda row: row["id"])
        assert self.hudi.read(self.path) == expected

    def actions(self) -> set[str]:
        """Return the actions that are completed on the timeline."""
        return {instant.action for instant in self.timeline() if instant.is_completed}


def whole_life(job: Job) -> list[Callable[[], None]]:
    """Return the steps of a table's life: all that an ordinary job does to a table."""
    clustered = {"hoodie_clustering_inline": "true"}
    compacted = {"hoodie_compact_inline": "true"} if job.kind.table_type == MERGE_ON_READ else {}
    both = CITIES[:2]
    return [
        lambda: job.write("bulk_insert", job.changed(CITIES, range(8))),
        lambda: job.write("upsert", job.changed(both, range(4, 12))),
        lambda: job.write("delete", job.changed(CITIES[1:], range(2, 5))),
        lambda: job.write("upsert", job.changed(CITIES, range(3, 6)), **compacted),
        lambda: job.write("insert_overwrite", job.changed(CITIES[:1], range(5))),
        lambda: job.fail(job.changed(CITIES, range(20))),
        lambda: job.write("upsert", job.changed(both, range(3)), **clustered),
        lambda: job.undo(job.changed(CITIES, range(6, 9))),
        lambda: job.write("upsert", job.changed(CITIES, range(1, 3)), **compacted),
    ]
