"""An SQL condition as the expression that triples give, so that partitions and files are skipped.

The text is what stands behind ``WHERE``: comparisons of a column with a value or another column of
its type, ``in``, ``between``, ``like 'beginning%'``, ``is null``, a boolean column alone, joined by
``and``, ``or``, ``not`` and parentheses. Values are numbers, texts in single quotes, ``true``,
``false``, ``date '…'`` and ``timestamp '…'``. A name is a column's exactly; in double quotes or
backticks it may have any characters; dots lead to fields inside structs. All else is refused, with
its place.

As in SQL a comparison with null is neither true nor false, and ``not`` leaves it so. NaN is neither
equal to, less nor greater than any number, as in pyarrow.

sqlglot parses the text, with a stack frame for each level. So levels are counted first.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from decimal import Decimal
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError
from sqlglot.parser import Parser as SqlParser
from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import Tokenizer as SqlTokenizer

from strandline.read.filter.column_value import FilterColumn, joined, shown
from strandline.read.filter.nan_comparisons import SWAPPED, Compare
from strandline.read.iso_time import IsoTime
from timeline.errors import InputError

LONGEST: Final = 65_536
"""Most characters of a text; parsing takes about 0.2 s then."""
MOST_LEVELS: Final = 24
"""Most levels of parentheses and of ``not``; sqlglot takes some 20 of Python's 1,000 frames for
each."""

_COMPARISONS: Final[Mapping[type[exp.Expr], Compare]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
}
_SIGNS: Final = frozenset(["(", ")", ",", ".", "-", "=", "==", "<>", "!=", "<", "<=", ">", ">="])
_WORDS: Final = (TokenType.STRING, TokenType.NUMBER, TokenType.IDENTIFIER, TokenType.VAR)
_PREFIXES: Final = (TokenType.NOT, TokenType.DASH)
_TIMES: Final = (
    exp.DType.TIMESTAMP,
    exp.DType.TIMESTAMPTZ,
    exp.DType.TIMESTAMPNTZ,
    exp.DType.DATETIME,
)
_SUPPORTED: Final = (
    "allowed: comparisons, in, between, like 'beginning%', is null, and, or, not, parentheses"
)
_LAST: Final = chr(0x10FFFF)
_START: Final = "start"
_SURROGATES: Final = (0xD800, 0xE000)


class _Filters(Dialect):  # type: ignore[misc]
    """SQL with names in double quotes, or in Spark's backticks."""

    class Tokenizer(SqlTokenizer):  # type: ignore[misc]
        """Its words."""

        IDENTIFIERS = ['"', "`"]  # noqa: RUF012 - as the base class has it

    class Parser(SqlParser):  # type: ignore[misc]
        """Its grammar."""

        NO_PAREN_IF_COMMANDS = False  # a text that begins with ``if`` would be logged


def sql_condition(text: str, schema: pa.Schema) -> pc.Expression:
    """Return the condition that a text means.

    Args:
        text: The text.
        schema: The columns of the table.

    Raises:
        InputError: It is longer than ``LONGEST`` or nested deeper than ``MOST_LEVELS``, isn't SQL,
            has parts that aren't supported, an unknown column or a value that doesn't fit the
            column's type; the message names the part and its place.
    """
    if len(text) > LONGEST:
        raise InputError(
            f"filter is a text of {len(text)} characters; allowed: up to {LONGEST}",
            hint="a long list of values is a triple: [('id', 'in', values)]",
        )
    try:
        return _Translation(text, schema).of(_parsed(text))
    except RecursionError:  # other levels than those counted, or a caller deep in the stack
        raise InputError(f"filter {shown(text)} is nested too deeply") from None


def _parsed(text: str) -> exp.Expr:
    """Return the syntax tree of a text."""
    try:
        tokens = _Filters().tokenize(text)
    except TokenError as exc:
        raise InputError(
            f"filter {shown(text)} isn't SQL: quotes or a comment in it have no end"
        ) from exc
    _refuse_signs(tokens, text)
    _refuse_deep(tokens, text)
    try:
        (found,) = _Filters().parser().parse_into(exp.Condition, tokens, text)
    except ParseError as exc:
        raise _unparsed(exc, text) from exc
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as exc:
        # The parser assumes much of odd texts.
        raise InputError(f"filter {shown(text)} isn't an SQL condition; {_SUPPORTED}") from exc
    if found is None:
        raise InputError(f"filter {shown(text)} has no condition; {_SUPPORTED}")
    return found


def _refuse_signs(tokens: list[Token], text: str) -> None:
    """Refuse signs of operators that no condition has, such as brackets and semicolons."""
    for token in tokens:
        is_sign = token.token_type not in _WORDS and not (token.text[:1].isalnum())
        if is_sign and token.text not in _SIGNS:
            raise InputError(
                f"filter {shown(text)}: {shown(token.text)} at character {token.start + 1} isn't"
                f" supported; {_SUPPORTED}"
            )


