"""``MoveCounts``: the moves of tables that a server has carried out as leader, and their times.

Each step of a move is counted by the leader that has written it, so the sum over the servers of a
fleet is that of its moves. A move that an operator undoes is counted by the leader that misses it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from strandline.fleet.mounts import Move, MoveState
from strandline.fleet.moves import OVER


class MoveCounts:
    """Counts of one server; changed by one thread, ``status`` is for any."""

    def __init__(self) -> None:
        self._reached: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}
        self._under_way: frozenset[int] = frozenset()

    def stepped(self, before: Move, after: Move, waited_s: float) -> None:
        """Count a step that this server has written.

        Args:
            before: The move before it.
            after: And after it.
            waited_s: For how long this server has seen it in its former state.
        """
        self._reached[after.state.name] += 1
        spent_s = self._seconds.get(before.state.name, 0.0)
        self._seconds[before.state.name] = spent_s + waited_s
        if after.state in OVER:
            self._under_way -= {before.number}

    def see(self, moves: Iterable[Move], ended: Callable[[], Iterable[Move]] | None) -> None:
        """Notice the moves under way.

        Args:
            moves: All of them.
            ended: Reads those that have ended; ``None``: this server doesn't lead.
        """
        now = frozenset(move.number for move in moves)
        missed = self._under_way - now
        if missed and ended is not None:
            for move in ended():
                if move.number in missed and move.state is MoveState.UNDONE:
                    self._reached[move.state.name] += 1
        self._under_way = now

    def status(self) -> dict[str, dict[str, float]]:
        """Return ``reached``: state → moves, and ``seconds``: state → how long they were in it."""
        reached, seconds = dict(self._reached), dict(self._seconds)  # each in one step
        return {
            "reached": dict(sorted(reached.items())),
            "seconds": {state: round(spent, 3) for state, spent in sorted(seconds.items())},
        }
