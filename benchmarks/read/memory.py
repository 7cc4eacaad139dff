"""Memory and time of a slice with large logs: ``python -m benchmarks.read.memory``.

A slice is generated: a base file, and logs of Avro blocks with two records for each of some keys,
of which the base file has the first. It is read as a stream in a process of its own, all columns by
one thread, whose peak of resident memory includes the interpreter with its packages. Pages of
mapped files count as far as they are resident.
"""

from __future__ import annotations

import argparse
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.read.slices import OWN, generated
from strandline.records.schema.avro_schema import arrow_to_avro, avro_with_meta_fields
from tests.kit.formats.hfile import log_block
from tests.strandline.read.logs.log_table import LogTable
from timeline.encoding import avro
from timeline.encoding.log_block import AVRO_DATA, INSTANT_TIME, SCHEMA
from timeline.storage.local import LocalStorage

COLUMNS: Final = OWN.append(pa.field("p", pa.string()))
BLOCK_ROWS: Final = 50_000
LOG_BLOCKS: Final = 8
"""Blocks of a log."""
_PREFIX: Final = b"key-000"
_READ: Final = """
import sys, time
from pathlib import Path
from strandline import Table
begin, cpu = time.perf_counter(), time.process_time()
rows = size = 0
for batch in Table(sys.argv[1]).scan(threads=1).to_reader():
    rows, size = rows + batch.num_rows, size + batch.nbytes
wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
lines = Path("/proc/self/status").read_text().splitlines()
peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
print(f"| {rows} | {size / 1e6:.0f} | {peak / 1024:.0f} | {wall:.1f} | {cpu:.1f} |")
"""


def rows_of(count: int) -> Iterator[dict[str, Any]]:
    """Yield rows whose keys begin with ``key-000``."""
    columns = generated(count, 1, np.arange(count)) | {"p": ["p"] * count}
    for row in zip(*columns.values(), strict=True):
        yield dict(zip(columns, row, strict=True))


def write_table(folder: str, blocks: int, block_rows: int = BLOCK_ROWS) -> None:
    """Write the table.

    Args:
        folder: Where.
        blocks: The number of log blocks; each key is in two of them.
        block_rows: Records of each.
    """
    table = LogTable(LocalStorage(folder), schema=COLUMNS)
    rows = list(rows_of(block_rows))
    table.base(rows, COLUMNS)
    schema = avro_with_meta_fields(arrow_to_avro(COLUMNS, "t"))
    records = [avro.write_record(schema, row) for row in rows]
    content = struct.pack(">ii", 3, len(records))
    content += b"".join(struct.pack(">i", len(record)) + record for record in records)

    def block(time: str, number: int) -> bytes:
        # Keys of the same length leave the records as they are.
        named = content.replace(_PREFIX, b"key-%03d" % (number // 2))
        return log_block(AVRO_DATA, {INSTANT_TIME: time, SCHEMA: schema}, named)

    for first in range(0, blocks, LOG_BLOCKS):
        numbers = range(first, min(first + LOG_BLOCKS, blocks))
        table.log(lambda time, numbers=numbers: b"".join(block(time, each) for each in numbers))


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.read.memory", description=__doc__)
    parser.add_argument("--blocks", type=int, default=96, help=f"of {BLOCK_ROWS} records each")
    parser.add_argument("--folder", help="where a table is that was written, or is to be")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as own:
        folder = given.folder or own
        if not Path(folder, ".hoodie").exists():
            write_table(folder, given.blocks)
        print("| rows | MB of them | peak RSS, MiB | wall, s | CPU, s |")
        print("| --- | --- | --- | --- | --- |", flush=True)
        subprocess.run([sys.executable, "-c", _READ, folder], check=True)


if __name__ == "__main__":
    main()
