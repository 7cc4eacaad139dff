"""Changes of a fleet that an operator orders: drained servers, mounts, moves of tables.

Each is one write to the state store, applied only to the state on which it was decided. The servers
notice it by their watches, and need no restart.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from strandline.fleet.joining import check_know_groups
from strandline.fleet.mounts import OVER, UNDOABLE, Mount, MountTable, Move, MoveState
from strandline.fleet.moving.moves import MOST_MOVES, step_ops, undone
from strandline.fleet.records import (
    MOVES,
    FleetRead,
    drained_bytes,
    drained_key,
    group_key,
    mounting,
    move_bytes,
    move_key,
    next_epoch,
    read_fleet,
)
from strandline.fleet.seats import HeldSeat
from strandline.fleet.state.base import Check, Delete, Op, Put, StateStore
from strandline.settings.fleet import DEFAULT_GROUP
from timeline.clock import SystemClock
from timeline.errors import ConfigError, FleetError, StateConflictError
from timeline.storage.table_id import TableId

T = TypeVar("T")

_ATTEMPTS: Final = 20
"""Most attempts against other writers."""
LOOK_S: Final = 1.0
"""Longest time between two looks at a move that is awaited, in which the store tells of changes."""


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
            the group's roots; tables there are moving; or a member is of a release without groups.
        FleetError: As in ``drain``.
    """

    def decide(found: FleetRead) -> tuple[Sequence[Op], MountTable]:
        check_know_groups(found, f"the path {mount.path} is to be mounted")
        _check_still(found, mount.prefix)
        mounts = found.fleet.mounts.adding(mount, found.fleet.seated)
        _check_room(found, mount)
        key = group_key(mount.group)
        return (*mounting(found, mounts), Check(key, found.version(key))), mounts

    return _changed(state, decide)


def remove_mount(state: StateStore, path: str) -> MountTable:
    """Give the tables at and below a path to the group of the next mount above; return all mounts.

    Args:
        state: The fleet's state store.
        path: A mounted path in any spelling.

    Raises:
        ConfigError: The path isn't mounted, or then the tables would be outside the roots of their
            group, or that has no server; or tables there are moving.
        FleetError: As in ``drain``.
    """

    def decide(found: FleetRead) -> tuple[Sequence[Op], MountTable]:
        mounts = found.fleet.mounts.removing(path)
        prefix = str(TableId.of(path).normal())
        _check_still(found, prefix)
        name = mounts.group(prefix)
        group, seated = found.fleet.group(name), found.fleet.seated
        if name not in seated or group is None or not group.has_room_for(prefix):
            shown = "none" if group is None or name not in seated else group.shown
            raise ConfigError(
                f"without its mount the path {path!r} belongs to the group {name};"
                f" allowed: a path at or below the roots of its servers, {shown}"
            )
        return mounting(found, mounts), mounts

    return _changed(state, decide)


def plan_move(
    state: StateStore,
    path: str,
    group: str,
    copies: int | None = None,
    depth: int | None = None,
    *,
    now_ms: int,
) -> Move:
    """Order that the tables at and below a path move to a group; the leader carries it out.

    Args:
        state: The fleet's state store.
        path: A table's base path, or a directory above some, in any spelling.
        group: The group.
        copies: Servers that have each of them; ``None``: as the nearest mount says now.
        depth: How they are placed; ``None``: likewise.
        now_ms: Now, epoch milliseconds.

    Raises:
        ConfigError: Tables there are moving already, they are the group's, it has no server, the
            path is outside its roots, or too many moves are under way; or a member is of a release
            without groups.
        FleetError: As in ``drain``.
    """
    asked = Mount.of(path, group, copies, depth)

    def decide(found: FleetRead) -> tuple[Sequence[Op], Move]:
        fleet = found.fleet
        check_know_groups(found, f"the path {asked.path} is to move")
        _check_still(found, asked.prefix)
        source, there = fleet.mounts.group(asked.prefix), fleet.mounts.mount(asked.prefix)
        if source == group:
            raise ConfigError(
                f"the path {asked.path} belongs to the group {group}; allowed: another group"
            )
        if len(fleet.moves) >= MOST_MOVES:
            raise ConfigError(
                f"{len(fleet.moves)} moves are under way; allowed: {MOST_MOVES}",
                hint="order it once some of them have ended",
            )
        seated = {seat.group for seat in fleet.seats if fleet.with_seat(seat.group)}
        if group not in seated:
            allowed = ", ".join(sorted(seated - {source})) or "none, as no other group has any"
            raise ConfigError(f"the group {group} has no server; allowed: {allowed}")
        mount = asked
        if there is not None:
            mount = Mount(
                asked.prefix,
                group,
                there.copies if copies is None else copies,
                there.depth if depth is None else depth,
            )
        _check_room(found, mount)
        mounts = fleet.mounts
        for each in (*(move.mount for move in fleet.moves), mount):
            mounts = mounts.moving(each)
        mounting(found, mounts)  # refuses too many
        # The epoch that it begins: no other move has it.
        move = Move(found.epoch + 1, mount, source, began=((MoveState.PLANNED.name, now_ms),))
        entry = Put(move_key(move.number), move_bytes(move))
        return (entry, next_epoch(found, has_groups=True)), move

    return _changed(state, decide)


