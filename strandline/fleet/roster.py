"""``Roster``: a server's membership in its fleet; for all of it seats and moves, if it leads.

``strandline.fleet.joining`` has what must be the same at all members, or in a group.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from executor_proxy.seat_ring import DEFAULT, Layout
from strandline.fleet.groups import AUTO, Group
from strandline.fleet.joining import check_alike, group_by_rack, of_token
from strandline.fleet.mounts import OVER, Move, MoveState
from strandline.fleet.moving.moves import next_move, step_ops
from strandline.fleet.records import (
    GROUPS_SCHEMA,
    FleetRead,
    Load,
    drained_key,
    group_bytes,
    group_key,
    member_bytes,
    member_key,
    member_name,
    next_epoch,
    read_fleet,
    roots_mark,
    seat_bytes,
    seat_key,
)
from strandline.fleet.seats import Fleet, HeldSeat, Member, VacantSince, next_seats, vacant_since
from strandline.fleet.state.base import Check, Delete, Lease, Op, Put, StateStore
from strandline.fleet.state.checks import is_key
from strandline.settings.fleet import DEAD, DEFAULT_GROUP
from timeline.clock import Clock, SystemClock, boot_seconds
from timeline.errors import ConfigError, StateConflictError, StateUnavailableError

logger = logging.getLogger(__name__)

DEAD_S: Final = DEAD.default
"""Seconds without renewal until a server counts as dead; the paper's 600 s are its seat's here."""
_RENEWALS: Final = 4
"""Least number of renewals of a lease in ``dead_s``."""
_ATTEMPTS: Final = 20
"""Most attempts to write what a membership changes, against others that write."""
_MOST_CARRIED: Final = 8
"""Most moves, or states of one, that a step of the leader goes through."""
REREAD_S: Final = 300.0
"""After this time the fleet is read again although no watch has reported a change."""
LOAD_S: Final = 30.0
"""Least time between two updates of a server's load: each triggers a step of all members."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """A renewal of a membership.

    Attributes:
        joined: Number of the membership; a server that counted as dead joins with a new one.
        sent_s: When it was sent, by a clock that counts while the machine sleeps.
    """

    joined: int
    sent_s: float


class Roster:
    """A member of a fleet; used by one thread.

    Args:
        state: The fleet's state store.
        url: Where clients reach this server; its identity, so it is the same after a restart.
        is_standby: Whether it waits for a seat instead of getting a new one.
        clock: Measures how long seats are vacant.
        dead_s: How long it stays a member without ``step``.
        layout: How tables are placed; must be the same at all members.
        token: The mark of the server's token; must be the same at all members.
        other_token: The mark of a second token that it admits; members may have that, too. ``""``:
            there is none.
        roots: Its roots, in any spelling; must be the same in its group. Empty: not announced.
        group: Its group; ``""``: it is a router; ``AUTO``: by its rack, once it joins.
        rack: Its rack, for ``AUTO``.
        load: Returns what the server holds, for display.
        is_ready: Whether others may send requests at once; else after ``become_ready``.
        boot: Returns seconds, also of the time in which the machine slept.

    Attributes:
        state: The store.
        clock: The clock.
        dead_s: See above.
        boot: See above.
        renewal: The last renewal of the lease that succeeded; ``None`` before it has joined, and
            once it is known to have expired. For any thread.
        fleet: The fleet as it was read last; kept while the store can't be reached.
        epoch: Number of changes of its seats.
        move_counts: The moves that this server has carried out as leader.
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
        other_token: str | None = None,
        roots: Collection[str] = (),
        group: str = DEFAULT_GROUP,
        rack: str = "",
        load: Callable[[], Load] = Load,
        is_ready: bool = True,
        boot: Callable[[], float] = boot_seconds,
    ) -> None:
        self.state = state
        mark = roots_mark(roots) if roots else ""
        name = member_name(url)
        self._self = Member(name, url, is_standby, 0, layout, token, is_ready, mark, group)
        self._marks = frozenset((token, token if other_token is None else other_token))
        self._new_marks: tuple[str, ...] = ()
        self._group = Group.of(group, roots)
        self._rack = rack
        self._has_joined = False
        self.clock = clock or SystemClock()
        self.dead_s = dead_s
        self._load = load
        self._told = Load()
        self._told_s = -math.inf
        self._lease: Lease | None = None
        self._renewed_s = -math.inf
        self.renewal: Renewal | None = None
        self.boot = boot
        self._left: Lease | None = None
        self._found: FleetRead | None = None
        self._read_s = -math.inf
        self._since: VacantSince = {}
        self._moves_since: dict[tuple[int, str], float] = {}
        self._quiet_until_s = 0.0
        self._has_failed = False
        self._is_away = False
        self._is_new = True
        self._must_tell = False
        self._strangers: frozenset[str] = frozenset()
        self._unreadable: frozenset[str] = frozenset()
        self.fleet = Fleet()
        self.epoch = 0
        self.move_counts = MoveCounts()

    @property
    def seat(self) -> HeldSeat | None:
        """The seat that this server had when the fleet was read last."""
        mine = (seat for seat in self.fleet.seats if seat.holder == self._self.name)
        return next(mine, None)

    @property
    def url(self) -> str:
        """Where clients reach this server."""
        return self._self.url

    @property
    def layout(self) -> Layout:
        """How tables are placed."""
        return self._self.layout

    @property
    def is_ready(self) -> bool:
        """Whether others may send requests to this server; announced by its next step."""
        return self._self.is_ready

    @property
    def name(self) -> str:
        """The member's name."""
        return self._self.name

    @property
    def group(self) -> str:
        """The member's group; ``""``: it is a router; ``AUTO`` before it has joined."""
        return self._self.group

    def become_ready(self) -> None:
        """Have the next step announce that others may send requests to this server."""
        self._self = replace(self._self, is_ready=True)
        self._must_tell = True

    def use_marks(self, marks: Sequence[str]) -> None:
        """Have the next step announce another token, and know members by those given; any thread.

        Args:
            marks: That of the token to send, and of another one that is admitted.
        """
        self._new_marks = tuple(marks)

    def _announce_marks(self) -> None:
        marks, self._new_marks = self._new_marks, ()
        if marks:
            self._self = replace(self._self, token=marks[0])
            self._marks, self._must_tell = frozenset(marks), True
            self._found = None  # members may count that were left out, or the other way round

    def acknowledge(self, acks: Mapping[int, str]) -> None:
        """Have the next step announce what this server has done for moves of tables.

        Args:
            acks: Number of a move → what, all of them; those of moves that ended are left out.
        """
        numbers = {move.number for move in self.fleet.moves}
        now = tuple(sorted((number, what) for number, what in acks.items() if number in numbers))
        if now != self._self.acks:
            self._self = replace(self._self, acks=now)
            self._must_tell = True

    def join(self) -> None:
        """Become a member.

        Raises:
            ConfigError: The fleet's records have another schema, a member has another layout or
                token, or the group other roots; see ``strandline.fleet.joining``.
            StateConflictError: A member has this address: another server, or an earlier process of
                this one, whose lease expires after ``dead_s``.
            StateUnavailableError: The store can't be reached.
        """
        self._release_left()
        # Refuses another schema, layout, token or roots before anything is written.
        found = read_fleet(self.state)
        if self._self.group == AUTO:
            self._use_group(group_by_rack(self._rack, self._group, self.name, found))
        check_alike(self._self, self._group, found, self._marks)
        joining = replace(self._self, joined=0)
        key = member_key(joining.name)
        sent_s = self.boot()
        try:
            lease = self.state.hold(key, member_bytes(joining), self.dead_s)
        except StateConflictError as error:
            raise StateConflictError(
                f"a member of the fleet has the address {joining.url}",
                hint=f"if it was killed, it ends {self.dead_s:g} s after that",
            ) from error
        try:
            # Checked again: of two servers that join an empty fleet at once, one sees the other.
            self._claim(lease)
            # Only now is the version known at which the lease was created.
            joined = replace(joining, joined=lease.version)
            lease.renew(member_bytes(joined, Load()))
        except BaseException:
            # The store may renew it by itself, and it would block the next attempt.
            self._left = lease
            try:
                self._release_left()
            except StateUnavailableError as error:
                logger.info("%s is released when it joins again: %s", lease.key, error)
            raise
        self._lease, self._self, self._is_new, self._has_joined = lease, joined, True, True
        self._renewed_s, self.renewal = self.clock.monotonic(), Renewal(joined.joined, sent_s)
        self._told, self._told_s = Load(), -math.inf

    def _use_group(self, name: str) -> None:
        self._self = replace(self._self, group=name)
        self._group = replace(self._group, name=name)

    def _claim(self, lease: Lease) -> None:
        """Check once more, and write what this server's membership changes for all.

        That is the record of its group, if that has none or had other roots; the schema, if the
        server is the first with groups; and that it is not drained any more, if it was restarted.
        """
        for _ in range(_ATTEMPTS):
            found = read_fleet(self.state)
            check_alike(self._self, self._group, found, self._marks)
            changes = self._claims(found)
            if not changes:
                return
            try:
                self.state.write(Check(lease.key, lease.version), *changes)
            except StateConflictError as error:
                # Another server of the group was first, or the leader: read again what is there.
                logger.info("%s joins: %s", self._self.url, error)
            else:
                return
        raise StateUnavailableError(
            f"the fleet changed during each of {_ATTEMPTS} attempts to join"
        )

    def _claims(self, found: FleetRead) -> list[Op]:
        changes: list[Op] = []
        group, fleet = self._group, found.fleet
        key = group_key(group.name)
        if not self._self.is_router and group.roots and fleet.group(group.name) != group:
            changes.append(Put(key, group_bytes(group), found.version(key)))
        is_first = self._self.group != DEFAULT_GROUP and found.schema < GROUPS_SCHEMA
        if self.name in fleet.drained and not self._has_joined:
            key = drained_key(self.name)
            changes.append(Delete(key, found.version(key)))
        # Of a server that was drained in a fleet without a leader, and has another group now.
        left = [s for s in fleet.seats if s.holder == self.name and s.group != self._self.group]
        for seat in left:
            changes.append(Delete(seat_key(seat.number), found.version(seat_key(seat.number))))
        if is_first or left:
            changes.append(next_epoch(found, has_groups=True))
        return changes

    def _release_left(self) -> None:
        """Release the lease of a failed attempt to join, if that is still due."""
        if self._left is not None:
            self._left.release()
            self._left = None

    def step(self, *, is_told: bool = True) -> Fleet:
        """Stay a member, read the fleet, and decide about the seats if this server leads.

        Call it at least every ``dead_s / 3`` seconds, and on each change notification. A server
        whose lease has expired joins again. After a step that failed the lease is renewed only once
        the fleet can be read.

        Args:
            is_told: Whether something may have changed. Otherwise the fleet as it was read last is
                used, for ``REREAD_S`` at most, and the step takes one request to the store.

        Returns:
            The fleet as it is now, from the store if another server changed it meanwhile.

        Raises:
            FleetError: As in ``join`` and ``read_fleet``; ``fleet`` stays as it was.
        """
        try:
            if self._has_failed and self._lease is not None:
                # A server that renews but can't read would keep its seat, and not learn that its
                # tables are another's: its lease has to end.
                read_fleet(self.state)
            fleet = self._step(is_told=is_told)
        except BaseException as error:
            self._found = None  # the step may have ended before it read what it was told of
            self._has_failed = True
            self._is_away |= isinstance(error, StateUnavailableError)
            raise
        self._has_failed = False
        return fleet

    def _step(self, *, is_told: bool) -> Fleet:
        self._announce_marks()
        if self._lease is None or not self._renew(self._lease):
            if self._lease is not None:
                logger.warning("%s was taken for dead, and joins again", self._self.url)
                self._lease = None
                # Others' leases may have expired, too, if the store is too slow to renew them.
                self._is_away = True
            self.join()
            is_told = True
        now_s = self.clock.monotonic()
        is_stale = self._is_away or now_s >= self._read_s + REREAD_S
        found = self._read() if is_told or is_stale or self._found is None else self._found
        is_first, self._is_new = self._is_new, False
        if self._is_away or (is_first and _all_gone(found.fleet)):
            # Leases may have expired only because no server could renew them: no seat is reassigned
            # until the holders have had the time to join again.
            self._quiet_until_s = now_s + self.dead_s
            self._is_away = False
        if self._has_other_roots(found):
            assert self._lease is not None
            self._claim(self._lease)
            found = self._read()
        self._since = vacant_since(found.fleet, self._since, now_s)
        leads = found.fleet.leader == self._self and now_s >= self._quiet_until_s
        if leads and self._decide(found, now_s):
            found = self._read()
        self._moves_since = {
            key: self._moves_since.get(key, now_s)
            for key in ((move.number, move.state.name) for move in found.fleet.moves)
        }
        self.move_counts.see(found.fleet.moves, found.ended if leads else ())
        # Each round brings a move a state further. Their number is bounded, as seats wait for them,
        # and others can't read the fleet while its epoch changes. The last write triggers a step.
        for _ in range(_MOST_CARRIED):
            if not (leads and self._carry(found, now_s)):
                break
            found = self._read()
        self.fleet, self.epoch = found.fleet, found.epoch
        return self.fleet

    def _has_other_roots(self, found: FleetRead) -> bool:
        """Whether the record of this server's group is lost, damaged, or another's."""
        if self._self.is_router or not self._group.roots:
            return False
        return found.fleet.group(self._group.name) != self._group

    def _read(self) -> FleetRead:
        """Read the fleet; leave out members that have another token's mark."""
        self._keep()
        self._found, self._read_s = None, self.clock.monotonic()
        found, strangers = of_token(read_fleet(self.state), self._marks)
        if strangers - self._strangers:
            told = ", ".join(sorted(strangers))
            logger.warning("members of the fleet with another token are ignored: %s", told)
        self._strangers = strangers
        for key in found.unreadable.keys() - self._unreadable:
            logger.warning("unreadable records are ignored: %s", found.unreadable[key])
        self._unreadable = frozenset(found.unreadable)
        # Unreadable, changed by another writer, or written by a renewal whose answer was lost.
        if self._lease is not None and found.version(self._lease.key) != self._lease.version:
            self._must_tell = True
        self._found = found
        return found

    def _keep(self) -> None:
        """Renew the lease during a step that takes long because the store is slow."""
        now_s = self.clock.monotonic()
        if self._lease is not None and now_s >= self._renewed_s + self.dead_s / _RENEWALS:
            self._renewed_s, sent_s = now_s, self.boot()
            # If it has expired, the next step joins again.
            self._note(self._lease.renew(), sent_s)

    def _renew(self, lease: Lease) -> bool:
        """Renew the lease, at times with this server's load; return whether it is held."""
        now_s, load, sent_s = self.clock.monotonic(), self._load(), self.boot()
        self._renewed_s = now_s
        is_news = now_s >= self._told_s + LOAD_S and load.differs(self._told)
        is_told = is_news or self._must_tell
        is_held = lease.renew(member_bytes(self._self, load)) if is_told else lease.renew()
        self._note(is_held, sent_s)
        if is_told:
            self._told, self._told_s, self._must_tell = load, now_s, False
        return is_held

    def _note(self, is_held: bool, sent_s: float) -> None:
        self.renewal = Renewal(self._self.joined, sent_s) if is_held else None

    def leave(self) -> None:
        """End the membership; the seat is vacant at once. May be repeated."""
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
        fence = Check(self._lease.key, self._lease.version)
        unchanged = _holders_checks(found, seats, self.name)
        try:
            self.state.write(fence, next_epoch(found), *unchanged, *_changes(found, seats))
        except StateConflictError as error:
            # Another leader wrote first, a member is back or has changed, or this one's lease
            # expired: the next step notices.
            logger.info("the seats can't be written: %s", error)
        else:
            holders = ", ".join(f"{seat.number}: {seat.url}" for seat in seats)
            logger.info("epoch %d of the fleet has the seats %s", found.epoch + 1, holders)
        return True

    def _carry(self, found: FleetRead, now_s: float) -> bool:
        """Write the next state of a move that has to go on; return whether one was written."""
        lease = self._lease
        assert lease is not None
        mover, now_ms = f"{self.name}@{self._self.joined}", self.clock.now_ms()
        for move in found.fleet.moves:
            waited_s = now_s - self._moves_since.get((move.number, move.state.name), now_s)
            after = next_move(found.fleet, move, mover, waited_s, now_ms)
            if after == move:
                continue
            try:
                ops = step_ops(found, move, after)
            except ConfigError as error:
                after = next_move(found.fleet, move, mover, waited_s, now_ms, str(error))
                ops = step_ops(found, move, after)
            try:
                self.state.write(Check(lease.key, lease.version), *ops)
            except StateConflictError as error:
                # Another leader wrote first, an operator, or this one's lease expired.
                logger.info("%s can't go on: %s", move, error)
                return False
            self.move_counts.stepped(move, after, waited_s)
            why = f", as {after.why}" if after.why else ""
            logger.info("%s is %s%s", move, after.state.name, why)
            return True
        return False


