"""Memory of a driver that cleans a whole large table: ``python -m benchmarks.clean_memory``.

Each partition has 20 file groups with two slices, of which a clean deletes the older ones. The
table has a timeline but no data files, so each deletion finds its file missing, and the files of a
partition that is listed, instead of read from the commits, aren't planned. A writer without Spark
cleans in a process of its own, whose peak of resident memory includes the interpreter with its
packages. The timeline service, which has the view, is another process, as with every driver.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.servers.big_table import AVRO_VERSION, BigTable, Shape

FILES: Final = 20
"""File groups of a partition."""
_A_COMMIT: Final = 1000
"""Partitions of a commit, whose metadata a reader bounds."""
_CLEAN: Final = """
import resource, sys, time
from strandline import LocalEngine, WriteClient
options = {
    "hoodie.table.name": sys.argv[1].rpartition("/")[2],
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "day",
    "hoodie.clean.commits.retained": "1",
}
begin, cpu = time.perf_counter(), time.process_time()
with WriteClient(LocalEngine(), sys.argv[1], options) as client:
    done = client.clean()
    assert done is not None, "nothing was planned"
    wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
parts = len(done.parts) or 1
print(f"| {done.files_deleted} | {parts} | {peak / 1024:.0f} | {wall:.0f} | {cpu:.0f} |")
"""


def write_table(folder: Path, partitions: int) -> None:
    """Write a table without data files, of which each group has a slice to delete.

    Args:
        folder: Where; the folder must not exist.
        partitions: Number of partitions.
    """
    table = BigTable.create(folder, Shape(0, FILES, slices=2), AVRO_VERSION)
    for first in range(0, partitions, _A_COMMIT):
        table.extend(min(_A_COMMIT, partitions - first))
    table.insert(table.partitions[0])  # the earliest instant to retain


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clean_memory", description=__doc__)
    parser.add_argument("--partitions", type=int, default=12_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as own:
        folder = Path(own, "table")
        write_table(folder, given.partitions)
        print("| files deleted | parts | peak RSS, MiB | wall, s | CPU, s |")
        print("| --- | --- | --- | --- | --- |", flush=True)
        subprocess.run([sys.executable, "-c", _CLEAN, str(folder)], check=True)


if __name__ == "__main__":
    main()
