"""Query a Hudi table in Polars and DuckDB: its newest rows, and those of an earlier commit.

Run it with ``python examples/read_rows.py BASE_PATH``, on the table of ``without_spark.py``; it
needs ``pip install pandas polars duckdb``.
"""

import sys

import duckdb
import pyarrow.compute as pc

from strandline import Table

COLUMNS = ["symbol", "cents", "at"]


def main(base_path: str) -> None:
    table = Table(base_path)
    print(table.history().select(["requested_at", "operation", "rows_updated"]).to_pandas())
    # The filter is pyarrow's: files and row groups that can't match aren't read.
    nasdaq = table.scan(COLUMNS, filter=pc.field("market") == "xnas")
    print(nasdaq.to_polars().sort("symbol"))

    # DuckDB reads what a query needs, when it runs.
    con = duckdb.connect()
    table.scan().to_duckdb("prices", con)
    print(
        con.sql("select market, count(*) as symbols, max(cents) as most from prices group by all")
    )

    # Files of instants before this one may have been cleaned.
    first = table.earliest_instant()
    print(f"as of {first}: {table.scan(as_of=first).count()} rows, now {table.scan().count()}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/read_rows.py BASE_PATH")
    main(sys.argv[1])
