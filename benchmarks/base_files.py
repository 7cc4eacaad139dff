"""The cost of base files beside pyarrow's own writer: ``python -m benchmarks.base_files``.

Both sides write the same rows by the same codec to memory, in turns: pyarrow the table's columns
alone, this writer also the meta columns, Hudi's footer and, unless left out, the Bloom filter. A
rewrite is compared with reading a file and writing it again unchanged. Figures are CPU seconds of
the process.
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.results.ratios import Ratio
from benchmarks.results.ratios import table as markdown
from demo.feed import arrow, flights
from strandline.records.file.base_file import stored_rows
from strandline.records.file.base_file_writer import BaseFileSettings, BaseFileWriter
from strandline.records.file.bloom import BloomFilter
from strandline.records.merge import Merger, MergeRules
from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from strandline.records.schema.avro_schema import arrow_to_avro
from timeline.storage.local import LocalStorage

INSTANT: Final = "20250101000000000"
CODECS: Final = ("snappy", "gzip")


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one file.

    Attributes:
        name: What they are.
        own: The table's columns, one of which is ``ts``.
        keys: The record keys.
    """

    name: str
    own: pa.Table
    keys: pa.Array

    @property
    def keyed(self) -> pa.Table:
        """The rows as write tasks get them."""
        path = pa.repeat(pa.scalar("p=1"), len(self.keys))
        return self.own.append_column(RECORD_KEY, self.keys).append_column(PARTITION_PATH, path)


def generated(count: int) -> Rows:
    """Return rows of numbers, repeated text and distinct text."""
    random = np.random.default_rng(1)
    words = np.array(["alpha", "beta", "gamma", "delta", "epsilon"])
    keys = pa.array([f"key-{number:012d}" for number in range(count)])
    columns = {
        "id": keys,
        "ts": random.integers(1, 1000, count),
        "a": random.integers(0, 10**9, count),
        "b": random.random(count),
        "c": random.random(count).round(2),
        "word": words[random.integers(0, 5, count)],
        "text": [f"text number {number}" for number in random.integers(0, 10**7, count)],
        "day": random.integers(0, 365, count).astype("int32"),
        "e": random.integers(0, 10**6, count),
    }
    return Rows(f"{count:,} generated rows", pa.table(columns), keys)


def a_month() -> Rows:
    """Return the demo's flights of a month, with a composite key."""
    frame = flights()
    month = frame[frame["month"] == 3].assign(status="flown", ts=frame["time_hour"])
    own = arrow(month).combine_chunks()
    fields = ("year", "month", "day", "carrier", "flight", "origin")
    parts = [pc.binary_join_element_wise(name, own[name].cast("string"), ":") for name in fields]
    keys = pc.binary_join_element_wise(*parts, ",").combine_chunks()
    return Rows(f"{own.num_rows:,} flights", own, keys)


class Bench:
    """Writes the rows of one file in several ways, by one codec."""

    def __init__(self, rows: Rows, codec: str, folder: str) -> None:
        self._rows = rows
        self._settings = BaseFileSettings(compression=codec)
        self._rules = MergeRules(rows.own.schema, ("ts",), True, INSTANT)
        self._avro = arrow_to_avro(rows.own.schema, "bench")
        self._storage = LocalStorage(folder)
        with self._storage.create_stream("old") as stream:
            self._write(stream, self._settings)
        count = len(rows.keys)
        chosen = np.sort(np.random.default_rng(2).choice(count, count // 100, replace=False))
        self._updates = rows.keyed.take(pa.array(chosen))
        new_keys = pc.binary_join_element_wise(self._updates[RECORD_KEY], "new", "-")
        at = self._updates.schema.get_field_index(RECORD_KEY)
        inserts = self._updates.set_column(at, RECORD_KEY, new_keys)
        self._both = pa.concat_tables([self._updates, inserts])

    def figures(self, rounds: int) -> list[Ratio]:
        """Return the figures of writes and rewrites."""
        without = replace(self._settings, has_bloom=False)
        plain, again = "pyarrow, own columns", "pyarrow, read and written"
        pairs: list[tuple[str, Callable[[], object], str, Callable[[], object]]] = [
            ("write, no Bloom filter", lambda: self._new(without), plain, self._plain),
            ("write", lambda: self._new(self._settings), plain, self._plain),
            (
                "rewrite, 1 % updated, no Bloom filter",
                lambda: self._rewrite(self._updates, without),
                again,
                self._again,
            ),
            (
                "rewrite, 1 % updated",
                lambda: self._rewrite(self._updates, self._settings),
                again,
                self._again,
            ),
            (
                "rewrite, 1 % updated, 1 % inserted",
                lambda: self._rewrite(self._both, self._settings),
                again,
                self._again,
            ),
        ]
        return [
            _paired(f"{self._settings.compression}: {what}", run, other, partner, rounds)
            for what, run, other, partner in pairs
        ]

    def _write(self, stream: io.IOBase, settings: BaseFileSettings) -> None:
        writer = BaseFileWriter(stream, self._avro, settings)
        writer.write(Merger(self._rows.keyed, self._rules, "f.parquet", 0).created(""))
        writer.close()

    def _new(self, settings: BaseFileSettings) -> None:
        self._write(io.BytesIO(), settings)

    def _rewrite(self, rows: pa.Table, settings: BaseFileSettings) -> None:
        writer = BaseFileWriter(io.BytesIO(), self._avro, settings)
        merger = Merger(rows, self._rules, "f.parquet", 0)
        with stored_rows(self._storage, "old") as stored:
            for piece in merger.merge(stored):
                writer.write(piece)
            writer.keep_bloom(stored)
        writer.close()

    def _plain(self) -> None:
        self._by_pyarrow(self._rows.own)

    def _again(self) -> None:
        with self._storage.open_input("old") as source:
            self._by_pyarrow(pq.ParquetFile(source).read())

    def _by_pyarrow(self, rows: pa.Table) -> None:
        codec = self._settings.compression
        level = 1 if codec == "gzip" else None
        pq.write_table(rows, io.BytesIO(), compression=codec, compression_level=level)


def _paired(
    what: str,
    run: Callable[[], object],
    other: str,
    partner: Callable[[], object],
    rounds: int,
) -> Ratio:
    pairs = [(_cpu(run), _cpu(partner)) for _ in range(rounds)]
    values, partners = zip(*pairs, strict=True)
    return Ratio(what, values, "ms", other, partners)


def _cpu(run: Callable[[], object]) -> float:
    """Return the CPU seconds of a call, with those of pyarrow's threads."""
    started = time.process_time()
    run()
    return time.process_time() - started


def main() -> None:
    """Print a table for each kind of rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000, help="number of generated rows")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    for rows in (a_month(), generated(given.rows)):
        bloom = [_cpu(lambda: BloomFilter().add_all(rows.keys)) for _ in range(given.rounds)]  # noqa: B023
        figures = [Ratio("keys into a Bloom filter", bloom, "ms")]
        for codec in CODECS:
            with tempfile.TemporaryDirectory() as folder:
                figures += Bench(rows, codec, folder).figures(given.rounds)
        print(f"{rows.name}\n\n{markdown(figures)}\n")


if __name__ == "__main__":
    main()