def _refuse_deep(tokens: list[Token], text: str) -> None:
    """Refuse more levels than the parser's stack has place for."""
    open_ = run = 0
    for token in tokens:
        if token.token_type is TokenType.L_PAREN:
            open_ += 1
        elif token.token_type is TokenType.R_PAREN:
            open_ -= 1
        run = run + 1 if token.token_type in _PREFIXES else 0
        if open_ + run > MOST_LEVELS:
            raise InputError(
                f"filter {shown(text)} has more than {MOST_LEVELS} levels of parentheses and 'not'"
                f" at character {token.start + 1}; allowed: up to {MOST_LEVELS}"
            )


def _unparsed(exc: ParseError, text: str) -> InputError:
    """Return the error for a text that can't be parsed."""
    found = exc.errors[0] if exc.errors else {}
    word, line = found.get("highlight") or "", found.get("line") or 1
    before = sum(len(each) + 1 for each in text.split("\n")[: line - 1])
    at = before + max(1, (found.get("col") or 1) - len(word) + 1)
    return InputError(
        f"filter {shown(text)} isn't an SQL condition: {shown(word)} at character {at} is"
        f" unexpected; {_SUPPORTED}"
    )


class _Translation:
    """Translates parts of a syntax tree."""

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._text = text
        self._schema = schema

    def of(self, node: exp.Expr) -> pc.Expression:
        """Return the condition of a part."""
        node = node.unnest()
        if isinstance(node, exp.And | exp.Or):
            is_and = isinstance(node, exp.And)
            parts = [self.of(each) for each in _operands(node)]
            return joined(parts, operator.and_ if is_and else operator.or_, neutral=is_and)
        if isinstance(node, exp.Not):
            return ~self.of(node.this)
        if type(node) in _COMPARISONS:
            return self._comparison(node, _COMPARISONS[type(node)])
        if isinstance(node, exp.Boolean):
            return pc.scalar(bool(node.this))
        for kind, method in _METHODS.items():
            if type(node) is kind:
                return method(self, node)
        if isinstance(node, exp.Column | exp.Dot):
            return self._flag(node)
        raise self._unsupported(node)

    def _comparison(self, node: exp.Expr, compare: Compare) -> pc.Expression:
        left, right = node.this.unnest(), node.expression.unnest()
        if not _is_column(left):
            left, right, compare = right, left, SWAPPED[compare]
        if not _is_column(left):
            for side in (left, right):
                if not _is_constant(side):
                    raise self._unsupported(side)
            raise self._refused(node, "compares no column; allowed: a column with a value")
        column = self._column(left)
        if _is_column(right):
            return self._of_two(node, column, self._column(right), compare)
        return self._compared(column, compare, right)

    def _of_two(
        self, node: exp.Expr, column: FilterColumn, other: FilterColumn, compare: Compare
    ) -> pc.Expression:
        if column.kind != other.kind or pa.types.is_nested(column.kind):
            raise self._refused(
                node,
                f"compares column {column.name!r}, which is {column.kind}, with {other.name!r},"
                f" which is {other.kind}; allowed: columns of one type that isn't nested",
            )
        return compare(column.expression, other.expression)

    def _among(self, node: exp.Expr) -> pc.Expression:
        values = node.expressions
        if not values:
            raise self._refused(node, "has a query or an empty list; allowed: in (1, 2)")
        column = self._column(node.this)
        with_nulls = self._compared(column, operator.eq, values[0])
        listed = [self._value(each) for each in values]
        with self._placed(node):
            found = column.among(listed)
        # ``isin`` is false for null, and this comparison is null.
        return found | with_nulls

    def _between(self, node: exp.Expr) -> pc.Expression:
        if node.args.get("symmetric"):
            raise self._unsupported(node)
        column = self._column(node.this)
        low = self._compared(column, operator.ge, node.args["low"])
        return low & self._compared(column, operator.le, node.args["high"])

    def _like(self, node: exp.Expr) -> pc.Expression:
        column = self._column(node.this)
        pattern = node.expression.unnest()
        text = pattern.this if isinstance(pattern, exp.Literal) and pattern.is_string else None
        if not (pa.types.is_string(column.kind) or pa.types.is_large_string(column.kind)):
            raise self._refused(node, f"is on the type {column.kind}; allowed: a text column")
        # Spark and PostgreSQL take the character after a backslash as it is, other engines don't.
        if text is None or any(each in text[:-1] for each in "%_") or {*text} & {"\\", "_"}:
            raise self._refused(
                node,
                f"has the pattern {shown(text or pattern.sql())}; allowed: 'beginning%' without"
                " backslashes",
            )
        with self._placed(node):
            found = _begins(column, text[:-1]) if text.endswith("%") else None
            found = column.compared(operator.eq, text) if found is None else found
        return ~found if node.args.get("negate") else found

    def _is(self, node: exp.Expr) -> pc.Expression:
        column, what = self._column(node.this), node.expression.unnest()
        if isinstance(what, exp.Null):
            return column.expression.is_null()
        if not isinstance(what, exp.Boolean) or not pa.types.is_boolean(column.kind):
            raise self._unsupported(node)
        flag = column.expression if what.this else ~column.expression
        return flag & column.expression.is_valid()

    def _flag(self, node: exp.Expr) -> pc.Expression:
        column = self._column(node)
        if not pa.types.is_boolean(column.kind):
            raise self._refused(
                node, f"is a column of the type {column.kind}; allowed alone: a boolean column"
            )
        return column.expression

    def _compared(self, column: FilterColumn, compare: Compare, node: exp.Expr) -> pc.Expression:
        value = self._value(node)
        with self._placed(node):
            return column.compared(compare, value)

    def _column(self, node: exp.Expr) -> FilterColumn:
        node = node.unnest()
        if not _is_column(node):
            raise self._unsupported(node)
        with self._placed(node):
            parts = cast("exp.Column | exp.Dot", node).parts
            return FilterColumn.of([part.name for part in parts], self._schema)

    def _value(self, node: exp.Expr) -> Any:
        """Return a constant: a text, number, flag or time."""
        node = node.unnest()
        if isinstance(node, exp.Literal):
            if node.is_string:
                return node.this
            with suppress(ArithmeticError):
                return Decimal(node.this)
            raise self._refused(node, "is no number; allowed: such as 1, -2.5, 1e3")
        if isinstance(node, exp.Boolean):
            return bool(node.this)
        if isinstance(node, exp.Neg) and isinstance(node.this.unnest(), exp.Literal | exp.Neg):
            found = self._value(node.this)
            if isinstance(found, Decimal):
                return found.copy_negate()
        if isinstance(node, exp.Null):
            raise self._refused(
                node, "is compared, which is true for no row; allowed: is null, is not null"
            )
        if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal):
            return self._time(node)
        raise self._unsupported(node)

    def _time(self, node: exp.Expr) -> IsoTime:
        """Return the time of ``date '…'`` or ``timestamp '…'``."""
        kind = node.args["to"].this
        if kind is not exp.DType.DATE and kind not in _TIMES:
            raise self._unsupported(node)
        try:
            found = IsoTime.parse(node.this.this) if node.this.is_string else None
        except ValueError:
            found = None
        if found is None or (kind is exp.DType.DATE and not found.is_date):
            form = "2024-01-02" if kind is exp.DType.DATE else "2024-01-02 03:04:05"
            raise self._refused(node, f"is no {kind.value.lower()}; allowed: such as '{form}'")
        return found

    def _unsupported(self, node: exp.Expr) -> InputError:
        return self._refused(node, f"isn't supported; {_SUPPORTED}")

    def _refused(self, node: exp.Expr, why: str) -> InputError:
        return InputError(
            f"filter {shown(self._text)}: {shown(node.sql())} at character"
            f" {_place(node, self._text)} {why}"
        )

    @contextmanager
    def _placed(self, node: exp.Expr) -> Iterator[None]:
        """Add a part's place to an error about a column or a value."""
        try:
            yield
        except InputError as exc:
            place = f"{exc.message} (at character {_place(node, self._text)} of the filter)"
            raise InputError(place, hint=exc.hint) from exc


