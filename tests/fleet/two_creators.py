"""Whether two servers may both have called one marker new: see docs/markers.md, "In a fleet".

A router chooses the owner as it knows it, and that one's copy only if it can't reach the owner, or
spares it. So either two routers knew different owners at the same moment, or the copy stood in for
the owner, which it counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from executor_proxy.seat_ring import Layout, Seat, owners


@dataclass(frozen=True)
class Known:
    """What a router knows of the servers that may create a table's markers.

    Attributes:
        group: The group that has the table.
        first: Group → the first of the servers that would have the table there and live; ``None``:
            none lives.
    """

    group: str
    first: Mapping[str, str | None]


def known_of(
    group: str,
    seats: Mapping[str, Iterable[int]],
    living: Mapping[int, str],
    table: str,
    layout: Layout,
) -> Known:
    """Return what a router knows.

    Args:
        group: The group that has the table as far as it knows.
        seats: Group → the numbers of its seats.
        living: Number of a seat → address, of those whose holders it knows to live and be ready.
        table: Text of the table's ``TableId``.
        layout: How it is placed.
    """

    def first(numbers: Iterable[int]) -> str | None:
        ring = [Seat(number, living.get(number)) for number in numbers]
        return next((seat.url for seat in owners(ring, table, layout=layout) if seat.url), None)

    return Known(group, {name: first(numbers) for name, numbers in seats.items()})


def knew_different_owners(moment: Mapping[str, Known]) -> bool:
    """Whether routers knew different owners in a group at one moment; not: different groups.

    While a table moves, only one group's servers create its markers.

    Args:
        moment: Router → what it knew; one that didn't answer is left out.
    """
    groups = {known.group for known in moment.values()}
    return any(len({known.first[group] for known in moment.values()}) > 1 for group in groups)


def may_both_create(
    moments: Iterable[Mapping[str, Known]], before: Mapping[str, int], after: Mapping[str, int]
) -> bool:
    """Whether two routers' requests for the same marker may both be answered that it is new.

    Args:
        moments: What the routers knew, as in ``knew_different_owners``: before the first request,
            between both, and after the second.
        before: Server → how many markers it had created in place of an owner before; a server that
            didn't answer is left out, or as it was last known.
        after: The same afterwards.
    """
    told = tuple(moments)
    if any(knew_different_owners(moment) for moment in told):
        return True
    firsts = {known.first[known.group] for moment in told for known in moment.values()}
    # Its process may have begun anew.
    return any(after[url] != before.get(url, 0) for url in after if url not in firsts)
