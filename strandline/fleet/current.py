"""``CurrentFleet``: the fleet as this server knows it, for the threads that answer requests."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field, replace
from functools import partial
from typing import Final

from executor_proxy.seat_ring import DEFAULT, MAX_DEPTH, Layout, Seat, SeatRing, addresses
from strandline.fleet.mounts import Mount, MoveState
from strandline.fleet.seats import Fleet
from strandline.fleet.state.base import Cancel
from strandline.settings.fleet import DEFAULT_GROUP

logger = logging.getLogger(__name__)

_UNSEATED: Final = (Seat(0),)
"""Placeholder for the seats of a group that has none; no server holds it."""


@dataclass(frozen=True, slots=True)
class KnownFleet:
    """A fleet at one time, and the rings of its groups.

    Attributes:
        fleet: Members, seats and mounts; empty before the server has joined.
        epoch: Number of changes of seats, mounts and moves so far. Becoming vacant is no change.
        layout: How tables are placed if their mounts don't say.
        seats: The seats of all groups, by number; the vacant ones have no address.
        before: The fleet as it was known before: what hasn't changed isn't made anew, as rings take
            a tenth of a millisecond a seat, and members change often while tables move.
        after: The fleet once the moves have flipped whose tables their destination takes now;
            ``None``: there is none.
    """

    fleet: Fleet = field(default_factory=Fleet)
    epoch: int = 0
    layout: Layout = DEFAULT
    before: InitVar[KnownFleet | None] = None
    seats: tuple[Seat, ...] = field(init=False)
    after: KnownFleet | None = field(init=False, repr=False, compare=False)
    _rings: Mapping[str, SeatRing] = field(init=False, repr=False, compare=False)

    def __post_init__(self, before: KnownFleet | None) -> None:
        # A frozen value's own fields, set before any other thread can see it.
        object.__setattr__(self, "seats", self.fleet.ring)
        object.__setattr__(self, "_rings", dict(self._made(before)))
        object.__setattr__(self, "after", self._after(before))

    def _made(self, before: KnownFleet | None) -> Iterator[tuple[str, SeatRing]]:
        """Yield the ring of each group."""
        is_alike = before is not None and before.layout == self.layout
        former = before.fleet.rings if before and is_alike else {}
        for name, seats in self.fleet.rings.items():
            if before and former.get(name) == seats:
                yield name, before._rings[name]
            else:
                yield name, SeatRing(seats, self.layout)

    def _after(self, before: KnownFleet | None) -> KnownFleet | None:
        moving = _warming(self.fleet)
        if not moving:
            return None
        former = None if before is None else (before.fleet.mounts, _warming(before.fleet))
        if before is not None and before.after and former == (self.fleet.mounts, moving):
            mounts = before.after.fleet.mounts
        else:
            mounts = self.fleet.mounts_after()
        fleet = replace(self.fleet, mounts=mounts, moves=())
        return KnownFleet(fleet, self.epoch, self.layout, self)

    def owners(self, table: str, partition: str | None = None) -> tuple[Seat, ...]:
        """Return the seats that have a table, those of its group.

        See ``executor_proxy.seat_ring.owners``.

        Args:
            table: Text of the table's ``TableId``.
            partition: Path under the table's base; ignored except at depth 2.

        Returns:
            The owner first, vacant seats included; one that is vacant if the group has none. Empty
            before any server of the fleet has a seat.

        Cost: two microseconds, with mounts four; no lock.
        """
        if not self._rings:
            return ()
        ring = self._rings.get(self.group(table))
        if ring is None:
            return _UNSEATED
        return ring.owners(table, partition, self.layout_of(table))

    def group(self, table: str) -> str:
        """Return the name of the group that has a table."""
        return self.fleet.mounts.group(table)

    def layout_of(self, table: str) -> Layout:
        """Return how a table is placed in its group."""
        return self.fleet.mounts.layout(table, self.layout)

    def further(self, table: str) -> tuple[str, ...]:
        """Return up to two further servers of a table's group, for when its own don't answer.

        All servers find the same ones, as do clients (``executor_proxy.seat_ring.addresses``).

        Args:
            table: Text of the table's ``TableId``.
        """
        ring = self._rings.get(self.group(table))
        seats = () if ring is None else self.fleet.rings[self.group(table)]
        if not any(seat.url for seat in seats):
            return ()
        having = {seat.url for seat in self.owners(table)}
        found = addresses(seats, table, self.layout_of(table))
        return tuple(url for url in found.urls if url not in having)

    def creators(self, table: str) -> tuple[str, ...]:
        """Return the servers that create a table's markers: each if those before it don't answer.

        Those that have it; only if none of these lives, the further ones.

        Args:
            table: Text of the table's ``TableId``.
        """
        having = tuple(seat.url for seat in self.owners(table) if seat.url)
        return having or self.further(table)

    def may_create(self, table: str, url: str, group: str) -> bool:
        """Whether a server may create a table's markers, if those before it don't answer.

        While no server of the table's group has a seat and is ready, any of the group may.

        Args:
            table: Text of the table's ``TableId``.
            url: The server.
            group: Its group.
        """
        creators = self.creators(table)
        return url in creators if creators else self.group(table) == group

    def joined(self, url: str) -> int | None:
        """Return ``Member.joined`` of the living server at an address; ``None``: it isn't known."""
        return next((each.joined for each in self.fleet.members if each.url == url), None)

    def is_spread(self, table: str) -> bool:
        """Whether each partition of a table has owners of its own."""
        return self.layout_of(table).depth == MAX_DEPTH

    def takes(self, table: str, url: str) -> bool:
        """Whether a move gives a table to a server soon, which has it open from now on."""
        after = self.after
        return after is not None and any(seat.url == url for seat in after.owners(table))

    def followers(self, table: str) -> tuple[str, ...]:
        """Return the servers to which a move gives a table soon, and that have taken its record."""
        after = self.after
        move = None if after is None else self.fleet.move(table)
        if after is None or move is None:
            return ()
        late = {each.url for each in self.fleet.awaited(move)}
        return tuple(seat.url for seat in after.owners(table) if seat.url and seat.url not in late)

    def former(self, table: str, group: str, before: KnownFleet) -> bool:
        """Whether a table has moved away from a group a moment ago.

        Its servers pass creations of markers on to those that have it now.

        Args:
            table: Text of the table's ``TableId``.
            group: The group.
            before: The fleet as it was when a server decided to create markers itself.
        """
        move, now = self.fleet.move(table), self.group(table)
        if move is not None and move.has_flipped and move.source == group:
            return True
        # A whole move may have come in between.
        return now not in (group, before.group(table))

    def unaware(self, table: str, url: str, group: str, epoch: int | None) -> tuple[str, ...]:
        """Return the servers for which a server must wait before it creates a table's markers.

        These may still create some, as they don't know that the table has moved; they are the
        living ones of its former group that haven't acknowledged it. Or it is the server itself:
        the one that has passed the creation on knows more, and the table is others' as far as this
        one knows.

        Args:
            table: Text of the table's ``TableId``.
            url: The server.
            group: Its group.
            epoch: The epoch of the server that has passed the creation on, if it said so.
        """
        is_late = epoch is not None and epoch > self.epoch
        if is_late and not self.may_create(table, url, group):
            return (url,)
        move = self.fleet.move(table)
        if move is None or move.state is not MoveState.FLIPPED or move.source == group:
            return ()
        return tuple(each.url for each in self.fleet.awaited(move))

    def is_first(self, table: str, url: str) -> bool:
        """Whether a server is the owner of a table, or next to owners that are away."""
        return next((seat.url for seat in self.owners(table) if seat.url), None) == url

    def has_room_for(self, table: str) -> bool | None:
        """Whether a table is below the roots of its group; ``None`` if those aren't known."""
        group = self.fleet.group(self.group(table))
        return None if group is None else group.has_room_for(table)


