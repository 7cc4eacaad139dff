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

from strandline.fleet.planning.placement import TOLERANCE, Assignment, Placement, Weights
from strandline.fleet.planning.plan import Answer, Solver
from timeline.errors import ConfigError

PRUNED_BELOW: Final = (0.002, 0.0002)
"""Shares of a mark below which a table moves only with its folder; the second, if nothing fits."""
LIMIT_S: Final = 10.0
_OPTIMAL: Final = 0
_OUT_OF_TIME: Final = 1
_NO_FIT: Final = 2
GAP: Final = 0.01
"""How far above the least cost is near enough, as a share; a proof takes 20 times as long."""
_PERCENT: Final = 100.0
"""Shares are percentages in the program, as in the paper: its tolerance is an absolute 1e-6."""
_SLACK: Final = _PERCENT * TOLERANCE / 2
"""Percentages above a mark that the program allows."""


def open_solver(limit_s: float = LIMIT_S, gap: float = GAP) -> Solver:
    """Return the solver.

    Args:
        limit_s: Seconds after which it returns the best that it has.
        gap: How far above the least cost an assignment is near enough, as a share.

    Raises:
        ConfigError: scipy isn't installed.
    """
    try:
        engine = import_module("scipy.optimize"), import_module("scipy.sparse")
    except ImportError as exc:
        raise ConfigError(
            f"the solver for plans needs scipy, which can't be imported: {exc}",
            hint="pip install 'strandline[plan]'; --greedy does without",
        ) from exc

    def solve(placement: Placement, weights: Weights) -> Answer:
        deadline = time.monotonic() + limit_s
        program = _Program(placement, weights, PRUNED_BELOW[0], gap, engine)
        found = program.within_marks(deadline)
        for least in PRUNED_BELOW[1:]:
            # The tables left out may be what fits.
            wider = _Program(placement, weights, least, gap, engine)
            if found.status == _NO_FIT and len(wider.moves) > len(program.moves):
                program = wider
                found = program.within_marks(deadline)
        if found.status == _NO_FIT:
            found = program.least_above(deadline)
        return program.answer(found, limit_s)

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


@dataclass(frozen=True, slots=True)
class _Nothing:
    """A result in scipy's form: without a call, or put together from those of two calls."""

    status: int
    x: Sequence[float] | None = None
    message: str = "nothing can move"


class _Program:
    """Variables: moves of tables, then of folders, then how far groups stay above their marks."""

    def __init__(
        self,
        placement: Placement,
        weights: Weights,
        least: float,
        gap: float,
        engine: tuple[Any, Any],
    ) -> None:
        (self._optimize, self._sparse), self._gap = engine, gap
        self._placement, self._weights = placement, weights
        self._before = placement.shares(placement.home)
        groups = range(len(placement.groups))
        free = [at for at, one in enumerate(placement.tables) if not one.fixed]
        self._tables = [at for at in free if _matters(placement, [at], least)]
        self._folders = [each for each in placement.siblings if _matters(placement, each, least)]
        self.moves: list[tuple[tuple[int, ...], int]] = [
            ((at,), group) for at in self._tables for group in groups if group != placement.home[at]
        ]
        self._first_folder = len(self.moves)
        self.moves += [
            (each, group)
            for each in self._folders
            for group in groups
            if group != placement.home[each[0]]
        ]

    def within_marks(self, deadline: float) -> Any:
        """Return scipy's result, with the marks as caps."""
        if not self.moves:
            return _Nothing(_NO_FIT)
        return self._run(self._costs(), [], None, deadline)

    def least_above(self, deadline: float) -> Any:
        """Return scipy's result, in which groups above a mark now stay above it by the least.

        No other group gets there.
        """
        if not self.moves:
            return _Nothing(_OPTIMAL, ())
        over = [
            (group, nth, _PERCENT * (share - 1))
            for group, shares in enumerate(self._before)
            for nth, share in enumerate(shares)
            if share > 1 + TOLERANCE
        ]
        weight = (self._weights.load, self._weights.space)
        cost = self._costs()
        least = self._run(
            [*[0.0] * len(cost), *(weight[n] for _, n, _ in over)], over, None, deadline
        )
        if least.status != _OPTIMAL:
            return least
        then = self._run([*cost, *[0.0] * len(over)], over, float(least.fun), deadline)
        # Without a second result, the first is the best, but perhaps not the cheapest.
        return _Nothing(then.status, least.x) if then.x is None else then

    def answer(self, found: Any, limit_s: float) -> Answer:
        """Return what a result means."""
        if found.x is not None:
            proven = found.status == _OPTIMAL
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
        for nth, (tables, group) in enumerate(self.moves):
            # A folder's bytes are its tables', and its mount replaces theirs.
            own = [at for at in tables if nth < self._first_folder or at not in matters]
            moved = sum(placement.bytes_at(at, group) for at in own)
            replaced = 0 if nth < self._first_folder else len(tables) - len(own)
            costs.append(weights.moved * moved / placement.needed_bytes + entry * (1 - replaced))
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
        moves, weight = len(self.moves), (self._weights.load, self._weights.space)
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
            options={"time_limit": left, "mip_rel_gap": self._gap},
        )

    def _rows(self, over: Sequence[tuple[int, int, float]]) -> _Rows:
        placement, rows, infinite = self._placement, _Rows(), float("inf")
        move_of: dict[tuple[int, int], int] = {}
        of_table: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
        matters = set(self._tables)
        caps: defaultdict[tuple[int, int], list[tuple[int, float]]] = defaultdict(list)
        for variable, (tables, group) in enumerate(self.moves):
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
                comes = _PERCENT * sum(placement.share(at, group)[nth] for at in own)
                goes = _PERCENT * sum(placement.share(at, home)[nth] for at in own)
                caps[group, nth].append((variable, comes))
                caps[home, nth].append((variable, -goes))
        for variables in of_table.values():
            rows.add([(variable, 1) for variable in variables], 0, 1)
        slack = {(group, nth): len(self.moves) + at for at, (group, nth, _) in enumerate(over)}
        for group, shares in enumerate(self._before):
            for nth, share in enumerate(shares):
                cells = caps[group, nth]
                if (group, nth) in slack:
                    cells.append((slack[group, nth], -1))
                rows.add(cells, -infinite, _PERCENT * (1 - share) + _SLACK)
        return rows

    def _assignment(self, values: Sequence[float]) -> Assignment:
        at = list(self._placement.home)
        for (tables, group), value in zip(self.moves, values, strict=False):
            if value > 0.5:
                for table in tables:
                    at[table] = group
        return tuple(at)


def _matters(placement: Placement, tables: Sequence[int], least: float) -> bool:
    """Return whether tables take enough of any group to be considered."""
    return any(
        sum(placement.share(at, group)[nth] for at in tables) >= least
        for group in range(len(placement.groups))
        for nth in (0, 1)
    )
