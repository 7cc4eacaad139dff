"""Translates a Polars predicate into a pyarrow expression.

The two treat NaN, a null in a list of values, and numbers of other types differently. So
an expression is only *necessary* for the predicate
(``strandline.read.filter.nan_comparisons``). Parts of a predicate that pyarrow can't check are left
out.

A Polars expression is analysed without its serialised form, which changes between releases: it is
taken apart, rebuilt, and compared.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from strandline.read.filter.nan_comparisons import NEGATED, SWAPPED, Compare, among, compared

_DEEPEST: Final = 64
"""Levels of a predicate that are translated; deeper parts are left to Polars."""

_KINDS: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    pat.is_boolean,
    pat.is_integer,
    pat.is_floating,
    pat.is_decimal,
    pat.is_date,
    pat.is_timestamp,
    lambda kind: pat.is_string(kind) or pat.is_large_string(kind),
    lambda kind: pat.is_binary(kind) or pat.is_large_binary(kind),
)
"""Types whose values Polars and pyarrow compare in the same way, within the same type."""


def necessary_condition(predicate: pl.Expr, schema: pa.Schema) -> pc.Expression | None:
    """Return a condition that is true for all rows for which a predicate is true.

    Args:
        predicate: As Polars gives it to a source: columns by name, literals cast.
        schema: The columns.

    Returns:
        The condition; ``None`` if it would be true for all rows.
    """
    return _Translation(schema).of(predicate, wanted=True, depth=0)


class _Translation:
    """Translates parts of predicates on one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def of(self, part: pl.Expr, *, wanted: bool, depth: int) -> pc.Expression | None:
        """Return what holds wherever a part is true (``wanted``), or false; ``None`` if unknown."""
        inputs = part.meta.pop()
        if depth == _DEEPEST:
            return None
        if not inputs:
            return self._flag(part, wanted)
        if len(inputs) == 1 and part.meta.eq(~inputs[0]):
            return self.of(inputs[0], wanted=not wanted, depth=depth + 1)
        if len(inputs) == 1:
            return self._test(part, inputs[0], wanted)
        if len(inputs) == 3:
            return self._between(part, inputs, wanted)
        if len(inputs) != 2:
            return None
        for left, right in (inputs, inputs[::-1]):
            if part.meta.eq(left & right) or part.meta.eq(left | right):
                sides = [self.of(side, wanted=wanted, depth=depth + 1) for side in (left, right)]
                return _joined(sides, all_hold=part.meta.eq(left & right) == wanted)
            if part.meta.eq(left.is_in(right)):
                return self._is_in(left, right, wanted)
            for compare in NEGATED:
                if part.meta.eq(compare(left, right)):
                    return self._compared(left, right, compare, wanted)
        return None

    def _field(self, part: pl.Expr) -> pa.Field | None:
        """Return the field if a part is a column, else ``None``."""
        names = part.meta.root_names()
        if len(names) != 1 or names[0] not in self._schema.names:
            return None
        return self._schema.field(names[0]) if part.meta.eq(pl.col(names[0])) else None

    def _flag(self, part: pl.Expr, wanted: bool) -> pc.Expression | None:
        field = self._field(part)
        if field is None or not pat.is_boolean(field.type):
            return None
        return pc.field(field.name) if wanted else ~pc.field(field.name)

    def _test(self, part: pl.Expr, tested: pl.Expr, wanted: bool) -> pc.Expression | None:
        field = self._field(tested)
        if field is None or pat.is_nested(field.type):
            return None
        column = pc.field(field.name)
        for is_null, test in ((True, tested.is_null()), (False, tested.is_not_null())):
            if part.meta.eq(test):
                return column.is_null() if is_null == wanted else column.is_valid()
        return None

    def _compared(
        self, left: pl.Expr, right: pl.Expr, compare: Compare, wanted: bool
    ) -> pc.Expression | None:
        field = self._field(left)
        if field is None:
            left, right, compare = right, left, SWAPPED[compare]
            field = self._field(left)
        if field is None:
            return None
        values = _values(right, field.type)
        if values is None or len(values) != 1:
            return None
        if not wanted:
            compare = NEGATED[compare]
        return compared(field, compare, values[0])

    def _between(self, part: pl.Expr, inputs: list[pl.Expr], wanted: bool) -> pc.Expression | None:
        column, low, high = inputs if self._field(inputs[0]) is not None else inputs[::-1]
        for closed, above, below in (
            ("both", operator.ge, operator.le),
            ("left", operator.ge, operator.lt),
            ("right", operator.gt, operator.le),
            ("none", operator.gt, operator.lt),
        ):
            if part.meta.eq(column.is_between(low, high, closed)):
                sides = [
                    self._compared(column, low, above, wanted),
                    self._compared(column, high, below, wanted),
                ]
                return _joined(sides, all_hold=wanted)
        return None

    def _is_in(self, tested: pl.Expr, listed: pl.Expr, wanted: bool) -> pc.Expression | None:
        field = self._field(tested)
        values = None if field is None else _values(listed, field.type)
        if field is None or values is None:
            return None
        return among(field, values, wanted=wanted)


def _joined(sides: list[pc.Expression | None], *, all_hold: bool) -> pc.Expression | None:
    """Return the conjunction of both sides, or their disjunction; ``None`` if unknown."""
    left, right = sides
    if left is None or right is None:
        known = right if left is None else left
        return known if all_hold else None
    return left & right if all_hold else left | right


def _values(part: pl.Expr, kind: pa.DataType) -> list[pa.Scalar] | None:
    """Return the values of a literal, without nulls, as those of a column's type.

    ``None`` if it isn't a literal, or has a value that Polars and pyarrow compare differently with
    that type.
    """
    if not part.meta.is_literal():
        return None
    found = pl.select(part).to_series().to_arrow()
    if pat.is_large_list(found.type) or pat.is_list(found.type):
        found = found.flatten()
    if not any(is_kind(found.type) and is_kind(kind) for is_kind in _KINDS):
        return None
    if pat.is_timestamp(kind) and kind.tz != found.type.tz:
        return None
    try:
        cast = found.drop_null().cast(kind)
        same = cast.cast(found.type).equals(found.drop_null())
    except pa.ArrowInvalid:
        return None
    return list(cast) if same else None
