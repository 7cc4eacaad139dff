"""``CurrentFleet``: the fleet as this server knows it, for the threads that answer requests."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from executor_proxy.seat_ring import DEFAULT, MAX_DEPTH, Layout, Seat, SeatRing, addresses
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
        epoch: Number of changes of seats and mounts so far. Becoming vacant is no change.
        layout: How tables are placed if their mounts don't say.
        seats: The seats of all groups, by number; the vacant ones have no address.
    """

    fleet: Fleet = field(default_factory=Fleet)
    epoch: int = 0
    layout: Layout = DEFAULT
    seats: tuple[Seat, ...] = field(init=False)
    _rings: Mapping[str, SeatRing] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # A frozen value's own fields, set before any other thread can see it.
        rings = {name: SeatRing(seats, self.layout) for name, seats in self.fleet.rings.items()}
        object.__setattr__(self, "seats", self.fleet.ring)
        object.__setattr__(self, "_rings", rings)

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

    def is_spread(self, table: str) -> bool:
        """Whether each partition of a table has owners of its own."""
        return self.layout_of(table).depth == MAX_DEPTH

    def has_room_for(self, table: str) -> bool | None:
        """Whether a table is below the roots of its group; ``None`` if those aren't known."""
        group = self.fleet.group(self.group(table))
        return None if group is None else group.has_room_for(table)


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
    """

    def __init__(self, url: str, layout: Layout = DEFAULT) -> None:
        self.url = url
        self.group = DEFAULT_GROUP
        self.known = KnownFleet(layout=layout)
        self.is_sure: Callable[[], bool] = lambda: True
        self.catch_up: Callable[[], object] = lambda: None
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

    def owners(self, table: str, partition: str | None = None) -> tuple[Seat, ...]:
        """Return the seats that have a table now, see ``KnownFleet.owners``."""
        return self.known.owners(table, partition)

    def tell(self, fleet: Fleet, epoch: int) -> None:
        """Replace the known fleet, and call the listeners if it differs."""
        before = self.known
        if (fleet, epoch) == (before.fleet, before.epoch):
            return
        known = self.known = KnownFleet(fleet, epoch, before.layout)
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

        A hint only: each epoch triggers one reading, and nothing is refused for it. A server may
        name one that there isn't: then no other triggers a reading before ``hear_anew``.
        """
        if epoch > max(self.known.epoch, self._heard):
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
        entry = _Listener(call)
        with self._lock:
            self._listeners.append(entry)

        def cancel() -> None:
            with self._lock:
                self._listeners = [each for each in self._listeners if each is not entry]

        return cancel


@dataclass(frozen=True, slots=True, eq=False)
class _Listener:
    call: Callable[[KnownFleet], object]

    def __call__(self, known: KnownFleet) -> object:
        return self.call(known)
