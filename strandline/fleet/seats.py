"""Which server holds which seat: decisions over immutable values; pure.

Seats outlive servers, so that a failed server moves no table twice:

* a live member keeps its seat;
* the seat of a dead member goes to a former holder that has no seat, else to a standby,
  else to a newcomer;
* a server that returns and finds its seat taken becomes a standby, like those started as one;
* a seat that no member can take stays on the ring, vacant, and the next owners of its tables serve
  them. After ``SEAT_LASTS_S`` it is removed;
* newcomers for which there is no vacant seat get new ones, once they are ready: a new seat moves
  tables, whose former servers answer until then;
* the seat of a member that is drained goes to another one, or is removed at once; the member goes
  on until the other one is ready.

Seats belong to groups (``strandline.fleet.groups``): only servers of its group take a seat, and all
of the above holds within each group. A router never has a seat.

The *leader*, the member that joined first, decides for all. Every member can tell which one leads,
and the writes of a former leader fail at the state store.

Source: Dev and Patgiri, *Dr. Hadoop* (DCMS), sections 3.1 (5) and 5.3. There a machine is elected
to replace a dead one, which works under it if it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from executor_proxy.seat_ring import DEFAULT, Layout, Seat
from strandline.fleet.groups import Group, upwards
from strandline.fleet.mounts import UNDOABLE, MountTable, Move, MoveState
from strandline.settings.fleet import DEFAULT_GROUP
from timeline.errors import ConfigError

SEAT_LASTS_S: Final = 600.0
"""How long a vacant seat is kept: the paper's time until a server counts as dead."""
VacantSince = Mapping[tuple[int, str], float]
"""(Number of a vacant seat, its last holder) → seconds. A seat may be taken and vacant again
between two looks; it is another vacancy then."""
MAX_HOLDERS: Final = 16
"""Most holders a seat remembers; earlier holders are newcomers if they return."""


@dataclass(frozen=True, slots=True)
class Member:
    """A server that is alive as far as the state store knows.

    Attributes:
        name: Its identity, also after a restart.
        url: Where clients reach it.
        is_standby: Whether it was started to wait for a vacant seat instead of getting a new one.
        joined: Its place in the order of joining; a new, greater number after a restart.
        layout: How it places tables; the same at all members.
        token: Its token's ``strandline.fleet.records.token_mark``; the same at all members.
        is_ready: Whether others may send requests; until then it fetches the records of its tables.
        roots: Its roots' ``strandline.fleet.records.roots_mark``; the same in its group. Empty in
            earlier releases, which don't announce it.
        group: Name of its group; ``""``: a router, which has none.
        has_group: Whether its record names its group. Members of earlier releases count as
            ``DEFAULT_GROUP``'s; while there is one, there is no other group.
        acks: What it has done for moves of tables: number of the move → what
            (``strandline.fleet.moving.moves``).
    """

    name: str
    url: str
    is_standby: bool
    joined: int
    layout: Layout = DEFAULT
    token: str = ""
    is_ready: bool = True
    roots: str = ""
    group: str = DEFAULT_GROUP
    has_group: bool = True
    acks: tuple[tuple[int, str], ...] = ()

    @property
    def is_router(self) -> bool:
        """Whether it only forwards requests, and never has a seat."""
        return not self.group


@dataclass(frozen=True, slots=True)
class HeldSeat:
    """A seat and its holder.

    Attributes:
        number: Its place on the ring, from 0.
        holders: Names of the members that held it, each once; the last one holds it, if alive.
        url: Address of the last.
        group: Name of the group whose servers may hold it.
    """

    number: int
    holders: tuple[str, ...]
    url: str
    group: str = DEFAULT_GROUP

    @property
    def holder(self) -> str:
        """Name of the member that holds it, if that is alive."""
        return self.holders[-1]

    def taken_by(self, member: Member) -> HeldSeat:
        """Return the seat with another holder, or with the same one after a restart."""
        before = tuple(name for name in self.holders if name != member.name)
        holders = (*before, member.name)[-MAX_HOLDERS:]
        return replace(self, holders=holders, url=member.url)


