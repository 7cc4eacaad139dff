"""``RowFilter``: the condition on rows, a pyarrow expression on the table's columns."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from strandline.settings.setting import nearest
from timeline.errors import InputError

_FORMS: Final = (
    "allowed: an expression such as pyarrow.compute.field('price') > 9, or pyarrow's list of"
    " triples, such as [('price', '>', 9)]"
)
_POSITION: Final = "non-name field_refs"
_UNSUITABLE: Final = (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError)
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
        """Return the filter for a caller's argument.

        Args:
            given: An expression, or triples in the form of ``pyarrow.parquet.read_table``: a list
                of conditions that all hold, or a list of such lists of which one holds.
            schema: All columns of the table.

        Raises:
            InputError: It has neither form, doesn't fit the columns' types, or names an unknown
                column.
        """
        condition = _expression(given)
        _check(condition, schema)
        return cls(condition, tuple(_needed(condition, schema)))

    def joined(self, other: RowFilter, schema: pa.Schema) -> RowFilter:
        """Return the conjunction of this filter and another one."""
        columns = {*self.columns, *other.columns}
        names = tuple(name for name in schema.names if name in columns)
        return RowFilter(self.condition & other.condition, names)

    def keep(self, rows: pa.Table) -> pa.Table:
        """Return the rows for which the condition is true, in order, with the same columns.

        Args:
            rows: Rows with at least the columns ``columns``, in the table's types.

        Raises:
            InputError: It casts a value that can't be cast.
        """
        try:
            return rows.filter(self.condition)
        except _UNSUITABLE as exc:
            types = {name: rows.schema.field(name).type for name in self.columns}
            raise _unsuitable(self.condition, types, exc) from exc


def unknown_column(name: str, schema: pa.Schema) -> InputError:
    """Return the error for an unknown column; it names the most similar one."""
    close = nearest(name, schema.names)
    return InputError(
        f"the table has no column {name!r}; it has {schema.names}",
        hint=None if close is None else f"did you mean {close!r}?",
    )


def _expression(given: Any) -> pc.Expression:
    if isinstance(given, pc.Expression):
        return given
    if isinstance(given, str | bytes):
        raise InputError(f"filter is the text {given!r}; {_FORMS}")
    if not isinstance(given, Sequence):
        raise InputError(f"filter is {given!r}; {_FORMS}")
    try:
        found = pq.filters_to_expression(given)
    except (OverflowError, TypeError, ValueError, pa.ArrowException) as exc:
        raise InputError(f"filter is {given!r}: {exc}; {_FORMS}") from exc
    _check_values(given)
    return found


def _check_values(given: Sequence[Any]) -> None:
    """Refuse values that pyarrow would misinterpret.

    It would treat a text as the values of ``in`` as a list of its letters; and a comparison with
    null is null for all rows.
    """
    alternatives = [given] if isinstance(given[0][0], str) else given
    for name, operator, value in chain.from_iterable(alternatives):
        what = f"filter is {given!r}, where {name!r} is compared by {operator!r} with {value!r}"
        if operator in ("in", "not in"):
            if isinstance(value, str | bytes):
                raise InputError(f"{what}; allowed: a list of values, such as [{value!r}]")
        elif value is None:
            null = f"pyarrow.compute.field({name!r}).is_null()"
            raise InputError(
                f"{what}, which is true for no row; allowed: a value",
                hint=f"rows without a value are {null}, the others ~{null}",
            )


def _check(condition: pc.Expression, schema: pa.Schema) -> None:
    # A slice is read without the columns that aren't needed, so positions would shift.
    if _has_position(condition):
        raise InputError(
            f"filter {expression_text(condition)} has a column by its position, FieldPath(…);"
            " allowed: names, as in pyarrow.compute.field('price')"
        )
    # pyarrow compares some types, and casts constants, only if there is a row.
    nulls = [pa.nulls(1, field.type) for field in schema]
    try:
        pa.Table.from_arrays(nulls, schema=schema).filter(condition)
    except _UNSUITABLE as exc:
        unknown = _UNKNOWN.search(str(exc))
        if unknown is not None:
            raise unknown_column(unknown.group(1), schema) from exc
        raise _unsuitable(condition, _first_columns(condition, schema), exc) from exc


def _has_position(condition: pc.Expression) -> bool:
    """Return whether a column is given by its position, which Arrow refuses to serialise.

    The text of an expression is ambiguous: quotes in the texts of a list aren't escaped there.
    """
    try:
        pickle.dumps(condition)
    except pa.ArrowNotImplementedError as exc:
        return _POSITION in str(exc)
    return False


def _first_columns(condition: pc.Expression, schema: pa.Schema) -> dict[str, pa.DataType]:
    """Return the columns and types of an expression up to where it can't be bound."""
    found: dict[str, pa.DataType] = {}
    while True:
        try:
            pa.schema(list(found.items())).empty_table().filter(condition)
        except _UNSUITABLE as exc:
            missing = _UNKNOWN.search(str(exc))
            if missing is None or missing.group(1) in found:
                return found
            found[missing.group(1)] = schema.field(missing.group(1)).type
        else:
            return found


def _unsuitable(
    condition: pc.Expression, columns: Mapping[str, pa.DataType], exc: Exception
) -> InputError:
    types = ", ".join(f"{name} is {kind}" for name, kind in columns.items())
    where = f", in which {types}" if types else ""
    what = f"filter {expression_text(condition)} doesn't suit the table{where}"
    first_line = str(exc).partition("\n")[0]
    return InputError(f"{what}: {first_line}")


def _needed(condition: pc.Expression, schema: pa.Schema) -> list[str]:
    """Return the columns without which an expression can't be bound, by bisection.

    pyarrow has no other way to find the columns of an expression.
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


def expression_text(condition: pc.Expression) -> str:
    """Return an expression as text, which may leave out parts of long lists and values.

    Expressions have no other way of inspection. pyarrow truncates a long text in a list at a number
    of bytes, maybe within a character; then ``str`` fails. Here the rest of that character becomes
    ``U+FFFD``.
    """
    try:
        return str(condition)
    except UnicodeDecodeError as exc:
        return exc.object.decode(errors="replace")
