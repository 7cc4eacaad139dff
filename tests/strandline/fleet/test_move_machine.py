"""Random members, moves, crashes and clocks: every move ends, and no marker is new twice."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from strandline.fleet.changes import plan_move, undo_move
from strandline.fleet.records import read_fleet, read_moved
from strandline.fleet.roster import DEAD_S
from tests.strandline.fleet.memory_state import MemoryState
from tests.strandline.fleet.moving_fleet import SURE_S, TABLES, Lake, Server
from timeline.errors import ConfigError

servers = st.integers(0, 4)
PATHS = ("/lake/hot", "/lake/hot/t", "/lake/hot/a")


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

    def _all_step(self) -> None:
        for server in self.lake.servers:
            server.step()
            server.work()

    @rule(at=servers)
    def step(self, at: int) -> None:
        self.lake.servers[at].step()

    @rule(at=servers)
    def work(self, at: int) -> None:
        self.lake.servers[at].work()

    @rule()
    def all_step(self) -> None:
        self._all_step()

    @rule(seconds=st.sampled_from([1, 3, 11]), beats=st.booleans())
    def advance(self, seconds: int, beats: bool) -> None:
        """Let time pass; creations take less time than a server's doubt comes before its end."""
        for _ in range(seconds):
            self.lake.clock.advance(1_000)
            now_s = self.lake.clock.monotonic()
            for one in list(self.lake.under_way):
                if now_s - one.began_s >= SURE_S - 1:
                    self.lake.finish(one)
            if beats:
                for server in self.lake.servers:
                    server.step()

    @rule(at=servers, table=st.sampled_from(TABLES), marker=st.sampled_from("xyz"))
    def create(self, at: int, table: str, marker: str) -> None:
        self.lake.servers[at].create(table, marker)

    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        if self.lake.under_way:
            self.lake.finish(data.draw(st.sampled_from(self.lake.under_way)))

    @rule(path=st.sampled_from(PATHS), group=st.sampled_from(["default", "hot"]))
    def order(self, path: str, group: str) -> None:
        found = read_fleet(self.operator)
        try:
            move = plan_move(self.operator, path, group, now_ms=0)
        except ConfigError:
            return
        assert not any(each.overlaps(move.prefix) for each in found.fleet.moves)
        assert move.number not in self.ordered
        self.ordered.add(move.number)

    @rule()
    def undo(self) -> None:
        for move in read_fleet(self.operator).fleet.moves:
            try:
                undo_move(self.operator, move.number, now_ms=0)
            except ConfigError:
                assert move.has_flipped

    @rule(at=servers)
    def kill(self, at: int) -> None:
        self.lake.servers[at].kill()

    @rule(at=servers, after=st.booleans())
    def die_at_next_write(self, at: int, after: bool) -> None:
        state = self.lake.servers[at].state
        state.dies_at, state.dies_after = state.writes, after

    @rule(at=servers)
    def start(self, at: int) -> None:
        if not self.lake.servers[at].is_up:
            self.lake.servers[at].start()

    @rule(at=servers)
    def stop(self, at: int) -> None:
        """Stop a process, with no creation under way: the client of one would have left."""
        server = self.lake.servers[at]
        if all(one.server is not server for one in self.lake.under_way):
            server.is_stopped = server.is_up

    @rule(at=servers)
    def go_on(self, at: int) -> None:
        server = self.lake.servers[at]
        server.is_stopped = False
        held, server.held = server.held, []
        for do in held:
            do()

    @rule(at=servers, is_away=st.booleans())
    def cut_off(self, at: int, is_away: bool) -> None:
        self.lake.servers[at].state.is_away = is_away

    @rule(is_away=st.booleans())
    def cut_all_off(self, is_away: bool) -> None:
        for server in self.lake.servers:
            server.state.is_away = is_away

    @rule(at=servers, can=st.booleans())
    def warm(self, at: int, can: bool) -> None:
        self.lake.servers[at].can_warm = can

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
        for one in list(self.lake.under_way):
            self.lake.finish(one)
        for server in self.lake.servers:
            server.state.is_away, server.state.dies_at, server.can_warm = False, None, True
            self.go_on(self.lake.servers.index(server))
            if not server.is_up:
                server.start()
        for _ in range(int(DEAD_S) + 6):
            self.lake.clock.advance(3_000)
            self._all_step()
            for one in list(self.lake.under_way):
                self.lake.finish(one)
        found, (ended, _) = read_fleet(self.operator), read_moved(self.operator)
        assert found.fleet.moves == ()
        assert sorted(move.number for move in ended) == sorted(self.ordered)
        groups = {server.current.known.group(TABLES[0]) for server in self.lake.servers}
        assert len(groups) == 1, "all know the same"
        for at in range(len(self.lake.servers)):
            for table in TABLES:
                self.lake.servers[at].create(table, f"last{at}")
        assert len(self.lake.under_way) == len(TABLES) * len(self.lake.servers)
        for one in list(self.lake.under_way):
            self.lake.finish(one)
        self.no_marker_is_new_twice()


@pytest.mark.property
def test_every_move_ends_and_no_marker_is_new_twice() -> None:
    run_state_machine_as_test(MoveMachine, settings=settings(stateful_step_count=40))
