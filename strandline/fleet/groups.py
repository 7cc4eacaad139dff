"""``Group``: servers of a fleet that serve the same roots, and the tables that are theirs; pure.

A table belongs to one group, by the fleet's mounts (``strandline.fleet.mounts``). Each group has
its own seats, so a table's owner and copies are servers of its group. A server of another group,
and a router, which has no roots, forward its requests there.

``groups_of`` spreads servers over groups of equal roots by consistent hashing of their racks, so
that a further group, or one less, moves few racks, and a rack's servers stay together.

Source: Misra et al., *Scaling Distributed File Systems in Resource-Harvesting Datacenters*
(DH-HDFS), section 4.1. There it places the data of files. Servers here store no data, so it only
spreads load and failures.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from fsview.hash_ring import HashRing
from strandline.settings.fleet import DEFAULT_GROUP
from timeline.errors import ConfigError
from timeline.storage.table_id import TableId

AUTO: Final = "auto"
"""In place of a name: the group follows from the server's rack."""
MAX_NAME: Final = 64
RACK_TOKENS: Final = 100
"""Points of each group on the ring of racks."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def check_group(name: str, what: str = "the group") -> str:
    """Return the name of a group if it is allowed.

    Args:
        name: The name.
        what: Names it in the error.

    Raises:
        ConfigError: It isn't 1 to 64 letters, digits, ``.``, ``_`` and ``-``, the first of them a
            letter or a digit, or is ``auto``.
    """
    if len(name) > MAX_NAME or not _NAME.fullmatch(name) or name == AUTO:
        raise ConfigError(
            f"{what} is {name[: 2 * MAX_NAME]!r}; allowed: 1 to {MAX_NAME} letters, digits, '.',"
            f" '_' and '-', the first a letter or a digit, but not {AUTO!r}"
        )
    return name


@dataclass(frozen=True, slots=True)
class Group:
    """The part of a group that all its servers share.

    Attributes:
        name: Its identity.
        roots: Text of the ``TableId`` of each root, sorted, none of them below another; empty if
            its servers don't announce them.
    """

    name: str = DEFAULT_GROUP
    roots: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, roots: Iterable[str]) -> Group:
        """Return the group of a server with some roots, in any order and spelling."""
        return cls(name, outer_roots(roots))

    def has_room_for(self, place: str) -> bool:
        """Whether a path, as the text of its ``TableId``, is at or below one of the roots."""
        roots = frozenset(self.roots)
        return any(above in roots for above in upwards(place))

    def may_have(self, place: str) -> bool:
        """Whether a path is at or below one of the roots, or those aren't known."""
        return not self.roots or self.has_room_for(place)

    @property
    def shown(self) -> str:
        """The roots for messages."""
        return ", ".join(TableId.of(root).base_path for root in self.roots) or "none"


def outer_roots(roots: Iterable[str]) -> tuple[str, ...]:
    """Return roots as the text of their ``TableId``, sorted, without those below others.

    Links aren't followed: clients name tables by paths, and a table's owner follows from its path.

    Args:
        roots: Base paths, or directories above base paths, in any spelling.
    """
    places = {str(TableId.of(root).normal()) for root in roots}
    return tuple(
        sorted(p for p in places if not any(above in places for above in upwards(p) if above != p))
    )


def upwards(place: str) -> Iterator[str]:
    """Yield a path and each directory above it, as texts of their ``TableId``, the root last."""
    # "family://authority/path": the path begins at the first slash after the authority.
    begin = place.index("/", place.index("://") + len("://"))
    end = len(place)
    while end > begin:
        yield place[:end]
        end = place.rfind("/", begin, end)
    if len(place) != begin + 1:
        yield place[: begin + 1]


def groups_of(
    racks: Collection[str], names: Collection[str], tokens: int = RACK_TOKENS
) -> dict[str, str]:
    """Return rack → group, for whole racks, by consistent hashing.

    A rack's group depends on the names of rack and groups alone. A further group takes 1/(K+1) of
    the racks from the K others, and moves no rack between those.

    Args:
        racks: Names of racks.
        names: Names of groups.
        tokens: Points of each group.

    Raises:
        ConfigError: There is no group.
    """
    if not names:
        raise ConfigError("there are 0 groups for the racks; allowed: at least 1")
    ring = HashRing({f"group {name}": name for name in sorted(names)}, tokens)
    return {rack: ring.first(f"rack {rack}")[0] for rack in racks}
