"""Which servers may join a fleet, and in which group; pure.

All members have the same layout and token. Those of a group have the same roots, which the group's
record holds. A server that holds a seat keeps the group of that seat until it is drained.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from strandline.fleet.groups import Group, groups_of
from strandline.fleet.records import FleetRead
from strandline.fleet.seats import Member
from strandline.settings.fleet import DEFAULT_GROUP
from timeline.errors import ConfigError


def check_alike(
    mine: Member, group: Group, found: FleetRead, marks: Collection[str] | None = None
) -> None:
    """Refuse membership beside a member that differs, or in a group with other roots.

    Members of earlier releases announce no roots, or no group, and are accepted: they are replaced
    one by one in a rolling upgrade. As long as there is one without a group, there are no groups.

    Args:
        mine: The server.
        group: Its group; of a router none, with any name.
        found: The fleet.
        marks: Those of the tokens that the server admits; ``None``: its own alone.

    Raises:
        ConfigError: A member, the group or the server's seat differs.
    """
    others = [each for each in (*found.fleet.members, *found.joining) if each.name != mine.name]
    for other in others:
        _check_layout(mine, other)
        _check_token(mine, other, (mine.token,) if marks is None else marks)
    if mine.group != DEFAULT_GROUP:
        check_know_groups(found, _what(mine))
    _check_seat(mine, found)
    if not mine.is_router:
        beside = [each for each in others if each.group == mine.group]
        _check_group(group, found, [each for each in beside if each.roots != mine.roots])
        for other in beside:
            _check_roots(mine, other)


def check_know_groups(found: FleetRead, what: str) -> None:
    """Refuse what members of earlier releases don't know.

    Args:
        found: The fleet.
        what: Names the setting and its value.

    Raises:
        ConfigError: There is such a member.
    """
    for other in (*found.fleet.members, *found.joining):
        if not other.has_group:
            raise ConfigError(
                f"{what}; allowed: the group {DEFAULT_GROUP} alone, without mounts, routers and"
                f" drained servers, while the member {other.url} is of a release without groups",
                hint="replace such servers first, one by one",
            )


def group_by_rack(rack: str, roots: Group, name: str, found: FleetRead) -> str:
    """Return the group of a server that is started with a rack instead of a group.

    Args:
        rack: The rack.
        roots: Any group with the server's roots.
        name: The server's name as a member.
        found: The fleet.

    Returns:
        The group of the seat that it holds and isn't to give away, else one of those with its
        roots, by the hash of the rack.

    Raises:
        ConfigError: No group with these roots has a server or a seat.
    """
    for seat in found.fleet.seats:
        if seat.holder == name and name not in found.fleet.drained:
            return seat.group
    used = {seat.group for seat in found.fleet.seats}
    used |= {each.group for each in (*found.fleet.members, *found.joining)}
    fitting = [g.name for g in found.fleet.groups if g.roots == roots.roots and g.name in used]
    if not fitting:
        raise ConfigError(
            f"the group is 'auto', and no group has the server's roots {roots.shown};"
            f" allowed: --group NAME, {shown_groups(found)}"
        )
    return groups_of([rack], fitting)[rack]


def shown_groups(found: FleetRead) -> str:
    """Return the groups and their roots for a message."""
    shown = [f"{group.name} with {group.shown}" for group in found.fleet.groups]
    return "; ".join(shown) or "as there is none yet"


def of_token(found: FleetRead, marks: Collection[str]) -> tuple[FleetRead, frozenset[str]]:
    """Return a fleet without the members that have other tokens' marks, and their addresses.

    Such a member can't join, so its record was written by a program without the token. It must
    neither lead nor get a seat, and with it requests that present the token.
    """
    ours = tuple(each for each in found.fleet.members if each.token in marks)
    strangers = frozenset(each.url for each in found.fleet.members if each.token not in marks)
    return replace(found, fleet=replace(found.fleet, members=ours)), strangers


def _what(mine: Member) -> str:
    return "the server is a router" if mine.is_router else f"the server's group is {mine.group}"


def _check_layout(mine: Member, other: Member) -> None:
    for name in ("copies", "depth", "tokens"):
        value, theirs = getattr(mine.layout, name), getattr(other.layout, name)
        if value != theirs:
            raise ConfigError(
                f"strandline.fleet.{name} is {value}; allowed: {theirs}, as at the member"
                f" {other.url}",
                hint="stop all servers of a fleet to change how it places tables",
            )


def _check_token(mine: Member, other: Member, marks: Collection[str]) -> None:
    if other.token not in marks:
        raise ConfigError(
            f"the server's token is {_shown(mine.token)}; allowed: {_shown(other.token)}, as at the"
            f" member {other.url}",
            hint="give all servers of a fleet the same token",
        )


def _check_seat(mine: Member, found: FleetRead) -> None:
    if mine.name in found.fleet.drained:
        return  # it is to lose the seat
    if any(each.name == mine.name for each in found.fleet.members):
        return  # a living server has this address; ``Roster.join`` says so
    for seat in found.fleet.seats:
        if seat.holder == mine.name and seat.group != mine.group:
            raise ConfigError(
                f"{_what(mine)}; allowed: {seat.group}, as it holds that group's seat"
                f" {seat.number}",
                hint=f"strandline fleet drain URL {mine.url} takes the seat from it",
            )


def _check_group(group: Group, found: FleetRead, others: list[Member]) -> None:
    """Refuse other roots than the group's, unless no server has those."""
    there = found.fleet.group(group.name)
    if not group.roots or there is None or there.roots == group.roots:
        return
    if others:
        raise ConfigError(
            f"the server's roots are {group.shown}; allowed: {there.shown}, as in the group"
            f" {group.name} at the member {others[0].url}",
            hint="give all servers of a group the same --root; stop all of them to change it",
        )
    for mount in found.fleet.mounts.mounts:
        if mount.group == group.name and not group.has_room_for(mount.prefix):
            raise ConfigError(
                f"the server's roots are {group.shown}; allowed: roots at or above {mount.path},"
                f" which is mounted on the group {group.name}"
            )


def _check_roots(mine: Member, other: Member) -> None:
    # Where there is no record: members of a release that announces roots, and not groups.
    if mine.roots and other.roots and mine.roots != other.roots:
        raise ConfigError(
            f"the server's roots have the mark {mine.roots}; allowed: {other.roots}, as at the"
            f" member {other.url}",
            hint="give all servers of a group the same --root; stop all of them to change it",
        )


def _shown(mark: str) -> str:
    return f"*** with the mark {mark}" if mark else "none"
