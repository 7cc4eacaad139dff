"""The cost of keys, Bloom filters, merges and base files: ``python -m benchmarks.base_files``.

CPU seconds of one thread, best of three, on a million rows of nine columns; 10,000 are updated.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa

from strandline.records.avro_schema import arrow_to_avro
from strandline.records.base_file import stored_rows
from strandline.records.base_file_writer import BaseFileSettings, BaseFileWriter
from strandline.records.bloom import BloomFilter
from strandline.records.key_generator import COMPLEX, KeyGenerator
from strandline.records.merge import Merger, MergeRules
from strandline.records.merge_rule import deduplicate
from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from tests.kit.base_files import merge, write_base_file
from timeline.storage.local import LocalStorage

ROWS = 1_000_000
UPDATES = 10_000


def sample() -> pa.Table:
    """Return rows of numbers, repeated text and distinct text."""
    random = np.random.default_rng(1)
    words = np.array(["alpha", "beta", "gamma", "delta", "epsilon"])
    return pa.table(
        {
            "id": [f"key-{number:012d}" for number in range(ROWS)],
            "ts": random.integers(1, 1000, ROWS),
            "a": random.integers(0, 10**9, ROWS),
            "b": random.random(ROWS),
            "c": random.random(ROWS).round(2),
            "word": words[random.integers(0, 5, ROWS)],
            "text": [f"text number {number}" for number in random.integers(0, 10**7, ROWS)],
            "day": random.integers(0, 365, ROWS).astype("int32"),
            "e": random.integers(0, 10**6, ROWS),
        }
    )


def measured(what: str, run: Callable[[], object]) -> None:
    """Print the CPU seconds of a run and the rows a second."""
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        run()
        best = min(best, time.process_time() - began)
    print(f"{what:44} {best:6.2f} s  {ROWS / best:12,.0f} rows/s")


def rewrite(
    storage: LocalStorage, updates: pa.Table, rules: MergeRules, settings: BaseFileSettings
) -> None:
    """Merge updates into ``old.parquet`` batch by batch, and delete the new file."""
    avro = arrow_to_avro(rules.schema, "bench")
    merger = Merger(updates, rules, "f.parquet", 0)
    with storage.create_stream("new.parquet") as stream:
        writer = BaseFileWriter(stream, avro, settings)
        with stored_rows(storage, "old.parquet") as stored:
            for piece in merger.merge(stored):
                writer.write(piece)
        writer.close()
    storage.delete("new.parquet")


def main() -> None:
    """Measure each part, then the rewrite of one file."""
    table = sample()
    avro = arrow_to_avro(table.schema, "bench")
    keys = KeyGenerator(("day", "word", "id"), ("word",), COMPLEX, hive_style=True)
    measured("record keys of three columns", lambda: keys.record_keys(table))
    measured("partition paths", lambda: keys.partition_paths(table))
    measured("Bloom filter", lambda: BloomFilter().add_all(table["id"]))
    keyed = table.append_column(RECORD_KEY, table["id"])
    keyed = keyed.append_column(PARTITION_PATH, pa.array(["p=1"] * ROWS))
    measured("deduplicate, nothing to drop", lambda: deduplicate(keyed, ["ts"]))
    rules = MergeRules(table.schema, ("ts",), True, "20250101000000000")
    measured("stamp new rows", lambda: Merger(keyed, rules, "f.parquet", 0).finish())
    file = Merger(keyed, rules, "f.parquet", 0).finish()
    chosen = np.sort(np.random.default_rng(2).choice(ROWS, UPDATES, replace=False))
    updates = keyed.take(pa.array(chosen))
    measured("merge updates", lambda: merge(file, updates, rules))
    for codec in ("snappy", "zstd", "gzip"):
        settings = BaseFileSettings(compression=codec)
        with tempfile.TemporaryDirectory() as folder:
            storage = LocalStorage(folder)
            written = write_base_file(storage, "old.parquet", file, avro, settings)
            run = partial(rewrite, storage, updates, rules, settings)
            measured(f"rewrite {written.size / 1e6:.0f} MB of {codec} with updates", run)


if __name__ == "__main__":
    main()