@dataclass(frozen=True, slots=True)
class Fleet:
    """All members and seats at one time.

    Attributes:
        members: The live ones, each name once.
        seats: All seats, by number, each holder once.
        groups: The groups that have announced their roots, by name.
        mounts: Which tables belong to which group.
        drained: Names of the members that get no seat.
        moves: Tables that are moving to another group, by number; no two concern the same table.
    """

    members: tuple[Member, ...] = ()
    seats: tuple[HeldSeat, ...] = ()
    groups: tuple[Group, ...] = ()
    mounts: MountTable = field(default_factory=MountTable)
    drained: frozenset[str] = frozenset()
    moves: tuple[Move, ...] = ()

    @property
    def leader(self) -> Member | None:
        """The member that joined first; ``None`` if there is none."""
        return min(self.members, key=_age, default=None)

    @property
    def layout(self) -> Layout | None:
        """How tables are placed; ``None`` without members.

        Members have the same, but for those without the fleet's token, which get no seat: whoever
        doesn't know the token believes one with a seat.
        """
        holders = {seat.holder for seat in self.seats}
        by_seat = sorted(self.members, key=lambda member: member.name not in holders)
        return by_seat[0].layout if by_seat else None

    @property
    def vacant(self) -> tuple[int, ...]:
        """Numbers of the seats whose holder isn't alive."""
        living = {member.name for member in self.members}
        return tuple(seat.number for seat in self.seats if seat.holder not in living)

    @property
    def ring(self) -> tuple[Seat, ...]:
        """The seats of all groups, see ``rings``."""
        seats = (seat for ring in self.rings.values() for seat in ring)
        return tuple(sorted(seats, key=lambda seat: seat.number))

    @property
    def rings(self) -> Mapping[str, tuple[Seat, ...]]:
        """Group → its seats for ``executor_proxy.seat_ring.owners``, by number.

        Those that are vacant, or whose holder isn't ready, have no address, or that of the last
        holder if it is drained: it goes on until then.
        """
        ready = {member.name: member for member in self.members if member.is_ready}
        drained = {name: ready[name].url for name in self.drained & ready.keys()}
        found: dict[str, tuple[Seat, ...]] = {}
        for seat in self.seats:
            before = drained.get(seat.holders[-2]) if len(seat.holders) > 1 else None
            # A member's own address, whatever the seat's record says of it.
            placed = Seat(seat.number, ready[seat.holder].url if seat.holder in ready else before)
            found[seat.group] = (*found.get(seat.group, ()), placed)
        return found

    def move(self, table: str) -> Move | None:
        """Return the move under way that concerns a table, by the text of its ``TableId``.

        One of a path above doesn't if a mount below that path has the table.
        """
        if not self.moves:
            return None
        mount, above = self.mounts.mount(table), frozenset(upwards(table))
        nearest = "" if mount is None else mount.prefix
        found = (m for m in self.moves if m.prefix in above and len(m.prefix) >= len(nearest))
        return next(found, None)

    def with_seat(self, group: str) -> list[Member]:
        """Return the living servers that hold a seat of a group, and aren't about to lose it."""
        holders = {seat.holder for seat in self.seats if seat.group == group} - self.drained
        return [each for each in self.members if each.name in holders]

    def awaited(self, move: Move) -> tuple[Member, ...]:
        """Return the living servers that haven't done yet what a move's state asks of them."""
        state = move.state
        if state in UNDOABLE:
            servers = self.with_seat(move.destination)
            # Requests would find no server otherwise.
            unready = () if any(each.is_ready for each in servers) else tuple(servers)
            if state is MoveState.PLANNED or unready:
                return unready
            concerned: Iterable[Member] = servers
        elif move.has_flipped:
            concerned = (each for each in self.members if each.group == move.source)
        else:
            return ()
        # A server that joined again may have skipped a state.
        done = {state.name, MoveState.DROPPING.name} if state is MoveState.FLIPPED else {state.name}
        return tuple(each for each in concerned if dict(each.acks).get(move.number) not in done)

    def mounts_after(self) -> MountTable:
        """Return the mounts once the moves have flipped whose tables the destination takes now.

        A move whose mount finds no room is left out: the leader undoes it when it is to flip.
        """
        mounts = self.mounts
        for move in self.moves:
            if move.state is MoveState.WARMING:
                # All servers call this with each fleet that they read, and must go on.
                with suppress(ConfigError):
                    mounts = mounts.moving(move.mount)
        return mounts

    @property
    def seated(self) -> frozenset[str]:
        """Names of the groups with a seat that isn't about to be removed.

        A vacant seat counts: its server may return. One that a drained server holds is removed
        unless another server of its group takes it.
        """
        staying = {member.group for member in self.members if member.name not in self.drained}
        return frozenset(
            seat.group
            for seat in self.seats
            if seat.holder not in self.drained or seat.group in staying
        )

    def group(self, name: str) -> Group | None:
        """Return a group, ``None`` if it hasn't announced its roots."""
        return next((group for group in self.groups if group.name == name), None)


def vacant_since(fleet: Fleet, before: VacantSince, now_s: float) -> VacantSince:
    """Return since when the fleet's vacant seats have been seen as vacant.

    Args:
        fleet: The fleet.
        before: What was returned last, by the same server.
        now_s: Seconds of a monotonic clock. A new leader counts from the moment at which it first
            sees a seat vacant: no two servers' clocks are compared.
    """
    vacant = fleet.vacant
    left = (_vacancy(seat) for seat in fleet.seats if seat.number in vacant)
    return {each: before.get(each, now_s) for each in left}


