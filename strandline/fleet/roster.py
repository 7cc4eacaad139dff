"""``Roster``: a server's part in its fleet, and all servers' seats if it leads."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from strandline.fleet.records import (
    EPOCH,
    FleetRead,
    epoch_bytes,
    member_bytes,
    member_key,
    member_name,
    read_fleet,
    seat_bytes,
    seat_key,
)
from strandline.fleet.seats import Fleet, HeldSeat, Member, VacantSince, next_seats, vacant_since
from strandline.fleet.state.base import Check, Delete, Lease, Op, Put, StateStore
from timeline.clock import Clock, SystemClock
from timeline.errors import StateConflictError

logger = logging.getLogger(__name__)

DEAD_S: Final = 10.0
"""After so many silent seconds a server counts as dead; the paper's 600 s are its seat's here."""


class Roster:
    """A member of a fleet; used by one thread.

    Args:
        state: The fleet's state store.
        url: Where clients reach this server; its identity, so it is the same after a restart.
        is_standby: Whether it waits for a seat instead of getting a new one.
        clock: Measures how long seats are vacant.
        dead_s: How long it stays a member without ``step``.

    Attributes:
        fleet: The fleet as it was read last; it stays when the store is away.
    """

    def __init__(
        self,
        state: StateStore,
        url: str,
        *,
        is_standby: bool = False,
        clock: Clock | None = None,
        dead_s: float = DEAD_S,
    ) -> None:
        self._state = state
        self._self = Member(member_name(url), url, is_standby, joined=0)
        self._clock = clock or SystemClock()
        self._dead_s = dead_s
        self._lease: Lease | None = None
        self._since: VacantSince = {}
        self.fleet = Fleet()

    @property
    def seat(self) -> HeldSeat | None:
        """The seat that this server had when the fleet was read last."""
        mine = (seat for seat in self.fleet.seats if seat.holder == self._self.name)
        return next(mine, None)

    def join(self) -> None:
        """Become a member.

        Raises:
            ConfigError: The fleet's records have another schema.
            StateConflictError: A member has this address: another server, or this one before it
                was killed, which ends after ``dead_s``.
            StateUnavailableError: The store can't be reached.
        """
        read_fleet(self._state)  # refuses a fleet of another schema before anything is written
        joining = replace(self._self, joined=0)
        key = member_key(joining.name)
        try:
            lease = self._state.hold(key, member_bytes(joining), self._dead_s)
        except StateConflictError as error:
            raise StateConflictError(
                f"a member of the fleet has the address {joining.url}",
                hint=f"if it was killed, it ends {self._dead_s:g} s after that",
            ) from error
        self._lease = lease
        # Only now is it known what the lease was made with.
        self._self = replace(joining, joined=lease.version)
        lease.renew(member_bytes(self._self))

    def step(self) -> Fleet:
        """Stay a member, read the fleet, and decide about the seats if this server leads.

        To be called three times in ``dead_s`` or oftener, and when the store tells of a change. A
        server that was taken for dead joins again.

        Returns:
            The fleet as it is now, from the store if another server changed it meanwhile.

        Raises:
            FleetError: As in ``join`` and ``read_fleet``; ``fleet`` stays as it was.
        """
        if self._lease is None or not self._lease.renew():
            if self._lease is not None:
                logger.warning("%s was taken for dead, and joins again", self._self.url)
                self._lease = None
            self.join()
        found = read_fleet(self._state)
        now_s = self._clock.monotonic()
        self._since = vacant_since(found.fleet, self._since, now_s)
        if found.fleet.leader == self._self and self._decide(found, now_s):
            found = read_fleet(self._state)
        self.fleet = found.fleet
        return self.fleet

    def leave(self) -> None:
        """Be no member any more; the seat is vacant at once. May be repeated."""
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()

    def _decide(self, found: FleetRead, now_s: float) -> bool:
        """Write the seats as they should be; return whether any had to be changed."""
        seats = next_seats(found.fleet, self._since, now_s)
        if seats == found.fleet.seats:
            return False
        assert self._lease is not None
        changes = _changes(found, seats)
        fence = Check(self._lease.key, self._lease.version)
        epoch = Put(EPOCH, epoch_bytes(found.epoch + 1), found.version(EPOCH))
        try:
            self._state.write(fence, epoch, *changes)
        except StateConflictError as error:
            # Another leader was first, or this one was taken for dead: the next step sees it.
            logger.info("the seats were decided elsewhere: %s", error)
        else:
            holders = ", ".join(f"{seat.number}: {seat.url}" for seat in seats)
            logger.info("epoch %d of the fleet has the seats %s", found.epoch + 1, holders)
        return True


def _changes(found: FleetRead, seats: tuple[HeldSeat, ...]) -> list[Op]:
    """Return what makes the seats that were read those that should be."""
    before = {seat.number: seat for seat in found.fleet.seats}
    after = {seat.number: seat for seat in seats}
    changed = [seat for seat in seats if before.get(seat.number) != seat]
    ops: list[Op] = []
    for seat in changed:
        key = seat_key(seat.number)
        ops.append(Put(key, seat_bytes(seat), found.version(key)))
    for number in before.keys() - after.keys():
        key = seat_key(number)
        ops.append(Delete(key, found.version(key)))
    return ops
