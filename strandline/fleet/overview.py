"""A fleet's state as text for people and as values for JSON; pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from strandline.fleet.current import KnownFleet
from strandline.fleet.mounts import MountTable, Move
from strandline.fleet.records import FleetRead
from strandline.fleet.seats import Fleet, HeldSeat, Member
from strandline.settings.fleet import DEFAULT_GROUP
from timeline.storage.table_id import TableId

_HEAD: Final = ("seat", "server", "tables", "MB", "role")
Line = tuple[str, str, str, str, str]


def overview(found: FleetRead, tables: Iterable[str] = ()) -> dict[str, Any]:
    """Return a fleet as values for JSON.

    Args:
        found: The fleet as it was read.
        tables: Base paths, in any spelling; their servers are listed.

    Raises:
        ConfigError: A base path isn't one.
    """
    fleet, layout = found.fleet, found.fleet.layout
    known = None if layout is None else KnownFleet(fleet, found.epoch, layout)
    leader = fleet.leader
    return {
        "epoch": found.epoch,
        "leader": None if leader is None else leader.url,
        "layout": None
        if layout is None
        else {"copies": layout.copies, "depth": layout.depth, "tokens": layout.tokens},
        "roots": _roots(found, DEFAULT_GROUP),
        "groups": [
            {
                "name": name,
                "seats": sum(seat.group == name for seat in fleet.seats),
                "roots": _places(found, name),
                "mark": _roots(found, name),
            }
            for name in _groups(found)
        ],
        "mounts": mounts_overview(fleet.mounts),
        "moves": [move_overview(fleet, move) for move in fleet.moves],
        "seats": [_seat_row(found, seat) for seat in fleet.seats],
        "waiting": [
            {
                "url": member.url,
                "standby": member.is_standby,
                "router": member.is_router,
                "drained": member.name in fleet.drained,
                "group": member.group,
                "roots": member.roots or None,
                "token": member.token or None,
                **_load(found, member.name),
            }
            for member in _waiting(found)
        ],
        "unreadable": dict(found.unreadable),
        "tables": {
            path: []
            if known is None
            else [seat.url for seat in known.owners(str(TableId.of(path).normal()))]
            for path in tables
        },
    }


def as_text(told: dict[str, Any], name: str) -> str:
    """Return an overview as lines of text.

    Args:
        told: What ``overview`` returned.
        name: Of the fleet.
    """
    held = sum(seat["url"] is not None for seat in told["seats"])
    lines = [f"fleet {name}, epoch {told['epoch']}: {held} of {len(told['seats'])} seats are taken"]
    names = [group["name"] for group in told["groups"]]
    is_one = names in ([], [DEFAULT_GROUP])
    if told["layout"] is not None:
        shared = {**told["layout"], **({"roots": told["roots"] or "unknown"} if is_one else {})}
        lines.append(", ".join(f"{key} {value}" for key, value in shared.items()))
    for group in () if is_one else told["groups"]:
        roots = ", ".join(group["roots"]) or "unknown"
        lines.append(f"group {group['name']}: seats {group['seats']}, roots {roots}")
    lines += mount_lines(told["mounts"])
    lines += map(move_line, told["moves"])
    rows = [_HEAD, *_seat_lines(told), *_waiting_lines(told)]
    width = max(len(row[1]) for row in rows)
    if len(rows) > 1:
        table = (
            f"{seat:>4}  {url:<{width}}  {tables:>6}  {mb:>6}  {role}"
            for seat, url, tables, mb, role in rows
        )
        lines += ["", *(line.rstrip() for line in table)]
    lines += ["", *told["unreadable"].values()] if told["unreadable"] else []
    for path, urls in told["tables"].items():
        shown = ", ".join("(vacant)" if url is None else url for url in urls)
        lines += ["", f"{path}: {shown or 'no seat'}"]
    return "\n".join(lines)


def mounts_overview(mounts: MountTable) -> list[dict[str, Any]]:
    """Return the mounts as values for JSON."""
    return [
        {"path": each.path, "group": each.group, "copies": each.copies, "depth": each.depth}
        for each in mounts.mounts
    ]


def mount_lines(mounts: list[dict[str, Any]]) -> list[str]:
    """Return what ``mounts_overview`` returned as lines of text."""
    return [
        f"mount {each['path']}: group {each['group']}"
        + "".join(f", {name} {each[name]}" for name in ("copies", "depth") if each[name])
        for each in mounts
    ]


def move_overview(fleet: Fleet, move: Move) -> dict[str, Any]:
    """Return a move, under way or ended, as values for JSON."""
    return {
        "number": move.number,
        "path": move.mount.path,
        "source": move.source,
        "destination": move.destination,
        "state": move.state.name,
        "began": dict(move.began),
        "waits_for": [each.url for each in fleet.awaited(move)],
        "why": move.why,
    }


def move_line(told: dict[str, Any]) -> str:
    """Return what ``move_overview`` returned as a line of text."""
    waits = ", ".join(told["waits_for"])
    return (
        f"move {told['number']} of {told['path']} from {told['source']} to {told['destination']}:"
        f" {told['state']}"
        + (f", waits for {waits}" if waits else "")
        + (f", as {told['why']}" if told["why"] else "")
    )


def _groups(found: FleetRead) -> list[str]:
    """Return the groups that have a server or a seat, or mounts."""
    fleet = found.fleet
    names = {member.group for member in (*fleet.members, *found.joining)}
    names |= {seat.group for seat in fleet.seats} | {each.group for each in fleet.mounts.mounts}
    return sorted(names - {""})


def _places(found: FleetRead, name: str) -> list[str]:
    """Return the roots of a group; none if they aren't known."""
    group = found.fleet.group(name)
    return [] if group is None else [TableId.of(root).base_path for root in group.roots]


