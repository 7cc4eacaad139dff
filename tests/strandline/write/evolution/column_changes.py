"""Draws the columns of a write's rows, and the columns that the table has afterwards.

Each change is drawn together with its effect, from Hudi's rules; the rules aren't evaluated. All
columns are nullable; a new one has a name that no column has had before.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import Final

import pyarrow as pa

from tests.strandline.write.evolution.column_values import NARROWER, PRIMITIVES, TEXT, WIDER

Fields = Sequence[pa.Field]

MOST: Final = (12, 4, 3, 2)
"""By depth of a record: the number of its fields from which on none is added."""
_NESTED: Final = tuple(kind for kind in PRIMITIVES if not pa.types.is_decimal(kind))
"""Types inside columns: Hudi's readers fail on several decimals there ("Can't redefine")."""


class Evolution(Enum):
    """Which changes the options of a write allow."""

    DEFAULT = "default"
    SET_NULL = "missing columns are null"
    PROJECT = "reconciled, the table has all columns"
    EXTEND = "reconciled, the rows have all columns"
    DROP = "missing columns are dropped"

    @property
    def options(self) -> Mapping[str, str]:
        """Hudi's options."""
        return _OPTIONS[self]

    @property
    def may_lack(self) -> bool:
        """Whether rows may lack columns of the table."""
        return self in (Evolution.SET_NULL, Evolution.PROJECT, Evolution.DROP)

    @property
    def may_add(self) -> bool:
        """Whether rows may have new columns and wider types."""
        return self is not Evolution.PROJECT


_RECONCILE: Final = "hoodie.datasource.write.reconcile.schema"
_OPTIONS: Final[Mapping[Evolution, Mapping[str, str]]] = {
    Evolution.DEFAULT: {},
    Evolution.SET_NULL: {"hoodie.write.set.null.for.missing.columns": "true"},
    Evolution.PROJECT: {_RECONCILE: "true"},
    Evolution.EXTEND: {_RECONCILE: "true"},
    Evolution.DROP: {"hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true"},
}


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of a write.

    Attributes:
        rows: The columns of its rows.
        table: The table's columns afterwards.
    """

    rows: pa.Schema
    table: pa.Schema


class ColumnChanges:
    """Draws changes of a table's columns.

    Args:
        rng: The source of all that is drawn.
        fixed: Names of the columns that keep their types and are never missing.
        wider: Type of a column → types that it may widen to.
    """

    def __init__(
        self,
        rng: random.Random,
        fixed: Sequence[str],
        wider: Mapping[pa.DataType, Sequence[pa.DataType]] = WIDER,
    ) -> None:
        self._rng, self._fixed, self._wider = rng, fixed, wider
        self._numbers = count()

    def first(self, fixed: pa.Schema) -> pa.Schema:
        """Return the columns of a new table."""
        return pa.schema([*fixed, *(self._new_field(0) for _ in range(4))])

    def draw(self, table: pa.Schema, evolution: Evolution) -> Columns:
        """Return the columns of a write to a table with these columns."""
        rows, after = self._fields(list(table), evolution, 0)
        return Columns(pa.schema(rows), pa.schema(after))

    def incompatible(self, table: pa.Schema) -> pa.Schema:
        """Return columns that are refused by default: one is missing, or has another type."""
        changeable = [field.name for field in table if field.name not in self._fixed]
        if not changeable:
            changeable = ["ts"]
        place = table.get_field_index(self._rng.choice(changeable))
        if self._rng.random() < 0.5:
            return table.remove(place)
        held = table.field(place)
        other = pa.list_(TEXT) if not pa.types.is_list(held.type) else pa.struct([("x", TEXT)])
        return table.set(place, held.with_type(other))

    def _fields(
        self, table: Fields, evolution: Evolution, depth: int
    ) -> tuple[list[pa.Field], list[pa.Field]]:
        """Return the fields of the rows' record and of the table's afterwards."""
        kept = [field for field in table if self._keeps(field, evolution, depth)] or table[:1]
        pairs = {field.name: self._change(field, evolution, depth) for field in kept}
        rows = [given for given, _ in pairs.values()]
        # Of rows that are reconciled, a new column brings their order into the table.
        is_extended = evolution is Evolution.EXTEND
        if evolution.may_add and (
            (is_extended and depth == 0) or (len(table) < MOST[depth] and self._rng.random() < 0.3)
        ):
            rows.append(self._new_field(depth))
        if self._rng.random() < 0.4:
            self._rng.shuffle(rows)
        known = {field.name: field for field in table}
        new = [field for field in rows if field.name not in known]
        held = known if evolution is not Evolution.DROP else pairs
        after = [pairs[name][1] if name in pairs else known[name] for name in held] + new
        if is_extended:
            by_name = {field.name: field for field in after}
            after = [by_name[field.name] for field in rows]
        return rows, after

    def _keeps(self, field: pa.Field, evolution: Evolution, depth: int) -> bool:
        is_fixed = depth == 0 and field.name in self._fixed
        return is_fixed or not evolution.may_lack or self._rng.random() > 0.2

    def _change(
        self, field: pa.Field, evolution: Evolution, depth: int
    ) -> tuple[pa.Field, pa.Field]:
        """Return a field of the rows and of the table afterwards."""
        if depth == 0 and field.name in self._fixed:
            return field, field
        rows, table = self._change_type(field.type, evolution, depth)
        return field.with_type(rows), field.with_type(table)

    def _change_type(
        self, kind: pa.DataType, evolution: Evolution, depth: int
    ) -> tuple[pa.DataType, pa.DataType]:
        if pa.types.is_struct(kind):
            rows, table = self._fields(list(kind), evolution, depth + 1)
            return pa.struct(rows), pa.struct(table)
        if pa.types.is_list(kind):
            rows, table = self._change_type(kind.value_type, evolution, depth + 1)
            return pa.list_(rows), pa.list_(table)
        if pa.types.is_map(kind):
            rows, table = self._change_type(kind.item_type, evolution, depth + 1)
            return pa.map_(TEXT, rows), pa.map_(TEXT, table)
        drawn = self._rng.random()
        if drawn < 0.15 and evolution.may_add and kind in self._wider:
            wider = self._rng.choice(self._wider[kind])
            return wider, wider
        narrower = [each for each in NARROWER.get(kind, ()) if not depth or each in _NESTED]
        if drawn > 0.8 and narrower:
            return self._rng.choice(narrower), kind
        return kind, kind

    def _new_field(self, depth: int) -> pa.Field:
        return pa.field(f"c{next(self._numbers)}", self._new_type(depth))

    def _new_type(self, depth: int) -> pa.DataType:
        if depth < 2 and self._rng.random() < 0.4:
            match self._rng.choice(("struct", "list", "map")):
                case "struct":
                    return pa.struct([self._new_field(depth + 1) for _ in range(2)])
                case "list":
                    return pa.list_(self._new_type(depth + 1))
                case "map":
                    return pa.map_(TEXT, self._new_type(depth + 1))
        return self._rng.choice(_NESTED if depth else PRIMITIVES)
