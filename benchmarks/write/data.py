"""The rows that the benchmark writes, as Parquet files that every side reads.

``flights``: the 336,776 flights of the demo's feed, one partition a month; 100,000 of them changed;
one day's flights (about 900), changed, day by day. ``generated``: 5 million rows in ten partitions;
1 % of the keys, changed, spread over all files.

Changed rows have a greater ``ts``, by which all sides order the rows of a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from demo.feed import KEY, SCHEMA, flights

ID, PARTITION, ORDERING = "id", "part", "ts"
"""Key, partition and ordering column of all tables."""

BULK_INSERT: Final = "bulk insert"
UPSERT_100_000: Final = "upsert of 100,000 rows"
DAILY: Final = "daily upsert"
ONE_PERCENT: Final = "upsert of 1 % of the keys"
UPSERT_100: Final = "upsert of 100 rows"

_SEED: Final = 7
_BATCH_ROWS: Final = 500_000
_PARTITIONS: Final = 10


@dataclass(frozen=True, slots=True)
class Step:
    """One write.

    Attributes:
        operation: Its name in the tables.
        rows: The file with its rows.
        count: Number of its rows.
    """

    operation: str
    rows: Path
    count: int

    @property
    def is_first(self) -> bool:
        """Whether the write makes the table."""
        return self.operation == BULK_INSERT


def flight_steps(folder: Path, scale: float, days: int) -> list[Step]:
    """Write the flights' files; return the writes in order.

    Args:
        folder: For the files.
        scale: Share of the flights and of the 100,000 rows.
        days: Number of daily upserts.
    """
    rows = _flights()
    rows = rows.slice(0, max(1000, int(rows.num_rows * scale)))
    some = rows.take(_drawn(rows.num_rows, min(int(100_000 * scale), rows.num_rows)))
    steps = [
        _written(folder, "flights", BULK_INSERT, rows),
        _written(folder, "flights-100000", UPSERT_100_000, changed(some, 1)),
    ]
    for number, date in enumerate(pc.unique(rows["dt"]).to_pylist()[:days], 2):
        day = rows.filter(pc.equal(rows["dt"], date))
        steps.append(_written(folder, f"day-{date}", DAILY, changed(day, number)))
    return steps


def few_row_steps(folder: Path, scale: float, upserts: int) -> list[Step]:
    """Write the flights and some upserts of 100 of them; return the writes in order."""
    rows = _flights()
    rows = rows.slice(0, max(1000, int(rows.num_rows * scale)))
    steps = [_written(folder, "few", BULK_INSERT, rows)]
    for number in range(1, upserts + 1):
        some = rows.take(_drawn(rows.num_rows, 100, number))
        steps.append(_written(folder, f"few-{number}", UPSERT_100, changed(some, number)))
    return steps


def generated_steps(folder: Path, count: int) -> list[Step]:
    """Write a generated table of ``count`` rows and an upsert of 1 % of its keys."""
    path = folder / "generated.parquet"
    with pq.ParquetWriter(path, generated(0, 1).schema) as writer:
        for first in range(0, count, _BATCH_ROWS):
            writer.write_table(generated(first, min(count, first + _BATCH_ROWS)))
    some = changed(_of_numbers(_drawn(count, max(1, count // 100))), 1)
    return [
        Step(BULK_INSERT, path, count),
        _written(folder, "generated-1-percent", ONE_PERCENT, some),
    ]


def generated(first: int, end: int) -> pa.Table:
    """Return the generated rows with the numbers ``first`` to ``end - 1``."""
    return _of_numbers(np.arange(first, end))


def _of_numbers(numbers: np.ndarray) -> pa.Table:
    # Keys arrive in no order: the factor is odd, so this is a permutation of 32-bit numbers.
    mixed = numbers * 2_654_435_761 % (1 << 32)
    return pa.table(
        {
            ID: [f"key-{each:010}" for each in mixed],
            PARTITION: [f"p{each}" for each in mixed % _PARTITIONS],
            ORDERING: np.zeros(len(numbers), np.int64),
            "amount": mixed % 1_000_003,
            "ratio": mixed / 7.0,
            "text": [f"text {each % 99_991}" for each in mixed],
        }
    )


def changed(rows: pa.Table, number: int) -> pa.Table:
    """Return rows with the time ``number`` and another ``amount`` or ``distance``."""
    amount = "amount" if "amount" in rows.column_names else "distance"
    values = {ORDERING: pa.array(np.full(rows.num_rows, number)), amount: pc.add(rows[amount], 1)}
    for name, column in values.items():
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), column.cast(rows.schema.field(at).type))
    return rows


def totals(steps: list[Step]) -> Mapping[str, int]:
    """Return what a table must hold after the steps: its number of rows, and the sum of ``ts``."""
    times: dict[str, int] = {}
    for step in steps:
        rows = pq.read_table(step.rows, columns=[ID, ORDERING])
        times |= zip(rows[ID].to_pylist(), rows[ORDERING].to_pylist(), strict=True)
    return {"rows": len(times), "ts": sum(times.values())}


def _flights() -> pa.Table:
    """Return the flights with one key column, their month as partition and ``ts`` 0."""
    found = flights()
    schema = pa.schema([field for field in SCHEMA if field.name in found.columns])
    rows = pa.Table.from_pandas(found, schema, preserve_index=False).replace_schema_metadata()
    key = [rows[name].cast(pa.string()) for name in KEY]
    return (
        rows.append_column(ID, pc.binary_join_element_wise(*key, "-"))
        .append_column(PARTITION, pc.utf8_slice_codeunits(rows["dt"], 0, 7))
        .append_column(ORDERING, pa.array(np.zeros(rows.num_rows, np.int64)))
    )


def _drawn(rows: int, count: int, seed: int = _SEED) -> np.ndarray:
    return np.random.default_rng(seed).choice(rows, count, replace=False)


def _written(folder: Path, name: str, operation: str, rows: pa.Table) -> Step:
    path = folder / f"{name}.parquet"
    pq.write_table(rows, path)
    return Step(operation, path, rows.num_rows)
