"""``Placement``: tables, groups of servers and marks, as plans of moves between groups take them.

A group is *under stress* when the CPU that its tables take, or the memory of their records, is
above a mark. All is counted as shares of the marks, so that load and memory can be added.

Source: Misra et al., *Scaling Distributed File Systems in Resource-Harvesting Datacenters*
(DH-HDFS), section 4.2.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from timeline.errors import ConfigError

TOLERANCE: Final = 1e-4
"""A group is above a mark beyond this share of it: rounding puts no table on the move."""
Assignment = tuple[int, ...]
"""For each table of a ``Placement``, by its place there, the place of its group."""


def _check(what: str, value: float, least: float, most: float) -> None:
    if not math.isfinite(value) or not least <= value <= most:
        allowed = f"at least {least:g}" if most == math.inf else f"{least:g} to {most:g}"
        raise ConfigError(f"{what} is {value!r}; allowed: {allowed}")


def _check_once(what: str, names: Sequence[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ConfigError(f"{what} {twice[0]} is given twice")


@dataclass(frozen=True, slots=True)
class TableLoad:
    """What a table takes.

    Attributes:
        table: Text of its normal ``TableId``: components of a path, separated by ``/``.
        group: Name of the group whose servers have it.
        load: CPU seconds a second that its requests take, the peak of 5 minutes.
        packed_bytes: Memory of its record at one server.
        copies: Servers of a group that have it, as far as the group has as many.
        mounted: Whether a mount is for this table alone; then a mount of its folder leaves it.
        fixed: Whether it mustn't move.
    """

    table: str
    group: str
    load: float
    packed_bytes: int
    copies: int = 3
    mounted: bool = False
    fixed: bool = False

    def __post_init__(self) -> None:
        _check(f"the load of {self.table}", self.load, 0, math.inf)
        _check(f"packed_bytes of {self.table}", self.packed_bytes, 0, math.inf)
        _check(f"copies of {self.table}", self.copies, 1, math.inf)

    @property
    def folder(self) -> str:
        """The path above it."""
        return self.table.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class GroupCapacity:
    """A group of servers.

    Attributes:
        name: Its name.
        memory: ``--memory`` of each of its servers, in bytes.
    """

    name: str
    memory: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.memory:
            raise ConfigError(f"group {self.name} has no server; a plan needs at least one of each")
        for size in self.memory:
            _check(f"the memory of a server of {self.name}", size, 1, math.inf)


@dataclass(frozen=True, slots=True)
class Marks:
    """Above what a group is under stress.

    Attributes:
        load: CPU seconds a second for each of its servers, one process with one core: 0 to 1.
        memory: Share of its servers' ``--memory``: 0 to 1.
    """

    load: float = 0.6
    memory: float = 0.8

    def __post_init__(self) -> None:
        _check("the mark of load", self.load, 0, 1)
        _check("the mark of memory", self.memory, 0, 1)
        if not self.load or not self.memory:
            raise ConfigError("a mark is 0; allowed: more than 0, up to 1")


@dataclass(frozen=True, slots=True)
class Weights:
    """What counts how much: load and space above 0, the others at least 0.

    Attributes:
        load: Load above marks, as against ``space``; both come before any cost.
        space: Memory above marks.
        moved: Bytes moved. A record has 30 bytes a file, so it is soon there.
        entries: Mounts written: each is a change that all servers and clients follow.
    """

    load: float = 1
    space: float = 1
    moved: float = 1
    entries: float = 10

    def __post_init__(self) -> None:
        for name in self.__slots__:
            _check(f"the weight of {name}", getattr(self, name), 0, 1e6)
        if not self.load or not self.space:
            raise ConfigError("the weights of load and space are above 0")


DEFAULT_MARKS: Final = Marks()
DEFAULT_WEIGHTS: Final = Weights()


class Placement:
    """Tables, groups and marks as a solver takes them: by place, in the order of their names.

    Attributes:
        tables: The tables.
        groups: The groups.
        home: Where each table is.
        siblings: For each folder whose tables may move as one, their places: two or more tables
            directly below it, none deeper, all in one group, none fixed or mounted.
        needed_bytes: Bytes that have to move to bring all groups below their marks, if load is
            spread evenly over bytes.
        folders: What mounts written are divided by.

    Raises:
        ConfigError: A table or group is given twice, a table's group isn't given, or there is none.
    """

    def __init__(
        self, tables: Iterable[TableLoad], groups: Iterable[GroupCapacity], marks: Marks
    ) -> None:
        self.tables: Final = tuple(sorted(tables, key=lambda one: one.table))
        self.groups: Final = tuple(sorted(groups, key=lambda one: one.name))
        _check_once("table", [one.table for one in self.tables])
        _check_once("group", [one.name for one in self.groups])
        if not self.groups:
            raise ConfigError("no group is given; a plan needs at least one")
        place = {group.name: at for at, group in enumerate(self.groups)}
        for one in self.tables:
            if one.group not in place:
                raise ConfigError(
                    f"{one.table} is in group {one.group}; given are: {', '.join(place)}"
                )
        self.home: Final[Assignment] = tuple(place[one.group] for one in self.tables)
        self._load_marks = [marks.load * len(group.memory) for group in self.groups]
        self._byte_marks = [marks.memory * sum(group.memory) for group in self.groups]
        self.siblings: Final = tuple(self._siblings())
        self.folders: Final = max(len(self.groups), _first_folders(self.tables))
        self.needed_bytes: Final = max(self._needed_bytes(), 1.0)

    def bytes_at(self, table: int, group: int) -> int:
        """Return the memory that a table takes in a group, with all its copies there."""
        one = self.tables[table]
        return one.packed_bytes * min(one.copies, len(self.groups[group].memory))

    def share(self, table: int, group: int) -> tuple[float, float]:
        """Return a table's load and memory as shares of a group's marks."""
        return (
            self.tables[table].load / self._load_marks[group],
            self.bytes_at(table, group) / self._byte_marks[group],
        )

    def shares(self, assignment: Sequence[int]) -> list[list[float]]:
        """Return each group's load and memory as shares of its marks."""
        loads = [0.0] * len(self.groups)
        sizes = [0] * len(self.groups)
        for table, group in enumerate(assignment):
            loads[group] += self.tables[table].load
            sizes[group] += self.bytes_at(table, group)
        return [
            [loads[at] / self._load_marks[at], sizes[at] / self._byte_marks[at]]
            for at in range(len(self.groups))
        ]

    def together(self, assignment: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the tables that move, those of one mount together."""
        moving = [at for at, group in enumerate(assignment) if group != self.home[at]]
        left = set(moving)
        found = []
        for folder in self.siblings:
            if left.issuperset(folder) and len({assignment[at] for at in folder}) == 1:
                found.append(folder)
                left.difference_update(folder)
        return sorted([*found, *((at,) for at in moving if at in left)])

    def cost(self, assignment: Sequence[int], weights: Weights) -> float:
        """Return the weighted shares of bytes moved and mounts written."""
        moves = self.together(assignment)
        moved = sum(self.bytes_at(at, assignment[at]) for each in moves for at in each)
        return (
            weights.moved * moved / self.needed_bytes + weights.entries * len(moves) / self.folders
        )

    def _siblings(self) -> Iterator[tuple[int, ...]]:
        below: defaultdict[str, list[int]] = defaultdict(list)
        above = {
            folder
            for folder in {one.folder for one in self.tables}
            for folder in _folders_above(folder)
        }
        above |= {one.table for one in self.tables}
        for at, one in enumerate(self.tables):
            below[one.folder].append(at)
        for folder, places in sorted(below.items()):
            together = len({self.home[at] for at in places}) == 1 and len(places) > 1
            kept = any(self.tables[at].fixed or self.tables[at].mounted for at in places)
            deeper = folder in above or any(self.tables[at].table in below for at in places)
            if folder and together and not kept and not deeper:
                yield tuple(places)

    def _needed_bytes(self) -> float:
        """Return the bytes above each group's marks, or as large a part as its load's above."""
        return sum(
            self._byte_marks[group] * space * max(1 - 1 / max(load, space), 0)
            for group, (load, space) in enumerate(self.shares(self.home))
            if max(load, space) > 1
        )


def excess(shares: Sequence[Sequence[float]], weights: Weights) -> float:
    """Return the weighted sum of the shares by which groups are above their marks."""
    over = [[max(share - 1, 0) * (share > 1 + TOLERANCE) for share in each] for each in shares]
    return sum(weights.load * load + weights.space * space for load, space in over)


def _folders_above(folder: str) -> Iterator[str]:
    while "/" in folder:
        folder = folder.rpartition("/")[0]
        yield folder


def _first_folders(tables: Sequence[TableLoad]) -> int:
    """Return how many folders there are directly below the folder that all tables share."""
    paths = [one.folder.split("/") for one in tables]
    if not paths:
        return 0
    shared = 0
    for components in zip(*paths, strict=False):
        if len(set(components)) > 1:
            break
        shared += 1
    return len({tuple(path[: shared + 1]) for path in paths})
