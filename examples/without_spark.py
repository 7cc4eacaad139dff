"""A job without Spark: upsert frames of Polars or pandas into a Hudi table, and read it back.

Run it with ``python examples/without_spark.py BASE_PATH``; it needs ``pip install polars``.
"""

import sys

import polars as pl

from strandline import LocalEngine, Table, WriteClient

OPTIONS = {
    "hoodie.table.name": "prices",
    "hoodie.datasource.write.recordkey.field": "symbol",
    "hoodie.datasource.write.partitionpath.field": "market",
    "hoodie.table.ordering.fields": "at",
    "hoodie.embed.timeline.server": False,  # one process: it lists the few partitions itself
}


def prices(at: int, symbols: list[str]) -> pl.DataFrame:
    """Return prices; in a real job: ``pl.read_parquet``, ``pd.read_sql``, a DuckDB relation."""
    markets = [symbol.partition(":")[0] for symbol in symbols]
    cents = [sum(symbol.encode()) + at for symbol in symbols]
    return pl.DataFrame({"symbol": symbols, "market": markets, "cents": cents, "at": at})


def main(base_path: str) -> None:
    # Rows of any type with __arrow_c_stream__ are taken: Polars, pandas, DuckDB, pyarrow.
    with WriteClient(LocalEngine(), base_path, OPTIONS) as client:
        client.upsert(prices(1, ["xetr:SAP", "xetr:BMW", "xnas:AAPL"]))
        result = client.upsert(prices(2, ["xetr:SAP", "xnas:MSFT"]))
        client.delete(prices(3, ["xetr:BMW"]))
    print(f"second commit: {result.rows_updated} updated, {result.rows_inserted} inserted")
    table = Table(base_path)
    print(pl.from_arrow(table.to_arrow(["symbol", "cents", "at"])).sort("symbol"))
    print(table.files().select(["partition", "path", "size"]).to_pylist())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/without_spark.py BASE_PATH")
    main(sys.argv[1])
