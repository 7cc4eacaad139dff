"""Ordinary Spark jobs of Hudi's that are pointed at our service, and what their tables must hold.

python -m tests.oracle.drop_in.jobs live RELEASE LAKE PORT LOG    whole lives of a release's tables
python -m tests.oracle.drop_in.jobs beside RELEASE LAKE PORT LOG  the second of two jobs at a time
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tests.oracle.driver_log import driver_log
from tests.oracle.hudi import HUDI, HUDI_0, Hudi, Rows, hudi_session
from tests.oracle.view.walk import AVRO, COPY_ON_WRITE, MERGE_ON_READ, NAME, REFUSE_COMMIT, SCHEMA
from timeline.instant import WRITE_ACTIONS
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage
from timeline.timeline import Timeline

CITIES: Final = ("bern", "köln", "são paulo")
RETRYING: Final = {
    "hoodie.filesystem.view.remote.retry.enable": "true",
    "hoodie.filesystem.view.remote.retry.max_numbers": "20",
}
"""Options with which a job asks again what a server that died didn't answer."""


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


def pointed_at(port: int, *, markers: str = "TIMELINE_SERVER_BASED") -> dict[str, str]:
    """Return the options that a job needs to use the service."""
    return {
        "hoodie.embed.timeline.server": "false",
        "hoodie.filesystem.view.type": "REMOTE_ONLY",
        "hoodie.filesystem.view.remote.host": "127.0.0.1",
        "hoodie.filesystem.view.remote.port": str(port),
        "hoodie.write.markers.type": markers,
    }


def markers_of(release: str) -> str:
    """Return the kind of markers that a release can have with a service that isn't its own."""
    return "TIMELINE_SERVER_BASED" if release.startswith("1.") else "DIRECT"


def locked(path: Path) -> dict[str, str]:
    """Return the options of each of several writers of the table at ``path``."""
    return {
        "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
        "hoodie.cleaner.policy.failed.writes": "LAZY",
        "hoodie.write.lock.provider": (
            "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
        ),
        "hoodie.write.lock.filesystem.path": str(path.with_name(f"{path.name}.lock")),
    }


def rows_at(ts: int, cities: Iterable[str], numbers: Iterable[int]) -> Rows:
    """Return rows of one time: these numbers in each of the cities."""
    numbers = tuple(numbers)
    return [
        {"id": f"{city[0]}{number:03}", "p": city, "ts": ts, "v": number + ts / 8}
        for city in cities
        for number in numbers
    ]


def keyed(rows: Rows) -> dict[tuple[str, str], dict[str, Any]]:
    """Return rows by city and id."""
    return {(row["p"], row["id"]): row for row in rows}


