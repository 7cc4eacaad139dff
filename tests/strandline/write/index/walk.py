"""Random writes under one index, and a plain model of the rows that they leave."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from strandline import WriteClient
from strandline.write.engine.local import LocalEngine
from tests.kit.tables import reader
from tests.strandline.write.tables import OPTIONS

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("region", pa.string()),
        ("ts", pa.int64()),
        ("name", pa.string()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
REGIONS = ("eu", "us", "asia")
IDS = 24
BUCKETS = 3

Row = dict[str, Any]


@dataclass(frozen=True)
class Rules:
    """The index and merge mode of a table.

    Attributes:
        index: The index type.
        moves: Whether a global index moves records.
        by_time: Whether the row with the greater ``ts`` wins; otherwise the later one.
    """

    index: str
    moves: bool = True
    by_time: bool = True

    @property
    def is_global(self) -> bool:
        return self.index.startswith("GLOBAL")

    def options(self) -> dict[str, str]:
        moves = str(self.moves).lower()
        mode = "EVENT_TIME_ORDERING" if self.by_time else "COMMIT_TIME_ORDERING"
        buckets = {"hoodie.bucket.index.num.buckets": str(BUCKETS)}
        return OPTIONS | {
            **(buckets if self.index == "BUCKET" else {}),
            "hoodie.index.type": self.index,
            "hoodie.simple.index.update.partition.path": moves,
            "hoodie.bloom.index.update.partition.path": moves,
            "hoodie.write.record.merge.mode": mode,
            # Several file groups in each partition.
            "hoodie.parquet.small.file.limit": "0",
            "hoodie.parquet.max.file.size": "6000",
            "hoodie.copyonwrite.record.size.estimate": "1000",
        }


RULES = (
    Rules("SIMPLE"),
    Rules("BLOOM"),
    Rules("BUCKET"),
    Rules("BUCKET", by_time=False),
    Rules("GLOBAL_SIMPLE"),
    Rules("GLOBAL_SIMPLE", by_time=False),
    Rules("GLOBAL_SIMPLE", moves=False),
    Rules("GLOBAL_BLOOM"),
)
"""Rules of random walks, also of those in which columns change."""
_COVERING = (
    *(Rules("BLOOM"), Rules("BUCKET", by_time=False)),
    *(Rules("GLOBAL_SIMPLE", moves=False), Rules("GLOBAL_BLOOM")),
)
"""Each kind of index, either merge mode, records that move and that don't."""
LONG_WALKS = [
    pytest.param(rules, marks=() if rules in _COVERING else pytest.mark.product) for rules in RULES
]
"""The rules of long walks, of which `tox` takes those that cover the others."""


@dataclass
class Model:
    """What the table must hold: the identity of each record → its partition and row."""

    rules: Rules
    records: dict[Any, tuple[str, Row]] = field(default_factory=dict)

    def identity(self, row: Row) -> Any:
        return row["id"] if self.rules.is_global else (row["id"], row["region"])

    def insert(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.records[self.identity(row)] = (row["region"], row)

    def upsert(self, rows: Iterable[Row]) -> None:
        newest: dict[Any, Row] = {}
        for row in rows:
            key = self.identity(row)
            newest[key] = self._winner(newest.get(key), row)
        for key, row in newest.items():
            partition, stored = self.records.get(key, (row["region"], None))
            if self._winner(stored, row) is row:
                self.records[key] = (row["region"] if self.rules.moves else partition, row)
                if row["_hoodie_is_deleted"]:
                    del self.records[key]

    def delete(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.records.pop(self.identity(row), None)

    def _winner(self, older: Row | None, newer: Row) -> Row:
        late = older is not None and self.rules.by_time and newer["ts"] < older["ts"]
        return older if late else newer

    def rows(self) -> list[tuple[str, tuple]]:
        return sorted((where, tuple(row.values())) for where, row in self.records.values())


class Walk:
    """A client and the model of its table; each step writes by both and compares.

    Args:
        base: Base path of the table.
        rules: Its rules.
        client: The client.
        rng: Draws the writes.
        frame: Makes the frame that the client takes, from a table.
    """

    def __init__(
        self,
        base: Path,
        rules: Rules,
        client: WriteClient,
        rng: random.Random,
        frame: Callable[[pa.Table], Any] | None = None,
    ) -> None:
        self._base, self._rules, self._client, self._rng = base, rules, client, rng
        self._frame = frame
        self.model = Model(rules)
        self._now = 0

    @classmethod
    @contextmanager
    def begun(
        cls,
        base: Path,
        rules: Rules,
        seed: int,
        engine: Any = None,
        frame: Callable[[pa.Table], Any] | None = None,
    ) -> Iterator[Walk]:
        """Write the first rows; have the client within the block."""
        # The executors' way is tested, not the driver's, which is a local engine.
        options = rules.options() | {"strandline.write.driver.max.rows": "0"}
        with WriteClient(engine or LocalEngine(), str(base), options) as client:
            walk = cls(base, rules, client, random.Random(seed), frame)
            walk._now = 10
            rows = [walk._row(number, REGIONS[number % 3]) for number in range(IDS // 2)]
            walk._write("bulk_insert", rows)
            yield walk

    def step(self) -> None:
        """Write something."""
        self._now += 1
        operation = self._rng.choice(("upsert", "upsert", "upsert", "delete", "insert"))
        if operation == "insert":
            first = self._now * IDS
            rows = [self._row(first + number) for number in range(self._rng.randint(1, 5))]
        else:
            numbers = self._rng.choices(range(IDS), k=self._rng.randint(1, 9))
            rows = [self._row(number) for number in numbers]
        self._write(operation, rows)

    def _row(self, number: int, region: str | None = None) -> Row:
        ts = self._now - self._rng.choice((0, 0, 0, 1, 5))
        name = f"{number}@{self._now}.{self._rng.random()}"
        deleted = region is None and number < IDS and self._rng.random() < 0.15
        return dict(
            zip(
                SCHEMA.names,
                (f"k{number}", region or self._rng.choice(REGIONS), ts, name, deleted),
                strict=True,
            )
        )

    def _write(self, operation: str, rows: list[Row]) -> None:
        table = pa.Table.from_pylist(rows, SCHEMA)
        getattr(self._client, operation)(table if self._frame is None else self._frame(table))
        apply = {"bulk_insert": "insert"}.get(operation, operation)
        getattr(self.model, apply)(rows)
        assert self._found() == self.model.rows(), f"after {operation} of {rows}"

    def _found(self) -> list[tuple[str, tuple]]:
        """Return the rows of the newest files with their partition paths."""
        found, buckets = [], set()
        for (partition, file_id), name in reader.newest_files(self._base).items():
            for row in reader.stored_rows(self._base / partition / name):
                assert row["_hoodie_partition_path"] == partition
                found.append((partition, tuple(row[column] for column in SCHEMA.names)))
                if self._rules.index == "BUCKET":
                    assert int(file_id[:8]) == bucket(row["_hoodie_record_key"])
            if self._rules.index == "BUCKET":
                assert (partition, file_id[:8]) not in buckets
                buckets.add((partition, file_id[:8]))
        return sorted(found)


def bucket(key: str) -> int:
    """Return the bucket of a key of one column, as Java computes it."""
    hashed = 0
    for letter in key:
        hashed = hashed * 31 + ord(letter)
    return (31 + hashed & 0x7FFFFFFF) % BUCKETS
