"""Simulates a fleet: load balance, seats moved by joins and leaves, availability; pure.

The fleet's own ring places the tables, which may have random names: the figures include the ring's
randomness, and shares are fractions of the tables, not of the circle.

Source: Dev and Patgiri, *Dr. Hadoop* (DCMS), sections 5.3 and 6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import mean
from typing import Final

from executor_proxy.seat_ring import DEFAULT, Layout, Seat, SeatRing
from strandline.fleet.groups import RACK_TOKENS, groups_of

MAX_SERVERS: Final = 100
MAX_TABLES: Final = 100_000
MAX_RACKS: Final = 10_000
MAX_GROUPS: Final = 50
MAX_ENUMERATED: Final = 12
"""Most servers for which all sets of failed servers are enumerated."""
ENUMERATED_TABLES: Final = 300
"""Most tables for which the chance that any of them has no server is computed."""

Down = tuple[bool, ...]
"""Numbers of the servers that are down."""


@dataclass(frozen=True, slots=True)
class Change:
    """The effect of a change of the ring, as fractions of all tables.

    Attributes:
        moved: Tables with another owner than before.
        even: What ``moved`` would be on an even ring.
        copied: New copies, divided by the number of tables.
    """

    moved: float
    even: float
    copied: float


@dataclass(frozen=True, slots=True)
class Simulation:
    """Figures of a fleet.

    Attributes:
        servers: How many have a seat.
        tables: How many tables were placed.
        layout: How tables were placed.
        owned: Tables that the fullest server owns, divided by the mean of all servers.
        kept: Tables of which the fullest server has a copy, divided by the mean.
        joins: When a server gets a new seat.
        leaves: When a seat goes, the mean of all seats.
        down: Chance that a server is down, which is assumed.
        without_copy: Mean share of tables none of whose servers is up.
        any_without_copy: Chance that there is such a table among the first ``ENUMERATED_TABLES``;
            ``None`` for fleets of more than ``MAX_ENUMERATED``.
        without_server: Chance that no server at all is up.
    """

    servers: int
    tables: int
    layout: Layout
    owned: float
    kept: float
    joins: Change
    leaves: Change | None
    down: float
    without_copy: float
    any_without_copy: float | None
    without_server: float


def simulate(
    servers: int, tables: int = 10_000, layout: Layout = DEFAULT, down: float = 0.01
) -> Simulation:
    """Return the figures of a fleet whose seats have the numbers from 0.

    Args:
        servers: 1 to ``MAX_SERVERS``.
        tables: 1 to ``MAX_TABLES``.
        layout: How tables are placed. At depth 2 read "partition" for "table".
        down: Chance that a server is down, 0 to 1; servers fail independently.

    Cost: a ring and all tables for each seat; a second for 10 servers.
    """
    names = [f"s3://lake/warehouse/table_{number}" for number in range(tables)]
    seats = [Seat(number) for number in range(servers)]
    ring, larger = SeatRing(seats, layout), SeatRing([*seats, Seat(servers)], layout)
    copies = min(layout.copies, servers)
    any_without = None
    if servers <= MAX_ENUMERATED:
        share_of = lost_share(ring, names[:ENUMERATED_TABLES])
        any_without = expected(lambda state: share_of(state) > 0, servers, down)
    return Simulation(
        servers,
        tables,
        layout,
        fullest(owned(ring, names).values(), servers),
        fullest(kept(ring, names).values(), servers),
        _change(ring, larger, names, 1 / (servers + 1)),
        _leaving(ring, seats, layout, names),
        down,
        down**copies,
        any_without,
        down**servers,
    )


@dataclass(frozen=True, slots=True)
class RackSimulation:
    """Figures of groups to which whole racks are assigned, as fractions of all racks.

    Attributes:
        racks: How many racks there are.
        sizes: Group → number of its racks.
        joins: Racks that move when a group is added; 1 / (K + 1) on an even ring.
        leaves: Racks that move when the largest group is removed: its own. ``None``: it is the
            only one.
    """

    racks: int
    sizes: dict[str, int]
    joins: float
    leaves: float | None


def simulate_racks(racks: int, groups: int, tokens: int = RACK_TOKENS) -> RackSimulation:
    """Return the figures of groups named ``group-1`` and so on, by ``groups_of``.

    Args:
        racks: 1 to ``MAX_RACKS``.
        groups: 1 to ``MAX_GROUPS``.
        tokens: Points of each group on the ring of racks.
    """
    places = [f"rack-{number}" for number in range(1, racks + 1)]
    names = [f"group-{number}" for number in range(1, groups + 1)]
    now = groups_of(places, names, tokens)
    sizes = dict.fromkeys(names, 0) | dict(sorted(Counter(now.values()).items()))
    more = groups_of(places, [*names, f"group-{groups + 1}"], tokens)
    largest = max(names, key=lambda name: sizes[name])
    fewer = groups_of(places, [name for name in names if name != largest] or names, tokens)
    return RackSimulation(
        racks,
        sizes,
        _moved(now, more),
        None if groups == 1 else _moved(now, fewer),
    )


def _moved(before: Mapping[str, str], after: Mapping[str, str]) -> float:
    return sum(before[rack] != after[rack] for rack in before) / len(before)


def _change(before: SeatRing, after: SeatRing, names: Sequence[str], even: float) -> Change:
    return Change(
        moved(before, after, names).total() / len(names),
        even,
        copied(before, after, names).total() / len(names),
    )


def _leaving(
    ring: SeatRing, seats: Sequence[Seat], layout: Layout, names: Sequence[str]
) -> Change | None:
    if len(seats) == 1:
        return None
    without = (SeatRing([seat for seat in seats if seat != gone], layout) for gone in seats)
    return _mean(_change(ring, smaller, names, 1 / len(seats)) for smaller in without)


def _mean(changes: Iterable[Change]) -> Change:
    each = list(changes)
    return Change(mean(one.moved for one in each), each[0].even, mean(one.copied for one in each))


def fullest(loads: Iterable[int], servers: int) -> float:
    """Return the greatest load divided by the mean load of all servers."""
    each = list(loads)
    return max(each) / (sum(each) / servers)


def owned(ring: SeatRing, tables: Sequence[str]) -> Counter[int]:
    """Return seat number → number of tables that it owns."""
    return Counter(ring.owners(table)[0].number for table in tables)


def kept(ring: SeatRing, tables: Sequence[str]) -> Counter[int]:
    """Return seat number → number of tables of which it has a copy."""
    return Counter(seat.number for table in tables for seat in ring.owners(table))


def moved(before: SeatRing, after: SeatRing, tables: Sequence[str]) -> Counter[int]:
    """Return seat number → number of tables that it owns after a change, but not before."""
    pairs = ((before.owners(table)[0], after.owners(table)[0]) for table in tables)
    return Counter(new.number for old, new in pairs if new != old)


def copied(before: SeatRing, after: SeatRing, tables: Sequence[str]) -> Counter[int]:
    """Return seat number → number of tables whose copy it gets by a change."""
    return Counter(
        seat.number
        for table in tables
        for seat in set(after.owners(table)).difference(before.owners(table))
    )


def expected(value: Callable[[Down], float], servers: int, fails: float) -> float:
    """Return the mean of a value over all sets of servers that can be down.

    The mean of a condition is the chance that it holds.

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
    """Return a function: seats that are down → share of tables all of whose owners are down."""
    groups = Counter(tuple(seat.number for seat in ring.owners(table)) for table in tables)
    return lambda state: (
        sum(count for group, count in groups.items() if all(state[number] for number in group))
        / len(tables)
    )


