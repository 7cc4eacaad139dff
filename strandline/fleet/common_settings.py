"""What members of a fleet must have in common: how they place tables, token, and roots; pure."""

from __future__ import annotations

from dataclasses import replace

from strandline.fleet.records import FleetRead
from strandline.fleet.seats import Member
from timeline.errors import ConfigError


def check_alike(mine: Member, found: FleetRead) -> None:
    """Refuse to be a member beside one with another layout, token or roots.

    Members of earlier releases don't tell their roots, and are let be: they are replaced one by
    one.

    Raises:
        ConfigError: A member of the fleet differs.
    """
    for other in (*found.fleet.members, *found.joining):
        if other.name != mine.name:
            _check_layout(mine, other)
            _check_token(mine, other)
            _check_roots(mine, other)


def of_token(found: FleetRead, token: str) -> tuple[FleetRead, frozenset[str]]:
    """Return a fleet without the members that have another token's mark, and their addresses.

    None can join, so a program that hasn't the token has written such a record. It must neither get
    a seat, and with it requests that bear the token, nor lead.
    """
    ours = tuple(each for each in found.fleet.members if each.token == token)
    strangers = frozenset(each.url for each in found.fleet.members if each.token != token)
    return replace(found, fleet=replace(found.fleet, members=ours)), strangers


def _check_layout(mine: Member, other: Member) -> None:
    for name in ("copies", "depth", "tokens"):
        value, theirs = getattr(mine.layout, name), getattr(other.layout, name)
        if value != theirs:
            raise ConfigError(
                f"strandline.fleet.{name} is {value}; allowed: {theirs}, as at the member"
                f" {other.url}",
                hint="stop all servers of a fleet to change how it places tables",
            )


def _check_token(mine: Member, other: Member) -> None:
    if mine.token != other.token:
        raise ConfigError(
            f"the server's token is {_shown(mine.token)}; allowed: {_shown(other.token)}, as at the"
            f" member {other.url}",
            hint="give all servers of a fleet the same token",
        )


def _check_roots(mine: Member, other: Member) -> None:
    if mine.roots and other.roots and mine.roots != other.roots:
        raise ConfigError(
            f"the server's roots have the mark {mine.roots}; allowed: {other.roots}, as at the"
            f" member {other.url}",
            hint="give all servers of a fleet the same --root; stop all of them to change it",
        )


def _shown(mark: str) -> str:
    return f"*** with the mark {mark}" if mark else "none"
