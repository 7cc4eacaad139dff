"""A move of tables from one group of servers to another: its states, and who may go on; pure.

| state | what happens | if the leader ends |
| --- | --- | --- |
| ``PLANNED`` | an operator has ordered it; no other change concerns the tables | goes on |
| ``WARMING`` | the destination's servers take the records of the tables | undone |
| ``FLIPPED`` | a mount gives the tables to the destination; the source learns of it | finished |
| ``DROPPING`` | the source's servers close the tables | finished |
| ``DONE``, ``UNDONE`` | it is remembered among the last ones | |

The leader of the fleet carries it out. Each step is one write, which its membership, the epoch and
the entry itself fence: so a former leader's fails, and a leader that dies between two writes leaves
an entry that says all that the next one needs. Servers say in their own records what they have done
for a move (``Member.acks``), and a step waits for those that are alive:

* in ``PLANNED`` until one of the destination's servers with a seat is ready;
* in ``WARMING`` for all of them. The tables stay the source's, so it may take long, and nobody
  waits for it;
* in ``FLIPPED`` and ``DROPPING`` for the source's. One that doesn't know the flip yet may still
  create markers; so until all of them have acknowledged it, the destination creates none
  (``strandline.fleet.safe_mode``). One whose membership has ended creates none itself.

Views are derived, and a request names its instant, so nothing is compared: a look-up is right at
any server, in each of the states.

Source: Misra et al., *Scaling Distributed File Systems in Resource-Harvesting Datacenters*
(DH-HDFS), section 3.4: the write-ahead log of the rebalancer, which rolls back or finishes a move.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from strandline.fleet.mounts import OVER, UNDOABLE, Move, MoveState
from strandline.fleet.records import (
    MOVED,
    FleetRead,
    group_key,
    mounting,
    move_bytes,
    move_key,
    moved_bytes,
    next_epoch,
)
from strandline.fleet.seats import Fleet
from strandline.fleet.state.base import Check, Delete, Op, Put

WARM_LASTS_S: Final = 3600.0
"""How long the destination may take records, before a move is undone."""
FAILED: Final = "FAILED"
"""Begins what a server of the destination says that can't open a table; the reason follows."""
MOST_WHY: Final = 500
MOST_MOVES: Final = 32
"""Most moves under way: all servers read each of them, and name it in their own record."""

_NEXT: Final = {
    MoveState.PLANNED: MoveState.WARMING,
    MoveState.WARMING: MoveState.FLIPPED,
    MoveState.FLIPPED: MoveState.DROPPING,
    MoveState.DROPPING: MoveState.DONE,
}


def next_move(
    fleet: Fleet, move: Move, mover: str, waited_s: float, now_ms: int, mounted: str | None = None
) -> Move:
    """Return a move as it should be; the same one if it has to wait.

    Args:
        fleet: The fleet as it is.
        move: One of its moves.
        mover: The leader, which decides.
        waited_s: For how long that one has seen it in its state.
        now_ms: Now, for display.
        mounted: Why the mount can't be written; ``None``: it can.
    """
    if move.state in UNDOABLE:
        why = mounted or _why_undone(fleet, move, mover, waited_s)
        if why is not None:
            return undone(move, why, now_ms)
    if fleet.awaited(move):
        return move
    entered = move.entering(_NEXT[move.state], now_ms)
    return replace(entered, mover=mover) if move.state is MoveState.PLANNED else entered


def undone(move: Move, why: str, now_ms: int) -> Move:
    """Return a move that has ended without effect."""
    return move.entering(MoveState.UNDONE, now_ms, why[:MOST_WHY])


def step_ops(found: FleetRead, before: Move, after: Move) -> tuple[Op, ...]:
    """Return the operations that bring a move from one state to the next.

    Args:
        found: The fleet in which it has the first state.
        before: The move in its first state.
        after: In the second.

    Raises:
        ConfigError: The mounts are too long.
    """
    key = move_key(before.number)
    version = found.version(key)
    if after.state in OVER:
        others = [move for move in found.ended if move.number != after.number]
        put = Put(MOVED, moved_bytes((*others, after)), found.version(MOVED))
        return Delete(key, version), put, next_epoch(found, has_groups=True)
    entry = Put(key, move_bytes(after), version)
    if after.state is not MoveState.FLIPPED:
        return entry, next_epoch(found, has_groups=True)
    group = group_key(after.destination)
    roots = Check(group, found.version(group))
    return entry, roots, *mounting(found, found.fleet.mounts.moving(after.mount))


def _why_undone(fleet: Fleet, move: Move, mover: str, waited_s: float) -> str | None:
    servers, group = fleet.with_seat(move.destination), fleet.group(move.destination)
    if not servers:
        return f"the group {move.destination} has no server"
    if group is None or not group.has_room_for(move.prefix):
        return f"the path is outside the roots of the group {move.destination}"
    if fleet.mounts.group(move.prefix) != move.source:
        return f"the path belongs to the group {fleet.mounts.group(move.prefix)} now"
    if move.state is not MoveState.WARMING:
        return None
    if move.mover != mover:
        return "the leader that carried it out has ended; order it again"
    for each in servers:
        said = dict(each.acks).get(move.number, "")
        if said.startswith(FAILED):
            return f"{each.url} can't take the tables: {said[len(FAILED) :].strip()}"
    if waited_s >= WARM_LASTS_S:
        return f"the group {move.destination} takes records for {waited_s:.0f} s already"
    return None