class MoveCounts:
    """The moves of tables that a server has carried out as leader, and their times.

    Each step of a move is counted by the leader that has written it, so the sum over the servers
    of a fleet is that of its moves. A move that an operator undoes is counted by the leader that
    misses it. Changed by one thread, ``status`` is for any.
    """

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

    def see(self, moves: Iterable[Move], ended: Iterable[Move]) -> None:
        """Notice the moves under way.

        Args:
            moves: All of them.
            ended: Those that have ended; none if this server doesn't lead.
        """
        now = frozenset(move.number for move in moves)
        missed = self._under_way - now
        for move in ended:
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


def _all_gone(fleet: Fleet) -> bool:
    """Whether there are seats, and no member that held one is alive."""
    return 0 < len(fleet.seats) == len(fleet.vacant)


def _holders_checks(found: FleetRead, seats: tuple[HeldSeat, ...], leader: str) -> Iterator[Check]:
    """Yield checks that the members that lose or get a seat are as they were read.

    One that has joined again since then is sure of its seat, and one may be a router now.

    Args:
        found: The fleet as it was read.
        seats: The seats as they should be.
        leader: Name of the member that writes them, which the write checks anyway.
    """
    changed = {*found.fleet.seats} ^ {*seats}
    for key in map(member_key, sorted({seat.holder for seat in changed} - {leader})):
        if is_key(key):  # no member has another name, but a damaged seat may
            yield Check(key, found.version(key))


def _changes(found: FleetRead, seats: tuple[HeldSeat, ...]) -> list[Op]:
    """Return the operations that turn the seats that were read into ``seats``."""
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
