"""Random members, moves, crashes and clocks: every move ends, and no marker is new twice."""

from __future__ import annotations

from functools import partial

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
from strandline.fleet.mounts import MoveState
from strandline.fleet.records import read_fleet
from strandline.fleet.roster import DEAD_S
from strandline.fleet.state.base import Op, Put
from tests.strandline.fleet.memory_state import MemoryState
from tests.strandline.fleet.moving.moving_fleet import SURE_S, TABLES, Lake, Server
from timeline.errors import ConfigError

servers = st.integers(0, 4)
FAULTS = (
    "kill",
    "die before a write",
    "die after a write",
    "stop",
    "sleep",
    "cut off",
    "cut all off",
    "no disk",
    "spare",
)
PATHS = ("/lake/hot/t", "/lake/hot/a", "/lake/hot")
MOVING = TABLES[:2]
"""Tables below ``PATHS``: the leader's, which knows of a flip at once, and the other server's."""


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
        self.rounds = 0

    @initialize(allowed=st.lists(st.sampled_from([*FAULTS, "undo"]), max_size=2, unique=True))
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
        entries=st.lists(st.tuples(servers, st.sampled_from("xyXY")), min_size=1, max_size=6),
        table=st.sampled_from(MOVING),
        until=st.sampled_from(["ended", "ended", "begun", "decided"]),
    )
    def create(self, entries: list[tuple[int, str]], table: str, until: str) -> None:
        """Have clients ask servers for markers, one after the other, and let these get so far.

        Small letters are markers that nobody has asked for before, capitals those of the last time.
        """
        self.rounds += 1
        for at, marker in entries:
            begun, decided = list(self.lake.under_way), list(self.lake.decided)
            name = f"{marker}{self.rounds}" if marker.islower() else f"{marker}{self.rounds - 1}"
            self.lake.servers[at].create(table, name.lower())
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

    @rule(data=st.data(), is_answered=st.booleans())
    def finish(self, data: st.DataObject, is_answered: bool) -> None:
        """Have a marker on storage, and its client answered."""
        if self.lake.under_way:
            one = data.draw(st.sampled_from(self.lake.under_way))
            (self.lake.finish if is_answered else self.lake.write)(one)

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

    @rule(
        path=st.sampled_from(PATHS),
        state=st.sampled_from([MoveState.FLIPPED, MoveState.WARMING, MoveState.DROPPING]),
        late=st.sets(servers, max_size=2),
        stops=st.sampled_from([None, frozenset(range(5)), frozenset()]),
    )
    def reach(
        self,
        path: str,
        state: MoveState,
        late: set[int],
        stops: frozenset[int] | None,
    ) -> None:
        """Order a move if there may be one; let all but late servers go on until they know a state.

        The one that writes it may stop before, and others with it, until its lease ends.
        """
        self.order(path)
        if stops is not None:
            for at, server in enumerate(self.lake.servers):
                server.state.before_write = partial(self._stop_before, state, at, stops)
        for at in [*range(len(self.lake.servers))] * 6:
            if any(move.state is state for move in read_fleet(self.operator).fleet.moves):
                break
            if at not in late:
                self.lake.servers[at].step()
                self.lake.servers[at].work()
        self._write_at_once()
        for at in set(range(len(self.lake.servers))) - late:
            self.lake.servers[at].step()  # all but late ones know it

    @rule(
        path=st.sampled_from(PATHS),
        late=st.sampled_from([1, 2, 3]),
        table=st.sampled_from(MOVING),
        order=st.permutations(range(5)),
        dies=st.booleans(),
    )
    def contend(self, path: str, late: int, table: str, order: list[int], dies: bool) -> None:
        """Have a move flip of which one server of the former group doesn't know.

        Meanwhile clients ask all servers for the same two markers, an operator tries to undo the
        move, and the leader may die.
        """
        for _ in range(3):
            self._all_step()  # what is under way may end
        group = "default" if late == 1 else "hot"
        if read_fleet(self.operator).fleet.mounts.group(TABLES[0]) == group:
            self.reach(path, MoveState.FLIPPED, {late}, None)
        self.create([(at, marker) for marker in "xy" for at in order], table, "ended")
        if read_fleet(self.operator).fleet.moves and all(
            move.has_flipped for move in read_fleet(self.operator).fleet.moves
        ):
            self._undo()
            if dies:
                self.lake.servers[0].kill()
                self.advance(int(DEAD_S) + 1, {late})
                self._mend(0)

    @rule(
        path=st.sampled_from(PATHS),
        table=st.sampled_from(MOVING),
        seconds=st.sampled_from([int(DEAD_S) + 1, 2]),
        so_far=st.sampled_from(["ended", "begun", "decided"]),
    )
    def oversleep(self, path: str, table: str, seconds: int, so_far: str) -> None:
        """Have tables move while the machine of their owner sleeps, which creates a marker.

        Clients ask the others for markers meanwhile, and then the one that is awake again.
        """
        for _ in range(3):
            self._all_step()
        owner = next(seat.url for seat in self.lake.servers[-1].current.owners(table))
        if owner is None:
            return  # its seat is vacant
        at, server = next(each for each in enumerate(self.lake.servers) if each[1].url == owner)
        others = set(range(len(self.lake.servers))) - {at}
        self.create([(at, "y")], table, "ended")  # it has the table's markers in memory
        self.create([(at, "x")], table, so_far)
        self._stop(server)
        if server.is_stopped:
            server.clock.sleep()
        self.reach(path, MoveState.FLIPPED, {at}, None)
        self.advance(seconds, {at})
        for _ in range(3):
            self._all_step()
        self.create([(each, marker) for marker in "Xy" for each in others], table, "ended")
        self._mend(at)
        self.lake.settle()
        self.create([(at, "Y")], table, "ended")

    @rule(path=st.sampled_from(PATHS), table=st.sampled_from(MOVING))
    def linger(self, path: str, table: str) -> None:
        """Have tables move while their owner creates a marker, which other clients ask for then."""
        for _ in range(3):
            self._all_step()
        self.create([(4, "y")], table, "ended")  # it has the table's markers in memory
        self.create([(4, "x")], table, "begun")
        self.reach(path, MoveState.DROPPING, set(), None)
        self.create([(at, "X") for at in range(len(self.lake.servers))], table, "ended")

    def _write_at_once(self) -> None:
        for server in self.lake.servers:
            server.state.before_write = lambda _: None

    def _stop_before(
        self, state: MoveState, at: int, silent: frozenset[int], ops: tuple[Op, ...]
    ) -> None:
        """Have a server that brings a move to a state stop before, until it counts as dead."""
        brings = any(isinstance(op, Put) and state.name.encode() in op.value for op in ops)
        server = self.lake.servers[at]
        if not brings or server.is_stopped:
            return
        self._write_at_once()
        server.is_stopped = True
        self.advance(int(DEAD_S) + 1, {*silent, at})
        server.is_stopped = False
        self._go_on(server)

    @rule(seconds=st.sampled_from([1, 2, 11]), silent=st.sets(servers), lingers=st.booleans())
    def advance(self, seconds: int, silent: set[int], lingers: bool = False) -> None:
        """Let time pass; creations end before a server's doubt does, unless they linger.

        Those that a server begins in doubt don't: that the store is away for all isn't asked again
        at their end (docs/markers.md).
        """
        for _ in range(seconds):
            self.lake.clock.advance(1_000)
            now_s = self.lake.clock.monotonic()
            self.lake.begin_all()
            for one in list(self.lake.under_way):
                may_linger = lingers and one.membership is not None
                if not may_linger and now_s - one.began_s >= SURE_S - 1:
                    self.lake.finish(one)
            for at, server in enumerate(self.lake.servers):
                if at not in silent:
                    server.step()

    @rule(at=servers, hours=st.sampled_from([-500_000, -3, 0, 3, 500_000]))
    def set_clock(self, at: int, hours: int) -> None:
        """Set a server's wall clock, by hours or by decades."""
        self.lake.servers[at].clock.off_ms = hours * 3_600_000

    @precondition(lambda self: set(self.allowed) & set(FAULTS))
    @rule(at=servers, data=st.data())
    def fault(self, at: int, data: st.DataObject) -> None:
        """Have something happen to a server, or to the store."""
        server = self.lake.servers[at]
        fault = data.draw(st.sampled_from([each for each in self.allowed if each in FAULTS]))
        if fault == "kill":
            server.kill()
        elif fault in ("die before a write", "die after a write"):
            server.state.dies_at = server.state.writes
            server.state.dies_after = fault == "die after a write"
        elif fault in ("stop", "sleep"):
            self._stop(server)
            if fault == "sleep" and server.is_stopped:
                server.clock.sleep()
        elif fault == "cut off":
            server.state.is_away = True
        elif fault == "cut all off":
            for each in self.lake.servers:
                each.state.is_away = True
        elif fault == "spare":
            server.spares = True
        else:
            server.can_warm = False

    def _stop(self, server: Server) -> None:
        """Stop a server, unless it creates a marker in doubt (see ``advance``)."""
        mine = [one for one in self.lake.under_way if one.server is server]
        if all(one.membership is not None for one in mine):
            server.is_stopped = server.is_up

    @precondition(lambda self: "undo" in self.allowed)
    @rule()
    def undo(self) -> None:
        """Have an operator undo what moves."""
        self._undo()

    def _undo(self) -> None:
        """Undo what moves, which is refused once it has flipped."""
        for move in read_fleet(self.operator).fleet.moves:
            try:
                undo_move(self.operator, move.number, now_ms=0)
            except ConfigError:
                assert move.has_flipped
            else:
                assert not move.has_flipped

    @precondition(lambda self: self.allowed)
    @rule(mended=st.lists(servers, min_size=1, max_size=6))
    def mend(self, mended: list[int]) -> None:
        for at in mended:
            self._mend(at)

    def _mend(self, at: int) -> None:
        """End what has happened to a server."""
        server = self.lake.servers[at]
        server.clock.wake()
        if not server.is_up:
            server.start()
        server.state.is_away, server.state.dies_at, server.can_warm = False, None, True
        server.is_stopped = server.spares = False
        self._go_on(server)

    def _go_on(self, server: Server) -> None:
        """Have a server that goes on do what has been held meanwhile."""
        held, server.held = server.held, []
        for do in held:
            do()

    @invariant()
    def no_marker_is_new_twice(self) -> None:
        assert all(times == 1 for times in self.lake.told_new.values()), self.lake.told_new

    @invariant()
    def what_a_server_writes_is_fenced_by_its_lease(self) -> None:
        assert self.lake.place.unfenced == []

    @invariant()
    def tables_are_closed_once_all_of_the_source_know(self) -> None:
        assert set(self.lake.closed_in) <= {MoveState.DROPPING.name}

    @invariant()
    def a_table_has_one_move(self) -> None:
        moves = read_fleet(self.operator).fleet.moves
        for table in TABLES:
            assert sum(move.overlaps(table) for move in moves) <= 1

    def teardown(self) -> None:
        """Once all faults are over, every move ends, and each was remembered once."""
        self.lake.settle()
        for at in range(len(self.lake.servers)):
            self._mend(at)
        for _ in range(int(DEAD_S) + 6):
            self.lake.clock.advance(3_000)
            self._all_step()
            self.lake.settle()
        found = read_fleet(self.operator)
        assert found.fleet.moves == ()
        assert sorted(move.number for move in found.ended) == sorted(self.ordered)
        for move in found.ended:
            has_flipped = MoveState.FLIPPED.name in dict(move.began)
            assert move.state is (MoveState.DONE if has_flipped else MoveState.UNDONE), move
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
    run_state_machine_as_test(MoveMachine, settings=settings(stateful_step_count=20))