_METHODS: Final[Mapping[type[exp.Expr], Callable[[_Translation, exp.Expr], pc.Expression]]] = {
    exp.In: _Translation._among,
    exp.Between: _Translation._between,
    exp.Like: _Translation._like,
    exp.Is: _Translation._is,
}


def _operands(node: exp.Expr) -> list[exp.Expr]:
    """Return the conditions that a chain of ``and``, or of ``or``, joins, in order."""
    kind, found, left = type(node), [], [node]
    while left:
        each = left.pop()
        if type(each) is kind:
            left += (each.expression, each.this)
        else:
            found.append(each)
    return found


def _is_column(node: exp.Expr) -> bool:
    """Return whether a part is a name, maybe with dots."""
    return isinstance(node, exp.Column | exp.Dot) and all(
        isinstance(part, exp.Identifier) for part in node.parts
    )


def _begins(column: FilterColumn, text: str) -> pc.Expression:
    """Return whether a text column begins with a text: a range, by which files can be skipped."""
    found = column.compared(operator.ge, text)
    start = text.rstrip(_LAST)
    if not start:
        return found
    after = ord(start[-1]) + 1
    after = _SURROGATES[1] if after == _SURROGATES[0] else after
    return found & column.compared(operator.lt, start[:-1] + chr(after))


def _is_constant(node: exp.Expr) -> bool:
    """Return whether a part has no name in it that could be a column's, nor a function."""
    kinds = (exp.Literal, exp.Boolean, exp.Null, exp.Neg, exp.Cast, exp.DataType)
    return all(isinstance(each, kinds) for each in node.walk())


def _place(node: exp.Expr, text: str) -> int:
    """Return the first character of a part, counted from 1; that of the text if it isn't known.

    sqlglot notes the places of names and constants only.
    """
    at: exp.Expr | None = node
    written = node.sql().lower()
    if _START not in node.meta and text.lower().count(written) == 1:
        return text.lower().index(written) + 1
    while at is not None:
        places = [each.meta[_START] for each in at.walk() if _START in each.meta]
        if places:
            return int(min(places)) + 1
        at = at.parent
    return 1
