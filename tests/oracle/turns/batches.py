"""Draws the rows of the writes of a walk from what the table holds."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from strandline.records.meta_fields import IS_DELETED
from tests.oracle.turns.row_model import Row, RowModel
from tests.oracle.turns.table_form import COMMIT, COMPLEX, NON_PARTITIONED, TableForm

KEYS: Final = 16
"""Number of record keys that most writes draw from."""
LARGEST: Final = 7
"""Rows of the largest batch, before some are doubled."""
_ENCODED: Final = "são paulo/b=1 %"


class Batches:
    """Draws batches of rows; every row has a value of its own.

    Args:
        form: The table's form.
        model: What the table holds.
        rng: The source of all that is drawn.
    """

    def __init__(self, form: TableForm, model: RowModel, rng: random.Random) -> None:
        self._form, self._model, self._rng = form, model, rng
        self._partitions = ["p0", "p1", _ENCODED if form.hive_style else "p2"]
        self._now = self._made = 0
        self.kinds: Mapping[str, tuple[int, str, Callable[[], Sequence[Row]]]] = {
            "upsert": (6, "upsert", self._any),
            "insert": (4, "insert", self._unknown),
            "bulk_insert": (2, "bulk_insert", self._unknown),
            "insert stored keys": (2, "insert", self._stored),
            "insert keys twice": (2, "insert", lambda: self._twice(self._unknown())),
            "insert flagged rows": (2, "insert", lambda: self._flagged(self._unknown())),
            "upsert late rows": (3, "upsert", self._late),
            "upsert keys twice": (3, "upsert", lambda: self._twice(self._any())),
            "upsert deletes": (3, "upsert", lambda: self._flagged(self._late())),
            "upsert nothing": (2, "upsert", list),
            "delete": (3, "delete", self._stored),
            "delete unknown keys": (2, "delete", self._unknown),
        }
        """Kind of a write → its weight, its operation, and what draws its rows."""
        new = self._unknown if form.is_global else self._any  # other partitions keep their rows
        self.kinds = {
            **self.kinds,
            "insert_overwrite": (2, "insert_overwrite", new),
            "insert_overwrite_table": (1, "insert_overwrite_table", new),
        }
        if form.generator != NON_PARTITIONED:
            self.kinds = {
                **self.kinds,
                "delete_partition": (2, "delete_partition", self._of_partitions),
                "upsert a new partition": (2, "upsert", self._in_new_partition),
                "upsert in all partitions": (2, "upsert", self._in_all_partitions),
            }
        if form.has_logs:
            # Logs keep one row of a key; and deletes with their ordering values, against which
            # older rows lose, while after a delete operation they let the base file's row win.
            doubling = ("insert stored keys", "insert keys twice", "insert flagged rows")
            self.kinds = {name: kind for name, kind in self.kinds.items() if name not in doubling}
            self.kinds |= {
                "upsert late rows": (3, "upsert", self._late_stored),
                "upsert deletes": (3, "upsert", lambda: self._flagged(self._stored())),
            }
        if form.is_global:
            # Hudi 1.2.0 inserts a row once for each other partition that its key is stored in.
            doubling = ("insert stored keys", "insert keys twice")
            self.kinds = {name: kind for name, kind in self.kinds.items() if name not in doubling}

    def first(self) -> list[Row]:
        """Return the rows that make the table."""
        self._now += 1
        step = 6 if self._form.is_global else 0
        return [
            self._row(at * step + number, place)
            for at, place in enumerate(self._places())
            for number in range(6)
        ]

    def draw(self, kind: str) -> list[Row]:
        """Return the rows of a write."""
        self._now += 1
        return list(self.kinds[kind][2]())

    def _any(self) -> list[Row]:
        """Rows of keys that may be stored."""
        places = self._places()
        places = self._rng.sample(places, min(len(places), self._rng.randint(1, 2)))
        return [self._row(number, place) for place in places for number in self._numbers()]

    def _of_partitions(self) -> list[Row]:
        """A row of each of some partitions that have rows."""
        found = {self._form.partition_of(row): row for row in self._model.rows}
        chosen = self._rng.sample(sorted(found), min(len(found), self._rng.choice((1, 1, 2))))
        return [found[partition] for partition in chosen]

    def _unknown(self) -> list[Row]:
        """Rows of keys that aren't stored."""
        first = KEYS * self._now
        place = self._rng.choice(self._places())
        return [self._row(first + number, place) for number in self._numbers()]

    def _stored(self) -> list[Row]:
        """New rows of stored keys."""
        keys = sorted(self._model.state, key=repr)
        chosen = self._rng.sample(keys, min(len(keys), self._rng.randint(1, LARGEST)))
        return [self._like(self._model.state[key][0]) for key in chosen]

    def _late(self) -> list[Row]:
        """Rows of stored keys and others, with any ordering value there was."""
        rows = self._stored() + self._any()[:3]
        once = {self._model.key_of(row): row for row in rows}
        return [{**row, "ts": self._rng.randint(1, self._now)} for row in once.values()]

    def _late_stored(self) -> list[Row]:
        """Rows of stored keys, with any ordering value there was."""
        return [{**row, "ts": self._rng.randint(1, self._now)} for row in self._stored()]

    def _flagged(self, rows: list[Row]) -> list[Row]:
        return [{**row, IS_DELETED: self._rng.random() < 0.6} for row in rows]

    def _twice(self, rows: list[Row]) -> list[Row]:
        """Return the rows and a second one of some of their keys, ordering values unlike."""
        again = [
            {**self._like(row), "ts": row["ts"] + self._rng.choice((-1, 1))}
            for row in self._rng.sample(rows, -(-len(rows) // 2))
        ]
        found = rows + again
        self._rng.shuffle(found)
        if self._model.mode == COMMIT:
            # Of two rows Hudi 1.2.0 takes the last, 0.15.0 that with the greatest ordering value.
            found.sort(key=lambda row: row["ts"])
        return found

    def _in_new_partition(self) -> list[Row]:
        self._partitions.append(f"n{len(self._partitions)}")
        places = [place for place in self._places() if place[0] == self._partitions[-1]]
        return [self._row(number, self._rng.choice(places)) for number in self._numbers()]

    def _in_all_partitions(self) -> list[Row]:
        number = self._rng.randrange(KEYS)
        return [self._row(number, place) for place in self._places()]

    def _places(self) -> list[tuple[str, str]]:
        """Return the values of p and q in which keys are drawn."""
        if self._form.generator == NON_PARTITIONED:
            return [("p0", "x")]
        seconds = ("x", "y") if self._form.generator == COMPLEX else ("x",)
        return [(p, q) for p in self._partitions for q in seconds]

    def _numbers(self) -> list[int]:
        return self._rng.sample(range(KEYS), self._rng.randint(1, LARGEST))

    def _row(self, number: int, place: tuple[str, str]) -> Row:
        number, sub = divmod(number, 2) if self._form.generator == COMPLEX else (number, 0)
        return self._like({"id": f"k{number:03}", "sub": sub, "p": place[0], "q": place[1]})

    def _like(self, row: Mapping[str, Any]) -> Row:
        """Return a new row with the key of another."""
        self._made += 1
        own = {"ts": self._now * 10, "v": f"v{self._made}", IS_DELETED: False}
        return {**row, **own}
