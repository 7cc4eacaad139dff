"""Which server holds which seat: decisions over immutable values; pure.

Seats outlive servers, so that a failed server moves no table twice:

* a live member keeps its seat;
* the seat of a dead member goes to a former holder that has no seat, else to a standby,
  else to a newcomer;
* a server that returns and finds its seat taken becomes a standby, like those started as one;
* a seat that no member can take stays on the ring, vacant, and the next owners of its tables serve
  them. After ``SEAT_LASTS_S`` it is removed;
* newcomers for which there is no vacant seat get new ones, once they are ready: a new seat moves
  tables, whose former servers answer until then.

The *leader*, the member that joined first, decides for all. Every member can tell which one leads,
and the writes of a former leader fail at the state store.

Source: Dev and Patgiri, *Dr. Hadoop* (DCMS), sections 3.1 (5) and 5.3. There a machine is elected
to replace a dead one, which works under it if it returns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from executor_proxy.seat_ring import DEFAULT, Layout, Seat

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
        roots: Its roots' ``strandline.fleet.records.roots_mark``; the same at all members. Empty in
            earlier releases, which don't announce it.
    """

    name: str
    url: str
    is_standby: bool
    joined: int
    layout: Layout = DEFAULT
    token: str = ""
    is_ready: bool = True
    roots: str = ""


@dataclass(frozen=True, slots=True)
class HeldSeat:
    """A seat and its holder.

    Attributes:
        number: Its place on the ring, from 0.
        holders: Names of the members that held it, each once; the last one holds it, if alive.
        url: Address of the last.
    """

    number: int
    holders: tuple[str, ...]
    url: str

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
    """

    members: tuple[Member, ...] = ()
    seats: tuple[HeldSeat, ...] = ()

    @property
    def leader(self) -> Member | None:
        """The member that joined first; ``None`` if there is none."""
        return min(self.members, key=_age, default=None)

    @property
    def vacant(self) -> tuple[int, ...]:
        """Numbers of the seats whose holder isn't alive."""
        living = {member.name for member in self.members}
        return tuple(seat.number for seat in self.seats if seat.holder not in living)

    @property
    def ring(self) -> tuple[Seat, ...]:
        """The seats for ``executor_proxy.seat_ring.owners``.

        Those that are vacant, or whose holder isn't ready, have no address.
        """
        ready = {member.name for member in self.members if member.is_ready}
        return tuple(
            Seat(seat.number, seat.url if seat.holder in ready else None) for seat in self.seats
        )


def vacant_since(fleet: Fleet, before: VacantSince, now_s: float) -> VacantSince:
    """Return since when the fleet's vacant seats have been seen as vacant.

    Args:
        fleet: The fleet.
        before: What was returned last, by the same server.
        now_s: Seconds of a monotonic clock. A new leader counts from the moment at which it first
            sees a seat vacant: no two servers' clocks are compared.
    """
    vacant = fleet.vacant
    left = ((seat.number, seat.holder) for seat in fleet.seats if seat.number in vacant)
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
    seats = _held_once(fleet.seats)
    vacant = [seats[number] for number in fleet.vacant if number in seats]
    free = _free(fleet)
    for seat in tuple(vacant):
        found = _of_its_holders(seat, free)
        if found is not None:
            seats[seat.number] = seat.taken_by(found)
            vacant.remove(seat)
            free.remove(found)
    newcomers = [member for member in free if _is_newcomer(member, fleet.seats)]
    spares = [member for member in free if member not in newcomers]
    takers = iter((*spares, *newcomers))
    for seat in vacant:
        taker = next(takers, None)
        if taker is not None:
            seats[seat.number] = seat.taken_by(taker)
        elif now_s - since.get((seat.number, seat.holder), now_s) >= SEAT_LASTS_S:
            del seats[seat.number]
    for member in takers:
        if member in newcomers and member.is_ready:
            number = _lowest_free(seats)
            seats[number] = HeldSeat(number, (member.name,), member.url)
    return tuple(seats[number] for number in sorted(seats))


def once_ready(fleet: Fleet, name: str) -> Fleet:
    """Return the fleet as it will be once a member is ready, if nothing else changes."""
    members = tuple(
        replace(member, is_ready=True) if member.name == name else member
        for member in fleet.members
    )
    ready = replace(fleet, members=members)
    # No seat counts as vacant for so long that it would be removed.
    return replace(ready, seats=next_seats(ready, {}, 0.0))


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
    """Return the members without a seat, the oldest first."""
    holders = {seat.holder for seat in fleet.seats}
    return sorted((member for member in fleet.members if member.name not in holders), key=_age)


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
