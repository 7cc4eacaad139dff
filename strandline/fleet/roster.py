"""``Roster``: a server's part in its fleet, and all servers' seats if it leads.

Members of a fleet must have in common how they place tables, their token and their roots.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from executor_proxy.seat_ring import DEFAULT, Layout
from strandline.fleet.records import (
    EPOCH,
    FleetRead,
    Load,
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
from strandline.settings.fleet import DEAD
from timeline.clock import Clock, SystemClock
from timeline.errors import ConfigError, StateConflictError, StateUnavailableError

logger = logging.getLogger(__name__)

DEAD_S: Final = DEAD.default
"""After so many silent seconds a server counts as dead; the paper's 600 s are its seat's here."""
_RENEWALS: Final = 4
"""How often a lease is renewed in ``dead_s`` at least."""
LOAD_S: Final = 30.0
"""Least time between two records of what a server holds: each begins a step of all members."""


class Roster:
    """A member of a fleet; used by one thread.

    Args:
        state: The fleet's state store.
        url: Where clients reach this server; its identity, so it is the same after a restart.
        is_standby: Whether it waits for a seat instead of getting a new one.
        clock: Measures how long seats are vacant.
        dead_s: How long it stays a member without ``step``.
        layout: How tables are placed, which all members must agree on.
        token: The mark of the server's token, which all members must have.
        roots: The mark of its roots; likewise, as far as they tell.
        load: Returns what the server holds, for those who look at the fleet.
        is_ready: Whether it may be asked at once; else ``become_ready`` is to be called.

    Attributes:
        fleet: The fleet as it was read last; it stays when the store is away.
        epoch: Number of changes of its seats.
    """

    def __init__(
        self,
        state: StateStore,
        url: str,
        *,
        is_standby: bool = False,
        clock: Clock | None = None,
        dead_s: float = DEAD_S,
        layout: Layout = DEFAULT,
        token: str = "",
        roots: str = "",
        load: Callable[[], Load] = Load,
        is_ready: bool = True,
    ) -> None:
        self._state = state
        self._self = Member(member_name(url), url, is_standby, 0, layout, token, is_ready, roots)
        self._clock = clock or SystemClock()
        self._dead_s = dead_s
        self._load = load
        self._told = Load()
        self._told_s = -math.inf
        self._lease: Lease | None = None
        self._renewed_s = -math.inf
        self._left: Lease | None = None
        self._since: VacantSince = {}
        self._quiet_until_s = 0.0
        self._is_away = False
        self._is_new = True
        self._must_tell = False
        self._strangers: frozenset[str] = frozenset()
        self._unreadable: frozenset[str] = frozenset()
        self.fleet = Fleet()
        self.epoch = 0

    @property
    def seat(self) -> HeldSeat | None:
        """The seat that this server had when the fleet was read last."""
        mine = (seat for seat in self.fleet.seats if seat.holder == self._self.name)
        return next(mine, None)

    @property
    def is_ready(self) -> bool:
        """Whether this server may be asked, as others know from its next step on."""
        return self._self.is_ready

    @property
    def name(self) -> str:
        """The member's name."""
        return self._self.name

    def become_ready(self) -> None:
        """Have the next step tell that this server may be asked."""
        self._self = replace(self._self, is_ready=True)
        self._must_tell = True

    def join(self) -> None:
        """Become a member.

        Raises:
            ConfigError: The fleet's records have another schema, or a member another layout, token
                or roots.
            StateConflictError: A member has this address: another server, or this one before it
                was killed, which ends after ``dead_s``.
            StateUnavailableError: The store can't be reached.
        """
        self._release_left()
        # Refuses another schema, layout, token or roots before anything is written.
        check_alike(self._self, read_fleet(self._state))
        joining = replace(self._self, joined=0)
        key = member_key(joining.name)
        try:
            lease = self._state.hold(key, member_bytes(joining), self._dead_s)
        except StateConflictError as error:
            raise StateConflictError(
                f"a member of the fleet has the address {joining.url}",
                hint=f"if it was killed, it ends {self._dead_s:g} s after that",
            ) from error
        try:
            # Again: of two that join a fleet without members at once, one sees the other.
            check_alike(self._self, read_fleet(self._state))
            # Only now is it known what the lease was made with.
            joined = replace(joining, joined=lease.version)
            lease.renew(member_bytes(joined, Load()))
        except BaseException:
            # Its store may renew it by itself, and it would be in the way of the next one.
            self._left = lease
            try:
                self._release_left()
            except StateUnavailableError as error:
                logger.info("%s is released when it joins again: %s", lease.key, error)
            raise
        self._lease, self._self, self._is_new = lease, joined, True
        self._renewed_s = self._clock.monotonic()
        self._told, self._told_s = Load(), -math.inf

    def _release_left(self) -> None:
        """Release the lease of an attempt to join that failed, if it is still to be released."""
        if self._left is not None:
            self._left.release()
            self._left = None

    def step(self) -> Fleet:
        """Stay a member, read the fleet, and decide about the seats if this server leads.

        Call it at least every ``dead_s / 3`` seconds, and on each change notification. A server
        that was taken for dead joins again.

        Returns:
            The fleet as it is now, from the store if another server changed it meanwhile.

        Raises:
            FleetError: As in ``join`` and ``read_fleet``; ``fleet`` stays as it was.
        """
        try:
            return self._step()
        except StateUnavailableError:
            self._is_away = True
            raise

    def _step(self) -> Fleet:
        if self._lease is None or not self._renew(self._lease):
            if self._lease is not None:
                logger.warning("%s was taken for dead, and joins again", self._self.url)
                self._lease = None
                # Others' leases may have ended, too, as where the store is too slow to renew them.
                self._is_away = True
            self.join()
        found = self._read()
        now_s = self._clock.monotonic()
        is_first, self._is_new = self._is_new, False
        if self._is_away or (is_first and _all_gone(found.fleet)):
            # Leases may have ended only since nobody could renew them: nobody's seat is given away
            # until their holders have had the time to join again.
            self._quiet_until_s = now_s + self._dead_s
            self._is_away = False
        self._since = vacant_since(found.fleet, self._since, now_s)
        leads = found.fleet.leader == self._self and now_s >= self._quiet_until_s
        if leads and self._decide(found, now_s):
            found = self._read()
        self.fleet, self.epoch = found.fleet, found.epoch
        return self.fleet

    def _read(self) -> FleetRead:
        """Return the fleet as it is, without members that have another token's mark."""
        found, strangers = of_token(read_fleet(self._state, self._keep), self._self.token)
        if strangers - self._strangers:
            told = ", ".join(sorted(strangers))
            logger.warning("members of the fleet with another token are ignored: %s", told)
        self._strangers = strangers
        for key in found.unreadable.keys() - self._unreadable:
            logger.warning("what can't be read is ignored: %s", found.unreadable[key])
        self._unreadable = frozenset(found.unreadable)
        if member_key(self.name) in found.unreadable:
            self._must_tell = True
        return found

    def _keep(self) -> None:
        """Renew the lease in the middle of a step that takes long, as where the store is slow."""
        now_s = self._clock.monotonic()
        if self._lease is not None and now_s >= self._renewed_s + self._dead_s / _RENEWALS:
            self._renewed_s = now_s
            self._lease.renew()  # if it has ended, the next step finds that, too

    def _renew(self, lease: Lease) -> bool:
        """Renew the lease; tell at times what this server holds. Return whether it is held."""
        now_s, load = self._clock.monotonic(), self._load()
        self._renewed_s = now_s
        is_news = now_s >= self._told_s + LOAD_S and load.differs(self._told)
        if not (is_news or self._must_tell):
            return lease.renew()
        is_held = lease.renew(member_bytes(self._self, load))
        self._told, self._told_s, self._must_tell = load, now_s, False
        return is_held

    def leave(self) -> None:
        """Be no member any more; the seat is vacant at once. May be repeated."""
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()
        self._release_left()

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


