"""Small fleets for plans of moves between groups, and what every proposal promises."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from strandline.fleet.planning.placement import (
    DEFAULT_WEIGHTS,
    GroupCapacity,
    Marks,
    Placement,
    TableLoad,
    excess,
)
from strandline.fleet.planning.plan import Proposal

ALL = Marks(load=1, memory=1)
"""Marks at which a group of a server with 1,000 bytes has room for a load of 1 and 1,000 bytes."""


def small(name: str, group: str, load: float, size: int = 0, **more: bool) -> TableLoad:
    return TableLoad(f"/lake/{name}", group, load, size, copies=1, **more)


def groups(*names: str) -> list[GroupCapacity]:
    return [GroupCapacity(name, (1000,)) for name in names]


def where(proposal: Proposal) -> dict[str, str]:
    return {move.prefix: move.destination for move in proposal.moves}


def applied(tables: list[TableLoad], proposal: Proposal) -> list[TableLoad]:
    to = {table: move.destination for move in proposal.moves for table in move.tables}
    return [replace(one, group=to.get(one.table, one.group)) for one in tables]


NAMES = [f"/lake/{folder}/{table}" for folder in "abc" for table in "tuvw"]


@st.composite
def fleets(draw: st.DrawFn, most: int = 12) -> tuple[list[TableLoad], list[GroupCapacity]]:
    """Draw tables, each above the share that the solver looks at, and two or three groups."""
    made = [
        GroupCapacity(name, tuple([1000] * draw(st.integers(1, 2))))
        for name in draw(st.sampled_from(["xy", "xyz"]))
    ]
    names = draw(st.lists(st.sampled_from(NAMES), max_size=most, unique=True))
    return [
        TableLoad(
            name,
            draw(st.sampled_from(made)).name,
            draw(st.integers(0, 12)) / 10,
            draw(st.integers(5, 900)),
            draw(st.integers(1, 3)),
            mounted=draw(st.booleans()),
            fixed=draw(st.integers(0, 9)) == 0,
        )
        for name in names
    ], made


def check(tables: list[TableLoad], made: list[GroupCapacity], proposal: Proposal) -> None:
    """Check what every proposal promises."""
    placement = Placement(tables, made, ALL)
    to = {name: move.destination for move in proposal.moves for name in move.tables}
    at = {one.table: to.get(one.table, one.group) for one in tables}
    after = Placement(applied(tables, proposal), made, ALL)
    shares = after.shares(after.home)
    named = {unfit.group for unfit in proposal.unfit}
    before = placement.shares(placement.home)
    for group, then, now in zip(placement.groups, shares, before, strict=True):
        if group.name not in named:
            assert max(then) <= 1 + 2e-4
        for old, new in zip(now, then, strict=True):
            assert new <= max(old, 1) + 2e-4
    assert not {one.table for one in tables if one.fixed} & to.keys()
    for move in proposal.moves:
        assert move.reason
        assert move.source != move.destination
        # Without this move, the groups would be further above their marks.
        undone = [
            replace(one, group=one.group if one.table in move.tables else at[one.table])
            for one in tables
        ]
        without = Placement(undone, made, ALL)
        worse = without.shares(without.home)
        assert excess(worse, DEFAULT_WEIGHTS) > excess(shares, DEFAULT_WEIGHTS) or any(
            new > max(old, 1)
            for old_, new_ in zip(shares, worse, strict=True)
            for old, new in zip(old_, new_, strict=True)
        )