def java_errors() -> tuple[type[Exception], ...]:
    """Return how a failure of Hudi's comes; PySpark isn't there where tests are only collected."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors.exceptions.captured import CapturedException

    return Py4JJavaError, CapturedException


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
            # By the names that both releases know.
            "hoodie.cleaner.commits.retained": "1",
            "hoodie.compact.inline.max.delta.commits": "1",
            "hoodie.clustering.inline.max.commits": "1",
            "hoodie.clustering.plan.strategy.small.file.limit": "100000000",
            **pointed,
        }
        if not hudi.is_1:
            self.options["hoodie.datasource.write.payload.class"] = (
                "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"
            )

    def changed(self, cities: Iterable[str], numbers: Iterable[int]) -> Rows:
        """Return new or changed rows, later than all before."""
        self._ts += 1
        return rows_at(self._ts, cities, numbers)

    def write(self, operation: str, rows: Rows, **more: str) -> None:
        """Write rows; ``hoodie_x_y`` is the option ``hoodie.x.y``."""
        options = self.options | {"hoodie.datasource.write.operation": operation}
        options |= {name.replace("_", "."): value for name, value in more.items()}
        self.hudi.write(pa.Table.from_pylist(rows, SCHEMA), self.path, options)
        new = keyed(rows)
        if operation == "insert_overwrite":
            gone = {city for city, _ in new}
            self.rows = {key: row for key, row in self.rows.items() if key[0] not in gone}
        if operation == "delete":
            self.rows = {key: row for key, row in self.rows.items() if key not in new}
        else:
            self.rows |= new

    def fail(self, rows: Rows) -> None:
        """Upsert, and be refused once all files are written: the instant stays pending."""
        refused = {name.replace(".", "_"): value for name, value in REFUSE_COMMIT.items()}
        held = dict(self.rows)
        try:
            self.write("upsert", rows, **refused)
        except java_errors():
            self.rows = held
            return
        raise AssertionError("the commit was to be refused")

    def undo(self, rows: Rows) -> None:
        """Upsert, and roll that back."""
        held = dict(self.rows)
        # Nothing may come behind it that would be the last.
        services = {"hoodie_clean_automatic": "false", "hoodie_compact_inline": "false"}
        self.write("upsert", rows, **services)
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
        found = self.hudi.read(self.path)
        assert found == expected, f"{self.kind}: holds {found}, not {expected}"

    def actions(self) -> set[str]:
        """Return the actions that are completed on the timeline."""
        return {instant.action for instant in self.timeline() if instant.is_completed}

    def live(self) -> None:
        """Do all that an ordinary job does to a table; look at it after each step."""
        for step in whole_life(self):
            step()
            self.check()
        assert self.actions() >= {"clean", "rollback", "replacecommit", "commit"}


def whole_life(job: Job) -> list[Callable[[], None]]:
    """Return the steps of a table's life."""
    merge_on_read = job.kind.table_type == MERGE_ON_READ
    compacted = {"hoodie_compact_inline": "true"} if merge_on_read else {}
    clustered = {"hoodie_clustering_inline": "true"}
    some = CITIES[:2]
    return [
        lambda: job.write("bulk_insert", job.changed(CITIES, range(8))),
        lambda: job.write("upsert", job.changed(some, range(4, 12))),
        lambda: job.write("delete", job.changed(CITIES[1:], range(2, 5))),
        lambda: job.write("upsert", job.changed(CITIES, range(3, 6)), **compacted),
        lambda: job.write("insert_overwrite", job.changed(CITIES[:1], range(5))),
        lambda: job.fail(job.changed(CITIES, range(20))),
        # Rolls back what failed, and clusters.
        lambda: job.write("upsert", job.changed(some, range(3)), **clustered),
        lambda: job.undo(job.changed(CITIES, range(6, 9))),
        lambda: job.write("upsert", job.changed(CITIES, range(1, 3)), **compacted),
    ]


BESIDE: Final = (KINDS[0], KINDS[3])
"""The kinds of tables that two jobs write at a time."""

ROUNDS: Final = 2
"""How often each of the two writes."""

QUIET: Final = {"hoodie_clean_automatic": "false", "hoodie_compact_inline": "false"}
"""Writes with nothing behind them."""


def written_beside(city: str) -> list[Rows]:
    """Return what one of two jobs writes, round by round: rows of a city of its own."""
    return [rows_at(10 + n, (city,), range(4 * n, 4 * n + 8)) for n in range(ROUNDS)]


def write_beside(job: Job, city: str, **options: str) -> None:
    """Be one of two jobs that write a table at a time."""
    for rows in written_beside(city):
        job.write("upsert", rows, **options)


def main(what: str, release: str, lake: str, port: str, log: str) -> None:
    """Run a job in a process of its own."""
    pointed = pointed_at(int(port), markers=markers_of(release))
    with (
        tempfile.TemporaryDirectory() as warehouse,
        hudi_session(warehouse, release) as hudi,
        driver_log(hudi, Path(log)),
    ):
        for kind in KINDS if what == "live" else BESIDE:
            if kind.release != release:
                continue
            path = Path(lake) / str(kind)
            if what == "live":
                Job(hudi, path, kind, pointed).live()
            else:
                job = Job(hudi, path, kind, pointed | locked(path))
                write_beside(job, CITIES[1], **QUIET)


if __name__ == "__main__":
    main(*sys.argv[1:])
