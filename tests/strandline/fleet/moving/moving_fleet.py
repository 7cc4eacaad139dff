"""Servers of two groups and a router, between which tables move: a model of each over real parts.

Real are the memberships (``Roster``), what a server knows (``CurrentFleet``), what it gives up
(``Handover``), and every decision about moves and creations of markers. The model stands for
requests, for the views that are fetched, and for marker directories: a server reads those of a
table from storage once, and then answers from memory.

Of the views there is only which tables are open: a table is from its first creation on.

Each group has copies = 1, and no other server steps in for one that counts as dead: markers that
are told new twice in a failover are another subject (docs/markers.md, "In a fleet").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import cast

from executor_proxy.seat_ring import Layout
from fsview.table_view import TableView
from fsview.view_manager import ViewManager
from strandline.fleet.current import CurrentFleet, KnownFleet
from strandline.fleet.mounts import MoveState
from strandline.fleet.moving.handover import Handover
from strandline.fleet.moving.moves import FAILED
from strandline.fleet.records import read_fleet
from strandline.fleet.roster import DEAD_S, Roster
from strandline.fleet.seats import once_ready
from tests.kit.concurrency.manual_clock import ManualClock
from tests.strandline.fleet.memory_state import ClientDiedError, MemoryState, Place
from timeline.errors import FleetError, StateConflictError
from timeline.storage.table_id import TableId

LAYOUT = Layout(copies=1)
ROOTS = {"default": ["/lake"], "hot": ["/lake/hot"]}
TABLES = ("file:///lake/hot/t", "file:///lake/hot/a/z", "file:///lake/cold/v")
SURE_S = DEAD_S / 2
SETTLED = "settled"


class ServerClock:
    """A server's clocks: the wall clock may be set, the monotonic one stands while it sleeps.

    Attributes:
        off_ms: How far its wall clock is ahead of the others'.
    """

    def __init__(self, clock: ManualClock) -> None:
        self._clock, self.off_ms = clock, 0
        self._slept_s = 0.0
        self._asleep_s: float | None = None

    def now_ms(self) -> int:
        return self._clock.now_ms() + self.off_ms

    def monotonic(self) -> float:
        now_s = self._clock.monotonic() if self._asleep_s is None else self._asleep_s
        return now_s - self._slept_s

    def sleep(self) -> None:
        self._asleep_s = self._clock.monotonic()

    def wake(self) -> None:
        if self._asleep_s is not None:
            self._slept_s += self._clock.monotonic() - self._asleep_s
            self._asleep_s = None


@dataclass
class UnderWay:
    """A creation of a marker that a server has begun.

    Attributes:
        membership: What ``CurrentFleet.membership`` returned when the server decided to begin.
        is_new: Whether the marker is new as far as the server knows; ``None``: it isn't written.
    """

    server: Server
    table: str
    marker: str
    began_s: float
    membership: int | None
    block: ExitStack
    is_new: bool | None = None


@dataclass
class Lake:
    """What the servers share.

    Attributes:
        markers: (Table, marker), what is on storage.
        told_new: How often a client was told that a marker is new.
        decided: Creations that servers have decided to begin themselves.
        closed_in: The states of moves in which servers have closed their tables.
    """

    clock: ManualClock = field(default_factory=lambda: ManualClock(0))
    markers: set[tuple[str, str]] = field(default_factory=set)
    told_new: Counter[tuple[str, str]] = field(default_factory=Counter)
    under_way: list[UnderWay] = field(default_factory=list)
    decided: list[Callable[[], object]] = field(default_factory=list)
    closed_in: list[str] = field(default_factory=list)
    servers: list[Server] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.place = Place(self.clock)

    def at(self, url: str) -> Server:
        return next(server for server in self.servers if server.url == url)

    def begin_all(self) -> None:
        """Have all servers begin what they have decided, or pass it on."""
        while self.decided:
            self.decided.pop(0)()

    def settle(self) -> None:
        """Have all creations begin and end, but those of servers that are stopped."""
        self.begin_all()
        for one in list(self.under_way):
            self.finish(one)

    def write(self, one: UnderWay) -> None:
        """Have the marker of a creation on storage."""
        if one.is_new is not None or one.server.is_stopped:
            return
        kept = one.server.kept.setdefault(
            one.table, {marker for table, marker in self.markers if table == one.table}
        )
        one.is_new = one.marker not in kept
        kept.add(one.marker)
        self.markers.add((one.table, one.marker))

    def finish(self, one: UnderWay) -> None:
        """End a creation: its client is told whether the marker is new, or to ask again."""
        if one.server.is_stopped:
            return
        self.write(one)
        self.under_way.remove(one)
        if one.is_new and one.server.current.membership() == one.membership:
            self.told_new[one.table, one.marker] += 1
        one.block.close()


@dataclass(frozen=True)
class Opened:
    """In place of a ``TableView``."""

    table_id: TableId


class Tables(ViewManager):
    """The tables that a server has open, by the text of their ``TableId``."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.server = server
        self.names: set[str] = set()

    def open_tables(self) -> tuple[TableView, ...]:
        return tuple(cast("TableView", Opened(TableId.of(name))) for name in sorted(self.names))

    def close_table(self, table: TableView, cause: str) -> bool:
        name = str(table.table_id)
        moves = read_fleet(MemoryState(self.server.lake.place)).fleet.moves
        moving = [move.state.name for move in moves if move.overlaps(name)]
        self.server.lake.closed_in += moving
        self.names.discard(name)
        return True


