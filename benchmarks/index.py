"""What each index reads to find keys: ``python -m benchmarks.index``.

A table has keys like UUIDs, which key ranges don't separate. Each index searches the same keys, of
which a part is stored: in one file, or in all files of a partition. Printed are seconds (the least
of several rounds), files opened and bytes read. ``benchmarks/README.md`` has results.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from fsview.local_view import LocalView
from fsview.table_view import TableView
from strandline import LocalEngine, WriteClient
from strandline.records.key.text import key_hashes
from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from strandline.write.index.search import LocationRequest, SearchIndex
from strandline.write.tasks.columns import KEY_HASH
from strandline.write.tasks.placement import StoredFile
from timeline.storage.open import open_storage

INDEXES: Final = {
    "SIMPLE": SearchIndex(),
    "BLOOM": SearchIndex(by_filter=True),
    "GLOBAL_SIMPLE": SearchIndex(is_global=True),
    "GLOBAL_BLOOM": SearchIndex(by_filter=True, is_global=True),
}
PARTITIONS: Final = 10
KEYS: Final = 1000
"""Keys that are searched, all of one partition."""


@dataclass(frozen=True)
class Search:
    """What a search cost: seconds, files opened, bytes read, keys found."""

    seconds: float
    opened: int
    read: int
    found: int


def make(base: Path, files: int, rows: int) -> None:
    """Make a table of so many files in each partition, with so many rows in each file."""
    rng = random.Random(1)
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "p",
        "hoodie.parquet.compression.codec": "snappy",
        "hoodie.embed.timeline.server": "false",
        "hoodie.clean.automatic": "false",
    }
    with WriteClient(LocalEngine(), str(base), options) as client:
        for _ in range(files):
            count = PARTITIONS * rows
            keys = [str(uuid.UUID(int=rng.getrandbits(128))) for _ in range(count)]
            paths = [f"p{number % PARTITIONS}" for number in range(count)]
            client.bulk_insert(pa.table({"id": keys, "p": paths, "v": range(count)}))


def keyed(keys: Sequence[str], partition: str) -> pa.Table:
    """Return keyed rows."""
    paths = pa.repeat(pa.scalar(partition), len(keys))
    columns = {RECORD_KEY: pa.array(keys), PARTITION_PATH: paths}
    columns |= {KEY_HASH: key_hashes(pa.array(keys))}
    return pa.table(columns)


def search(base: Path, index: SearchIndex, files: tuple[StoredFile, ...], rows: pa.Table) -> Search:
    """Search keys once."""
    engine, storage = LocalEngine(), open_storage(str(base))
    tally = engine.tally()
    request = LocationRequest(engine, engine.adopt(rows), files, storage, tally)
    read_before, started = _bytes_read(), time.perf_counter()
    found = engine.collect(index.locations(request))
    seconds, read = time.perf_counter() - started, _bytes_read() - read_before
    opened = sum(n for (kind, _), n in storage.calls.snapshot().items() if kind == "read")
    return Search(seconds, opened, read, found.num_rows)


def _bytes_read() -> int:
    """Return the bytes that this process has read from files, from the page cache or not."""
    text = Path("/proc/self/io").read_text("ascii")
    return int(text.split("rchar: ")[1].split()[0])


def positive(text: str) -> int:
    """Return the whole number of an argument, which must be 1 or more."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a whole number, 1 or more")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the table; by default with the arguments of the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.index", description=__doc__)
    parser.add_argument(
        "--files", type=positive, default=20, help="files in a partition (default 20)"
    )
    parser.add_argument(
        "--rows", type=positive, default=10_000, help="rows in a file (default 10000)"
    )
    parser.add_argument("--rounds", type=positive, default=5, help="rounds (default 5)")
    options = parser.parse_args(arguments)
    lines = [
        "| keys | index | seconds | files opened | MB read |",
        "| --- | --- | --- | --- | --- |",
    ]
    with tempfile.TemporaryDirectory() as name:
        base = Path(name) / "t"
        make(base, options.files, options.rows)
        with closing(LocalView.newest(TableView(open_storage(str(base))))) as view:
            view.load_all_partitions()
            found_files = sorted(view.all_latest_base_files(), key=lambda file: file.path)
            every = tuple(StoredFile(f.partition, f.file_id, f.name, f.size) for f in found_files)
        own = [file for file in every if file.partition == "p0"]
        stored = [pq.read_table(base / f.path, columns=[RECORD_KEY])[0].to_pylist() for f in own]
        rng = random.Random(2)
        new = [str(uuid.UUID(int=rng.getrandbits(128))) for _ in range(KEYS)]
        samples = {
            "all new": new,
            "of one file": stored[0][:KEYS],
            "of all files": [keys[n] for n in range(KEYS // len(stored)) for keys in stored],
        }
        for sample, keys in samples.items():
            for kind, index in INDEXES.items():
                files = every if index.is_global else tuple(own)
                rounds = range(options.rounds)
                found = [search(base, index, files, keyed(keys, "p0")) for _ in rounds]
                best = min(found, key=lambda each: each.seconds)
                cells = (sample, kind, f"{best.seconds:.3f}", best.opened, f"{best.read / 1e6:.1f}")
                lines.append("| " + " | ".join(map(str, cells)) + " |")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
