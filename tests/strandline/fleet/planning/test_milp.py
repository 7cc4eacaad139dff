"""The solver's plans: the best of all, with caps, mounts of folders, and limits of time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings

from strandline.fleet.planning.milp import open_solver
from strandline.fleet.planning.placement import (
    DEFAULT_WEIGHTS,
    GroupCapacity,
    Marks,
    Placement,
    TableLoad,
    excess,
)
from strandline.fleet.planning.plan import Answer, plan
from tests.strandline.fleet.planning.planned import ALL, check, fleets, groups, small, where

pytestmark = pytest.mark.property


@pytest.fixture(scope="module")
def solver() -> Callable[..., Answer]:
    return open_solver(gap=0)


def test_figure_2_of_the_paper(solver: Callable[..., Answer]) -> None:
    sizes = {
        "/logs": ("SC0", 500),
        "/user/user1": ("SC1", 1000),
        "/user/user2": ("SC1", 1000),
        "/user/user3": ("SC1", 500),
        "/user/user4": ("SC1", 500),
        "/data": ("SC2", 100),
        "/tmp": ("SC3", 200),
    }
    tables = [TableLoad(name, at, 0, size, 1) for name, (at, size) in sizes.items()]
    four = [GroupCapacity(f"SC{number}", (1500,)) for number in range(4)]
    found = plan(tables, four, Marks(memory=0.8), solver=solver)
    for proposal in (found.greedy, found.milp):
        assert proposal is not None
        assert where(proposal) == {"/user/user1": "SC2", "/user/user2": "SC3"}
        after = [round(1200 * group.memory_after) for group in proposal.groups]
        assert after == [500, 1000, 1100, 1200]
    assert found.note == ""


def test_siblings_that_all_move_are_one_mount(solver: Callable[..., Answer]) -> None:
    # One mount for four tables of the folder is cheaper than one for each of two.
    siblings = [small(f"hot/{n}", "x", 0.2) for n in range(4)]
    tables = [*siblings, small("big/0", "x", 0.6, fixed=True)]
    found = plan(tables, groups("x", "y"), ALL, solver=solver)
    assert found.better is found.milp
    (move,) = found.better.moves
    assert (move.prefix, len(move.tables)) == ("/lake/hot", 4)
    # A table with a mount of its own would stay where it is if its folder's mount changes.
    tables[0] = replace(tables[0], mounted=True)
    apart = plan(tables, groups("x", "y"), ALL, solver=solver)
    assert [len(each.tables) for each in apart.better.moves] == [1, 1]


def test_small_tables_move_with_their_folder(solver: Callable[..., Answer]) -> None:
    """Each has less than the solver looks at; by greed each would need a mount."""
    many = [small(f"many/{n:04}", "x", 0.0019) for n in range(300)]
    found = plan([*many, small("a", "x", 0.6, fixed=True)], groups("x", "y"), ALL, solver=solver)
    assert found.better is found.milp
    assert where(found.better) == {"/lake/many": "y"}
    assert len(found.greedy.moves) == 90


def test_a_solver_without_time_says_so() -> None:
    tables = [small(f"{n}", "x", 0.01 + n / 7919 % 0.05, n * 31 % 97) for n in range(400)]
    found = plan(tables, groups(*"xuvwyz"), ALL, solver=open_solver(limit_s=1e-4))
    assert "the solver" in found.note
    assert found.greedy.excess == 0 or found.greedy.unfit


def test_where_nothing_fits_the_least_excess_is_left(solver: Callable[..., Answer]) -> None:
    tables = [small("a", "x", 0.9), small("b", "x", 0.8), small("c", "y", 0.95)]
    found = plan(tables, groups("x", "y"), ALL, solver=solver)
    # y never was above its mark, and doesn't get there.
    assert found.better.moves == ()
    assert [unfit.group for unfit in found.better.unfit] == ["x"]
    assert "no other group has room" in found.better.unfit[0].reason
    alone = plan(tables[:2], groups("x"), ALL, solver=solver)
    assert "there is no other group" in alone.better.unfit[0].reason


@given(fleets())
@settings(max_examples=60, deadline=None)
def test_the_solver_promises_and_is_never_worse_than_greed(
    solver: Callable[..., Answer], fleet: tuple[list[TableLoad], list[GroupCapacity]]
) -> None:
    tables, made = fleet
    found = plan(tables, made, ALL, solver=solver)
    if found.milp is None:
        assert found.note == "no group is above a mark"
        return
    assert found.note == ""
    check(tables, made, found.milp)
    by_greed = found.greedy
    assert found.milp.excess <= by_greed.excess + 1e-4
    if abs(found.milp.excess - by_greed.excess) < 1e-9:
        assert found.milp.cost <= by_greed.cost + 1e-5
    assert plan(tables[::-1], made[::-1], ALL, solver=solver) == found


@given(fleets(most=5))
@settings(max_examples=30, deadline=None)
def test_the_solver_finds_the_best_of_all_assignments(
    solver: Callable[..., Answer], fleet: tuple[list[TableLoad], list[GroupCapacity]]
) -> None:
    tables, made = fleet
    found = plan(tables, made, ALL, solver=solver)
    placement = Placement(tables, made, ALL)
    before = placement.shares(placement.home)
    best = min(
        (round(excess(shares, DEFAULT_WEIGHTS), 3), placement.cost(at, DEFAULT_WEIGHTS))
        for at in product(range(len(made)), repeat=len(tables))
        if all(
            here == home or not one.fixed
            for here, home, one in zip(at, placement.home, placement.tables, strict=True)
        )
        for shares in [placement.shares(at)]
        if all(
            new <= max(old, 1) + 1e-4
            for old_, new_ in zip(before, shares, strict=True)
            for old, new in zip(old_, new_, strict=True)
        )
    )
    assert found.better.excess == pytest.approx(best[0], abs=1e-3)
    assert found.better.cost <= best[1] + 1e-5
