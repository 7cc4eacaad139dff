"""pyarrow conditions that follow from comparisons of engines in which NaN is a number.

In Polars and Spark, NaN equals itself and is greater than all numbers; in pyarrow each comparison
with it is false. So these conditions are only *necessary*: they keep every row for which the
engine's comparison is true, and the engine drops those for which it is false.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

Compare = Callable[[Any, Any], Any]
"""One of Python's six comparisons, in the module ``operator``."""

NEGATED: Final[dict[Compare, Compare]] = {
    operator.eq: operator.ne,
    operator.ne: operator.eq,
    operator.lt: operator.ge,
    operator.ge: operator.lt,
    operator.le: operator.gt,
    operator.gt: operator.le,
}
SWAPPED: Final[dict[Compare, Compare]] = {
    operator.eq: operator.eq,
    operator.ne: operator.ne,
    operator.lt: operator.gt,
    operator.gt: operator.lt,
    operator.le: operator.ge,
    operator.ge: operator.le,
}
_TRUE_OF_NAN: Final = (operator.ne, operator.gt, operator.ge)


def compared(field: pa.Field, compare: Compare, value: pa.Scalar) -> pc.Expression:
    """Return a necessary condition for a column's comparison with a value that isn't NaN or null.

    Args:
        field: The column.
        compare: The comparison; the column is on its left side.
        value: Of the column's type.
    """
    column = pc.field(field.name)
    if pat.is_floating(field.type) and compare in _TRUE_OF_NAN:
        return compare(column, value) | column.is_nan()
    return compare(column, value)


def among(field: pa.Field, values: list[pa.Scalar], *, wanted: bool) -> pc.Expression | None:
    """Return a necessary condition for a column to have one of some values, or none of them.

    Args:
        field: The column.
        values: Of the column's type, without nulls.
        wanted: Whether it must have one; else it must have none.

    Returns:
        The condition; ``None`` for floats.
    """
    if pat.is_floating(field.type):
        return None
    found = pc.field(field.name).isin(pa.array(values, field.type))
    return found if wanted else ~found