def next_seats(fleet: Fleet, since: VacantSince, now_s: float) -> tuple[HeldSeat, ...]:
    """Return the seats as they should be, by number.

    Args:
        fleet: The fleet as it is.
        since: What ``vacant_since`` returned for it.
        now_s: Seconds of the same clock.

    Returns:
        ``fleet.seats`` if nothing has to change. Idempotent.
    """
    seats = _held_once(_with_own_addresses(fleet))
    free = _free(fleet)
    names = {seat.group for seat in seats.values()} | {member.group for member in free}
    for name in sorted(names):
        members = [member for member in free if member.group == name]
        _fill(seats, name, members, fleet, lambda seat: now_s - since.get(_vacancy(seat), now_s))
    return tuple(seats[number] for number in sorted(seats))


def _fill(
    seats: dict[int, HeldSeat],
    group: str,
    free: list[Member],
    fleet: Fleet,
    vacant_s: Callable[[HeldSeat], float],
) -> None:
    """Fill the vacant seats of a group, remove those that last no longer, add new ones.

    Args:
        seats: All seats of the fleet, by number; is changed.
        group: Name of the group.
        free: Its members without a seat, the oldest first.
        fleet: The fleet as it is.
        vacant_s: For how many seconds a seat has been vacant.
    """
    mine = tuple(seat for seat in fleet.seats if seat.group == group)
    empty = {*fleet.vacant, *(seat.number for seat in mine if seat.holder in fleet.drained)}
    vacant = [seats[each.number] for each in mine if each.number in empty & seats.keys()]
    for seat in tuple(vacant):
        found = _of_its_holders(seat, free)
        if found is not None:
            seats[seat.number] = seat.taken_by(found)
            vacant.remove(seat)
            free.remove(found)
    newcomers = [member for member in free if _is_newcomer(member, mine)]
    spares = [member for member in free if member not in newcomers]
    takers = iter((*spares, *newcomers))
    for seat in vacant:
        taker = next(takers, None)
        if taker is not None:
            seats[seat.number] = seat.taken_by(taker)
        elif seat.holder in fleet.drained or vacant_s(seat) >= SEAT_LASTS_S:
            del seats[seat.number]
    for member in takers:
        if member in newcomers and member.is_ready:
            number = _lowest_free(seats)
            seats[number] = HeldSeat(number, (member.name,), member.url, group)


def _vacancy(seat: HeldSeat) -> tuple[int, str]:
    return seat.number, seat.holder


def once_ready(fleet: Fleet, name: str) -> Fleet:
    """Return the fleet as it will be once a member is ready, if nothing else changes."""
    members = tuple(
        replace(member, is_ready=True) if member.name == name else member
        for member in fleet.members
    )
    ready = replace(fleet, members=members)
    # No seat counts as vacant for so long that it would be removed.
    return replace(ready, seats=next_seats(ready, {}, 0.0))


def _with_own_addresses(fleet: Fleet) -> Iterable[HeldSeat]:
    """Return the seats with their living holders' addresses, which others may have changed."""
    urls = {member.name: member.url for member in fleet.members}
    return (replace(seat, url=urls.get(seat.holder, seat.url)) for seat in fleet.seats)


def _held_once(seats: Iterable[HeldSeat]) -> dict[int, HeldSeat]:
    """Return seats by number, without those whose holder has a lower-numbered one as well.

    No leader gives a member two seats, but a seat whose record was unreadable may be back.
    """
    holders: set[str] = set()
    found: dict[int, HeldSeat] = {}
    for seat in sorted(seats, key=lambda each: each.number):
        if seat.holder not in holders:
            found[seat.number] = seat
            holders.add(seat.holder)
    return found


def _free(fleet: Fleet) -> list[Member]:
    """Return the members that may get a seat and have none, the oldest first."""
    others = {seat.holder for seat in fleet.seats} | fleet.drained
    free = (each for each in fleet.members if each.name not in others and not each.is_router)
    return sorted(free, key=_age)


def _of_its_holders(seat: HeldSeat, free: Iterable[Member]) -> Member | None:
    """Return the free member that held a seat most recently."""
    had_it = [member for member in free if member.name in seat.holders]
    return max(had_it, key=lambda member: seat.holders.index(member.name), default=None)


def _is_newcomer(member: Member, seats: Iterable[HeldSeat]) -> bool:
    """Return whether a member gets a seat of its own: not started as standby, never held one.

    Holders of a seat that was removed are forgotten: they are newcomers again.
    """
    return not member.is_standby and not any(member.name in seat.holders for seat in seats)


def _lowest_free(numbers: Collection[int]) -> int:
    # A number that is reused has the same points on the ring as before.
    return next(number for number in range(len(numbers) + 1) if number not in numbers)


def _age(member: Member) -> tuple[int, str]:
    return member.joined, member.name
