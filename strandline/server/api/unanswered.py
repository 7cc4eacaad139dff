"""The errors of requests that no server of a fleet answers."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.fleet.groups import Group
from timeline.errors import NoServerError, RootNotAllowedError, StateUnavailableError


def outside(base_path: str, table: str, group: Group) -> RootNotAllowedError:
    """Return the error of a table outside its group's roots.

    Args:
        base_path: The table's base path as it was sent.
        table: Text of its ``TableId``.
        group: The group.
    """
    return RootNotAllowedError(
        f"base path {base_path!r} is the group {group.name}'s, and outside the roots of that group",
        detail=f"it means {table}; the roots are: {group.shown}",
    )


def no_server(base_path: str, group: Group) -> NoServerError:
    """Return the error of a table whose group has no server that answers."""
    return NoServerError(
        f"no server of the group {group.name} answers, which has the base path {base_path!r}",
        hint="start a server of that group, or mount the path on another one",
    )


def no_creator(base_path: str, group: str, urls: Sequence[str]) -> NoServerError:
    """Return the error of a creation of markers that only other servers may carry out.

    Args:
        base_path: The table's base path.
        group: Name of its group.
        urls: The servers that may, which don't answer; none if none is known.
    """
    return NoServerError(
        f"no server answers that creates markers of the base path {base_path!r}, of the group"
        f" {group}: {', '.join(urls) or 'it has none'}",
        hint="ask again; start a server of that group if none runs",
    )


def perhaps_lost(base_path: str, url: str) -> StateUnavailableError:
    """Return the error of a creation of markers that has outlasted its server's membership."""
    return StateUnavailableError(
        f"{url} may have lost the base path {base_path!r} to another server while it created"
        " markers, which may be there",
        hint="ask again",
    )
