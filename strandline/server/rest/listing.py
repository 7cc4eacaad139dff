"""``Listing``: the rows of an answer, made unit by unit, and its pages, which cursors continue.

A unit is a partition, some instants, or all there is; its rows come in blocks, as a partition may
have a million files. A page takes blocks until it has enough rows, so its cost is in proportion to
the blocks that it passes, not to the listing. A *cursor* names a listing that is held, a unit, a
block, and how many of the block's rows that fit the filter are behind it; so a page can be asked
for again.

``Cursors`` holds listings, and with each its snapshot and the lease of its table, for ``HELD_S``
seconds after the last use, at most ``AT_MOST`` and ``AT_MOST_BYTES`` of them. Others are gone. The
largest doesn't count against these bytes, or its first page would drop all others, and itself.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final
from urllib.parse import unquote

from fsview.local_view import InspectedView
from strandline.server.rest.operation import MOST_TERMS, Column, Operation
from strandline.server.rest.parameter import Refusal, bad
from timeline.clock import Clock

HELD_S: Final = 300.0
AT_MOST: Final = 1_000
AT_MOST_BYTES: Final = 64 << 20
"""Of all listings that are held but the largest."""
LARGEST_BYTES: Final = 4 * AT_MOST_BYTES
"""Of one listing."""
UNIT_BYTES: Final = 200
"""Counted for each unit of a listing that is held."""
PAGE_UNITS: Final = 20_000
"""Most units that one page passes: of a filter that fits few rows a page may have fewer."""
PAGE_ROWS: Final = 100_000
"""As ``PAGE_UNITS``: after so many rows, whether they fit or not, a page ends with the block."""

Row = Mapping[str, Any]
BlocksOf = Callable[[Any, int], Iterable[Iterable[Row]]]
"""Returns the blocks of a unit's rows from a number on; may read storage."""


def one_block(rows_of: Callable[[Any], Iterable[Row]]) -> BlocksOf:
    """Return the blocks of units each of which is one."""
    return lambda unit, begin: (rows_of(unit) for _ in range(begin, 1))


@dataclass(frozen=True, slots=True, eq=False)
class Listing:
    """The rows of one answer.

    Attributes:
        head: Members of the answer beside its rows.
        units: What rows are made of, in order.
        blocks_of: The rows of a unit.
        bytes: What is held for it beside its units.
        held: The view that keeps its snapshot; ``None``: it is of no table.
    """

    head: Mapping[str, Any]
    units: Sequence[Any]
    blocks_of: BlocksOf
    bytes: int = 0
    held: InspectedView | None = field(default=None, repr=False)

    @property
    def size(self) -> int:
        """Bytes to be counted while it is held."""
        return self.bytes + UNIT_BYTES * len(self.units)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page begins: a unit, its block, and the rows of it that were on the pages before."""

    unit: int = 0
    block: int = 0
    rows: int = 0


FIRST: Final = Place()


def page(
    listing: Listing,
    place: Place,
    limit: int,
    keep: Callable[[Row], bool],
    go_on: Callable[[], object],
) -> tuple[list[Row], Place | None]:
    """Return the rows of a page, and where the next begins; ``None``: there is none.

    Args:
        listing: The listing.
        place: Where the page begins.
        limit: Most rows.
        keep: Whether a row fits the filter.
        go_on: Called before each block; what it raises ends the page.
    """
    rows: list[Row] = []
    first, behind, passed = place.block, place.rows, 0
    last = min(len(listing.units), place.unit + PAGE_UNITS)
    for number in range(place.unit, last):
        go_on()
        for block, found in enumerate(listing.blocks_of(listing.units[number], first), first):
            go_on()
            fitting = 0
            for row in found:
                passed += 1
                if not keep(row):
                    continue
                if fitting >= behind:
                    if len(rows) == limit:
                        return rows, Place(number, block, fitting)
                    rows.append(row)
                fitting += 1
            behind = 0
            if passed >= PAGE_ROWS:
                return rows, Place(number, block + 1)
        first = behind = 0
    return rows, None if last == len(listing.units) else Place(last)


# Filters.

_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<=": le,
    ">=": ge,
    "!=": ne,
    "=": eq,
    "<": lt,
    ">": gt,
    "~": lambda value, part: part in value,
}
_TERM: Final = re.compile("([a-z_0-9]+)(<=|>=|!=|=|<|>|~)(.*)", re.DOTALL)
_NUMBERS: Final = frozenset({"count", "number"})


def row_filter(operation: Operation, prefix: str | None, text: str | None) -> Callable[[Row], bool]:
    """Return whether a row fits the parameters ``prefix`` and ``filter``.

    A null, or a missing value, fits only ``COLUMN=``.

    Raises:
        Refusal: A term isn't one, or names no column.
    """
    terms = [_term(operation, each, text) for each in text.split(",")] if text else []
    if len(terms) > MOST_TERMS:
        raise bad("filter", text or "", f"at most {MOST_TERMS} terms")
    if prefix:
        first = operation.columns[0].name
        terms.append(lambda row: str(row[first]).startswith(prefix))
    return lambda row: all(fits(row) for fits in terms)


def _term(operation: Operation, term: str, text: str) -> Callable[[Row], bool]:
    found = _TERM.fullmatch(term)
    column = None if found is None else operation.column(found[1])
    if found is None or column is None:
        names = ", ".join(each.name for each in operation.columns)
        raise bad(
            "filter", text, f"terms such as COLUMN>=VALUE, separated by commas; columns: {names}"
        )
    name, compare, wanted = found[1], _OPERATORS[found[2]], unquote(found[3])
    if not wanted and found[2] in ("=", "!="):
        is_empty = found[2] == "="
        return lambda row: (row.get(name) in (None, "")) is is_empty
    convert = _converted(column, found[2], wanted, text)

    def fits(row: Row) -> bool:
        value = row.get(name)
        return value is not None and compare(_comparable(value, found[2]), convert)

    return fits


def _converted(column: Column, operator: str, wanted: str, text: str) -> Any:
    """Return a term's value in the type of its column."""
    if column.type in _NUMBERS and operator != "~":
        try:
            return float(wanted)
        except ValueError:
            raise bad("filter", text, f"a number for {column.name}") from None
    if column.type == "flag":
        if operator not in ("=", "!=") or wanted not in ("true", "false"):
            raise bad("filter", text, f"{column.name}=true or {column.name}=false")
        return wanted
    if column.type in ("texts", "logs") and operator != "~":
        raise bad("filter", text, f"{column.name}~TEXT")
    return wanted