def _all_gone(fleet: Fleet) -> bool:
    """Whether there are seats and nobody of those who had them lives."""
    return 0 < len(fleet.seats) == len(fleet.vacant)


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


def check_alike(mine: Member, found: FleetRead) -> None:
    """Refuse to be a member beside one with another layout, token or roots.

    Members of earlier releases don't tell their roots, and are let be: they are replaced one by
    one.

    Raises:
        ConfigError: A member of the fleet differs.
    """
    for other in (*found.fleet.members, *found.joining):
        if other.name != mine.name:
            _check_layout(mine, other)
            _check_token(mine, other)
            _check_roots(mine, other)


def of_token(found: FleetRead, token: str) -> tuple[FleetRead, frozenset[str]]:
    """Return a fleet without the members that have another token's mark, and their addresses.

    None can join, so a program that hasn't the token has written such a record. It must neither get
    a seat, and with it requests that bear the token, nor lead.
    """
    ours = tuple(each for each in found.fleet.members if each.token == token)
    strangers = frozenset(each.url for each in found.fleet.members if each.token != token)
    return replace(found, fleet=replace(found.fleet, members=ours)), strangers


def _check_layout(mine: Member, other: Member) -> None:
    for name in ("copies", "depth", "tokens"):
        value, theirs = getattr(mine.layout, name), getattr(other.layout, name)
        if value != theirs:
            raise ConfigError(
                f"strandline.fleet.{name} is {value}; allowed: {theirs}, as at the member"
                f" {other.url}",
                hint="stop all servers of a fleet to change how it places tables",
            )


def _check_token(mine: Member, other: Member) -> None:
    if mine.token != other.token:
        raise ConfigError(
            f"the server's token is {_shown(mine.token)}; allowed: {_shown(other.token)}, as at the"
            f" member {other.url}",
            hint="give all servers of a fleet the same token",
        )


def _check_roots(mine: Member, other: Member) -> None:
    if mine.roots and other.roots and mine.roots != other.roots:
        raise ConfigError(
            f"the server's roots have the mark {mine.roots}; allowed: {other.roots}, as at the"
            f" member {other.url}",
            hint="give all servers of a fleet the same --root; stop all of them to change it",
        )


def _shown(mark: str) -> str:
    return f"*** with the mark {mark}" if mark else "none"
