"""``open_solver``: the cheapest moves between groups by a mixed integer linear program; pure.

The model is flat, as tables are the leaves of the namespace and nothing above them has load. For
each table and each group where it isn't there is a binary variable, 1 if it moves there, and for
each folder and group one that is 1 if all its tables move there, under one mount. Tables that take
less than 0.2 % of every group's marks move only with their folder, which keeps the program small.

The caps are the groups' marks. If no assignment keeps them, those that are exceeded now may be, as
little as possible, and the cheapest of these assignments is found.

Source: Misra et al., DH-HDFS, section 4.2, whose model has a variable for each node of a tree.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

from strandline.fleet.placement import TOLERANCE, Assignment, Placement, Weights
from strandline.fleet.plan import Answer, Solver
from timeline.errors import ConfigError

PRUNED_BELOW: Final = 0.002
"""Share of a mark below which a table moves only with its folder."""
LIMIT_S: Final = 10.0
_OPTIMAL: Final = 0
_OUT_OF_TIME: Final = 1
_NO_FIT: Final = 2
_SLACK: Final = TOLERANCE / 2
"""Shares above a mark that the program allows; it may be off by another 1e-6."""


def open_solver(limit_s: float = LIMIT_S) -> Solver:
    """Return the solver.

    Args:
        limit_s: Seconds after which it returns the best that it has.

    Raises:
        ConfigError: scipy isn't installed.
    """
    try:
        optimize, sparse = import_module("scipy.optimize"), import_module("scipy.sparse")
    except ImportError as exc:
        raise ConfigError(
            f"the solver for plans needs scipy, which can't be imported: {exc}",
            hint="pip install 'strandline[plan]'",
        ) from exc

    def solve(placement: Placement, weights: Weights) -> Answer:
        return _Program(placement, weights, optimize, sparse).solved(limit_s)

    return solve


@dataclass(slots=True)
class _Rows:
    """Constraints ``low <= sum(coefficient * variable) <= high``."""

    cells: list[tuple[int, int, float]] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)

    def add(self, cells: Sequence[tuple[int, float]], low: float, high: float) -> None:
        """Add a constraint of (variable, coefficient)."""
        row = len(self.low)
        self.cells.extend((row, variable, value) for variable, value in cells)
        self.low.append(low)
        self.high.append(high)


class _Program:
    """Variables: moves of tables, then of folders, then how far groups stay above their marks."""

    def __init__(self, placement: Placement, weights: Weights, optimize: Any, sparse: Any) -> None:
        self._optimize, self._sparse = optimize, sparse
        self._placement, self._weights = placement, weights
        self._before = placement.shares(placement.home)
        groups = range(len(placement.groups))
        free = [at for at, one in enumerate(placement.tables) if not one.fixed]
        self._tables = [at for at in free if _matters(placement, [at])]
        self._folders = [each for each in placement.siblings if _matters(placement, each)]
        self._moves: list[tuple[tuple[int, ...], int]] = [
            ((at,), group) for at in self._tables for group in groups if group != placement.home[at]
        ]
        self._first_folder = len(self._moves)
        self._moves += [
            (each, group)
            for each in self._folders
            for group in groups
            if group != placement.home[each[0]]
        ]

    def solved(self, limit_s: float) -> Answer:
        """Return the best assignment that is found in time."""
        if not self._moves:
            return Answer(self._placement.home)
        deadline = time.monotonic() + limit_s
        cost = self._costs()
        found = self._run(cost, [], None, deadline)
        proven = found.status == _OPTIMAL
        if found.status == _NO_FIT:
            # Slack is allowed where a group is above a mark now: no other gets there.
            over = [
                (group, nth, share - 1)
                for group, shares in enumerate(self._before)
                for nth, share in enumerate(shares)
                if share > 1 + TOLERANCE
            ]
            weight = (self._weights.load, self._weights.space)
            slack = [weight[nth] for _, nth, _ in over]
            found = self._run([*[0.0] * len(cost), *slack], over, None, deadline)
            if found.status == _OPTIMAL:
                then = self._run([*cost, *[0.0] * len(over)], over, float(found.fun), deadline)
                proven = then.status == _OPTIMAL
                found = found if then.x is None else then
        if found.x is not None:
            note = "" if proven else f"the solver was stopped after {limit_s:g} s"
            return Answer(self._assignment(found.x), note)
        if found.status == _OUT_OF_TIME:
            return Answer(None, f"the solver found nothing within {limit_s:g} s")
        return Answer(None, f"the solver failed: {found.message}")

    def _costs(self) -> list[float]:
        placement, weights = self._placement, self._weights
        matters = set(self._tables)
        entry = weights.entries / placement.folders
        costs = []
        for nth, (tables, group) in enumerate(self._moves):
            # A folder's bytes are its tables', and its mount replaces theirs.
            own = [at for at in tables if nth < self._first_folder or at not in matters]
            moved = sum(placement.bytes_at(at, group) for at in own)
            replaced = 0 if nth < self._first_folder else len(tables) - len(own)
            costs.append(weights.moved * moved / placement.least_bytes + entry * (1 - replaced))
        return costs

    def _run(
        self,
        cost: Sequence[float],
        over: Sequence[tuple[int, int, float]],
        most: float | None,
        deadline: float,
    ) -> Any:
        """Solve once; ``most`` is the greatest weighted slack."""
        rows = self._rows(over)
        moves, weight = len(self._moves), (self._weights.load, self._weights.space)
        if most is not None:
            slack = [(moves + nth, weight[what]) for nth, (_, what, _) in enumerate(over)]
            rows.add(slack, 0, most + _SLACK)
        at = list(zip(*rows.cells, strict=True)) or [(), (), ()]
        matrix = self._sparse.csr_array((at[2], (at[0], at[1])), shape=(len(rows.low), len(cost)))
        left = max(deadline - time.monotonic(), 0.01)
        return self._optimize.milp(
            cost,
            integrality=[1] * moves + [0] * len(over),
            bounds=self._optimize.Bounds(0, [1] * moves + [share + _SLACK for _, _, share in over]),
            constraints=self._optimize.LinearConstraint(matrix, rows.low, rows.high),
            options={"time_limit": left, "mip_rel_gap": 0},
        )

    def _rows(self, over: Sequence[tuple[int, int, float]]) -> _Rows:
        placement, rows, infinite = self._placement, _Rows(), float("inf")
        move_of: dict[tuple[int, int], int] = {}
        of_table: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
        matters = set(self._tables)
        caps: defaultdict[tuple[int, int], list[tuple[int, float]]] = defaultdict(list)
        for variable, (tables, group) in enumerate(self._moves):
            of_table[tables].append(variable)
            own = tables
            if variable < self._first_folder:
                move_of[tables[0], group] = variable
            else:
                own = tuple(at for at in tables if at not in matters)
                for at in tables:
                    if at in matters:
                        rows.add([(move_of[at, group], 1), (variable, -1)], 0, infinite)
            home = placement.home[tables[0]]
            for nth in (0, 1):
                comes = sum(placement.share(at, group)[nth] for at in own)
                goes = sum(placement.share(at, home)[nth] for at in own)
                caps[group, nth].append((variable, comes))
                caps[home, nth].append((variable, -goes))
        for variables in of_table.values():
            rows.add([(variable, 1) for variable in variables], 0, 1)
        slack = {(group, nth): len(self._moves) + at for at, (group, nth, _) in enumerate(over)}
        for group, shares in enumerate(self._before):
            for nth, share in enumerate(shares):
                cells = caps[group, nth]
                if (group, nth) in slack:
                    cells.append((slack[group, nth], -1))
                rows.add(cells, -infinite, 1 + _SLACK - share)
        return rows

    def _assignment(self, values: Sequence[float]) -> Assignment:
        at = list(self._placement.home)
        for (tables, group), value in zip(self._moves, values, strict=False):
            if value > 0.5:
                for table in tables:
                    at[table] = group
        return tuple(at)


def _matters(placement: Placement, tables: Sequence[int]) -> bool:
    """Return whether tables take enough of any group to be considered."""
    return any(
        sum(placement.share(at, group)[nth] for at in tables) >= PRUNED_BELOW
        for group in range(len(placement.groups))
        for nth in (0, 1)
    )
