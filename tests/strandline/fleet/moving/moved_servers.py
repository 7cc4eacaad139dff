"""Servers of two groups of which one moves tables to the other."""

from __future__ import annotations

from strandline.fleet.changes import (
    plan_move,
)
from strandline.fleet.mounts import Move, MoveState
from strandline.fleet.records import (
    read_fleet,
)
from tests.strandline.fleet.moving.moving_fleet import Lake, Server

HOT = "file:///lake/hot"
T = f"{HOT}/t"
ROUNDS = 9
"""In so many every server does all that a move asks of it."""
ALL = [state.name for state in MoveState if state is not MoveState.UNDONE]


class Servers:
    """``a`` and ``b`` of the group default, of which ``a`` leads; ``c`` of the group hot."""

    def __init__(self) -> None:
        self.lake = Lake()
        self.a, self.b = (Server(self.lake, name, "default") for name in "ab")
        self.c = Server(self.lake, "c", "hot")
        self.state = self.a.state
        self.run(3)

    def run(self, rounds: int = 1, *servers: Server) -> None:
        for _ in range(rounds):
            self.lake.clock.advance(1_000)
            for server in servers or self.lake.servers:
                server.step()
                server.work()

    def run_until(self, state: str, *servers: Server) -> None:
        """Run servers until there is a move in a state; at most for 9 rounds, a whole move."""
        for _ in range(ROUNDS):
            if self.moves() == [state]:
                return
            self.run(1, *servers)
        assert self.moves() == [state]

    def order(self, path: str = "/lake/hot", group: str = "hot", **more: int) -> Move:
        return plan_move(self.state, path, group, now_ms=0, **more)

    def moves(self) -> list[str]:
        return [move.state.name for move in read_fleet(self.state).fleet.moves]

    def ended(self) -> list[tuple[str, str]]:
        return [(move.state.name, move.why) for move in read_fleet(self.state).ended]

    def group(self) -> str:
        return read_fleet(self.state).fleet.mounts.group(T)
