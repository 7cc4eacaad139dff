"""``RowFilter``: which rows are wanted, as an expression of pyarrow's on the table's columns."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from timeline.errors import InputError

_FORMS: Final = (
    "allowed: an expression such as pyarrow.compute.field('price') > 9, or pyarrow's list of"
    " triples, such as [('price', '>', 9)]"
)
_POSITION: Final = re.compile(r"FieldPath\(.*?\)")
_LITERAL: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_UNKNOWN: Final = re.compile(r"No match for FieldRef\.Name\((.*?)\) in")


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A condition on rows; those for which it is false or null are dropped.

    Attributes:
        condition: The expression.
        columns: The columns on which it depends, in the table's order.
    """

    condition: pc.Expression
    columns: tuple[str, ...]

    @classmethod
    def of(cls, given: Any, schema: pa.Schema) -> RowFilter:
        """Return the filter that a caller means.

        Args:
            given: An expression, or triples in the form of ``pyarrow.parquet.read_table``: a list
                of conditions that all hold, or a list of such lists of which one holds.
            schema: All columns of the table.

        Raises:
            InputError: It is neither, it doesn't suit the columns' types, or there is no such
                column.
        """
        condition = _expression(given)
        _check(condition, schema)
        return cls(condition, tuple(_needed(condition, schema)))

    def joined(self, other: RowFilter, schema: pa.Schema) -> RowFilter:
        """Return the condition that this one and another one are true."""
        columns = {*self.columns, *other.columns}
        names = tuple(name for name in schema.names if name in columns)
        return RowFilter(self.condition & other.condition, names)


def unknown_column(name: str, schema: pa.Schema) -> InputError:
    """Return the error for a column that a table lacks, which names the nearest one."""
    close = [each for each in schema.names if each.lower() == name.lower()]
    close = close or difflib.get_close_matches(name, schema.names, 1, 0.6)
    return InputError(
        f"the table has no column {name!r}; it has {schema.names}",
        hint=f"did you mean {close[0]!r}?" if close else None,
    )


def _expression(given: Any) -> pc.Expression:
    if isinstance(given, pc.Expression):
        return given
    if isinstance(given, str | bytes):
        raise InputError(f"filter is the text {given!r}; {_FORMS}")
    if not isinstance(given, Sequence):
        raise InputError(f"filter is {given!r}; {_FORMS}")
    try:
        return pq.filters_to_expression(given)
    except (TypeError, ValueError, pa.ArrowException) as exc:
        raise InputError(f"filter is {given!r}: {exc}; {_FORMS}") from exc


def _check(condition: pc.Expression, schema: pa.Schema) -> None:
    # A slice is read without the columns that nobody asked for, so positions would shift.
    position = _POSITION.search(_LITERAL.sub("", str(condition)))
    if position is not None:
        raise InputError(
            f"filter {condition} has a column by its position ({position.group()});"
            " allowed: names, as in pyarrow.compute.field('price')"
        )
    try:
        schema.empty_table().filter(condition)
    except (pa.ArrowException, TypeError) as exc:
        unknown = _UNKNOWN.search(str(exc))
        if unknown is not None:
            raise unknown_column(unknown.group(1), schema) from exc
        first_line = str(exc).partition("\n")[0]
        raise InputError(f"filter {condition} doesn't suit the table: {first_line}") from exc


def _needed(condition: pc.Expression, schema: pa.Schema) -> list[str]:
    """Return the columns without which an expression can't be bound, by bisection.

    pyarrow has no other way to ask an expression for its columns.
    """

    def needed_of(names: list[str]) -> list[str]:
        left_out = set(names)
        if _binds(condition, pa.schema([f for f in schema if f.name not in left_out])):
            return []
        if len(names) == 1:
            return names
        half = len(names) // 2
        return needed_of(names[:half]) + needed_of(names[half:])

    return needed_of(schema.names)


def _binds(condition: pc.Expression, schema: pa.Schema) -> bool:
    try:
        ds.dataset(schema.empty_table()).scanner(filter=condition)
    except pa.ArrowInvalid:
        return False
    return True
