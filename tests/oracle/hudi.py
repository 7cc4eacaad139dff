"""Real Hudi on Spark, for ``-m oracle``: Spark fetches its bundle, reads come back as plain rows.

A process has one session, so one release of Hudi. ``python -m tests.oracle.hudi RELEASE`` only
fetches a release, so that no two processes do at once, and a download that fails is one error.

``STRANDLINE_IVY_DIR`` says where the downloads are kept; without it they go to Ivy's own cache.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from demo.spark import start_session
from strandline.records.meta_fields import META_FIELDS
from tests.kit.tables.row_text import with_dicts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HUDI = "1.2.0"
HUDI_0 = "0.15.0"
BUNDLE = "org.apache.hudi:hudi-spark3.5-bundle_2.12"

Rows = list[dict[str, Any]]


def plain(value: Any) -> Any:
    """Return a value in a form common to both sides: times in UTC, structs and maps as dicts."""
    if isinstance(value, datetime):
        # Spark hands out the machine's local time, without saying so.
        return value.astimezone(timezone.utc)
    if isinstance(value, bytearray):
        return bytes(value)
    if hasattr(value, "asDict"):
        return {name: plain(item) for name, item in value.asDict().items()}
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        pairs = all(isinstance(item, tuple) and not hasattr(item, "asDict") for item in value)
        if value and pairs:
            return {name: plain(item) for name, item in value}  # pyarrow's way to say a map
        return [plain(item) for item in value]
    return value


def rows_of(table: pa.Table, *, by: str = "id") -> Rows:
    """Return an Arrow table's rows without Hudi's meta columns, in order of ``by``."""
    kept = [name for name in table.column_names if name not in META_FIELDS]
    rows = [
        {name: plain(value) for name, value in row.items()}
        for row in table.select(kept).to_pylist()
    ]
    return sorted(rows, key=lambda row: row[by])


@dataclass(frozen=True, slots=True)
class Hudi:
    """A Spark session with Hudi's extensions, and the release of Hudi in it."""

    spark: SparkSession
    release: str = HUDI

    @property
    def is_1(self) -> bool:
        """Whether this is a release 1.x."""
        return self.release.startswith("1.")

    @property
    def jvm(self) -> Any:
        """The JVM's packages."""
        return self.spark._jvm

    @property
    def storage_conf(self) -> Any:
        """A ``StorageConfiguration`` of Hudi's."""
        hadoop = self.spark._jsc.hadoopConfiguration()
        return self.jvm.org.apache.hudi.hadoop.fs.HadoopFSUtils.getStorageConf(hadoop)

    def read(self, path: object, *, by: str = "id", **options: str) -> Rows:
        """Return what a query of Hudi's gives, without meta columns, in order of ``by``.

        Args:
            path: The table's base path.
            by: Column to sort by.
            **options: Of Hudi's data source, ``_`` for ``.``: ``as_of_instant``.
        """
        return self.rows(self.frame(path, **options), by=by)

    def frame(self, path: object, **options: str) -> DataFrame:
        """Return a query of Hudi's; ``hoodie_x_y`` is the option ``hoodie.x.y``."""
        reader = self.spark.read.format("hudi").option("hoodie.metadata.enable", "false")
        for name, value in options.items():
            reader = reader.option(name.replace("_", "."), value)
        return reader.load(str(path))

    def rows(self, frame: DataFrame, *, by: str = "id") -> Rows:
        """Return a frame's rows without meta columns, in order of ``by``."""
        kept = [name for name in frame.columns if name not in META_FIELDS]
        found = (plain(row) for row in frame.select(kept).collect())
        return sorted(found, key=lambda row: row[by])

    def incremental(self, path: object, *, after: str, by: str = "id") -> Rows:
        """Return the rows that commits after ``after`` wrote."""
        reader = self.spark.read.format("hudi").options(
            **{
                "hoodie.datasource.query.type": "incremental",
                "hoodie.datasource.read.begin.instanttime": after,
                "hoodie.metadata.enable": "false",
            }
        )
        return self.rows(reader.load(str(path)), by=by)

    def write(
        self,
        data: pa.Table,
        path: object,
        options: Mapping[str, str],
        *,
        partitions: int | None = None,
        change: Callable[[DataFrame], DataFrame] = lambda frame: frame,
    ) -> None:
        """Write rows with Hudi's own writer, without a metadata table.

        Args:
            data: The rows.
            path: The table's base path.
            options: Hudi's options.
            partitions: Number of the frame's partitions; with 1, Hudi sees the rows in order.
            change: Returns the frame that is written, made of that of the rows.
        """
        from pyspark.sql.pandas.types import from_arrow_schema

        rows = [
            tuple(with_dicts(row[field.name], field.type) for field in data.schema)
            for row in data.to_pylist()
        ]
        frame = self.spark.createDataFrame(rows, from_arrow_schema(data.schema))
        if partitions is not None:
            frame = frame.coalesce(partitions)
        writer = (
            change(frame)
            .write.format("hudi")
            .options(
                **{
                    "hoodie.metadata.enable": "false",
                    "hoodie.upsert.shuffle.parallelism": "2",
                    "hoodie.insert.shuffle.parallelism": "2",
                    "hoodie.bulkinsert.shuffle.parallelism": "2",
                    "hoodie.delete.shuffle.parallelism": "2",
                    **options,
                }
            )
        )
        writer.mode("append").save(str(path))

    def call(self, statement: str) -> Rows:
        """Run one of Hudi's procedures."""
        return [plain(row) for row in self.spark.sql(statement).collect()]


@contextmanager
def hudi_session(
    warehouse: object, release: str = HUDI, master: str = "local[2]"
) -> Iterator[Hudi]:
    """Start Spark with Hudi's bundle; whatever is missing for it is an error, never a skip."""
    conf = {
        "spark.jars.packages": f"{BUNDLE}:{release}",
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.sql.warehouse.dir": str(warehouse),
    }
    if ivy := os.environ.get("STRANDLINE_IVY_DIR"):
        conf["spark.jars.ivy"] = ivy
    spark = start_session("strandline-oracle", master, conf)
    try:
        yield Hudi(spark, release)
    finally:
        spark.stop()


def merged(rows: Iterable[Mapping[str, Any]], changes: Iterable[Mapping[str, Any]]) -> Rows:
    """Return ``rows`` after an upsert of ``changes``, by ``id`` and ``ts``: the truth for both."""
    newest = {row["id"]: dict(row) for row in rows}
    for change in changes:
        held = newest.get(change["id"])
        if held is None or change["ts"] >= held["ts"]:
            newest[change["id"]] = dict(change)
    return sorted(newest.values(), key=lambda row: row["id"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, hudi_session(folder, sys.argv[1]):
        pass