def undo_move(state: StateStore, number: int, *, now_ms: int) -> Move | None:
    """Undo a move that hasn't flipped, or forget one whose record can't be read.

    Returns:
        The move; ``None``: its record couldn't be read.

    Raises:
        ConfigError: There is no such move, or the tables belong to their new group already.
        FleetError: As in ``drain``.
    """

    def decide(found: FleetRead) -> tuple[Sequence[Op], Move | None]:
        key = move_key(number)
        if key in found.unreadable:
            forgotten = Delete(key, found.version(key)), next_epoch(found, has_groups=True)
            return forgotten, None
        move = next((each for each in found.fleet.moves if each.number == number), None)
        if move is None:
            allowed = ", ".join(str(each.number) for each in found.fleet.moves)
            raise ConfigError(f"no move {number} is under way; allowed: {allowed or 'none, now'}")
        if move.state not in UNDOABLE:
            raise ConfigError(
                f"{move} is {move.state.name}; allowed: {', '.join(s.name for s in UNDOABLE)}",
                hint=f"it is finished; then move the path back to the group {move.source}",
            )
        after = undone(move, "an operator has undone it", now_ms)
        return step_ops(found, move, after), after

    return _changed(state, decide)


def await_move(
    state: StateStore, move: Move, tell: Callable[[Move], object], within_s: float | None = None
) -> Move:
    """Wait until a move has ended; return it.

    Args:
        state: The fleet's state store.
        move: One that was ordered.
        tell: Called with the move in each state that is seen.
        within_s: How long to wait; ``None``: until it ends.

    Returns:
        The move as it was seen last; under way still if the time is over.

    Raises:
        FleetError: Its record can't be read, or the store can't be reached.
    """
    changed, clock = threading.Event(), SystemClock()
    cancel = state.watch(MOVES, changed.set)
    until_s = math.inf if within_s is None else clock.monotonic() + within_s
    try:
        while True:
            changed.clear()
            now = _found(state, move)
            if now != move:
                move = now
                tell(move)
            left_s = until_s - clock.monotonic()
            if move.state in OVER or left_s <= 0:
                return move
            changed.wait(min(LOOK_S, left_s))
    finally:
        cancel()


def _found(state: StateStore, move: Move) -> Move:
    found = read_fleet(state)
    key = move_key(move.number)
    if key in found.unreadable:
        raise FleetError(found.unreadable[key])
    moves = (*found.fleet.moves, *found.ended)
    now = next((each for each in moves if each.number == move.number), None)
    if now is None:
        raise FleetError(f"nothing is known of {move} any more: its record was damaged, or deleted")
    return now


def _check_still(found: FleetRead, prefix: str) -> None:
    """Refuse a change of tables that are moving."""
    move = next((each for each in found.fleet.moves if each.overlaps(prefix)), None)
    if move is not None:
        raise ConfigError(
            f"{move} is {move.state.name}, and concerns {TableId.of(prefix).base_path}; allowed:"
            " once it has ended",
            hint="strandline fleet moves shows it",
        )


def _check_room(found: FleetRead, mount: Mount) -> None:
    """Refuse a path outside the roots of its group."""
    group = found.fleet.group(mount.group)
    if group is None or not group.has_room_for(mount.prefix):
        roots = "none, as they aren't known" if group is None else group.shown
        raise ConfigError(
            f"the path {mount.path} is outside the roots of the group {mount.group};"
            f" allowed: at or below {roots}"
        )


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