class Server:
    """A server; ``start`` makes it a new process.

    Attributes:
        is_stopped: Whether its process, or its machine, does nothing for now.
        spares: Whether it can't reach other servers, or spares them as it couldn't a moment ago.
    """

    def __init__(self, lake: Lake, name: str, group: str) -> None:
        self.lake, self.name, self.group = lake, name, group
        self.url = f"http://{name}:1"
        self.is_up = self.is_stopped = self.spares = False
        self.can_warm = True
        self.held: list[Callable[[], object]] = []
        self.clock = ServerClock(lake.clock)
        lake.servers.append(self)
        self.start()

    def start(self, *, is_ready: bool = True) -> None:
        """Start anew; it serves once it has joined."""
        lake = self.lake
        self.state = MemoryState(lake.place)
        self.roster = Roster(
            self.state,
            self.url,
            clock=self.clock,
            layout=LAYOUT,
            roots=ROOTS.get(self.group, ()),
            group=self.group,
            boot=lake.clock.monotonic,
            is_ready=is_ready,
        )
        self.current = CurrentFleet(self.url, LAYOUT)
        self.current.group = self.group
        self.current.is_sure = lambda: self.is_sure
        self.acks: dict[int, str] = {}
        self.known_since: int | None = None
        self.kept: dict[str, set[str]] = {}
        self.handover = Handover(
            self.current, self._acknowledge, self.clock, look_s=0, begin=lambda do: do()
        )
        self.tables = Tables(self)
        self.handover.attach(self.tables, self._forget)
        self.is_up, self.is_stopped, self.has_joined = True, False, False

    def kill(self) -> None:
        self.is_up, self.is_stopped, self.held = False, False, []
        for one in [each for each in self.lake.under_way if each.server is self]:
            self.lake.under_way.remove(one)

    def _acknowledge(self, number: int, what: str) -> None:
        self.acks[number] = what

    def _forget(self, is_foreign: Callable[[str], bool]) -> None:
        busy = {one.table for one in self.lake.under_way if one.server is self}
        self.kept = {t: m for t, m in self.kept.items() if t in busy or not is_foreign(t)}

    @property
    def runs(self) -> bool:
        return self.is_up and not self.is_stopped

    @property
    def is_sure(self) -> bool:
        renewal = self.roster.renewal
        if renewal is None or renewal.joined != self.known_since:
            return False
        return self.lake.clock.monotonic() - renewal.sent_s < SURE_S

    def step(self) -> None:
        """Take a step of the membership, as its thread does."""
        if not self.runs:
            return
        try:
            if not self.has_joined:
                self.roster.join()
                self.has_joined = True
            self.roster.acknowledge(self.acks)
            fleet = self.roster.step()
        except ClientDiedError:
            self.kill()
        except StateConflictError:
            return  # the lease of its former process hasn't ended
        except FleetError:
            return  # the store is away
        else:
            for number in self.acks.keys() - {move.number for move in fleet.moves}:
                del self.acks[number]
            self.current.tell(fleet, self.roster.epoch)
            renewal = self.roster.renewal
            self.known_since = None if renewal is None else renewal.joined

    def work(self) -> None:
        """Do what moves ask of this server, as its threads do."""
        if not (self.runs and self.has_joined):
            return
        self.handover.look()
        fleet = once_ready(self.current.known.fleet, self.roster.name)
        holders = {seat.holder: seat.group for seat in fleet.seats}
        for move in fleet.moves:
            mine = move.destination == holders.get(self.roster.name)
            if move.state is MoveState.WARMING and mine:
                self.acks[move.number] = move.state.name if self.can_warm else f"{FAILED} no disk"

    # Creations of markers, as ``Forwarding`` and ``SafeMode`` have them.

    def create(self, table: str, marker: str) -> None:
        """A client asks this server to create a marker."""
        owner = self._owner(table)
        if not (self.runs and self.has_joined) or owner is None:
            return
        epoch = self.current.known.epoch
        is_sent = owner != self.url and self._send(
            owner, lambda to: to._in_doubt(table, marker, epoch)
        )
        if not is_sent:
            self._in_doubt(table, marker, None)

    def _owner(self, table: str) -> str | None:
        return next((seat.url for seat in self.current.owners(table) if seat.url), None)

    def _send(self, url: str, do: Callable[[Server], object]) -> bool:
        """Send a request; a server that is stopped gets it when it goes on.

        Returns false if it certainly gets to no server.
        """
        to = self.lake.at(url)
        if self.spares or not (to.is_up and to.has_joined):
            return False
        if to.is_stopped:
            to.held.append(lambda: do(to))
        else:
            do(to)
        return True

    def _passed_on(self, owner: str, table: str, marker: str) -> bool:
        """Pass a creation on to its newer owner; return whether it may have got it."""
        epoch = self.current.known.epoch
        return self._send(owner, lambda to: to._in_doubt(table, marker, epoch, SETTLED))

    def _in_doubt(self, table: str, marker: str, epoch: int | None, unsure: str = "") -> None:
        known, owner = self.current.known, self._owner(table)
        if not unsure and not self.is_sure:
            others = [s for s in self.lake.servers if s is not self and s.runs and s.has_joined]
            others = [s for s in others if s.group and not self.spares]  # routers can't create
            renewed = [s for s in others if s.is_sure]
            if renewed:
                renewed[0]._in_doubt(table, marker, known.epoch, self.url)
            elif others and all(s.current.known.epoch <= known.epoch for s in others):
                self._create(table, marker, epoch)
            return
        if not unsure:
            is_newer = epoch is not None and epoch < known.epoch
            goes_on = is_newer and owner not in (None, self.url)
        elif not self.is_sure or (unsure != SETTLED and owner in (None, unsure)):
            return  # held, then refused
        else:
            goes_on = unsure != SETTLED and owner != self.url
        if not (goes_on and self._passed_on(str(owner), table, marker)):
            self._create(table, marker, epoch)

    def _create(self, table: str, marker: str, epoch: int | None) -> None:
        if self.current.known.unaware(table, self.url, self.group, epoch):
            return  # held, then refused
        process, before = self.roster, self.current.known
        membership = self.current.membership()

        def begin() -> None:
            if self.roster is not process or not self.is_up:
                return  # it has died
            if self.is_stopped:
                self.held.append(begin)
            else:
                self._begin(table, marker, before, membership)

        if membership is None:
            begin()  # at once, as it must end in time (``MoveMachine.advance``)
        else:
            # Another thread may replace what is known before the creation begins.
            self.lake.decided.append(begin)

    def _begin(self, table: str, marker: str, before: KnownFleet, membership: int | None) -> None:
        known, owner = self.current.known, self._owner(table)
        if owner is None:
            return  # its server counts as dead
        if known.former(table, self.group, before) and self._passed_on(owner, table, marker):
            return
        if not known.may_create(table, self.url, self.group):
            return  # refused
        block = ExitStack()
        block.enter_context(self.current.creations.of(table))
        self.tables.names.add(table)
        now_s = self.lake.clock.monotonic()
        one = UnderWay(self, table, marker, now_s, membership, block)
        self.lake.under_way.append(one)
