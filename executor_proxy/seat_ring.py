"""``SeatRing``: consistent hashing of tables to the seats of a fleet of servers; pure.

A *seat* is a place on the ring, known by its number; the server that holds it may change. A seat
has ``tokens`` points on the circle of SHA-1's 160-bit values, a table has one, and the seat of the
first point at or after the table's is its *owner*. The copies are at the next other seats to the
right and to the left. Points depend on numbers alone: all clients and servers with the same seats
and layout find the same owners, and replacing the server of a seat moves no table.

At depth 1 a table is a point, so all its partitions have the same owner (the paper's hash of the
parent's path). At depth 2 each partition is one, for tables too large for a server.

Source: Dev and Patgiri, *Dr. Hadoop* (DCMS), sections 3.4, 4.1 and 4.2. There a server has one
point, and neighbours are those of the server. Here a seat has many, because with one the fullest of
ten servers has three times the mean. So neighbours are those of the point, and the tables of a
vacant seat are spread over all others.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from fsview.hash_ring import HashRing
from timeline.errors import ConfigError
from timeline.storage.table_id import TableId

MAX_COPIES: Final = 3
"""The owner and one neighbour on either side."""
MAX_DEPTH: Final = 2
MAX_TOKENS: Final = 10_000
_MORE: Final = 2
"""Further servers that clients know, in case the table's own are down."""
_KEPT_RINGS: Final = 8
"""Rings that a process caches: usually one, briefly those before and after a change."""


def _check(name: str, value: object, least: int, most: int | None) -> None:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_number or value < least or (most is not None and value > most):  # type: ignore[operator]
        allowed = f"at least {least}" if most is None else f"{least} to {most}"
        raise ConfigError(f"{name} is {value!r}; allowed: a whole number, {allowed}")


@dataclass(frozen=True, slots=True)
class Seat:
    """A place on the ring.

    Attributes:
        number: Its identity, from 0.
        url: Address of the server that holds it; ``None`` while it is vacant, which moves no table:
            the next owner serves.

    Raises:
        ConfigError: The number is negative.
    """

    number: int
    url: str | None = None

    def __post_init__(self) -> None:
        _check("a seat's number", self.number, 0, None)


@dataclass(frozen=True, slots=True)
class Layout:
    """The parameters of the ring, equal in the whole fleet.

    Attributes:
        copies: Seats that have a table, its owner included: 1 to 3.
        depth: 1: a whole table at the same seats; 2: each partition at seats of its own.
        tokens: Points of each seat, 1 to 10,000: more make the shares more even. Of ten seats, the
            fullest has about 3 times the mean with 1 and 1.2 times with 100.

    Raises:
        ConfigError: A value isn't allowed.
    """

    copies: int = MAX_COPIES
    depth: int = 1
    tokens: int = 100

    def __post_init__(self) -> None:
        _check("strandline.fleet.copies", self.copies, 1, MAX_COPIES)
        _check("strandline.fleet.depth", self.depth, 1, MAX_DEPTH)
        _check("strandline.fleet.tokens", self.tokens, 1, MAX_TOKENS)


DEFAULT: Final = Layout()


class SeatRing:
    """The points of some seats; immutable, so shared by threads without a lock.

    Args:
        seats: The seats, in any order.
        layout: How tables are placed.

    Raises:
        ConfigError: Two seats have the same number.

    Cost: that of a ``fsview.hash_ring.HashRing``.
    """

    __slots__ = ("_layout", "_ring")

    def __init__(self, seats: Collection[Seat], layout: Layout = DEFAULT) -> None:
        by_number: dict[int, Seat] = {}
        for seat in seats:
            if by_number.setdefault(seat.number, seat) != seat:
                raise ConfigError(
                    f"seat {seat.number} is given twice, held by"
                    f" {by_number[seat.number].url} and {seat.url}; each has one holder"
                )
        self._layout = layout
        self._ring = HashRing(
            {f"seat {number}": by_number[number] for number in sorted(by_number)}, layout.tokens
        )

    def owners(
        self, table: str, partition: str | None = None, layout: Layout | None = None
    ) -> tuple[Seat, ...]:
        """Return the seats that have a table, see ``owners``.

        Args:
            table: Text of the table's ``TableId``.
            partition: Path under the table's base.
            layout: How this table is placed; ``None``: as the others. Its tokens are ignored.
        """
        layout = layout or self._layout
        within = partition if layout.depth == MAX_DEPTH else None
        # No path contains a NUL, so no table's text equals that of another table's partition.
        text = f"{table}\0{within}" if within else table
        return self._ring.first(text, layout.copies)


def owners(
    seats: Collection[Seat], table: str, partition: str | None = None, layout: Layout = DEFAULT
) -> tuple[Seat, ...]:
    """Return the seats that have a table: the owner, the next to its right, the next to its left.

    When a seat joins, it replaces at most one of a table's seats; the table's owner stays or
    becomes the new seat.

    Args:
        seats: The fleet's seats, in any order.
        table: Text of the table's ``TableId``, so that all spellings of a base path are one table.
        partition: Path under the table's base; ``None`` or ``""`` for the table itself. Ignored at
            depth 1.
        layout: How tables are placed.

    Returns:
        ``layout.copies`` distinct seats, or all if there are fewer; none if there is none.

    Raises:
        ConfigError: Two seats have the same number.

    Cost: some microseconds if the seats' ring is cached, else that of making a ``SeatRing``.
    """
    return _ring(frozenset(seats), layout).owners(table, partition)


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses that clients ask about a table, in the order of ``ViewLocation.urls``.

    Attributes:
        urls: Of the owner, of the other copies, and of up to two further servers, each once.
        copies: How many of the first have the table.
    """

    urls: tuple[str, ...]
    copies: int


def addresses(seats: Collection[Seat], base_path: str, layout: Layout = DEFAULT) -> Addresses:
    """Return the addresses that clients ask about a table; vacant seats are left out.

    Args:
        seats: The fleet's seats, in any order.
        base_path: The table's base path in any spelling.
        layout: How tables are placed.

    Raises:
        ConfigError: Two seats have the same number, or none has a server.
    """
    placed = owners(seats, str(TableId.of(base_path).normal()), layout=layout)
    # The further servers begin at the owner's number, so that tables have different ones.
    first = placed[0].number if placed else 0
    others = sorted(
        (seat for seat in seats if seat not in placed),
        key=lambda seat: (seat.number < first, seat.number),
    )
    having = tuple(dict.fromkeys(seat.url for seat in placed if seat.url))
    more = [seat.url for seat in others if seat.url and seat.url not in having]
    if not having and not more:
        raise ConfigError(
            f"none of the fleet's {len(seats)} seats has a server; allowed: one or more"
        )
    return Addresses((*having, *more[:_MORE]), max(len(having), 1))


@lru_cache(maxsize=_KEPT_RINGS)
def _ring(seats: frozenset[Seat], layout: Layout) -> SeatRing:
    return SeatRing(seats, layout)
