"""The table moves on in the middle of a sync or a load.

At every call of a sync, and of a new view's first requests, the table moves to its next step, to
the one after, or, where only something was planned, back to the one before. The answers are those
of one state; the next request's are those of a rebuilt view; clients that are behind get their own
answers or are refused.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from itertools import count, pairwise

import pytest

from fsview.local_view import LocalView
from fsview.table_view import TableView
from tests.kit.storage.troubled_storage import (
    ROLLED_BACK,
    UNCOMMITTED,
    TroubledStorage,
    answers,
    changed,
    changed_since,
    expected,
    loaded,
    partitions_of,
    steps_of,
    table_at,
)
from tests.kit.tables.products import ALL, Product
from timeline.errors import PathNotFoundError, TableNotFoundError, ViewBehindError
from timeline.table.config import CONFIG_PATH

pytestmark = pytest.mark.property

PLANNING = (
    *("bucket_mor_v6", "bucket_mor_v9", "mdt_mor_v6", "mdt_mor_v9", "mor_basic_v6"),
    *("mor_basic_v6_h0150", "mor_basic_v8", "mor_basic_v9", "multi_mor_v6", "nonpart_mor_v9"),
    *("replace_cow_v6", "replace_cow_v9", "replace_mor_v6", "replace_mor_v9"),
    *("savepoint_mor_v6", "walkdev_mor_v6"),
)
"""Scenarios with a step in which something is only planned: elsewhere no table moves back."""

RACES = {"next": (0, 1), "next but one": (1, 2), "back": (1, 0)}
"""Which of three steps in a row a sync begins at, and to which the table moves in it."""

FAULTS = Product(
    {
        "next": ALL,
        "next but one": ALL,
        "back": PLANNING,
        "next at first": ALL,
        "back at first": PLANNING,
        "gone": ALL,
    },
    least=180,
)

TAKEN_BACK = ("clusterings", "back")

IN_FLIGHT = {"rollback_mor_v9": ((7, 8),)}
"""Where a delta commit in flight is rolled back: a view that was opened before and lists after
lacks its logs in raw answers, as no older client is given files of writes in flight."""


class Found:
    """The differences found, and how often each kind of check was made."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.count: Counter[str] = Counter()

    def check(self, what: str, told: str, differs: list[str]) -> None:
        self.count[what] += 1
        if differs:
            self.wrong.append(f"{told}, {what}: {differs}")

    def done(self) -> None:
        assert self.count, "nothing happened"
        assert not self.wrong, f"{len(self.wrong)} of {self.count}: {self.wrong[:5]}"


def only_planned(scenario: str, before: int, after: int) -> bool:
    """Whether all that happened between two steps can be taken back without a trace."""
    then, now = (TableView(table_at(scenario, step)).newest().active for step in (before, after))
    return then.completed() == now.completed()


def closest(said: dict[str, object], states: list[dict[str, object]]) -> list[str]:
    """Return the differences from the most similar state."""
    return min((changed(said, state) for state in states), key=len)


def as_then(table: TableView, pinned: LocalView, then: dict[str, object], scenario: str) -> list:
    """Return how answers to a client that is behind differ from its earlier ones."""
    client = pinned.snapshot.client_timeline
    last = "0" if client.last is None else client.last.requested_time
    try:
        view = LocalView.at(table, last, client.hash)
    except ViewBehindError:
        return []
    return changed_since(answers(view, scenario), then)


@pytest.mark.property
def test_scenarios_that_plan_are_those_in_which_a_table_can_move_back() -> None:
    planning = [
        scenario
        for scenario in ALL
        if any(only_planned(scenario, *two) for two in pairwise(steps_of(scenario)))
    ]
    assert tuple(planning) == PLANNING


