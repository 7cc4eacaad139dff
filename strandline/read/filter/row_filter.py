"""``RowFilter``: the condition on rows, a pyarrow expression on the table's columns."""

from __future__ import annotations

import operator
import pickle
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from strandline.read.filter.column_value import FilterColumn, joined, shown, unknown_column
from strandline.read.filter.nan_comparisons import Compare
from timeline.errors import ConfigError, InputError

_FORMS: Final = (
    "allowed: a list of triples, such as [('price', '>', 9)], or a list of such lists; SQL text,"
    " such as \"price > 9 and day = 'mon'\"; an expression, such as"
    " pyarrow.compute.field('price') > 9"
)
_OPERATORS: Final[Mapping[str, Compare]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
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
            given: An expression; SQL text (``strandline.read.filter.sql_filter``); or triples in
                the form of ``pyarrow.parquet.read_table``: a list of conditions that all hold, or a
                list of such lists of which one holds. Values in text and triples are cast to the
                columns' types (``strandline.read.filter.column_value``).
            schema: All columns of the table.

        Raises:
            InputError: It has none of these forms, doesn't fit the columns' types, or names an
                unknown column.
            ConfigError: It is SQL text, and sqlglot isn't installed.
        """
        condition = _expression(given, schema)
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


def _expression(given: Any, schema: pa.Schema) -> pc.Expression:
    if isinstance(given, pc.Expression):
        return given
    if isinstance(given, str):
        return _sql_condition(given, schema)
    if isinstance(given, bytes) or not isinstance(given, Sequence):
        raise InputError(f"filter is {shown(given)}; {_FORMS}")
    alternatives = [given] if given and _is_triple(given[0]) else given
    groups = [
        [_condition_of(triple, given, schema) for triple in group]
        for group in alternatives
        if isinstance(group, list | tuple) and group
    ]
    if not groups or len(groups) < len(alternatives):
        raise InputError(f"filter is {shown(given)}; {_FORMS}")
    every = [joined(group, operator.and_, neutral=True) for group in groups]
    return joined(every, operator.or_, neutral=False)


def _sql_condition(text: str, schema: pa.Schema) -> pc.Expression:
    """Return the condition of an SQL text, whose parser is an optional package."""
    try:
        sql = import_module("strandline.read.filter.sql_filter")
    except ImportError as exc:
        raise ConfigError(
            f"filter is the text {shown(text)}; SQL needs sqlglot, which can't be imported: {exc}",
            hint="pip install 'strandline[sql]'",
        ) from exc
    found: pc.Expression = sql.sql_condition(text, schema)
    return found


def _is_triple(given: Any) -> bool:
    """Return whether a part of a list is a triple, not a list of them."""
    if not isinstance(given, list | tuple) or not given:
        return False
    return isinstance(given[0], str) or (len(given) == 3 and isinstance(given[1], str))


def _condition_of(triple: Any, given: Any, schema: pa.Schema) -> pc.Expression:
    """Return the condition of a column's name, an operator and a value."""
    if not isinstance(triple, list | tuple) or len(triple) != 3:
        raise InputError(f"filter is {shown(given)}, where {shown(triple)} is no triple; {_FORMS}")
    name, compared, value = triple
    path = (name,) if isinstance(name, str) else name
    if not isinstance(path, tuple) or not path or not all(isinstance(n, str) for n in path):
        raise InputError(
            f"filter is {shown(given)}, where {shown(name)} is no column; allowed: a name, or names"
            " of a column and the fields inside it, such as ('address', 'city')"
        )
    column = FilterColumn.of(path, schema)
    what = f"filter compares column {column.name!r} by {shown(compared)} with {shown(value)}"
    if compared in ("in", "not in"):
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            raise InputError(f"{what}; allowed: a list of values, such as [{shown(value)}]")
        found = column.among(value)
        return found if compared == "in" else ~found
    if not isinstance(compared, str) or compared not in _OPERATORS:
        raise InputError(f"{what}; allowed: {', '.join([*_OPERATORS, 'in', 'not in'])}")
    if value is None:
        null = f"pyarrow.compute.field({', '.join(map(repr, path))}).is_null()"
        raise InputError(
            f"{what}, which is true for no row; allowed: a value",
            hint=f"rows without a value are {null}, the others ~{null}",
        )
    return column.compared(_OPERATORS[compared], value)


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
            if missing is None or (name := missing.group(1)) in found or name not in schema.names:
                return found
            found[name] = schema.field(name).type
        else:
            return found


def _unsuitable(
    condition: pc.Expression, columns: Mapping[str, pa.DataType], exc: Exception
) -> InputError:
    types = ", ".join(f"{name} is {kind}" for name, kind in columns.items())
    where = f", in which {types}" if types else ""
    what = f"filter {expression_text(condition)} doesn't suit the table{where}"
    first_line = str(exc).partition("\n")[0]
    return InputError(
        f"{what}: {first_line}",
        hint="triples such as [('price', '>', 9)], and SQL text, cast values to a column's type",
    )


def _needed(condition: pc.Expression, schema: pa.Schema) -> list[str]:
    """Return the columns without which an expression can't be bound, in the schema's order.

    pyarrow names the missing ones in its errors; where a name can't be told from the text around
    it, they are found by bisection.
    """
    named = _first_columns(condition, schema)
    if _binds(condition, pa.schema(list(named.items()))):
        return [name for name in schema.names if name in named]

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
