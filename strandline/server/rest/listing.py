"""``Listing``: the rows of an answer, made unit by unit, and its pages, which cursors continue.

A unit is a partition, some instants, or all there is. A page takes units until it has enough rows,
so its cost is in proportion to the units that it passes, not to the listing. A *cursor* names a
listing that is held, a unit, and how many of the unit's rows that fit the filter are behind it; so
a page can be asked for again.

``Cursors`` holds listings, and with each its snapshot and the lease of its table, for ``HELD_S``
seconds after the last use, at most ``AT_MOST`` and ``AT_MOST_BYTES`` of them. Others are gone.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import islice
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final
from urllib.parse import unquote

from strandline.server.rest.operation import MOST_TERMS, Column, Operation, Refusal, bad
from timeline.clock import Clock

HELD_S: Final = 300.0
AT_MOST: Final = 1_000
AT_MOST_BYTES: Final = 64 << 20
UNIT_BYTES: Final = 200
"""Counted for each unit of a listing that is held."""
PAGE_UNITS: Final = 20_000
"""Most units that one page passes: of a filter that fits few rows a page may have fewer."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Listing:
    """The rows of one answer.

    Attributes:
        head: Members of the answer beside its rows.
        units: What rows are made of, in order.
        rows_of: Returns the rows of a unit; may read storage.
        bytes: What is held for it beside its units.
        held: What keeps its snapshot.
    """

    head: Mapping[str, Any]
    units: Sequence[Any]
    rows_of: Callable[[Any], Iterable[Row]]
    bytes: int = 0
    held: object = field(default=None, repr=False)

    @property
    def size(self) -> int:
        """Bytes to be counted while it is held."""
        return self.bytes + UNIT_BYTES * len(self.units)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page begins: a unit, and the rows of it that were on the pages before."""

    unit: int = 0
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
        go_on: Called before each unit; what it raises ends the page.
    """
    rows: list[Row] = []
    behind = place.rows
    last = min(len(listing.units), place.unit + PAGE_UNITS)
    for number in range(place.unit, last):
        go_on()
        fitting = filter(keep, listing.rows_of(listing.units[number]))
        taken = [*islice(fitting, behind, behind + limit - len(rows) + 1)]
        if len(rows) + len(taken) > limit:
            kept = limit - len(rows)
            return rows + taken[:kept], Place(number, behind + kept)
        rows += taken
        behind = 0
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

_CURSOR: Final = re.compile("([A-Za-z0-9_-]{16})\\.([0-9]{1,9})\\.([0-9]{1,9})")


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
        """Hold a listing from now on; return its name."""
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
        place = Place(int(found[2]), int(found[3]))
        if held.operation is not operation or place.unit >= max(1, len(held.listing.units)):
            raise bad("cursor", text, "`next` of an earlier page of this route", "bad_cursor")
        return name, place, held.listing, held.arguments

    def drop_old(self) -> None:
        """Drop the listings that weren't used lately, and the oldest beyond the bounds."""
        with self._lock:
            now, size = self._clock.monotonic(), sum(h.listing.size for h in self._held.values())
            dropped: list[str] = []
            for name, held in self._held.items():
                is_many = len(self._held) - len(dropped) > self._at_most or size > AT_MOST_BYTES
                if not is_many and now - held.used_s < HELD_S:
                    break
                dropped.append(name)
                size -= held.listing.size
            # Freed outside the lock.
            gone = [self._held.pop(name) for name in dropped]
        del gone

    def __len__(self) -> int:
        return len(self._held)


def cursor_text(name: str, place: Place) -> str:
    """Return the text of a cursor."""
    return f"{name}.{place.unit}.{place.rows}"


def blocks(items: Sequence[Any], many: int = 1_000) -> Iterator[Sequence[Any]]:
    """Yield items in blocks, for units that are cheap one by one."""
    for start in range(0, len(items), many):
        yield items[start : start + many]