def _warming(fleet: Fleet) -> tuple[Mount, ...]:
    """Return the mounts of the moves whose tables their destination takes now."""
    return tuple(move.mount for move in fleet.moves if move.state is MoveState.WARMING)


OUTCOMES: Final = ("held", "refused", "passed_on", "served_here")
"""Of creations of markers: they waited, until another server knew of a change, or in vain; they
went on to the table's new owner, or were served here as the owner didn't answer, or was spared."""


class Creations:
    """The creations of markers that are under way at this server, and what became of some.

    ``_ended`` guards them.

    Attributes:
        counts: Outcome → creations; changed on the server's loop.
    """

    def __init__(self) -> None:
        self._ended = threading.Condition()
        self._tables: dict[object, str] = {}
        self.counts: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))

    @contextmanager
    def of(self, table: str) -> Iterator[None]:
        """Count one of a table, by the text of its ``TableId``, within the block."""
        one = object()
        with self._ended:
            self._tables[one] = table
        try:
            yield
        finally:
            with self._ended:
                del self._tables[one]
                self._ended.notify_all()

    def status(self) -> dict[str, int]:
        """Return the counts; from any thread."""
        return dict(self.counts)  # one step of the interpreter

    def wait(self, concerns: Callable[[str], bool], within_s: float) -> bool:
        """Wait until those that are under way now have ended; return whether they have.

        Args:
            concerns: Whether those of a table count.
            within_s: How long to wait at most.
        """
        with self._ended:
            now = [one for one, table in self._tables.items() if concerns(table)]
            return self._ended.wait_for(
                lambda: not any(one in self._tables for one in now), within_s
            )


