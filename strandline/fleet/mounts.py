"""``MountTable``: which group of servers has which tables; pure.

A *mount* gives the tables at and below a path to a group. Of several mounts above a table the one
with the longest path counts; a table below none belongs to ``DEFAULT_GROUP``. Paths are compared
name by name, as ``TableId.normal`` spells them: ``s3://lake/a`` is above ``s3a://lake/a/b/``, not
above ``s3://lake/ab``. Links aren't followed, as clients don't know those of the servers.

A mount may place its tables in its own way: with other ``copies``, or ``depth`` 2, which spreads a
huge table over its group. A ``Move`` is a mount that is about to be written, or was a moment ago
(``strandline.fleet.moving.moves``).

Source: Misra et al., *Scaling Distributed File Systems in Resource-Harvesting Datacenters*
(DH-HDFS), section 3: the mount table of the state store. There a folder's rename or deletion
must respect it; here nothing is renamed.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Final

from executor_proxy.seat_ring import Layout
from strandline.fleet.groups import check_group, upwards
from strandline.settings.fleet import DEFAULT_GROUP
from timeline.errors import ConfigError
from timeline.storage.table_id import TableId, is_relative

MAX_PREFIX: Final = 4096
"""Longest path of a mount, in characters."""
MAX_MOUNTS: Final = 10_000
_AFTER_SCHEME: Final = re.compile("^[A-Za-z][A-Za-z0-9+.-]*:|/")
"""Separates the names of a path, and its scheme from the first."""


@dataclass(frozen=True, slots=True)
class Mount:
    """Tables that a group has; make it by ``of``, which checks.

    Attributes:
        prefix: Text of the normal ``TableId`` of the path at and below which they are.
        group: Name of the group.
        copies: Servers that have each of them, 1 to 3; ``None``: as in the whole fleet.
        depth: 1 or 2, see ``executor_proxy.seat_ring.Layout``; ``None``: as in the whole fleet.
    """

    prefix: str
    group: str
    copies: int | None = None
    depth: int | None = None

    @classmethod
    def of(
        cls, path: str, group: str, copies: int | None = None, depth: int | None = None
    ) -> Mount:
        """Return the mount of a path in any spelling.

        Raises:
            ConfigError: The path is no URL or absolute path, too long, or has ``..`` or a NUL; or
                a value isn't allowed.
        """
        mount = cls(normal_prefix(path), check_group(group), copies, depth)
        mount.layout(Layout())
        return mount

    def layout(self, default: Layout) -> Layout:
        """Return how its tables are placed.

        Raises:
            ConfigError: Its copies or depth aren't allowed.
        """
        return replace(
            default,
            copies=default.copies if self.copies is None else self.copies,
            depth=default.depth if self.depth is None else self.depth,
        )

    @property
    def path(self) -> str:
        """The path for people: a local path or a URL."""
        return TableId.of(self.prefix).base_path


class MoveState(enum.Enum):
    """How far a move is; what happens in each state: ``strandline.fleet.moving.moves``."""

    PLANNED = enum.auto()
    WARMING = enum.auto()
    FLIPPED = enum.auto()
    DROPPING = enum.auto()
    DONE = enum.auto()
    UNDONE = enum.auto()


UNDOABLE: Final = (MoveState.PLANNED, MoveState.WARMING)
"""States in which a move can be undone; later ones are finished."""
OVER: Final = (MoveState.DONE, MoveState.UNDONE)


@dataclass(frozen=True, slots=True)
class Move:
    """Tables that are on their way to another group.

    Attributes:
        number: Its identity; never used again.
        mount: What gives the tables to their new group.
        source: Name of the group that has had them.
        state: How far it is.
        mover: Which leader began to carry it out; ``""``: none yet.
        began: Name of a state → when it began, epoch milliseconds of the clock of the server that
            wrote it; for display only.
        why: Why it was undone.
    """

    number: int
    mount: Mount
    source: str
    state: MoveState = MoveState.PLANNED
    mover: str = ""
    began: tuple[tuple[str, int], ...] = ()
    why: str = ""

    @property
    def prefix(self) -> str:
        """See ``Mount.prefix``."""
        return self.mount.prefix

    @property
    def destination(self) -> str:
        """Name of the group that gets the tables."""
        return self.mount.group

    @property
    def has_flipped(self) -> bool:
        """Whether the tables belong to the destination already, and the source may not know it."""
        return self.state in (MoveState.FLIPPED, MoveState.DROPPING)

    def overlaps(self, prefix: str) -> bool:
        """Whether it concerns tables at or below a path, by the text of its ``TableId``."""
        return prefix in upwards(self.prefix) or self.prefix in upwards(prefix)

    def entering(self, state: MoveState, now_ms: int, why: str = "") -> Move:
        """Return the move in its next state."""
        return replace(self, state=state, began=(*self.began, (state.name, now_ms)), why=why)

    def __str__(self) -> str:
        """Return the move for messages."""
        path, groups = self.mount.path, f"from {self.source} to {self.destination}"
        return f"move {self.number} of {path} {groups}"


@dataclass(frozen=True, slots=True)
class MountTable:
    """The mounts of a fleet.

    Attributes:
        mounts: In the order of their paths, each path once.

    Raises:
        ConfigError: A path is given twice, or there are too many.
    """

    mounts: tuple[Mount, ...] = ()
    _by_prefix: dict[str, Mount] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_prefix = {mount.prefix: mount for mount in self.mounts}
        if len(by_prefix) < len(self.mounts):
            twice = next(m for m in self.mounts if by_prefix[m.prefix] is not m)
            raise ConfigError(f"the path {twice.path} is mounted twice; allowed: once")
        if len(self.mounts) > MAX_MOUNTS:
            raise ConfigError(f"{len(self.mounts)} paths are mounted; allowed: {MAX_MOUNTS}")
        in_order = tuple(by_prefix[prefix] for prefix in sorted(by_prefix))
        # A frozen value's own fields, set before anybody else can see it.
        object.__setattr__(self, "mounts", in_order)
        object.__setattr__(self, "_by_prefix", by_prefix)

    def mount(self, table: str) -> Mount | None:
        """Return the mount of a table, ``None`` if there is none above it.

        Args:
            table: Text of the table's normal ``TableId``.

        Cost: a look into a dictionary for each name in the path; none without mounts.
        """
        if not self._by_prefix:
            return None
        found = (self._by_prefix.get(above) for above in upwards(table))
        return next((mount for mount in found if mount is not None), None)

    def group(self, table: str) -> str:
        """Return the group that has a table, by the text of its normal ``TableId``."""
        mount = self.mount(table)
        return DEFAULT_GROUP if mount is None else mount.group

    def layout(self, table: str, default: Layout) -> Layout:
        """Return how a table is placed.

        Args:
            table: Text of the table's normal ``TableId``.
            default: How the fleet places those without a mount.
        """
        mount = self.mount(table)
        return default if mount is None else mount.layout(default)

    def adding(self, mount: Mount, groups: Collection[str]) -> MountTable:
        """Return the table with one more mount.

        Args:
            mount: The mount.
            groups: The groups that have a seat.

        Raises:
            ConfigError: Its path is mounted already, in this or another spelling, or its group has
                no server.
        """
        if mount.group not in groups:
            allowed = ", ".join(sorted(groups)) or "none, as no server has a seat"
            raise ConfigError(f"the group {mount.group} has no server; allowed: {allowed}")
        there = self._by_prefix.get(mount.prefix)
        if there is not None:
            raise ConfigError(
                f"the path {mount.path} is mounted already, on the group {there.group};"
                " allowed: a path without a mount, in any spelling"
            )
        return MountTable((*self.mounts, mount))

    def moving(self, mount: Mount) -> MountTable:
        """Return the table once a path belongs to the group of a mount.

        The mount of the same path is replaced, or removed if the next one above says the same.

        Raises:
            ConfigError: There are too many.
        """
        others = MountTable(tuple(each for each in self.mounts if each.prefix != mount.prefix))
        above = others.mount(mount.prefix)
        what = (DEFAULT_GROUP, None, None) if above is None else _what(above)
        return others if what == _what(mount) else MountTable((*others.mounts, mount))

    def removing(self, path: str) -> MountTable:
        """Return the table without the mount of a path, in any spelling.

        Raises:
            ConfigError: The path isn't mounted, or is none.
        """
        prefix = normal_prefix(path)
        if prefix not in self._by_prefix:
            allowed = ", ".join(mount.path for mount in self.mounts[:10]) or "none, as none is"
            raise ConfigError(f"the path {path!r} isn't mounted; allowed: {allowed}")
        return MountTable(tuple(mount for mount in self.mounts if mount.prefix != prefix))


def _what(mount: Mount) -> tuple[str, int | None, int | None]:
    return mount.group, mount.copies, mount.depth


def normal_prefix(path: str) -> str:
    """Return a path as the text of its normal ``TableId``.

    Raises:
        ConfigError: It is empty, too long, relative, no UTF-8, or has ``..`` or a NUL.
    """
    if not path or len(path) > MAX_PREFIX or "\0" in path:
        what = "has a NUL" if "\0" in path else f"has {len(path)} characters"
        raise ConfigError(
            f"the path {path[:100]!r} {what}; allowed: 1 to {MAX_PREFIX}, none of them NUL"
        )
    if any("\ud800" <= character <= "\udfff" for character in path):
        # Of a name that is no UTF-8; in no request would it be the same.
        raise ConfigError(f"the path {path!r} isn't UTF-8; allowed: text")
    if is_relative(path):
        raise ConfigError(f"the path {path!r} is relative; allowed: a URL, or one from '/' on")
    if ".." in _AFTER_SCHEME.split(path):
        # Its meaning would depend on links.
        raise ConfigError(f"the path {path!r} has '..'; allowed: names")
    return str(TableId.of(path).normal())
