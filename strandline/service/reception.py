"""What the connections of a server share: who is in, what is allowed, and the look around.

There is one timer for all connections, not one for each or for each request: a few times in the
shortest of the limits the reception looks at every connection, and each knows itself whether it is
overdue. So a request costs no timer, and a limit is kept to within one look.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Final, Protocol

from strandline.service.admission import Admission
from strandline.service.exchange import Application, Exchange
from strandline.service.limits import LINGER_S, Limits, possible_connections

logger = logging.getLogger(__name__)

Headers = list[tuple[bytes, bytes]]

_LOOKS: Final = 8
"""Looks in the time of the shortest limit."""
_LOOK_AT_MOST_S: Final = 1.0
_LOOK_AT_LEAST_S: Final = 0.002
_LOOKED_AT_AT_A_TIME: Final = 256
_REFUSED_AT_A_TIME: Final = 128
"""Refused connections that may stay until they have read why; more are cut off."""


class HotAnswers(Protocol):
    """Whoever has ready answers."""

    def respond(self, target: bytes, headers: Headers, *, free: bool) -> bytes | None:
        """Return the whole response to a GET, or ``None`` when it must go the long way.

        Runs on the server's loop: no I/O, no waiting, well under a millisecond. ``free`` says
        whether the peer may read without the token.
        """


class Guest(Protocol):
    """A connection, as the reception knows it."""

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
        counts: What happened, by name; only grows. For the status.
        now: The loop's time at the last look or arrival, seconds.
    """

    def __init__(
        self,
        app: Application,
        hot: HotAnswers,
        admission: Admission,
        limits: Limits,
        keep_alive_s: float,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.hot = hot
        self.admission = admission
        self.limits = limits
        self.keep_alive_s = keep_alive_s
        self.counts: Counter[str] = Counter()
        self.now = self.loop.time()
        self._app = app
        self._room = possible_connections(limits.connections)
        self._guests: set[Guest] = set()
        self._refused: set[Guest] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._told = 0
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
        """Take a new connection in; return whether there is room for it."""
        self.now = self.loop.time()
        if self._closed:
            guest.cut_off()
            return False
        self._empty.clear()
        if self._timer is None:
            self._timer = self.loop.call_later(self._look_s, self._look)
        if len(self._guests) < self._room:
            self._guests.add(guest)
            self.counts["accepted"] += 1
            return True
        self.counts["refused"] += 1
        if len(self._refused) >= _REFUSED_AT_A_TIME:
            guest.cut_off()
        self._refused.add(guest)
        return False

    def leave(self, guest: Guest) -> None:
        """Hear that a connection is gone."""
        self._guests.discard(guest)
        self._refused.discard(guest)
        self._check_empty()

    def start(self, exchange: Exchange) -> None:
        """Let the application answer a request."""
        task = self.loop.create_task(exchange.run(self._app))
        exchange.task = task
        self._tasks.add(task)
        task.add_done_callback(self._over)

    def status(self) -> dict[str, int]:
        """Return figures for the service's status."""
        counted = dict(self.counts)  # in one step: this runs beside the loop
        return {"open": len(self._guests), "at_most": self._room, **dict(sorted(counted.items()))}

    async def close(self, grace_s: float) -> None:
        """Let requests in flight be answered, for so long; then end all."""
        for guest in (*self._guests, *self._refused):
            guest.shutdown()
        try:
            await asyncio.wait_for(self._empty.wait(), max(grace_s, 0.001))
        except asyncio.TimeoutError:
            await self._cancel_tasks()
        self._closed = True
        for guest in (*self._guests, *self._refused):
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
        if not (self._guests or self._refused or self._tasks):
            self._empty.set()

    def _look(self) -> None:
        """Look at everybody; the next look comes as long as somebody is there."""
        self.now = self.loop.time()
        guests = (*self._guests, *self._refused)
        self._timer = self.loop.call_later(self._look_s, self._look) if guests else None
        self._look_at(guests)
        self._tell()

    def _look_at(self, guests: tuple[Guest, ...]) -> None:
        """Look at some, and at the rest after whatever else the loop has to do."""
        for guest in guests[:_LOOKED_AT_AT_A_TIME]:
            if guest in self._guests or guest in self._refused:
                guest.look(self.now)
        if rest := guests[_LOOKED_AT_AT_A_TIME:]:
            self.loop.call_soon(self._look_at, rest)

    def _tell(self) -> None:
        """Say that connections were refused, all since the last time in one line."""
        refused = self.counts["refused"]
        if refused > self._told:
            logger.warning(
                "%d connections were refused: there are %d already",
                refused - self._told,
                self._room,
            )
            self._told = refused
