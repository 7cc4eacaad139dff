"""What the connections of a server share: who is in, what is allowed, and the look around.

There is one timer for all connections, not one for each or for each request: a few times in the
shortest of the limits the reception looks at every connection, and each knows itself whether it is
overdue. So a request costs no timer, and a limit is kept to within one look.

Connections that wait for their clients don't keep others out: when there is no room, those that
have waited the longest are closed. Where none has waited for long, who comes gets one of a few
places that are kept for probes.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import Counter
from typing import Final, Protocol

from strandline.service.http.authorization import Admission
from strandline.service.http.exchange import Exchange
from strandline.service.http.limits import LINGER_S, Limits, possible_connections
from strandline.service.http.refusals import Refusals
from strandline.service.http.request import Application, Fields
from strandline.service.table_threads import TableThreads

logger = logging.getLogger(__name__)

_LOOKS: Final = 8
"""Looks in the time of the shortest limit."""
_LOOK_AT_MOST_S: Final = 1.0
_LOOK_AT_LEAST_S: Final = 0.002
_LOOKED_AT_AT_A_TIME: Final = 256
RESERVED: Final = 128
"""Connections beyond the room that may ask as probes do, or stay until they have read why not."""
SPARED_S: Final = 2.0
"""Who has waited for its client no longer than this isn't closed to make room for others."""
SEARCH_AGAIN_S: Final = SPARED_S / 8
"""After a search for idle connections that found none."""
_CLOSED_AT_A_TIME: Final = 64
"""One in so many connections is closed when there is no room, so that few arrivals have to look
for the longest idle ones."""


class HotAnswers(Protocol):
    """Whoever has ready answers."""

    def respond(self, target: bytes, fields: Fields) -> bytes | None:
        """Return the whole response to a GET, or ``None`` when it must go the long way.

        Runs on the server's loop: no I/O, no waiting, well under a millisecond. The request is
        admitted.
        """


class Guest(Protocol):
    """A connection, as the reception knows it."""

    @property
    def waits_since(self) -> float | None:
        """Since when it waits for its client to ask, by the loop's clock; ``None``: it doesn't."""

    def look(self, now: float) -> None:
        """Do what is due at ``now``, seconds of the loop's clock."""

    def shutdown(self) -> None:
        """End as soon as what was asked is answered."""

    def cut_off(self) -> None:
        """End now."""