def _comparable(value: Any, operator: str) -> Any:
    """Return a row's value in the form that ``_converted`` has."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float) and operator != "~":
        return value
    return (
        plain(value)
        if isinstance(value, datetime)
        else value
        if isinstance(value, str)
        else str(value)
    )


def plain(value: Any) -> Any:
    """Return a value in a form for JSON: times as text in UTC with milliseconds."""
    if isinstance(value, datetime):
        text = value.astimezone(timezone.utc).isoformat(timespec="milliseconds")
        return text.replace("+00:00", "Z")
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    return value


# Cursors.

_CURSOR: Final = re.compile("([A-Za-z0-9_-]{16})\\.([0-9]{1,9})\\.([0-9]{1,9})\\.([0-9]{1,9})")


@dataclass(slots=True, eq=False)
class _Held:
    listing: Listing
    operation: Operation
    arguments: Mapping[str, Any]
    used_s: float


class Cursors:
    """The listings that cursors name, least recently used first; ``_lock`` guards them."""

    def __init__(self, clock: Clock, *, at_most: int = AT_MOST) -> None:
        self._clock = clock
        self._at_most = at_most
        self._lock = threading.Lock()
        self._held: OrderedDict[str, _Held] = OrderedDict()

    def hold(self, operation: Operation, arguments: Mapping[str, Any], listing: Listing) -> str:
        """Hold a listing from now on; return its name.

        Raises:
            Refusal: It is too large.
        """
        if listing.size > LARGEST_BYTES:
            message = f"the rows take {listing.size} bytes, more than {LARGEST_BYTES}, to be held"
            allowed = "a narrower prefix, or once=true for the first page alone"
            raise Refusal(422, "too_many_rows", message, allowed=allowed)
        name = secrets.token_urlsafe(12)
        with self._lock:
            self._held[name] = _Held(listing, operation, arguments, self._clock.monotonic())
        self.drop_old()
        return name

    def find(
        self, operation: Operation, arguments: Mapping[str, Any], given: Mapping[str, str]
    ) -> tuple[str, Place, Listing, Mapping[str, Any]]:
        """Return what a cursor names: the listing's name, the place, the listing, its arguments.

        Args:
            operation: The operation that is asked.
            arguments: Of this request.
            given: The parameters that it gives.

        Raises:
            Refusal: It is none, is gone, or is of another request.
        """
        text = arguments["cursor"]
        found = _CURSOR.fullmatch(text)
        if found is None:
            raise bad("cursor", text, "`next` of an earlier page", "bad_cursor")
        self.drop_old()
        name = found[1]
        with self._lock:
            held = self._held.get(name)
            if held is not None:
                held.used_s = self._clock.monotonic()
                self._held.move_to_end(name)
        if held is None:
            raise Refusal(
                *(
                    410,
                    "cursor_gone",
                    f"the cursor isn't held any more, {HELD_S:g} s after its use",
                ),
                parameter="cursor",
                value=text,
                allowed="the same request without a cursor, which begins anew",
            )
        for key in given.keys() - {"cursor", "limit"}:
            if held.operation is not operation or arguments[key] != held.arguments[key]:
                message = f"the cursor is of a request with another {key}"
                raise Refusal(
                    *(400, "bad_cursor", message),
                    parameter=key,
                    value=str(given[key]),
                    allowed="the parameters of the first page",
                )
        place = Place(*map(int, found.groups()[1:]))
        if held.operation is not operation or place.unit >= max(1, len(held.listing.units)):
            raise bad("cursor", text, "`next` of an earlier page of this route", "bad_cursor")
        return name, place, held.listing, held.arguments

    def drop_old(self) -> None:
        """Drop the listings that weren't used lately, and the oldest beyond the bounds."""
        with self._lock:
            now, sizes = self._clock.monotonic(), [h.listing.size for h in self._held.values()]
            dropped: list[str] = []
            for at, (name, held) in enumerate(self._held.items()):
                left = sizes[at:]
                if (
                    now - held.used_s < HELD_S
                    and len(left) <= self._at_most
                    and sum(left) - max(left) <= AT_MOST_BYTES
                ):
                    break
                dropped.append(name)
            # Freed outside the lock.
            gone = [self._held.pop(name) for name in dropped]
        del gone

    def __len__(self) -> int:
        return len(self._held)


def cursor_text(name: str, place: Place) -> str:
    """Return the text of a cursor."""
    return f"{name}.{place.unit}.{place.block}.{place.rows}"


def blocks(items: Sequence[Any], many: int = 1_000) -> Iterator[Sequence[Any]]:
    """Yield items in blocks, for units that are cheap one by one."""
    for start in range(0, len(items), many):
        yield items[start : start + many]
