"""The cost of reading slices and tables: ``python -m benchmarks.read``.

The first table has a slice with a log (``benchmarks.read.slices``), the second one reads of a whole
generated table (``benchmarks.read.table``). ``--hudi`` reads whole tables on Spark instead, beside
Hudi's own reader (``benchmarks.read.spark``).
"""

from __future__ import annotations

import argparse
import tempfile

from benchmarks.read import spark
from benchmarks.read.slices import Bench
from benchmarks.read.table import TableBench
from benchmarks.results.ratios import table as markdown


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.read", description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000, help="rows of the base file")
    parser.add_argument("--updates", type=int, default=50_000, help="records of the log")
    parser.add_argument("--table-rows", type=int, default=5_000_000, help="rows of the table")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--hudi", action="store_true", help="whole tables on Spark, beside Hudi")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the flights (--hudi)")
    given = parser.parse_args()
    if given.hudi:
        with tempfile.TemporaryDirectory() as folder:
            tables = spark.write_tables(folder, given.table_rows, given.scale)
            print(markdown(spark.figures(tables, given.rounds)))
        return
    with tempfile.TemporaryDirectory() as folder:
        print(markdown(Bench(folder, given.rows, given.updates).figures(given.rounds)))
    if given.table_rows:
        print()
        with tempfile.TemporaryDirectory() as folder:
            print(markdown(TableBench(folder, given.table_rows).figures(given.rounds)))


if __name__ == "__main__":
    main()