def _roots(found: FleetRead, group: str) -> str | None:
    """Return the mark of the roots of a group's members, ``None`` if none announces it."""
    members = sorted(found.fleet.members, key=lambda member: member.joined)
    marks = (member.roots for member in members if member.group == group and member.roots)
    return next(marks, None)


def _seat_row(found: FleetRead, seat: HeldSeat) -> dict[str, Any]:
    if seat.number in found.fleet.vacant:
        return {"number": seat.number, "group": seat.group, "url": None, "last": seat.url}
    living = {member.name: member for member in found.fleet.members}
    return {
        "ready": living[seat.holder].is_ready,
        "roots": living[seat.holder].roots or None,
        "token": living[seat.holder].token or None,
        "number": seat.number,
        "group": seat.group,
        "url": seat.url,
        "last": seat.url,
        **_load(found, seat.holder),
    }


def _load(found: FleetRead, name: str) -> dict[str, int]:
    load = found.loads[name]
    return {"tables": load.tables, "bytes": load.held_bytes}


def _waiting(found: FleetRead) -> list[Member]:
    """Return the members without a seat: standbys, and members that are joining."""
    holders = {seat.holder for seat in found.fleet.seats}
    living = (*found.fleet.members, *found.joining)
    waiting = [member for member in living if member.name not in holders]
    return sorted(waiting, key=lambda member: member.url)


def _seat_lines(told: dict[str, Any]) -> list[Line]:
    return [
        (str(seat["number"]), "-", "", "", _vacant(told, seat))
        if seat["url"] is None
        else _line(str(seat["number"]), seat, _role(told, seat, "" if seat["ready"] else "fetches"))
        for seat in told["seats"]
    ]


def _waiting_lines(told: dict[str, Any]) -> list[Line]:
    return [_line("-", each, _role(told, each, _waits(each))) for each in told["waiting"]]


def _waits(row: dict[str, Any]) -> str:
    """Return why a member has no seat."""
    if row["router"] or row["drained"]:
        return "router" if row["router"] else "drained"
    return "standby" if row["standby"] else "waits"


def _vacant(told: dict[str, Any], seat: dict[str, Any]) -> str:
    return ", ".join(filter(None, (f"vacant, last {seat['last']}", _of_group(told, seat))))


def _of_group(told: dict[str, Any], row: dict[str, Any]) -> str:
    """Return a server's or a seat's group, if there are several."""
    names = [group["name"] for group in told["groups"]]
    return f"group {row['group']}" if row["group"] and names != [DEFAULT_GROUP] else ""


def _line(seat: str, row: dict[str, Any], role: str) -> Line:
    return seat, row["url"], str(row["tables"]), f"{row['bytes'] / 1e6:.0f}", role


def _role(told: dict[str, Any], row: dict[str, Any], role: str) -> str:
    leads = "leader" if row["url"] == told["leader"] else ""
    marks = {group["name"]: group["mark"] for group in told["groups"]}
    is_odd = row["group"] and row["roots"] != marks[row["group"]]
    roots = f"roots {row['roots'] or 'unknown'}" if is_odd else ""
    # A token is replaced at one server after the other; alike ones say nothing.
    tokens = {each["token"] for each in (*told["seats"], *told["waiting"]) if each["url"]}
    token = f"token {row['token'] or 'none'}" if len(tokens) > 1 else ""
    return ", ".join(word for word in (role, leads, _of_group(told, row), roots, token) if word)
