"""Random writes to a table whose columns change, and a plain model of the rows that they leave."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from strandline.records.meta_fields import IS_DELETED
from tests.kit.tables.row_text import with_dicts
from tests.strandline.write.evolution.column_changes import ColumnChanges, Columns, Evolution
from tests.strandline.write.evolution.column_values import (
    WIDER,
    converted,
    draw_value,
)
from tests.strandline.write.index.walk import Model, Row, Rules

REGIONS: Final = ("eu", "us", "asia")
IDS: Final = 16
"""Number of keys that most writes draw from."""
LARGEST: Final = 6
"""Rows of the largest batch."""
FIXED: Final = pa.schema(
    [("id", pa.string()), ("region", pa.string()), ("ts", pa.int64()), (IS_DELETED, pa.bool_())]
)
"""Columns that all rows have."""
OVERWRITE: Final = "insert_overwrite"
OVERWRITE_TABLE: Final = "insert_overwrite_table"
OPERATIONS: Final = ("upsert", "insert", "bulk_insert", "delete", OVERWRITE, OVERWRITE_TABLE)
SMALL_FILES: Final = "hoodie.parquet.small.file.limit"
FILE_SIZE: Final = "hoodie.parquet.max.file.size"


@dataclass(frozen=True)
class Write:
    """One write.

    Attributes:
        operation: Name of the client's method.
        rows: The rows.
        columns: The table's columns afterwards.
        options: Options of this write.
        evolution: Which changes of columns its options allow.
        is_refused: Whether it must be refused, and leave the table as it was.
    """

    operation: str
    rows: pa.Table
    columns: pa.Schema
    options: Mapping[str, str]
    evolution: Evolution
    is_refused: bool = False

    def __str__(self) -> str:
        told = " ".join(f"{name}={value}" for name, value in self.options.items())
        kinds = ", ".join(f"{field.name} {field.type}" for field in self.rows.schema)
        refused = ", to be refused" if self.is_refused else ""
        rows = "".join(f"\n    {row}" for row in self.rows.to_pylist())
        return f"{self.operation}{refused} {told} [{kinds}]{rows}"


class Walk:
    """Draws writes, and follows what they do to the table.

    Args:
        rules: The rules of the table.
        seed: Of all that is drawn.
        wider: Type of a column → types that it may widen to.

    Attributes:
        columns: The table's columns.
        model: The table's rows.
    """

    def __init__(
        self,
        rules: Rules,
        seed: int,
        wider: Mapping[pa.DataType, Sequence[pa.DataType]] = WIDER,
    ) -> None:
        self._rng = random.Random(seed)
        self._changes = ColumnChanges(self._rng, FIXED.names, wider)
        self._rules, self._now = rules, 0
        self.columns = FIXED
        self.model = Model(rules)
        self._kinds: dict[str, tuple[int, Callable[[], Write]]] = {
            "upsert": (12, self._upsert),
            "insert": (3, lambda: self._insert("insert")),
            "bulk_insert": (2, lambda: self._insert("bulk_insert")),
            "delete": (2, self._delete),
            OVERWRITE: (2, lambda: self._overwrite(OVERWRITE)),
            OVERWRITE_TABLE: (2, lambda: self._overwrite(OVERWRITE_TABLE)),
            "refused": (2, self._refused),
        }

    def first(self) -> Write:
        """Return the write that makes the table."""
        self._now += 10
        columns = self._changes.first(FIXED)
        places = [(number, REGIONS[number % 3]) for number in range(IDS)]
        return self._made("insert", Columns(columns, columns), places)

    def draw(self, *, without: Iterable[str] = ()) -> Write:
        """Return another write; ``without``: kinds that aren't drawn."""
        self._now += 1
        kinds = {name: kind for name, kind in self._kinds.items() if name not in without}
        (name,) = self._rng.choices(list(kinds), [weight for weight, _ in kinds.values()])
        return kinds[name][1]()

    def follow(self, write: Write) -> None:
        """Take over what a write has done to the table."""
        if write.is_refused:
            return
        records = self.model.records
        old, given, new = map(_record, (self.columns, write.rows.schema, write.columns))
        for key, (partition, row) in records.items():
            records[key] = (partition, converted(row, old, new))
        self.columns = write.columns
        rows = [with_dicts(row, given) for row in write.rows.to_pylist()]
        if write.operation == "delete":
            self.model.delete(rows)
            return
        rows = [converted(row, given, new) for row in rows]
        if write.operation in (OVERWRITE, OVERWRITE_TABLE):
            regions = {row["region"] for row in rows}
            for key, (partition, _) in list(records.items()):
                if partition in regions or write.operation == OVERWRITE_TABLE:
                    del records[key]
        (self.model.upsert if write.operation == "upsert" else self.model.insert)(rows)

    # Kinds of writes.

    def _upsert(self) -> Write:
        evolution = self._rng.choices(list(Evolution), (3, 3, 2, 1, 1))[0]
        columns = self._changes.draw(self.columns, evolution)
        return self._made("upsert", columns, self._places(), evolution, flagged=0.15)

    def _insert(self, operation: str) -> Write:
        evolution = self._rng.choice(list(Evolution))
        columns = self._changes.draw(self.columns, evolution)
        first = IDS * self._now
        places = [(first + number, self._region()) for number in self._numbers()]
        return self._made(operation, columns, places, evolution)

    def _delete(self) -> Write:
        """Return a delete of a stored key and others, or an upsert if the table is empty."""
        if not self.model.records:
            return self._upsert()
        partition, row = self._rng.choice(list(self.model.records.values()))
        places = dict(self._places()) | {int(row["id"].removeprefix("k")): partition}
        columns = self._rng.choice((self.columns, FIXED.remove(3)))
        return self._made("delete", Columns(columns, self.columns), list(places.items()))

    def _overwrite(self, operation: str) -> Write:
        """Return a write whose keys aren't stored in partitions that stay."""
        evolution = self._rng.choice(list(Evolution))
        columns = self._changes.draw(self.columns, evolution)
        is_all = operation == OVERWRITE_TABLE
        region = self._region()
        stay = {
            row["id"]
            for partition, row in self.model.records.values()
            if partition != region and not is_all and self._rules.is_global
        }
        numbers = [number for number in range(IDS) if f"k{number}" not in stay] or [IDS * self._now]
        chosen = self._rng.sample(numbers, min(len(numbers), self._rng.randint(1, LARGEST)))
        return self._made(operation, columns, [(number, region) for number in chosen], evolution)

    def _refused(self) -> Write:
        columns = Columns(self._changes.incompatible(self.columns), self.columns)
        return replace(self._made("upsert", columns, self._places()), is_refused=True)

    # Rows.

    def _made(
        self,
        operation: str,
        columns: Columns,
        places: Sequence[tuple[int, str]],
        evolution: Evolution = Evolution.DEFAULT,
        *,
        flagged: float = 0.0,
    ) -> Write:
        limit = self._rng.choice(("0", "30000"))
        small = {SMALL_FILES: limit} | ({FILE_SIZE: limit} if limit != "0" else {})
        # The first row is neither late nor a delete, so that the write does something.
        rows = [
            self._row(*place, columns.rows, flagged if at else 0.0, late=0.4 if at else 0.0)
            for at, place in enumerate(places)
        ]
        data = pa.Table.from_pylist(rows, columns.rows)
        return Write(operation, data, columns.table, {**evolution.options, **small}, evolution)

    def _row(
        self,
        number: int,
        region: str,
        columns: pa.Schema,
        flagged: float,
        *,
        late: float,
    ) -> Row:
        """Return a row; ``flagged`` and ``late``: how likely it is a delete, or has an old time."""
        fixed = {
            "id": f"k{number}",
            "region": region,
            "ts": self._now - (self._rng.choice((1, 5)) if self._rng.random() < late else 0),
            IS_DELETED: self._rng.random() < flagged,
        }
        return {
            each.name: fixed[each.name] if each.name in fixed else draw_value(self._rng, each.type)
            for each in columns
        }

    def _places(self) -> list[tuple[int, str]]:
        """Return numbers of keys, most of them stored, and regions, most of them theirs."""
        stored = {row["id"]: partition for partition, row in self.model.records.values()}
        found = []
        for number in self._numbers():
            region = stored.get(f"k{number}")
            stays = region is not None and self._rng.random() < 0.7
            found.append((number, region if stays else self._region()))
        return found

    def _region(self) -> str:
        return self._rng.choice(REGIONS)

    def _numbers(self) -> list[int]:
        return self._rng.sample(range(IDS), self._rng.randint(1, LARGEST))


def _record(columns: pa.Schema) -> pa.StructType:
    return pa.struct(list(columns))
