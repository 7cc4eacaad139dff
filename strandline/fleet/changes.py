"""Changes of a fleet that an operator orders: drained servers and mounts.

Each is one write to the state store, applied only to the state on which it was decided. The servers
notice it by their watches, and need no restart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from strandline.fleet.joining import check_know_groups
from strandline.fleet.mounts import Mount, MountTable
from strandline.fleet.records import (
    MOUNTS,
    FleetRead,
    drained_bytes,
    drained_key,
    group_key,
    mounts_bytes,
    next_epoch,
    read_fleet,
)
from strandline.fleet.seats import HeldSeat
from strandline.fleet.state.base import MAX_VALUE_BYTES, Check, Op, Put, StateStore
from strandline.settings.fleet import DEFAULT_GROUP
from timeline.errors import ConfigError, StateConflictError
from timeline.storage.table_id import TableId

T = TypeVar("T")

_ATTEMPTS: Final = 20
"""Most attempts against other writers."""


def drain(state: StateStore, url: str) -> HeldSeat:
    """Have a server give its seat away; it gets none before it is started again.

    A standby or another server of its group without a seat takes the seat; without one it is
    removed at once, and its tables move to the other seats. The server forwards requests from then
    on.

    Args:
        state: The fleet's state store.
        url: The server's address.

    Returns:
        The seat.

    Raises:
        ConfigError: No seat has this address, a member is of a release without groups, or no server
            would be left for the tables of its group.
        FleetError: The store can't be reached, or the fleet changed during each attempt.
    """

    def decide(found: FleetRead) -> tuple[Sequence[Op], HeldSeat]:
        check_know_groups(found, f"the server {url} is to be drained")
        fleet = found.fleet
        seat = next((seat for seat in fleet.seats if seat.url == url.rstrip("/")), None)
        if seat is None:
            allowed = ", ".join(seat.url for seat in fleet.seats) or "none, as there is no seat"
            raise ConfigError(f"the server {url!r} has no seat; allowed: {allowed}")
        if seat.holder in fleet.drained:
            return (), seat
        gone = {*fleet.drained, seat.holder}
        left = [m for m in fleet.members if m.group == seat.group and m.name not in gone]
        mounted = [m.path for m in fleet.mounts.mounts if m.group == seat.group]
        if not left and (mounted or seat.group == DEFAULT_GROUP):
            tables = f"the tables at {mounted[0]}" if mounted else "the tables below no mount"
            raise ConfigError(
                f"the server {url!r} is the last one of the group {seat.group}, which has {tables};"
                " allowed: one of several servers"
            )
        key = drained_key(seat.holder)
        put = Put(key, drained_bytes(seat.url), found.version(key))
        return (put, next_epoch(found, has_groups=True)), seat

    return _changed(state, decide)


def add_mount(state: StateStore, mount: Mount) -> MountTable:
    """Give the tables at and below a path to a group; return all mounts.

    Raises:
        ConfigError: The path is mounted already, its group has no server, or the path is outside
            the group's roots; or a member is of a release without groups.
        FleetError: As in ``drain``.
    """

    def decide(found: FleetRead) -> tuple[Sequence[Op], MountTable]:
        check_know_groups(found, f"the path {mount.path} is to be mounted")
        mounts = found.fleet.mounts.adding(mount, found.fleet.seated)
        group = found.fleet.group(mount.group)
        if group is None or not group.has_room_for(mount.prefix):
            roots = "none, as they aren't known" if group is None else group.shown
            raise ConfigError(
                f"the path {mount.path} is outside the roots of the group {mount.group};"
                f" allowed: at or below {roots}"
            )
        key = group_key(group.name)
        return (*_mounting(found, mounts), Check(key, found.version(key))), mounts

    return _changed(state, decide)


def remove_mount(state: StateStore, path: str) -> MountTable:
    """Give the tables at and below a path to the group of the next mount above; return all mounts.

    Args:
        state: The fleet's state store.
        path: A mounted path in any spelling.

    Raises:
        ConfigError: The path isn't mounted, or then the tables would be outside the roots of their
            group, or that has no server.
        FleetError: As in ``drain``.
    """

    def decide(found: FleetRead) -> tuple[Sequence[Op], MountTable]:
        mounts = found.fleet.mounts.removing(path)
        prefix = str(TableId.of(path).normal())
        name = mounts.group(prefix)
        group, seated = found.fleet.group(name), found.fleet.seated
        if name not in seated or group is None or not group.has_room_for(prefix):
            shown = "none" if group is None or name not in seated else group.shown
            raise ConfigError(
                f"without its mount the path {path!r} belongs to the group {name};"
                f" allowed: a path at or below the roots of its servers, {shown}"
            )
        return _mounting(found, mounts), mounts

    return _changed(state, decide)


def _mounting(found: FleetRead, mounts: MountTable) -> tuple[Op, ...]:
    value = mounts_bytes(mounts)
    is_more = len(mounts.mounts) > len(found.fleet.mounts.mounts)
    if is_more and len(value) > MAX_VALUE_BYTES // 2:
        raise ConfigError(
            f"the {len(mounts.mounts)} mounts take {len(value)} bytes; allowed:"
            f" {MAX_VALUE_BYTES // 2}"
        )
    put = Put(MOUNTS, value, found.version(MOUNTS))
    return put, next_epoch(found, has_groups=True)


def _changed(state: StateStore, decide: Callable[[FleetRead], tuple[Sequence[Op], T]]) -> T:
    """Decide and write; repeat both if another writer has changed the state in between."""
    for _ in range(_ATTEMPTS):
        ops, result = decide(read_fleet(state))
        if not ops:
            return result
        try:
            state.write(*ops)
        except StateConflictError:
            continue  # decide again, on what the other writer wrote
        return result
    raise StateConflictError(f"the fleet changed during each of {_ATTEMPTS} attempts")