class CurrentFleet:
    """The newest ``KnownFleet``; read by any thread without a lock, replaced by one.

    The lock guards the list of listeners.

    Args:
        url: Where clients and other members reach this server.
        layout: How tables are placed if their mounts don't say; the same at all members.

    Attributes:
        url: The address.
        group: Name of this server's group, of use once it has joined; ``""``: it is a router.
        known: The fleet; replaced, never changed. A request reads it once.
        is_sure: Returns whether this server has renewed its membership lately.
        catch_up: Has the fleet read again soon.
        creations: Of markers, at this server.
    """

    def __init__(self, url: str, layout: Layout = DEFAULT) -> None:
        self.url = url
        self.group = DEFAULT_GROUP
        self.known = KnownFleet(layout=layout)
        self.is_sure: Callable[[], bool] = lambda: True
        self.catch_up: Callable[[], object] = lambda: None
        self.creations = Creations()
        self._heard = 0
        self._lock = threading.Lock()
        self._listeners: list[Callable[[KnownFleet], object]] = []

    @property
    def leads(self) -> bool:
        """Whether this server joined first in its group, as far as that is known.

        Each group has its databases of views, and a router none.
        """
        members = (each for each in self.known.fleet.members if each.group == self.group)
        first = min(members, key=lambda each: (each.joined, each.name), default=None)
        return bool(self.group) and first is not None and first.url == self.url

    def membership(self) -> int | None:
        """Return ``Member.joined`` of this server; ``None`` while it isn't sure to be that member.

        As long as it is the same, no other server has been given its seat as that of a dead one.
        """
        # In this order: a newer membership is known before the server is sure of it.
        return self.known.joined(self.url) if self.is_sure() else None

    def owners(self, table: str, partition: str | None = None) -> tuple[Seat, ...]:
        """Return the seats that have a table now, see ``KnownFleet.owners``."""
        return self.known.owners(table, partition)

    def is_spread_here(self, table: str) -> bool:
        """Whether each partition of a table has owners of its own, and those are of this group.

        Args:
            table: Text of the table's ``TableId``.
        """
        known = self.known
        return known.group(table) == self.group and known.is_spread(table)

    def tell(self, fleet: Fleet, epoch: int) -> None:
        """Replace the known fleet, and call the listeners if it differs."""
        before = self.known
        if (fleet, epoch) == (before.fleet, before.epoch):
            return
        known = self.known = KnownFleet(fleet, epoch, before.layout, before)
        with self._lock:
            listeners = tuple(self._listeners)
        for listener in listeners:
            try:
                listener(known)
            except Exception:
                # The other listeners are still called.
                logger.exception("a listener failed at epoch %d of the fleet", epoch)

    def hear(self, epoch: int) -> None:
        """Have the fleet read again if another server knows a newer one; from any thread.

        A hint only: each epoch triggers one reading, and nothing is refused for it. Who names one
        that there isn't, or one after another, triggers one reading: none follows until this server
        knows the epoch that triggered the last one, or ``hear_anew``.
        """
        if epoch > self.known.epoch >= self._heard:
            self._heard = epoch
            self.catch_up()

    def hear_anew(self) -> None:
        """Have every newer epoch trigger a reading again."""
        self._heard = 0

    def listen(self, call: Callable[[KnownFleet], object]) -> Cancel:
        """Have a function called with each fleet that differs from the last.

        Args:
            call: Must return soon, as the fleet's thread calls it. Its exceptions are logged.

        Returns:
            Ends the calls: none begins after the next change. May be repeated.
        """
        entry = partial(call)  # an object of its own, as the same function may listen twice
        with self._lock:
            self._listeners.append(entry)

        def cancel() -> None:
            with self._lock:
                self._listeners = [each for each in self._listeners if each is not entry]

        return cancel
