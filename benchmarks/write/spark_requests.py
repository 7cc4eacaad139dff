"""Daily upserts on Spark to an S3 API server: by this package, and by Hudi 1.2.0 through S3A."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq

from benchmarks.object_store.delay import Proxy
from benchmarks.write.request_count import OPTIONS, DailyUpserts, Ours, day, make_bucket
from benchmarks.write.spark_session import s3_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OURS: Final = "ours on Spark"
HUDI: Final = "Hudi 1.2.0"
HUDI_METADATA: Final = "Hudi 1.2.0, metadata table"


class _OnSpark:
    """Rows of a local Parquet file, which cost the store no request."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self.session = session
        self._folder = folder

    def rows(self, number: int) -> DataFrame:
        """Return a day's rows."""
        path = self._folder / f"{number}.parquet"
        if not path.exists():
            pq.write_table(day(number), path)
        return self.session.read.parquet(path.as_uri())


class OursOnSpark(Ours):
    """Daily upserts of frames by a client of this package."""

    def __init__(self, proxy: Proxy, bucket: str, source: _OnSpark, *, service: bool) -> None:
        super().__init__(proxy, bucket, service=service, name=OURS, engine=source.session)
        self._source = source

    def _rows(self, number: int) -> object:
        return self._source.rows(number)


class Hudi(DailyUpserts):
    """Daily upserts by Hudi's data source."""

    def __init__(self, proxy: Proxy, bucket: str, source: _OnSpark, *, metadata: bool) -> None:
        super().__init__(HUDI_METADATA if metadata else HUDI, proxy)
        self._source = source
        self._path = f"s3a://{bucket}/t"
        self._options = {
            **OPTIONS,
            "hoodie.datasource.write.operation": "upsert",
            "hoodie.datasource.write.precombine.field": OPTIONS["hoodie.table.ordering.fields"],
            "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING",
            "hoodie.metadata.enable": str(metadata).lower(),
        }

    def _rows(self, number: int) -> object:
        return self._source.rows(number)

    def _upsert(self, rows: DataFrame) -> None:  # type: ignore[override]  # of this side's rows
        rows.write.format("hudi").options(**self._options).mode("append").save(self._path)


def spark_sides(proxy: Proxy, folder: Path, endpoint: str) -> list[DailyUpserts]:
    """Return the sides on one Spark session, each with a bucket of its own.

    Args:
        proxy: The proxy in front of the store.
        folder: For the rows' files.
        endpoint: The store, for making buckets.
    """
    source = _OnSpark(s3_session(proxy.endpoint), folder)
    return [
        *(
            OursOnSpark(
                proxy, make_bucket(endpoint, f"spark-{service}".lower()), source, service=service
            )
            for service in (True, False)
        ),
        *(
            Hudi(proxy, make_bucket(endpoint, f"hudi-{on}".lower()), source, metadata=on)
            for on in (False, True)
        ),
    ]
