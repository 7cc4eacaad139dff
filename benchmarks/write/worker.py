"""The process of one side: writes tables as its parent asks.

``python -m benchmarks.write.worker SIDE`` reads a line of JSON for each order and answers each with
a line that begins with ``ANSWER``. Orders: ``open`` a table (``TableSpec``), ``write`` a file of
rows into it, ``stream`` a folder of such files into it, ``compact`` it, ``digest`` it, ``close``
it. Several may be open.
"""

from __future__ import annotations

import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.write.data import ID, ORDERING, PARTITION
from benchmarks.write.fresh_job import ANSWER
from benchmarks.write.spark_session import (
    compaction_call,
    completed_tasks,
    hudi_session,
    plain_session,
)
from strandline import LocalEngine, Table, WriteClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table to be written.

    Attributes:
        path: Its folder, which doesn't exist yet.
        codec: Compression of the data files.
        bloom: Whether data files have Bloom filters of the keys; deltalake writes none.
        options: More options of Hudi's form.
    """

    path: str
    codec: str
    bloom: bool
    options: Mapping[str, str]

    def hudi_options(self) -> dict[str, str]:
        """Return the options that this package and Hudi have in common."""
        return {
            "hoodie.table.name": "t",
            "hoodie.datasource.write.recordkey.field": ID,
            "hoodie.datasource.write.partitionpath.field": PARTITION,
            "hoodie.datasource.write.precombine.field": ORDERING,
            "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING",
            "hoodie.metadata.enable": "false",
            "hoodie.parquet.compression.codec": self.codec,
            "hoodie.parquet.bloom.filter.enabled": str(self.bloom).lower(),
            **self.options,
        }


class Side(ABC):
    """Writes one table in one way."""

    def __init__(self, spec: TableSpec, session: SparkSession | None = None) -> None:
        self.spec = spec
        self._session = session

    @abstractmethod
    def write(self, rows: str, *, first: bool) -> None:
        """Write a file of rows: a bulk insert into a new table, or an upsert."""

    def compact(self) -> None:
        """Compact a merge-on-read table, which not every side has."""
        raise NotImplementedError(f"{type(self).__name__} doesn't compact")

    def stream(self, rows: str, checkpoint: str) -> None:
        """Write the files of a folder by a stream, each as a batch, which not every side can."""
        raise NotImplementedError(f"{type(self).__name__} has no streams")

    def close(self) -> None:  # noqa: B027 - most sides hold nothing open
        """Release the table."""

    def tasks(self) -> int:
        """Return how many tasks Spark has completed so far; 0 without Spark."""
        return 0 if self._session is None else completed_tasks(self._session)

    def digest(self) -> dict[str, int]:
        """Return the table's number of rows, and its ``ts`` added."""
        times = Table(self.spec.path).to_arrow([ORDERING])[ORDERING]
        return {"rows": len(times), "ts": pc.sum(times).as_py() or 0}


class Local(Side):
    """This package without Spark."""

    _client: WriteClient | None = None

    def write(self, rows: str, *, first: bool) -> None:
        """Write; the client is made for the first rows, and stays."""
        self._write(pq.read_table(rows), first=first)

    def _engine(self) -> object:
        return LocalEngine()

    def _write(self, rows: object, *, first: bool) -> None:
        if self._client is None:
            self._client = WriteClient(self._engine(), self.spec.path, self.spec.hudi_options())
        (self._client.bulk_insert if first else self._client.upsert)(rows)

    def compact(self) -> None:
        """Plan a compaction and execute it."""
        assert self._client is not None
        self._client.compact()

    def close(self) -> None:
        """Close the client."""
        if self._client is not None:
            self._client.close()
        self._client = None


class OnSpark(Local):
    """This package on Spark."""

    def write(self, rows: str, *, first: bool) -> None:
        """Write; the executors read the rows."""
        assert self._session is not None
        self._write(self._session.read.parquet(rows), first=first)

    def stream(self, rows: str, checkpoint: str) -> None:
        """Write by ``strandline.stream``."""
        assert self._session is not None
        # Only sides with a session have PySpark.
        from strandline.stream import write  # noqa: PLC0415

        frame = batches(self._session, rows)
        options = self.spec.hudi_options()
        trigger = {"availableNow": True}
        query = write(frame, self.spec.path, options, checkpoint=checkpoint, trigger=trigger)
        query.awaitTermination()

    def _engine(self) -> object:
        return self._session


class Hudi(Side):
    """Hudi's own writer, by its data source."""

    def write(self, rows: str, *, first: bool) -> None:
        """Write."""
        assert self._session is not None
        writer = self._session.read.parquet(rows).write.format("hudi")
        operation = "bulk_insert" if first else "upsert"
        options = {"hoodie.datasource.write.operation": operation, **self.spec.hudi_options()}
        writer.options(**options).mode("append").save(self.spec.path)

    def stream(self, rows: str, checkpoint: str) -> None:
        """Write by Hudi's sink."""
        assert self._session is not None
        writer = batches(self._session, rows).writeStream.format("hudi").outputMode("append")
        writer.options(**self.spec.hudi_options(), checkpointLocation=checkpoint)
        writer.trigger(availableNow=True).start(self.spec.path).awaitTermination()

    def compact(self) -> None:
        """Plan a compaction and execute it, by Hudi's procedure."""
        assert self._session is not None
        self._session.sql(compaction_call(self.spec.path)).collect()


