"""A fleet's state as text for people and as values for JSON; pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from executor_proxy.seat_ring import Layout, SeatRing
from strandline.fleet.records import FleetRead
from strandline.fleet.seats import HeldSeat, Member
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
    fleet, layout = found.fleet, _layout(found)
    ring = None if layout is None else SeatRing(fleet.ring, layout)
    leader = fleet.leader
    return {
        "epoch": found.epoch,
        "leader": None if leader is None else leader.url,
        "layout": None
        if layout is None
        else {"copies": layout.copies, "depth": layout.depth, "tokens": layout.tokens},
        "roots": _roots(found),
        "seats": [_seat_row(found, seat) for seat in fleet.seats],
        "waiting": [
            {
                "url": member.url,
                "standby": member.is_standby,
                "roots": member.roots or None,
                **_load(found, member.name),
            }
            for member in _waiting(found)
        ],
        "unreadable": dict(found.unreadable),
        "tables": {
            path: []
            if ring is None
            else [seat.url for seat in ring.owners(str(TableId.of(path).normal()))]
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
    if told["layout"] is not None:
        shared = {**told["layout"], "roots": told["roots"] or "unknown"}
        lines.append(", ".join(f"{key} {value}" for key, value in shared.items()))
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


def _layout(found: FleetRead) -> Layout | None:
    """Return the layout on which the members have agreed."""
    members = found.fleet.members
    return members[0].layout if members else None


def _roots(found: FleetRead) -> str | None:
    """Return the mark of the roots on which the members agree, ``None`` if none announces it."""
    members = sorted(found.fleet.members, key=lambda member: member.joined)
    return next((member.roots for member in members if member.roots), None)


def _seat_row(found: FleetRead, seat: HeldSeat) -> dict[str, Any]:
    if seat.number in found.fleet.vacant:
        return {"number": seat.number, "url": None, "last": seat.url}
    living = {member.name: member for member in found.fleet.members}
    return {
        "ready": living[seat.holder].is_ready,
        "roots": living[seat.holder].roots or None,
        "number": seat.number,
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
        (str(seat["number"]), "-", "", "", f"vacant, last {seat['last']}")
        if seat["url"] is None
        else _line(str(seat["number"]), seat, _role(told, seat, "" if seat["ready"] else "fetches"))
        for seat in told["seats"]
    ]


def _waiting_lines(told: dict[str, Any]) -> list[Line]:
    return [
        _line("-", each, _role(told, each, "standby" if each["standby"] else "waits"))
        for each in told["waiting"]
    ]


def _line(seat: str, row: dict[str, Any], role: str) -> Line:
    return seat, row["url"], str(row["tables"]), f"{row['bytes'] / 1e6:.0f}", role


def _role(told: dict[str, Any], row: dict[str, Any], role: str) -> str:
    leads = "leader" if row["url"] == told["leader"] else ""
    is_odd = row["roots"] != told["roots"]
    roots = f"roots {row['roots'] or 'unknown'}" if is_odd else ""
    return ", ".join(word for word in (role, leads, roots) if word)
