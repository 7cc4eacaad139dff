"""Plans of moves between groups: what they promise, by greed and by the solver."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.fleet.mounts import Mount, MountTable
from strandline.fleet.planning.milp import open_solver
from strandline.fleet.planning.placement import (
    GroupCapacity,
    Marks,
    Placement,
    TableLoad,
    Weights,
)
from strandline.fleet.planning.plan import Answer, Plan, as_text, greedy, plan
from tests.strandline.fleet.planning.planned import ALL, check, fleets, groups, small, where
from timeline.errors import ConfigError
from timeline.storage.table_id import TableId

GIB = 1 << 30


def test_nothing_moves_while_all_are_below_their_marks() -> None:
    """However unequal they are."""
    found = plan([small("a", "x", 0.59)], groups("x", "y"))
    assert found == Plan(found.greedy, None, "no group is above a mark")
    assert found.better.moves == ()
    assert found.better.objective == (0, 0)


def test_the_busiest_table_that_has_room_goes_to_the_idlest_group() -> None:
    tables = [
        *(small(name, "x", load) for name, load in {"a": 1.1, "b": 0.5, "c": 0.2}.items()),
        small("d", "y", 0.4),
        small("e", "z", 0.3),
    ]
    found = plan(tables, groups("x", "y", "z"), ALL).greedy
    # What must go is more than b and c have: a fits nowhere, and is named.
    assert where(found) == {"/lake/b": "z", "/lake/c": "y"}
    assert [(unfit.group, unfit.tables) for unfit in found.unfit] == [("x", ("/lake/a",))]
    assert found.unfit[0].reason == (
        "x stays at 110% of its mark of load: no other group could hold /lake/a"
    )
    assert found.moves[0].reason == "x is at 180% of its mark of load, of which 50.0% move"


def test_memory_counts_with_all_copies_that_a_group_can_have() -> None:
    one = [GroupCapacity("x", (GIB,)), GroupCapacity("y", (GIB, GIB, GIB, GIB))]
    table = TableLoad("/lake/a", "x", 0, GIB // 2)
    other = replace(table, table="/lake/b")
    found = plan([table, other], one).greedy
    assert where(found) == {"/lake/a": "y"}
    assert found.moved_bytes == 3 * GIB // 2
    assert found.groups[1].memory_after == pytest.approx(1.5 / 3.2)


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)  # as if it weren't installed
    with pytest.raises(ConfigError, match="needs scipy") as refused:
        open_solver()
    assert refused.value.hint == "pip install 'strandline[plan]'; --greedy does without"


def test_a_solver_that_is_late_or_fails_leaves_the_greedy_proposal() -> None:
    tables = [small("a", "x", 0.7), small("b", "x", 0.6)]
    for answer in (Answer(None, "the solver found nothing within 10 s"), Answer((0, 0), "late")):
        found = plan(tables, groups("x", "y"), ALL, solver=lambda *_, answer=answer: answer)
        assert found.note == answer.note
        assert found.better is found.greedy
        assert where(found.better) == {"/lake/a": "y"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t, g: (t * 2, g), "table /lake/a is given twice"),
        (lambda t, g: (t, g * 2), "group x is given twice"),
        (lambda t, g: ([replace(t[0], group="n")], g), "/lake/a is in group n; given are: x, y"),
        (lambda _, __: ([], []), "no group is given"),
        (lambda t, _: (t, [GroupCapacity("x", ())]), "group x has no server"),
        (lambda t, g: ([replace(t[0], load=-1.0)], g), "load of /lake/a is -1.0; allowed"),
        (lambda t, g: ([replace(t[0], load=float("nan"))], g), "load of /lake/a is nan"),
    ],
)
def test_bad_input_is_named(change: Callable[..., tuple[list, list]], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan(*change([small("a", "x", 0.5)], groups("x", "y")))


def test_bad_marks_and_weights_are_named() -> None:
    for wrong in ({"load": 0}, {"memory": 1.5}, {"load": float("nan")}):
        with pytest.raises(ConfigError, match="mark"):
            Marks(**wrong)
    for wrong in ({"load": 0}, {"entries": -1}):
        with pytest.raises(ConfigError, match="weight"):
            Weights(**wrong)


@pytest.mark.property
@given(fleets(), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_greedy_promises(
    fleet: tuple[list[TableLoad], list[GroupCapacity]], dice: random.Random
) -> None:
    tables, made = fleet
    found = plan(tables, made, ALL)
    check(tables, made, found.greedy)
    dice.shuffle(tables)
    dice.shuffle(made)
    assert plan(tables, made, ALL) == found


@pytest.mark.property
@given(fleets())
@settings(max_examples=100, deadline=None)
def test_greedy_leaves_nothing_that_one_move_would_mend(
    fleet: tuple[list[TableLoad], list[GroupCapacity]],
) -> None:
    tables, made = fleet
    placement = Placement(tables, made, ALL)
    at = greedy(placement)
    shares = placement.shares(at)
    for place, one in enumerate(placement.tables):
        here = shares[at[place]]
        above = [share > 1 + 1e-4 for share in here]
        if one.fixed or not any(above):
            continue
        gives = placement.share(place, at[place])
        if not any(part and is_above for part, is_above in zip(gives, above, strict=True)):
            continue
        for group in range(len(made)):
            takes = placement.share(place, group)
            fits = all(have + more <= 1 for have, more in zip(shares[group], takes, strict=True))
            assert group == at[place] or not fits


def test_a_plan_as_text_has_reasons_and_shares() -> None:
    found = plan([small("a", "x", 0.7), small("b", "x", 0.6)], groups("x", "y"), ALL)
    assert as_text(found).splitlines() == [
        "no solver was asked",
        "",
        "greedy: 1 moves, 0.0 MB, cost 5.000",
        "  /lake/a: x -> y: x is at 130% of its mark of load, of which 70.0% move",
        "  x: load 130% -> 60% of its mark, memory 0% -> 0%",
        "  y: load 0% -> 70% of its mark, memory 0% -> 0%",
    ]


def text(path: str) -> str:
    return str(TableId.of(path).normal())


def mounted(tables: list[TableLoad]) -> tuple[list[TableLoad], MountTable]:
    """Return tables with mounts that give them to their groups: of folders, else of each."""
    found, mounts = [], list[Mount]()
    for folder in sorted({one.folder for one in tables}):
        inside = [one for one in tables if one.folder == folder]
        is_one = len({one.group for one in inside}) == 1 and not any(o.mounted for o in inside)
        mounts += [Mount.of(folder, inside[0].group)] if is_one else []
        mounts += [] if is_one else [Mount.of(one.table, one.group) for one in inside]
        found += [replace(one, mounted=not is_one) for one in inside]
    return found, MountTable(tuple(mounts))


@pytest.mark.property
@given(fleets())
def test_a_plan_that_is_carried_out_brings_each_group_below_its_marks(
    drawn: tuple[list[TableLoad], list[GroupCapacity]],
) -> None:
    """Move by move, as ``fleet plan --apply`` does; but groups that the plan names as unfit."""
    tables, mounts = mounted(drawn[0])
    made = plan(tables, drawn[1], ALL).better
    for move in made.moves:
        assert {mounts.group(text(table)) for table in move.tables} == {move.source}
        mounts = mounts.moving(Mount.of(move.prefix, move.destination))
    after = [replace(one, group=mounts.group(text(one.table))) for one in tables]
    placement = Placement(after, drawn[1], ALL)
    unfit = {one.group for one in made.unfit}
    for group, shares in zip(placement.groups, placement.shares(placement.home), strict=True):
        assert group.name in unfit or max(shares) <= 1 + 2e-4
    planned = {table: move.destination for move in made.moves for table in move.tables}
    assert [one.group for one in after] == [planned.get(o.table, o.group) for o in tables]
