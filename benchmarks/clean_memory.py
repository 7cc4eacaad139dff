"""Memory of a driver that cleans a whole large table: ``python -m benchmarks.clean_memory``.

Each partition has 20 file groups with two slices, of which a clean deletes the older ones; the
files are sparse. A writer without Spark or a service cleans in a process of its own, whose peak of
resident memory includes the interpreter with its packages, and a view of the whole table. If
reading the table's commits would take too many bytes, the view lists all partitions.
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
    assert done.files_deleted == int(sys.argv[2]), f"{done.files_deleted} files were deleted"
    wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
parts = len(done.parts) or 1
print(f"| {done.files_deleted} | {parts} | {peak / 1024:.0f} | {wall:.0f} | {cpu:.0f} |")
"""


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clean_memory", description=__doc__)
    parser.add_argument("--partitions", type=int, default=12_000)
    parser.add_argument("--folder", type=Path, help="where the table is made")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as own:
        shape = Shape(given.partitions, FILES, slices=2)
        table = BigTable.create(Path(own, "table"), shape, AVRO_VERSION)
        table.insert(table.partitions[0])  # the earliest instant to retain
        print("| files deleted | parts | peak RSS, MiB | wall, s | CPU, s |")
        print("| --- | --- | --- | --- | --- |", flush=True)
        expected = given.partitions * FILES
        subprocess.run([sys.executable, "-c", _CLEAN, str(table.path), str(expected)], check=True)


if __name__ == "__main__":
    main()
