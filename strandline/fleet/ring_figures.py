"""Figures of rings: how even they are, what moves when they change, what fails with servers; pure.

All take names of tables, such as random ones: shares are theirs, not those of the circle.

Source: Dev and Patgiri, *Dr. Hadoop* (DCMS), sections 5.3 and 6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import product

from executor_proxy.seat_ring import SeatRing

Down = tuple[bool, ...]
"""Which of the servers, by number, are down."""


def fullest(loads: Iterable[int], servers: int) -> float:
    """Return the greatest load by the mean of all servers'."""
    each = list(loads)
    return max(each) / (sum(each) / servers)


def owned(ring: SeatRing, tables: Sequence[str]) -> Counter[int]:
    """Return seat number → tables that it owns."""
    return Counter(ring.owners(table)[0].number for table in tables)


def kept(ring: SeatRing, tables: Sequence[str]) -> Counter[int]:
    """Return seat number → tables of which it has a copy."""
    return Counter(seat.number for table in tables for seat in ring.owners(table))


def moved(before: SeatRing, after: SeatRing, tables: Sequence[str]) -> Counter[int]:
    """Return seat number → tables that it owns after a change, and didn't own before."""
    pairs = ((before.owners(table)[0], after.owners(table)[0]) for table in tables)
    return Counter(new.number for old, new in pairs if new != old)


def copied(before: SeatRing, after: SeatRing, tables: Sequence[str]) -> Counter[int]:
    """Return seat number → tables of which it has a copy after a change, and had none before."""
    return Counter(
        seat.number
        for table in tables
        for seat in set(after.owners(table)).difference(before.owners(table))
    )


def expected(value: Callable[[Down], float], servers: int, fails: float) -> float:
    """Return the mean of a value over all sets of servers that can be down.

    Of a condition it is the chance that it holds.

    Args:
        value: The value for a set.
        servers: How many there are.
        fails: The chance that a server is down.

    Cost: 2 to the power of ``servers`` calls.
    """
    return sum(
        value(state) * fails ** sum(state) * (1 - fails) ** (servers - sum(state))
        for state in product((False, True), repeat=servers)
    )


def lost_share(ring: SeatRing, tables: Sequence[str]) -> Callable[[Down], float]:
    """Return the share of tables all of whose owners are down, as a function of which seats are."""
    groups = Counter(tuple(seat.number for seat in ring.owners(table)) for table in tables)
    return lambda state: (
        sum(count for group, count in groups.items() if all(state[number] for number in group))
        / len(tables)
    )
