"""``plan``: which tables move to which group of servers, so that none stays above its marks; pure.

Only if a group is above a mark anything moves: unequal groups alone are no reason. Two algorithms
propose moves, and the better proposal is the plan's:

- *greedy* ranks the tables of a stressed group from the busiest to the least busy, and moves them
  to the least busy group with room. It needs no dependency.
- *MILP*, a mixed integer linear program, finds the cheapest moves
  (``strandline.fleet.planning.milp``).

A proposal is better if its groups exceed their marks by less, then if its cost is lower. The cost
has the paper's two factors of what a plan changes, each as a share and weighted: bytes moved, by
those that have to move, and mounts written, by the number of groups or of first folders,
whichever is greater. Its other two factors, load and space of the groups, count only above the
marks: among equal groups their sums are the same in every arrangement, and among unequal ones they
would move tables that needn't. Siblings that all move together are one mount, of their folder.

Source: Misra et al., DH-HDFS, sections 3.4 and 4.2; the greedy one is its baseline (section 6.1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from strandline.fleet.planning.placement import (
    DEFAULT_MARKS,
    DEFAULT_WEIGHTS,
    TOLERANCE,
    Assignment,
    GroupCapacity,
    Marks,
    Placement,
    TableLoad,
    Weights,
    excess,
)

_LEAST_SHARE: Final = 1e-9
"""Differences of shares that are less than this come from the order of additions."""


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """A mount that is to be written.

    Attributes:
        prefix: A table, or the folder of all ``tables``.
        source: Group that has them now.
        destination: Group that gets them.
        tables: The tables that move.
        load: CPU seconds a second of all of them.
        moved_bytes: Memory that they take there, with all copies.
        reason: Why, as a sentence.
    """

    prefix: str
    source: str
    destination: str
    tables: tuple[str, ...]
    load: float
    moved_bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class GroupShares:
    """A group's load and memory before and after a plan, as shares of its marks."""

    name: str
    load_before: float
    load_after: float
    memory_before: float
    memory_after: float

    @property
    def is_above(self) -> bool:
        """Whether it is above a mark after the plan."""
        return max(self.load_after, self.memory_after) > 1 + TOLERANCE


@dataclass(frozen=True, slots=True)
class Unfit:
    """What stays above a mark.

    Attributes:
        group: The group.
        tables: Those of its tables that no other group could hold even if it were empty.
        reason: By how much, and why, as a sentence.
    """

    group: str
    tables: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """What an algorithm proposes.

    Attributes:
        algorithm: ``greedy`` or ``milp``.
        moves: By prefix.
        groups: By name.
        unfit: Groups that stay above their marks.
        excess: Weighted sum of the shares by which groups stay above their marks.
        cost: Weighted sum of bytes moved and mounts written, as shares.
    """

    algorithm: str
    moves: tuple[PlannedMove, ...]
    groups: tuple[GroupShares, ...]
    unfit: tuple[Unfit, ...]
    excess: float
    cost: float

    @property
    def objective(self) -> tuple[float, float]:
        """What is minimised: the excess, then the cost; rounded, as sums depend on their order."""
        return round(self.excess, 3), round(self.cost, 5)

    @property
    def moved_bytes(self) -> int:
        """Bytes of all moves."""
        return sum(move.moved_bytes for move in self.moves)


@dataclass(frozen=True, slots=True)
class Plan:
    """The proposals of both algorithms.

    Attributes:
        greedy: The greedy one.
        milp: The solver's; ``None`` without one, or if it found nothing.
        note: Why there is none, or why it may not be the cheapest; empty: it is proven.
    """

    greedy: Proposal
    milp: Proposal | None
    note: str

    @property
    def better(self) -> Proposal:
        """The one to apply; of equal ones the greedy one."""
        if self.milp is not None and self.milp.objective < self.greedy.objective:
            return self.milp
        return self.greedy


@dataclass(frozen=True, slots=True)
class Answer:
    """What a solver found.

    Attributes:
        assignment: The best one; ``None``: it found none.
        note: Why there is none, or why it isn't proven; empty: it is.
    """

    assignment: Assignment | None
    note: str = ""


Solver = Callable[[Placement, Weights], Answer]
"""Finds the cheapest assignment, or the best within its time; it may take long."""


