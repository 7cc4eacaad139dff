"""A plain model of a table's rows, written from Hudi's rules, and of the commits that made them.

A key is a record key in a partition. It may have several rows, because inserts aren't compared with
stored rows. An upsert merges each of them with the newest of the write's rows of that key:

* by commit time the later row wins;
* by event time the row with the greater ordering value wins, of equal ones the later. (Ordering
  values are longs greater than 0, for which Hudi's deletes have no rule of their own.)

A row whose ``_hoodie_is_deleted`` is true is compared like any other and, if it wins, removes the
key's row. A delete removes all rows of its keys; an overwrite all rows of its rows' partitions, or
of the table.

Hudi 1.2.0 doesn't reach all of them: of several rows of a key in one file it merges or deletes the
first, because its reader of file groups takes a change out of its buffer once it has met the key.
The others are given to the model as *hidden*. Hudi 0.15.0 and Strandline reach them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from strandline.records.meta_fields import IS_DELETED
from tests.oracle.turns.table_form import EVENT

Row = Mapping[str, Any]
Key = tuple[Any, ...]
State = Mapping[Key, tuple[Row, ...]]

OVERWRITING: Final = ("insert_overwrite", "insert_overwrite_table", "delete_partition")


def comparable(rows: Iterable[Row]) -> list[tuple[tuple[str, Any], ...]]:
    """Return rows in an order and a form in which two tables can be compared."""
    return sorted((tuple(sorted(row.items())) for row in rows), key=repr)


@dataclass
class RowModel:
    """What a table must hold.

    Attributes:
        key_fields: Columns that make up a key: of the record key and of the partition path.
        mode: The table's merge mode.
        partition_fields: Columns of the partition path.
        state: Key → its rows.
        commits: (requested time, state after it) of each commit that can be undone or restored.
    """

    key_fields: Sequence[str]
    mode: str
    partition_fields: Sequence[str] = ()
    state: State = field(default_factory=dict)
    commits: list[tuple[str, State]] = field(default_factory=list)

    @property
    def rows(self) -> list[Row]:
        """All rows."""
        return [row for rows in self.state.values() for row in rows]

    def key_of(self, row: Row) -> Key:
        """Return a row's key."""
        return tuple(row[name] for name in self.key_fields)

    def after(self, operation: str, batch: Iterable[Row], hidden: Iterable[str] = ()) -> State:
        """Return the rows after a write.

        Args:
            operation: The method of ``WriteClient``.
            batch: The write's rows, in their order; of ``delete_partition`` one of each partition.
            hidden: Values ``v`` of the rows that the write doesn't reach, one for each row.
        """
        if operation == "upsert":
            return self._changed(self._newest(batch), hidden, insert=True)
        if operation == "delete":
            return self._changed({self.key_of(row): None for row in batch}, hidden)
        rows = list(batch)
        state = dict(self.state)
        if operation in OVERWRITING:
            of_table = operation == "insert_overwrite_table"
            gone = None if of_table else {self._partition_of(row) for row in rows}
            state = {
                key: kept
                for key, stored in self.state.items()
                if (kept := self._outside(stored, gone))
            }
        for row in () if operation == "delete_partition" else rows:
            if not row[IS_DELETED]:
                state[self.key_of(row)] = (*state.get(self.key_of(row), ()), row)
        return state

    def committed(self, instant: str, state: State) -> None:
        """Record a commit."""
        self.state = state
        self.commits.append((instant, state))

    def rolled_back(self, instant: str) -> None:
        """Undo the last commit."""
        assert self.commits.pop()[0] == instant
        self.state = self.commits[-1][1]

    def restored(self, instant: str) -> None:
        """Undo the commits after one."""
        while self.commits[-1][0] != instant:
            self.commits.pop()
        self.state = self.commits[-1][1]

    def _partition_of(self, row: Row) -> Key:
        return tuple(row[name] for name in self.partition_fields)

    def _outside(self, rows: Iterable[Row], gone: set[Key] | None) -> tuple[Row, ...]:
        """Return the rows outside some partitions; ``None``: all are gone."""
        return tuple(
            row for row in rows if gone is not None and self._partition_of(row) not in gone
        )

    def _newest(self, batch: Iterable[Row]) -> dict[Key, Row]:
        newest: dict[Key, Row] = {}
        for row in batch:
            key = self.key_of(row)
            newest[key] = self._winner(newest[key], row) if key in newest else row
        return newest

    def _changed(
        self, changes: Mapping[Key, Row | None], hidden: Iterable[str], *, insert: bool = False
    ) -> State:
        """Return the rows after changes; ``None`` deletes."""
        state, unreached = dict(self.state), Counter(hidden)
        for key, row in changes.items():
            left: list[Row | None] = []
            for old in state.pop(key, ()):
                is_hidden = unreached[old["v"]] > 0
                unreached[old["v"]] -= is_hidden
                left.append(old if is_hidden else row and self._winner(old, row))
            if not left and insert:
                left.append(row)
            kept = tuple(each for each in left if each and not each[IS_DELETED])
            if kept:
                state[key] = kept
        return state

    def _winner(self, older: Row, newer: Row) -> Row:
        is_late = self.mode == EVENT and newer["ts"] < older["ts"]
        return older if is_late else newer
