"""The cost of many partitions: ``python -m benchmarks.partitions``.

A table is generated: one partition by the writer, the others as directories with its metadata file
and empty base files, as nothing of them is opened. Shown are lists of storage, CPU seconds of
making a scan of some partitions and its plan, and of making a dataset of many files. Then a batch
with one row in each partition is upserted into a table of its own, by the engine without Spark, and
its CPU is divided by them. Figures are CPU of the process, with all threads.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.results.ratios import Bound, Ratio
from benchmarks.results.ratios import table as markdown
from strandline.read.scan import Scan
from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from timeline.instant import COMMIT
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage
from timeline.table.partition_metadata import FILE_NAME

OPTIONS: Final = {
    "hoodie.table.name": "bench",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "day",
    "hoodie.embed.timeline.server": False,
}
day: Final = pc.field("day")
T = TypeVar("T")


def name_of(number: int) -> str:
    """Return the path of a partition."""
    return f"p{number:05d}"


def generate(base: Path, partitions: int, files: int) -> None:
    """Make a table of so many partitions, each with so many base files, but the first with one."""
    with WriteClient(LocalEngine(), base, OPTIONS) as client:
        client.insert(pa.table({"id": ["a"], "day": [name_of(0)]}))
    first = base / name_of(0)
    instant = next(first.glob("*.parquet")).stem.rpartition("_")[2]
    marker = next(first.glob(f"{FILE_NAME}*"))
    for number in range(1, partitions):
        folder = base / name_of(number)
        folder.mkdir()
        shutil.copy(marker, folder / marker.name)
        for at in range(files):
            file_id = f"{number:08x}-{at:04x}-4000-8000-000000000000-0"
            (folder / f"{file_id}_0-0-0_{instant}.parquet").touch()
    # A write under way, so that files are listed: the one commit names one of them.
    meta = TableMetaClient.open(LocalStorage(str(base)))
    later = f"{int(instant) + 1}"
    meta.transition_to_inflight(meta.create_requested(COMMIT, later))


def scanned(base: Path, condition: Any) -> tuple[Scan, dict[str, int]]:
    """Return a scan, and the calls of storage that making it took."""
    storage = LocalStorage(str(base))
    scan = Scan.of(TableMetaClient.open(storage), filter=condition)
    calls: dict[str, int] = {}
    for (kind, _), count in storage.calls.snapshot().items():
        calls[kind] = calls.get(kind, 0) + count
    return scan, calls


def _planned(base: Path, condition: Any) -> pa.Table:
    return scanned(base, condition)[0].plan()


def figures(base: Path, partitions: int, rounds: int) -> list[Ratio]:
    """Return the figures of a table."""
    hundredth = day < name_of(partitions // 100 + 1)
    wanted = {
        "one partition by value": (day == name_of(1), Bound(value=1.0)),
        "one partition by a range": (day < name_of(1), Bound(value=1.0)),
        "a hundredth of the partitions": (hundredth, None),
    }
    found = []
    for what, (condition, bound) in wanted.items():
        _, calls = scanned(base, condition)
        values = [_cpu(partial(_planned, base, condition)) for _ in range(rounds)]
        found.append(Ratio(f"{what}: {calls.get('list', 0)} lists", values, "ms", bound=bound))
    scan, _ = scanned(base, hundredth)
    count = len(scan.slices)
    values = [_cpu(scan.of_slices(scan.slices).to_dataset) for _ in range(rounds)]
    return [*found, Ratio(f"a dataset of {count} files", values, "ms", bound=Bound(value=1.0))]


def written(folder: Path, partitions: int, rounds: int) -> Ratio:
    """Return the CPU of the first batch of a table, for each partition, of which each gets a row.

    Args:
        folder: Where the tables are made; each is deleted after its round.
        partitions: Number of partitions.
        rounds: How often a table is made.
    """
    numbers = range(partitions)
    columns = {"id": [f"k{n:08d}" for n in numbers], "day": [f"d{n:07d}" for n in numbers]}
    rows = pa.table({**columns, "ts": [1] * partitions, "text": [f"text {n}" for n in numbers]})
    values = []
    for number in range(rounds):
        base = folder / f"written-{number}"
        with WriteClient(LocalEngine(), base, OPTIONS) as client:
            values.append(_cpu(partial(client.upsert, rows)) / partitions)
        shutil.rmtree(base)
    what = f"an upsert of one row into each of {partitions:,} new partitions, for each"
    return Ratio(what, values, "ms", bound=Bound(value=0.0025))


def _cpu(run: Callable[[], T]) -> float:
    """Return the CPU seconds of a call, with those of all threads."""
    started = time.process_time()
    run()
    return time.process_time() - started


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.partitions", description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--files", type=int, default=100, help="files of each partition")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--written", type=int, default=5_000, help="partitions of the upsert")
    parser.add_argument("--table", type=Path, help="a table generated before, or where to make it")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        base = given.table or Path(folder, "table")
        if not base.exists():
            generate(base, given.partitions, given.files)
        found = figures(base, given.partitions, given.rounds)
        rounds = max(1, given.rounds // 2)
        print(markdown([*found, written(Path(folder), given.written, rounds)]))


if __name__ == "__main__":
    main()