def plan(
    tables: Iterable[TableLoad],
    groups: Iterable[GroupCapacity],
    marks: Marks = DEFAULT_MARKS,
    weights: Weights = DEFAULT_WEIGHTS,
    solver: Solver | None = None,
) -> Plan:
    """Return which tables should move, if a group is above a mark.

    In each proposal no group is above a mark that wasn't before, a group above one stays there only
    if it is named as unfit, and undoing any single move would leave groups further above.

    Args:
        tables: All tables of the groups, in any order.
        groups: All groups, in any order.
        marks: Above what a group is under stress.
        weights: What counts how much.
        solver: ``strandline.fleet.planning.milp.open_solver``'s; ``None``: greedy alone.

    Returns:
        The proposals; without moves, if no group is above a mark. The same arguments give the same
        proposals, unless the solver's time is up.

    Raises:
        ConfigError: As of ``Placement``.

    Cost: greedy milliseconds for thousands of tables; see the solver.
    """
    placement = Placement(tables, groups, marks)
    if excess(placement.shares(placement.home), weights) == 0:
        still = _proposal("greedy", placement, placement.home, weights)
        return Plan(still, None, "no group is above a mark")
    first = _proposal("greedy", placement, greedy(placement), weights)
    if solver is None:
        return Plan(first, None, "no solver was asked")
    found = solver(placement, weights)
    if found.assignment is None:
        return Plan(first, None, found.note)
    best = in_order_of_names(placement, found.assignment)
    return Plan(first, _proposal("milp", placement, best, weights), found.note)


def greedy(placement: Placement) -> Assignment:
    """Return where the tables are after the busiest ones moved to the least busy groups.

    Groups above the mark of load are relieved first, then those above the mark of memory, by the
    tables with most of it. No destination gets above a mark.

    Source: DH-HDFS, section 6.1, the baseline's rebalancing.
    """
    at = list(placement.home)
    shares = placement.shares(at)
    for resource in (0, 1):
        stressed = sorted(range(len(shares)), key=lambda group: (-shares[group][resource], group))
        for source in stressed:
            tables = [
                table
                for table, group in enumerate(at)
                if group == source and not placement.tables[table].fixed
            ]
            tables.sort(key=lambda table: (-placement.share(table, source)[resource], table))
            for table in tables:
                if shares[source][resource] <= 1 + TOLERANCE:
                    break
                if placement.share(table, source)[resource] > 0:
                    _move_to_idlest(placement, at, shares, table, resource)
    return tuple(at)


def _move_to_idlest(
    placement: Placement, at: list[int], shares: list[list[float]], table: int, resource: int
) -> None:
    """Move a table to the group with the least of a resource that has room, if there is one."""
    source = at[table]
    idlest_first = sorted(range(len(shares)), key=lambda group: (shares[group][resource], group))
    for destination in idlest_first:
        takes = placement.share(table, destination)
        has_room = all(
            have + more <= 1 + TOLERANCE
            for have, more in zip(shares[destination], takes, strict=True)
        )
        if destination != source and has_room:
            gives = placement.share(table, source)
            for nth in (0, 1):
                shares[destination][nth] += takes[nth]
                shares[source][nth] -= gives[nth]
            at[table] = destination
            return


def in_order_of_names(placement: Placement, assignment: Assignment) -> Assignment:
    """Return an equal assignment in which, of equal tables of a folder, the first ones move.

    Solvers may return any of the equal ones.
    """
    alike: defaultdict[tuple[object, ...], list[int]] = defaultdict(list)
    for place, one in enumerate(placement.tables):
        what = (one.folder, one.group, one.load, one.packed_bytes, one.copies)
        alike[(*what, one.mounted, one.fixed)].append(place)
    at = list(assignment)
    for places in alike.values():
        home = placement.home[places[0]]
        groups = sorted((at[place] for place in places), key=lambda group: (group == home, group))
        for place, group in zip(places, groups, strict=True):
            at[place] = group
    return tuple(at)


