"""The proof: three independent readers must see exactly the rows of the replay.

* pyarrow reads the files that Strandline's view names (``strandline.Table.to_arrow``),
* DuckDB reads the same files with its own Parquet reader; partitions with logs, which it can't
  read, come from ``Table.scan``,
* hudi-rs (PyPI ``hudi``) gets the base path alone and reads the table as a Hudi table.

Tables are equal if they have the same keys, each once, and the same value or null in every column.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from hudi import HudiTableBuilder

from demo.feed import KEY, SCHEMA
from demo.record import Proof
from strandline import Table


def through_view(base_path: Path) -> pa.Table:
    """Read the table through Strandline's view."""
    return Table(base_path.as_uri()).to_arrow()


def through_duckdb(base_path: Path) -> pa.Table:
    """Read the files that the view names with DuckDB, those with logs as ``Table`` merges them."""
    table = Table(base_path.as_uri())
    slices = table.files().to_pylist()
    with_logs = {each["partition"] for each in slices if each["log_paths"]}
    files = [str(base_path / s["path"]) for s in slices if s["partition"] not in with_logs]
    columns = ", ".join(SCHEMA.names)
    with duckdb.connect() as connection:
        # With its type: of an empty list it couldn't be told.
        days = pa.array([day.removeprefix("dt=") for day in sorted(with_logs)], pa.string())
        merged = table.scan(SCHEMA.names, filter=pc.field("dt").isin(days)).to_arrow()
        rows = connection.from_arrow(merged).project(columns)
        if files:
            read = connection.read_parquet(files, hive_partitioning=False)
            rows = rows.union(read.project(columns))
        return rows.to_arrow_table()


def through_hudi_rs(base_path: Path) -> pa.Table:
    """Read the table with hudi-rs."""
    table = HudiTableBuilder.from_base_uri(base_path.as_uri()).build()
    batches = table.read()
    return pa.Table.from_batches(batches, None if batches else table.get_schema())


READERS: Final[Mapping[str, Callable[[Path], pa.Table]]] = {
    "view, pyarrow": through_view,
    "view, DuckDB": through_duckdb,
    "hudi-rs": through_hudi_rs,
}


def prove(base_path: Path, expected: pa.Table) -> tuple[Proof, ...]:
    """Read a table with all three readers and compare each with the expected rows.

    Args:
        base_path: The table's base path.
        expected: Rows of the feed's ``SCHEMA``, in any order.
    """
    wanted = canonical(expected)
    return tuple(_proof(name, read, base_path, wanted) for name, read in READERS.items())


def _proof(name: str, read: Callable[[Path], pa.Table], base_path: Path, wanted: pa.Table) -> Proof:
    begin = time.perf_counter()
    try:
        rows = read(base_path)
        found, differs = len(rows), difference(wanted, rows)
    except Exception as failure:  # noqa: BLE001 - a reader that fails disproves the table
        found, differs = 0, f"{type(failure).__name__}: {failure}"
    return Proof(name, found, differs, time.perf_counter() - begin)


def canonical(rows: pa.Table) -> pa.Table:
    """Return rows with the feed's columns and types, sorted by key.

    Raises:
        pa.ArrowInvalid: A value doesn't fit its column's type.
    """
    typed = rows.select(SCHEMA.names).cast(SCHEMA)
    return typed.sort_by([(name, "ascending") for name in KEY]).combine_chunks()


def difference(wanted: pa.Table, rows: pa.Table) -> str | None:
    """Return the first difference between canonical rows and a reader's, or ``None``."""
    missing = [name for name in SCHEMA.names if name not in rows.column_names]
    if missing:
        return f"no column {', '.join(missing)}"
    found = canonical(rows)
    key_differs = _first_key_that_differs(wanted, found)
    if key_differs is not None:
        return key_differs
    for name in SCHEMA.names:
        row = _first_row_that_differs(wanted[name], found[name])
        if row is not None:
            return (
                f"flight {_key(wanted, row)}: {name} is {found[name][row].as_py()!r}, "
                f"it should be {wanted[name][row].as_py()!r}"
            )
    return None


def _first_key_that_differs(wanted: pa.Table, found: pa.Table) -> str | None:
    if wanted.select(KEY).equals(found.select(KEY)):
        return None
    wanted_keys, found_keys = (
        list(zip(*(rows[name].to_pylist() for name in KEY), strict=True))
        for rows in (wanted, found)
    )
    counts = f"{len(found_keys)} rows, there should be {len(wanted_keys)}"
    missing = sorted(set(wanted_keys) - set(found_keys))
    extra = sorted(set(found_keys) - set(wanted_keys))
    for kind, keys in (("missing", missing), ("extra", extra)):
        if keys:
            return f"{counts}; {len(keys)} {kind}, the first: flight {_text(keys[0])}"
    twice = [key for key, following in pairwise(found_keys) if key == following]
    return f"{counts}; {len(twice)} twice, the first: flight {_text(twice[0])}"


def _first_row_that_differs(wanted: pa.ChunkedArray, found: pa.ChunkedArray) -> int | None:
    if wanted.equals(found):
        return None
    both_null = pc.and_(pc.is_null(wanted), pc.is_null(found))
    same = pc.or_(both_null, pc.fill_null(pc.equal(wanted, found), fill_value=False))
    row: int = pc.index(same, value=False).as_py()
    return row


def _key(rows: pa.Table, row: int) -> str:
    return _text(tuple(rows[name][row].as_py() for name in KEY))


def _text(key: tuple[object, ...]) -> str:
    return " ".join(map(str, key))