@pytest.mark.parametrize(("race", "scenario"), FAULTS.params(*RACES))
def test_the_table_moves_in_a_sync(race: str, scenario: str) -> None:
    found = Found()
    begin, end = RACES[race]
    steps = steps_of(scenario)
    for three in zip(steps, steps[1:], steps[2:], strict=False):
        if race == "back" and not only_planned(scenario, *three[:2]):
            continue
        if three[end] in UNCOMMITTED.get(scenario, ()):
            continue
        states = [expected(scenario, step) for step in three]
        for nth in count(1):
            storage = TroubledStorage(scenario, three[0])
            table = loaded(storage, scenario)
            pinned = LocalView.newest(table)
            storage.step(three[begin])
            with storage.moving(nth, three[end]) as moved:
                table.sync()
            if not moved:
                break
            told = f"{three}, call {nth}"
            said = answers(LocalView.newest(table), scenario)
            found.check("a state that was", told, closest(said, states))
            found.check("older client", told, as_then(table, pinned, states[0], scenario))
            table.sync()
            said = answers(LocalView.newest(table), scenario)
            found.check("caught up", told, changed(said, states[end]))
            found.check("older client later", told, as_then(table, pinned, states[0], scenario))
    found.done()


@pytest.mark.parametrize(("race", "scenario"), FAULTS.params("next at first", "back at first"))
def test_the_table_moves_while_it_is_first_read(race: str, scenario: str) -> None:
    """At start, discovery and each load, the view answers at what it read, or raises an error."""
    found = Found()
    race = race.removesuffix(" at first")
    steps = steps_of(scenario)
    for two in pairwise(steps):
        if race == "back" and not only_planned(scenario, *two):
            continue
        if two in (*ROLLED_BACK.get(scenario, ()), *IN_FLIGHT.get(scenario, ())):
            continue
        begin, end = two if race == "next" else reversed(two)
        states = [expected(scenario, step) for step in (begin, end)]
        # A table of many partitions has many calls that are alike.
        for nth in count(1, 1 + len(partitions_of(scenario)) // 4):
            storage = TroubledStorage(scenario, begin)
            table = TableView(storage)
            told = f"{begin} to {end}, call {nth}"
            with storage.moving(nth, end) as moved:
                view = LocalView.newest(table)
                said = answers(view, scenario)
                differs = min((changed_since(said, then) for then in states), key=len)
                found.check("a state that was", told, differs)
                with suppress(ViewBehindError):
                    LocalView.newest(table).load_all_partitions()
            if not moved:
                break
            again = changed_since(answers(view, scenario), said)
            # A clustering that was taken back pends for nobody any more.
            found.check("the same again", told, [n for n in again if (n, race) != TAKEN_BACK])
            table.sync()
            said = answers(LocalView.newest(table), scenario)
            found.check("caught up", told, changed(said, states[1]))
            differs = min((as_then(table, view, then, scenario) for then in states), key=len)
            found.check("older client later", told, differs)
    found.done()


@pytest.mark.parametrize("scenario", FAULTS.scenarios("gone"))
def test_a_file_that_is_gone_for_a_moment(scenario: str) -> None:
    """It was listed, and isn't there when it is read: the timeline is listed anew."""
    found = Found()
    first, *later = steps_of(scenario)
    storage = TroubledStorage(scenario, first)
    table = loaded(storage, scenario)
    before = first
    for step in later:
        was = expected(scenario, before)
        for nth in count(1):
            gone: list[str] = []

            def flicker(
                at: int, kind: str, path: str, nth: int = nth, gone: list[str] = gone
            ) -> None:
                if at == nth:
                    gone.append(path)
                    if kind == "read":
                        raise PathNotFoundError(f"no file {path}")

            storage.step(step)
            told = f"{step}, call {nth}"
            with storage.acting(flicker):
                refused = False
                try:
                    table.sync()
                except TableNotFoundError:
                    refused = True
            if refused:
                assert gone == [CONFIG_PATH], told
                found.check(
                    "as it was", told, changed(answers(LocalView.newest(table), scenario), was)
                )
                table.sync()
            differs = changed(answers(LocalView.newest(table), scenario), expected(scenario, step))
            if gone and gone[0].endswith(("replacecommit.requested", "clustering.requested")):
                assert set(differs) <= {"clusterings"}  # taken as rolled back, as Hudi does
            else:
                found.check("caught up", told, differs)
            if not gone:
                break
            storage.step(before)
            table = loaded(storage, scenario)
        before = step
    found.done()