def _without_needless(placement: Placement, assignment: Assignment, weights: Weights) -> Assignment:
    """Return the assignment without moves whose undoing leaves no group further above a mark.

    Moves of the most bytes are undone first.
    """
    at = list(assignment)
    while True:
        shares = placement.shares(at)
        now = excess(shares, weights)
        moves = placement.together(at)
        moves.sort(key=lambda move: (-sum(placement.bytes_at(one, at[one]) for one in move), move))
        for move in moves:
            tried = list(at)
            for one in move:
                tried[one] = placement.home[one]
            then = placement.shares(tried)
            worse = any(
                new > 1 + TOLERANCE and new > old + _LEAST_SHARE
                for old_pair, new_pair in zip(shares, then, strict=True)
                for old, new in zip(old_pair, new_pair, strict=True)
            )
            if not worse and excess(then, weights) <= now + _LEAST_SHARE:
                at = tried
                break
        else:
            return tuple(at)


def _proposal(
    algorithm: str, placement: Placement, assignment: Assignment, weights: Weights
) -> Proposal:
    at = _without_needless(placement, assignment, weights)
    before, after = placement.shares(placement.home), placement.shares(at)
    groups = tuple(
        GroupShares(group.name, load, then_load, space, then_space)
        for group, (load, space), (then_load, then_space) in zip(
            placement.groups, before, after, strict=True
        )
    )
    return Proposal(
        algorithm,
        tuple(_described(placement, at, move, before) for move in placement.together(at)),
        groups,
        tuple(
            _unfit(placement, at, place, shares)
            for place, shares in enumerate(groups)
            if shares.is_above
        ),
        excess(after, weights),
        placement.cost(at, weights),
    )


def _described(
    placement: Placement,
    assignment: Assignment,
    places: tuple[int, ...],
    before: Sequence[Sequence[float]],
) -> PlannedMove:
    tables = [placement.tables[at] for at in places]
    source, destination = placement.home[places[0]], assignment[places[0]]
    names = placement.groups[source].name, placement.groups[destination].name
    above = [
        f"{share:.0%} of its mark of {what}, of which {taken:.1%} move"
        for what, share, taken in zip(
            ("load", "memory"),
            before[source],
            (
                sum(each)
                for each in zip(*(placement.share(at, source) for at in places), strict=True)
            ),
            strict=True,
        )
        if share > 1 + TOLERANCE
    ]
    reason = (
        f"{names[0]} is at {' and at '.join(above)}"
        if above
        else f"makes room in {names[0]} for tables that move there"
    )
    return PlannedMove(
        tables[0].table if len(tables) == 1 else tables[0].folder,
        *names,
        tuple(one.table for one in tables),
        sum(one.load for one in tables),
        sum(placement.bytes_at(at, destination) for at in places),
        reason,
    )


def _unfit(placement: Placement, assignment: Assignment, group: int, shares: GroupShares) -> Unfit:
    others = [at for at in range(len(placement.groups)) if at != group]
    too_large = [
        placement.tables[at].table
        for at, place in enumerate(assignment)
        if place == group
        and all(max(placement.share(at, other)) > 1 + TOLERANCE for other in others)
    ]
    stays = " and ".join(
        f"{share:.0%} of its mark of {what}"
        for what, share in (("load", shares.load_after), ("memory", shares.memory_after))
        if share > 1 + TOLERANCE
    )
    if not others:
        why = "there is no other group"
    elif too_large:
        why = f"no other group could hold {', '.join(too_large)}"
    else:
        why = "no other group has room for what would have to move"
    return Unfit(shares.name, tuple(too_large), f"{shares.name} stays at {stays}: {why}")


def as_text(made: Plan) -> str:
    """Return a plan as lines of text: the better proposal first, then the other one."""
    shown = [made.better]
    shown += [each for each in (made.greedy, made.milp) if each not in (None, made.better)]
    lines = [f"{made.note}\n"] if made.note else []
    for nth, proposal in enumerate(shown):
        name = proposal.algorithm + (", the better one" if nth == 0 and len(shown) > 1 else "")
        size = proposal.moved_bytes / 1e6
        lines.append(
            f"{name}: {len(proposal.moves)} moves, {size:.1f} MB, cost {proposal.cost:.3f}"
        )
        lines += [
            f"  {move.prefix}: {move.source} -> {move.destination}: {move.reason}"
            for move in proposal.moves
        ]
        lines += [f"  {unfit.reason}" for unfit in proposal.unfit]
        lines += [
            f"  {group.name}: load {group.load_before:.0%} -> {group.load_after:.0%} of its mark,"
            f" memory {group.memory_before:.0%} -> {group.memory_after:.0%}"
            for group in proposal.groups
        ]
    return "\n".join(lines)
