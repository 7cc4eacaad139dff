"""Random members, moves, crashes and clocks: every move ends, and no marker is new twice."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from strandline.fleet.changes import plan_move, undo_move
from strandline.fleet.records import read_fleet, read_moved
from strandline.fleet.roster import DEAD_S
from tests.strandline.fleet.memory_state import MemoryState
from tests.strandline.fleet.moving_fleet import SURE_S, TABLES, Lake, Server
from timeline.errors import ConfigError

servers = st.integers(0, 4)
FAULTS = (
    "kill",
    "die before a write",
    "die after a write",
    "stop",
    "cut off",
    "cut all off",
    "no disk",
    "undo",
)
PATHS = ("/lake/hot/t", "/lake/hot")


class MoveMachine(RuleBasedStateMachine):
    """Two servers of each group, and a router; each knows only what its own steps have read."""

    def __init__(self) -> None:
        super().__init__()
        self.lake = Lake()
        self.operator = MemoryState(self.lake.place)
        named = (("a", "default"), ("b", "default"), ("c", "hot"), ("d", "hot"), ("r", ""))
        for name, group in named:
            Server(self.lake, name, group)
        for _ in range(3):
            self._all_step()
        assert len(read_fleet(self.operator).fleet.seats) == 4
        self.ordered: set[int] = set()
        self.allowed: list[str] = []

    @initialize(allowed=st.lists(st.sampled_from(FAULTS), max_size=2, unique=True))
    def begin(self, allowed: list[str]) -> None:
        """Have few kinds of faults in a run, or none: else no move gets far."""
        self.allowed = allowed

    def _all_step(self) -> None:
        for server in self.lake.servers:
            server.step()
            server.work()

    @rule(beating=st.lists(servers, min_size=1, max_size=6))
    def beat(self, beating: list[int]) -> None:
        """Have servers read the fleet, and do what it asks of them, in this order."""
        for at in beating:
            self.lake.servers[at].step()
            self.lake.servers[at].work()

    @rule(rounds=st.sampled_from([1, 2, 3, 4, 12]))
    def all_beat(self, rounds: int) -> None:
        for _ in range(rounds):
            self._all_step()

    @rule(
        entries=st.lists(servers, min_size=1, max_size=4),
        marker=st.sampled_from("xyz"),
        until=st.sampled_from(["ended", "begun", "decided"]),
    )
    def create(self, entries: list[int], marker: str, until: str) -> None:
        """Have clients ask servers, all for the same marker, and let the servers get so far."""
        begun, decided = list(self.lake.under_way), list(self.lake.decided)
        for at in entries:
            self.lake.servers[at].create(TABLES[0], marker)
        if until != "decided":
            for each in [one for one in self.lake.decided if one not in decided]:
                self.lake.decided.remove(each)
                each()
        if until == "ended":
            for one in [each for each in self.lake.under_way if each not in begun]:
                self.lake.finish(one)

    @rule(data=st.data())
    def go_on(self, data: st.DataObject) -> None:
        """Have a server begin what it has decided, which another of its threads may forestall."""
        if self.lake.decided:
            decided = data.draw(st.sampled_from(self.lake.decided))
            self.lake.decided.remove(decided)
            decided()

    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        if self.lake.under_way:
            self.lake.finish(data.draw(st.sampled_from(self.lake.under_way)))

    @rule(path=st.sampled_from(PATHS))
    def order(self, path: str) -> None:
        """Order a move to the other group, if there may be one."""
        found = read_fleet(self.operator)
        here = found.fleet.mounts.group(f"file://{path}")
        try:
            move = plan_move(
                self.operator, path, "hot" if here == "default" else "default", now_ms=0
            )
        except ConfigError:
            return
        assert not any(each.overlaps(move.prefix) for each in found.fleet.moves)
        assert move.number not in self.ordered
        self.ordered.add(move.number)

    @rule(seconds=st.sampled_from([1, 2, 11]), silent=st.sets(servers))
    def advance(self, seconds: int, silent: set[int]) -> None:
        """Let time pass; creations take less time than a server's doubt comes before its end."""
        for _ in range(seconds):
            self.lake.clock.advance(1_000)
            now_s = self.lake.clock.monotonic()
            self.lake.begin_all()
            for one in list(self.lake.under_way):
                if now_s - one.began_s >= SURE_S - 1:
                    self.lake.finish(one)
            for at, server in enumerate(self.lake.servers):
                if at not in silent:
                    server.step()

    @precondition(lambda self: self.allowed)
    @rule(at=servers, data=st.data())
    def fault(self, at: int, data: st.DataObject) -> None:
        """Have something happen to a server, or to the store, or an operator undo what moves."""
        server = self.lake.servers[at]
        fault = data.draw(st.sampled_from(self.allowed))
        if fault == "kill":
            server.kill()
        elif fault in ("die before a write", "die after a write"):
            server.state.dies_at = server.state.writes
            server.state.dies_after = fault == "die after a write"
        elif fault == "stop":
            # With no creation under way: the client of one would have left.
            self.lake.begin_all()
            if all(one.server is not server for one in self.lake.under_way):
                server.is_stopped = server.is_up
        elif fault == "cut off":
            server.state.is_away = True
        elif fault == "cut all off":
            for each in self.lake.servers:
                each.state.is_away = True
        elif fault == "undo":
            self._undo()
        else:
            server.can_warm = False

    def _undo(self) -> None:
        for move in read_fleet(self.operator).fleet.moves:
            try:
                undo_move(self.operator, move.number, now_ms=0)
            except ConfigError:
                assert move.has_flipped

    @precondition(lambda self: self.allowed)
    @rule(mended=st.lists(servers, min_size=1, max_size=6))
    def mend(self, mended: list[int]) -> None:
        for at in mended:
            self._mend(at)

    def _mend(self, at: int) -> None:
        """End what has happened to a server."""
        server = self.lake.servers[at]
        if not server.is_up:
            server.start()
        server.state.is_away, server.state.dies_at, server.can_warm = False, None, True
        server.is_stopped = False
        held, server.held = server.held, []
        for do in held:
            do()

    @invariant()
    def no_marker_is_new_twice(self) -> None:
        assert all(times == 1 for times in self.lake.told_new.values()), self.lake.told_new

    @invariant()
    def a_table_has_one_move(self) -> None:
        moves = read_fleet(self.operator).fleet.moves
        for table in TABLES:
            assert sum(move.prefix in (table, table.rpartition("/")[0]) for move in moves) <= 1

    def teardown(self) -> None:
        """Once all faults are over, every move ends, and each was remembered once."""
        self.lake.settle()
        for at in range(len(self.lake.servers)):
            self._mend(at)
        for _ in range(int(DEAD_S) + 6):
            self.lake.clock.advance(3_000)
            self._all_step()
            self.lake.settle()
        found, (ended, _) = read_fleet(self.operator), read_moved(self.operator)
        assert found.fleet.moves == ()
        assert sorted(move.number for move in ended) == sorted(self.ordered)
        groups = {server.current.known.group(TABLES[0]) for server in self.lake.servers}
        assert len(groups) == 1, "all know the same"
        for at in range(len(self.lake.servers)):
            for table in TABLES:
                self.lake.servers[at].create(table, f"last{at}")
        assert len(self.lake.decided) == len(TABLES) * len(self.lake.servers)
        self.lake.settle()
        self.no_marker_is_new_twice()


@pytest.mark.property
def test_every_move_ends_and_no_marker_is_new_twice() -> None:
    run_state_machine_as_test(MoveMachine, settings=settings(stateful_step_count=30))