class Reception:
    """One for each server; used on its loop only.

    Attributes:
        hot: Who is asked first.
        admission: Who may ask.
        limits: As they are for this process.
        keep_alive_s: How long an idle connection is kept.
        refusals: Who counts what is answered with 400 or more.
        counts: What happened, by name; only grows. For the status.
        now: The loop's time at the last look or arrival, seconds.
    """

    def __init__(
        self,
        app: Application,
        threads: TableThreads,
        hot: HotAnswers,
        admission: Admission,
        limits: Limits,
        keep_alive_s: float,
        refusals: Refusals,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.hot = hot
        self.admission = admission
        self.limits = limits
        self.keep_alive_s = keep_alive_s
        self.refusals = refusals
        self.counts: Counter[str] = Counter()
        self.now = self.loop.time()
        self._app, self._threads = app, threads
        self._room = possible_connections(limits.connections)
        self._guests: set[Guest] = set()
        self._reserve: dict[Guest, bool] = {}  # whether it is counted as refused
        self._search_at = self.now
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._told: Counter[str] = Counter()
        self._closed = False
        self._empty = asyncio.Event()
        self._empty.set()
        shortest = min(limits.request_s, limits.write_s, keep_alive_s, LINGER_S)
        self._look_s = min(max(shortest / _LOOKS, _LOOK_AT_LEAST_S), _LOOK_AT_MOST_S)
        if self._room < limits.connections:
            logger.warning(
                "this process may have so few open files that it takes %d connections, not %d",
                self._room,
                limits.connections,
            )

    @property
    def room(self) -> int:
        """How many connections there may be."""
        return self._room

    def enter(self, guest: Guest) -> bool:
        """Take a new connection in; return whether there is room for it.

        One for which there is none may ask what probes ask, or has been cut off.
        """
        self.now = self.loop.time()
        if self._closed:
            guest.cut_off()
            return False
        self._empty.clear()
        if self._timer is None:
            self._timer = self.loop.call_later(self._look_s, self._look)
        if len(self._guests) >= self._room and self.now >= self._search_at:
            self._make_room()
        if len(self._guests) < self._room:
            self._guests.add(guest)
            self.counts["accepted"] += 1
            return True
        self._reserve[guest] = False
        if len(self._reserve) > RESERVED:
            self._make_reserve(guest)
        return False

    def refuse(self, guest: Guest) -> None:
        """Count a connection that is refused for want of room, once, whatever follows."""
        if self._reserve.get(guest) is False:
            self._reserve[guest] = True
            self.counts["refused"] += 1

    def hand_on(self, guest: Guest, successor: Guest) -> bool:
        """Give a connection's place to another that goes on with it; see ``enter``."""
        if guest in self._guests:
            self._guests.remove(guest)
            self._guests.add(successor)
            return True
        self._reserve[successor] = self._reserve.pop(guest, False)
        return False

    def leave(self, guest: Guest) -> None:
        """Hear that a connection is gone."""
        self._guests.discard(guest)
        self._reserve.pop(guest, None)
        self._check_empty()

    def _make_room(self) -> None:
        """Close the connections that have waited for their clients the longest, if any has long."""
        waiting = [
            (since, number, guest)
            for number, guest in enumerate(self._guests)
            if (since := guest.waits_since) is not None and self.now - since > SPARED_S
        ]
        if not waiting:
            # A search takes milliseconds of the loop, and arrivals may be many.
            self._search_at = self.now + SEARCH_AGAIN_S
        for _, _, guest in heapq.nsmallest(1 + self._room // _CLOSED_AT_A_TIME, waiting):
            self.counts["displaced"] += 1
            self._guests.discard(guest)
            guest.cut_off()

    def _make_reserve(self, guest: Guest) -> None:
        """Cut off the first that came of those in reserve and asked nothing; else the new one."""
        others = (other for other in self._reserve if other is not guest)
        gone = next((other for other in others if other.waits_since is not None), guest)
        self.refuse(gone)
        self._reserve.pop(gone)
        gone.cut_off()

    def start(self, exchange: Exchange) -> None:
        """Let the application answer a request."""
        task = self.loop.create_task(exchange.run(self._app, self._threads))
        exchange.task = task
        self._tasks.add(task)
        task.add_done_callback(self._over)

    def status(self) -> dict[str, int]:
        """Return figures for the service's status."""
        counted = dict(self.counts)  # in one step: this runs beside the loop
        return {"open": len(self._guests), "at_most": self._room, **dict(sorted(counted.items()))}

    async def close(self, grace_s: float) -> None:
        """Let requests in flight be answered, for so long; then end all."""
        for guest in (*self._guests, *self._reserve):
            guest.shutdown()
        try:
            await asyncio.wait_for(self._empty.wait(), max(grace_s, 0.001))
        except asyncio.TimeoutError:
            await self._cancel_tasks()
        self._closed = True
        for guest in (*self._guests, *self._reserve):
            guest.cut_off()
        if self._timer is not None:
            self._timer.cancel()
        self._tell()

    async def _cancel_tasks(self) -> None:
        tasks = tuple(self._tasks)
        if not tasks:
            return
        logger.warning("%d requests weren't answered in time for the end", len(tasks))
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=_LOOK_AT_MOST_S)
        # What was said last goes out.
        await asyncio.sleep(0)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._check_empty()

    def _check_empty(self) -> None:
        if not (self._guests or self._reserve or self._tasks):
            self._empty.set()

    def _look(self) -> None:
        """Look at everybody; the next look comes as long as somebody is there."""
        self.now = self.loop.time()
        guests = (*self._guests, *self._reserve)
        self._timer = self.loop.call_later(self._look_s, self._look) if guests else None
        self._look_at(guests)
        self._tell()
        self.refusals.tell()

    def _look_at(self, guests: tuple[Guest, ...]) -> None:
        """Look at some, and at the rest after whatever else the loop has to do."""
        for guest in guests[:_LOOKED_AT_AT_A_TIME]:
            if guest in self._guests or guest in self._reserve:
                guest.look(self.now)
        if rest := guests[_LOOKED_AT_AT_A_TIME:]:
            self.loop.call_soon(self._look_at, rest)

    def _tell(self) -> None:
        """Say what was done for want of room, all since the last time in one line each."""
        for name, said in _SAID.items():
            count = self.counts[name] - self._told[name]
            if count > 0:
                logger.warning(said, count, self._room)
                self._told[name] += count


_SAID: Final = {
    "refused": "%d connections were refused: there are %d already",
    "displaced": "%d idle connections were closed to make room: no more than %d may be open",
}
"""What is told of which count."""
