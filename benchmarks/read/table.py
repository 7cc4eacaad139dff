"""Reads of a generated copy-on-write table: scans beside pyarrow, DuckDB and hudi-rs.

Pyarrow and DuckDB read the Parquet files that they are given; hudi-rs finds them itself.
All are measured in turns. A first batch includes that the table is opened.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from benchmarks.results.ratios import Bound, Ratio, cpu_ratio, seconds
from strandline import LocalEngine, Table, WriteClient

PARTITIONS: Final = 10
TWO: Final = ["id", "price"]
_OPTIONS: Final = {
    "hoodie.table.name": "bench",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.table.ordering.fields": "ts",
}
_SUM: Final = "SELECT count(*), sum(price), max(n) FROM {}"
_STREAMED: Final = """
import sys
from pathlib import Path
from strandline import Table

def peak_kib():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))

scan = Table(sys.argv[1]).scan()
before = peak_kib()
print(sum(batch.num_rows for batch in scan.to_reader()))
print((peak_kib() - before) // 1024)
"""


class TableBench:
    """A table in a folder, which is read in several ways.

    Args:
        folder: An empty folder.
        rows: Number of rows.
    """

    def __init__(self, folder: str, rows: int) -> None:
        self._path = str(Path(folder, "table"))
        self._rows = rows
        with WriteClient(LocalEngine(), self._path, _OPTIONS) as client:
            client.bulk_insert(_generated(rows))
        plan = self._scan().plan()
        self._files = [f"{self._path}/{path}" for path in plan["base_file"].to_pylist()]

    def figures(self, rounds: int) -> list[Ratio]:
        """Return the figures."""
        for package in ("duckdb", "hudi"):
            import_module(package)  # before a clock runs
        ratio = partial(cpu_ratio, rounds)
        few = pc.field("n") > 9_000_000
        firsts = [seconds(self._first_batch) for _ in range(rounds)]
        walls = [
            (
                seconds(lambda: self._scan().to_arrow()),
                seconds(lambda: self._scan(threads=1).to_arrow()),
            )
            for _ in range(rounds)
        ]
        at_once, one_by_one = zip(*walls, strict=True)
        name, size = f"{self._rows:,} rows", self._whole().nbytes / 2**20
        return [
            ratio(
                f"{name}, CPU",
                self._whole,
                "pyarrow",
                lambda: self._dataset().to_table(),
                1.1,
            ),
            ratio(f"{name}, CPU", self._whole, "hudi-rs", self._by_hudi),
            ratio(
                "two columns, a tenth of the rows, CPU",
                lambda: self._scan(TWO, filter=few).to_arrow(),
                "pyarrow",
                lambda: self._dataset().to_table(TWO, filter=few),
            ),
            ratio(
                "count, sum and maximum by DuckDB, CPU",
                lambda: self._by_duckdb(self._scan()),
                "DuckDB on the files",
                self._by_duckdb_alone,
            ),
            Ratio(f"{name}, wall", at_once, "ms", "one thread", one_by_one),
            Ratio("first batch, wall", firsts, "ms", bound=Bound(value=0.2)),
            Ratio(
                "memory for a stream of all rows", [self._streamed()], "MiB", "in one piece", [size]
            ),
        ]

    def _scan(self, columns: list[str] | None = None, **given: Any) -> Any:
        return Table(self._path).scan(columns, **given)

    def _whole(self) -> pa.Table:
        return self._scan().to_arrow()

    def _dataset(self) -> ds.Dataset:
        return ds.dataset(self._files, format="parquet")

    def _first_batch(self) -> pa.RecordBatch:
        with self._scan().to_reader() as reader:
            return reader.read_next_batch()

    def _by_hudi(self) -> pa.Table:
        from hudi import HudiTable  # noqa: PLC0415 - only here

        return pa.Table.from_batches(HudiTable(self._path).read())

    def _by_duckdb(self, scan: Any) -> list[Any]:
        import duckdb  # noqa: PLC0415 - only its two reads need it

        with duckdb.connect() as connection:
            scan.to_duckdb("t", connection)
            return connection.execute(_SUM.format("t")).fetchall()

    def _by_duckdb_alone(self) -> list[Any]:
        import duckdb  # noqa: PLC0415 - as above

        with duckdb.connect() as connection:
            return connection.execute(_SUM.format(f"read_parquet({self._files})")).fetchall()

    def _streamed(self) -> float:
        """Return by how many MiB a process grows that reads all rows batch by batch."""
        done = subprocess.run(
            [sys.executable, "-c", _STREAMED, self._path],
            capture_output=True,
            text=True,
            check=True,
        )
        rows, grown = map(int, done.stdout.split())
        assert rows == self._rows
        return float(grown)


def _generated(rows: int) -> pa.Table:
    """Return rows with distinct keys, spread over the partitions."""
    random = np.random.default_rng(1)
    words = pa.array(["alpha", "beta", "gamma", "delta", "epsilon"])
    numbers = pa.array(random.integers(0, 10_000_000, rows))
    keys = pc.utf8_lpad(pa.array(np.arange(rows)).cast(pa.string()), 12, "0")
    return pa.table(
        {
            "id": pc.binary_join_element_wise("key", keys, "-"),
            "part": pc.binary_join_element_wise(
                "p", pa.array(np.arange(rows) % PARTITIONS).cast(pa.string()), "-"
            ),
            "ts": random.integers(1, 1000, rows),
            "price": pa.array(random.random(rows), mask=random.random(rows) < 0.1),
            "word": words.take(pa.array(random.integers(0, 5, rows))),
            "text": pc.binary_join_element_wise("text number", numbers.cast(pa.string()), " "),
            "at": pa.array(random.integers(0, 10**12, rows)).cast(pa.timestamp("us", "UTC")),
            "n": numbers,
        }
    )