def batches(session: SparkSession, rows: str) -> DataFrame:
    """Return a stream of the Parquet files of a folder, from the oldest, a batch each."""
    schema = session.read.parquet(rows).schema
    return session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(rows)


class Delta(Side):
    """deltalake, with a predicate on the partitions that the rows are in."""

    def write(self, rows: str, *, first: bool) -> None:
        """Write."""
        # Only this side needs the package.
        from deltalake import DeltaTable, WriterProperties, write_deltalake  # noqa: PLC0415

        table = self._read(rows)
        properties = WriterProperties(compression=self.spec.codec.upper())
        if first:
            write_deltalake(
                self.spec.path, table, partition_by=[PARTITION], writer_properties=properties
            )
            return
        parts = ", ".join(f"'{each}'" for each in pc.unique(table[PARTITION]).to_pylist())
        same = f"t.{PARTITION} IN ({parts}) AND t.{PARTITION} = s.{PARTITION} AND t.{ID} = s.{ID}"
        merge = DeltaTable(self.spec.path).merge(
            table, same, source_alias="s", target_alias="t", writer_properties=properties
        )
        newer = f"s.{ORDERING} >= t.{ORDERING}"
        merge.when_matched_update_all(newer).when_not_matched_insert_all().execute()

    def _read(self, rows: str) -> pa.Table:
        return pq.read_table(rows)

    def digest(self) -> dict[str, int]:
        """Return the number of rows, and their ``ts`` added."""
        from deltalake import DeltaTable  # noqa: PLC0415 - as above

        times = DeltaTable(self.spec.path).to_pyarrow_table(columns=[ORDERING])[ORDERING]
        return {"rows": len(times), "ts": pc.sum(times).as_py() or 0}


class DeltaWithMeta(Delta):
    """deltalake, with tables that have Hudi's five meta columns, too."""

    _commits = 0

    def _read(self, rows: str) -> pa.Table:
        self._commits += 1
        return with_meta_columns(pq.read_table(rows), self._commits)


def with_meta_columns(rows: pa.Table, number: int) -> pa.Table:
    """Return rows with columns like Hudi's meta columns of a commit."""
    count, time_ = rows.num_rows, f"{20240101000000000 + number}"
    columns = {
        "_hoodie_commit_time": pa.array([time_] * count),
        "_hoodie_commit_seqno": pa.array([f"{time_}_0_{each}" for each in range(count)]),
        "_hoodie_record_key": rows[ID],
        "_hoodie_partition_path": rows[PARTITION],
        "_hoodie_file_name": pa.array(
            [f"6e5ab4f6-0000-0000-0000-000000000000-0_0_{time_}"] * count
        ),
    }
    return pa.table({**columns, **dict(zip(rows.column_names, rows.columns, strict=True))})


def sides(name: str, conf: Mapping[str, str]) -> Callable[[TableSpec], Side]:
    """Return what makes sides of a kind, which share one Spark session with settings ``conf``."""
    if name == "local-no-fsync":
        # What fsync costs is the difference to the side that calls it.
        os.fsync = lambda _: None  # type: ignore[assignment]
    kinds: Mapping[str, type[Side]] = {
        "spark": OnSpark,
        "local": Local,
        "local-no-fsync": Local,
        "hudi": Hudi,
        "delta": Delta,
        "delta-meta": DeltaWithMeta,
    }
    sessions = {"spark": plain_session, "hudi": hudi_session}
    session = sessions[name](conf) if name in sessions else None
    return lambda spec: kinds[name](spec, session)


@dataclass(frozen=True, slots=True)
class Orders:
    """Carries out orders.

    Attributes:
        make: Makes the side of a new table.
        open: Path of each open table → its side.
    """

    make: Callable[[TableSpec], Side]
    open: dict[str, Side] = field(default_factory=dict)

    def answer(self, order: Mapping[str, Any]) -> Mapping[str, Any]:
        """Carry out an order; return what it gives."""
        if order["do"] == "open":
            spec = TableSpec(**order["spec"])
            self.open[spec.path] = self.make(spec)
            return {}
        if order["do"] == "close":
            self.open.pop(order["table"]).close()
            return {}
        side = self.open[order["table"]]
        if order["do"] == "digest":
            return side.digest()
        if order["do"] == "compact":
            return _timed(side, side.compact)
        if order["do"] == "stream":
            return _timed(side, lambda: side.stream(order["rows"], order["checkpoint"]))
        return _timed(side, lambda: side.write(order["rows"], first=order["first"]))


def _timed(side: Side, act: Callable[[], None]) -> Mapping[str, Any]:
    before = side.tasks()
    started = time.perf_counter()
    act()
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "tasks": side.tasks() - before}


def main(name: str, conf: str) -> None:
    """Answer orders until stdin ends."""
    orders = Orders(sides(name, json.loads(conf)))
    print(f"{ANSWER}{{}}", flush=True)
    for line in iter(sys.stdin.readline, ""):
        print(ANSWER + json.dumps(orders.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