def as_text(found: Simulation) -> str:
    """Return a simulation as a table for people."""
    layout = found.layout
    rows: list[tuple[str, str]] = [
        ("tables of the fullest owner, by the mean", f"{found.owned:.2f}"),
        ("copies at the fullest server, by the mean", f"{found.kept:.2f}"),
        *_change_rows("a new seat", found.joins),
        *([] if found.leaves is None else _change_rows("a removed seat", found.leaves)),
        ("a table has no server that is up", f"{found.without_copy:.3g}"),
    ]
    if found.any_without_copy is not None:
        some = min(found.tables, ENUMERATED_TABLES)
        rows.append((f"any of {some} tables has none", f"{found.any_without_copy:.3g}"))
    rows.append(("no server is up", f"{found.without_server:.3g}"))
    width = max(len(what) for what, _ in rows)
    head = (
        f"{found.servers} servers, {found.tables} tables; copies {layout.copies}, depth"
        f" {layout.depth}, tokens {layout.tokens}; a server is down with chance {found.down:g}"
    )
    return "\n".join([head, "", *(f"{what:<{width}}  {figure}" for what, figure in rows)])


def racks_as_text(found: RackSimulation) -> str:
    """Return a simulation of racks as lines for people."""
    number = len(found.sizes)
    lines = [f"{found.racks} racks, {number} groups", ""]
    lines += [f"{name}: {size} racks" for name, size in found.sizes.items()]
    even = 100 / (number + 1)
    lines.append("")
    lines.append(f"a group more: {100 * found.joins:.1f} % of the racks move (even: {even:.1f} %)")
    if found.leaves is not None:
        lines.append(f"the largest group less: {100 * found.leaves:.1f} % of the racks move")
    return "\n".join(lines)


def _change_rows(what: str, change: Change) -> list[tuple[str, str]]:
    return [
        (
            f"{what}: tables with another owner",
            f"{100 * change.moved:.1f} % (even: {100 * change.even:.1f} %)",
        ),
        (f"{what}: new copies, by tables", f"{100 * change.copied:.1f} %"),
    ]
